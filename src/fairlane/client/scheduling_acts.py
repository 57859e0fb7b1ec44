"""What an application or a person does to schedules at run time. Each act is audited under `by`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack

from fairlane.client.handle import BY_DEFAULT, Handle
from fairlane.client.scheduling import (
    AnyTask,
    CodeSchedules,
    ScheduleOptions,
    schedule_name,
    schedule_spec,
    scheduled_job,
)
from fairlane.client.task import Bound, Task
from fairlane.client.tenant_scope import in_scope
from fairlane.core.names import check_key
from fairlane.core.ops import (
    Check,
    DeclareSchedules,
    ListSchedules,
    Op,
    PauseSchedule,
    Planned,
    RemoveSchedule,
    RunSchedule,
    ScheduleAct,
)
from fairlane.core.schedules.schedule import Schedule
from fairlane.errors import InvalidOption, NotAllowed, PermissionDenied, ScheduleNotFound

if TYPE_CHECKING:
    from fairlane.client.enqueue.prepare import Preparer
    from fairlane.client.store_access import StoreAccess

P = ParamSpec("P")
T = TypeVar("T")

Steps = Generator[Op[Any], Any, T]
"""An act of several operations: gives each operation out, takes its answer in."""

MAX_LISTED = 10_000


def _both(
    act: Callable[Concatenate[Any, P], Steps[T]],
) -> tuple[Callable[Concatenate[Any, P], T], Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]]:
    """The sync method of an act and its async twin."""

    @wraps(act)
    def run(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        steps, answer = act(self, *args, **kwargs), None
        try:
            while True:
                answer = self.access.run(steps.send(answer))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    @wraps(act)
    async def arun(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        steps, answer = act(self, *args, **kwargs), None
        while True:
            try:
                op = steps.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            answer = await self.access.arun(op)

    return run, arun


def _list(self: Scheduling) -> Steps[tuple[Schedule, ...]]:
    """Every schedule there is, by name, declared by code or by people."""
    found = yield ListSchedules(limit=MAX_LISTED)
    scope = in_scope(None)
    return tuple(schedule for schedule in found.schedules if scope.admits(schedule.spec.tenant))


def _add(
    self: Scheduling,
    name: str,
    call: Bound[Any] | Task[..., Any],
    *,
    by: str = BY_DEFAULT,
    notes: str | None = None,
    **options: Unpack[ScheduleOptions],
) -> Steps[Schedule]:
    """Add a schedule at run time, or change the words of one added before: `app.schedule_add("digest", task.bind(7), cron=…)`."""
    from fairlane.core.schedules.cron import Cron

    if isinstance(call, Task):
        call = call.bind()
    if not isinstance(call, Bound):
        raise InvalidOption(f'what schedule "{name}" runs', call, "a task, or a call made by task.bind(…)")
    spec = schedule_spec(self.preparer, name, call, options)
    by = check_key("by", by)
    in_scope(spec.tenant)
    yield from _require_own(spec.name)
    now = (yield Check()).now
    planned = Planned(spec=spec, next_at=Cron(spec.cron, spec.timezone).next_after(now))
    yield DeclareSchedules(schedules=(planned,), source="person", by=by, notes=notes)
    schedule = yield from _found(spec.name)
    if schedule.source == "code":
        raise NotAllowed("add", f'schedule "{name}"', "declared by code; change it there, or choose another name")
    return schedule


def _remove(self: Scheduling, name: str, *, by: str = BY_DEFAULT, notes: str | None = None) -> Steps[Schedule]:
    """Take a schedule away; its jobs stay. One that code still declares comes back with the next worker: pause it instead."""
    yield from _require_own(schedule_name(name))
    act = yield RemoveSchedule(name=schedule_name(name), by=check_key("by", by), notes=notes)
    return _schedule(name, act)


def _pause(self: Scheduling, name: str, *, by: str = BY_DEFAULT, notes: str | None = None) -> Steps[Schedule]:
    """Let a schedule fire no more, until it is resumed."""
    yield from _require_own(schedule_name(name))
    act = yield PauseSchedule(name=schedule_name(name), by=check_key("by", by), notes=notes)
    return _schedule(name, act)


def _resume(self: Scheduling, name: str, *, by: str = BY_DEFAULT, notes: str | None = None) -> Steps[Schedule]:
    """Let a paused schedule fire again, from its next time on: what it missed meanwhile was not wanted."""
    from fairlane.core.schedules.cron import Cron

    by, schedule = check_key("by", by), (yield from _found(schedule_name(name)))
    now = (yield Check()).now
    next_at = Cron(schedule.spec.cron, schedule.spec.timezone).next_after(now)
    act = yield PauseSchedule(name=name, by=by, notes=notes, paused=False, next_at=next_at)
    return _schedule(name, act)


def _run_now(self: Scheduling, name: str, *, by: str = BY_DEFAULT, notes: str | None = None) -> Steps[Handle[Any]]:
    """Enqueue a schedule's job now, beside its timetable, paused or not."""
    by, schedule = check_key("by", by), (yield from _found(schedule_name(name)))
    job = scheduled_job(self.preparer, self.tasks, schedule.spec, None)
    act = yield RunSchedule(name=name, job=job, by=by, notes=notes)
    _schedule(name, act)
    return self.handle(act.job_id)


class Scheduling:
    """The schedules of `Fairlane`. A name nobody knows raises `ScheduleNotFound`."""

    code_schedules: CodeSchedules
    tasks: dict[str, Task[..., Any]]

    if TYPE_CHECKING:

        @property
        def access(self) -> StoreAccess: ...

        @property
        def preparer(self) -> Preparer: ...

        def handle(self, job: Any, *, tenant: str | int | None = None) -> Handle[Any]: ...

    schedules, aschedules = _both(_list)
    schedule_add, aschedule_add = _both(_add)
    schedule_remove, aschedule_remove = _both(_remove)
    schedule_pause, aschedule_pause = _both(_pause)
    schedule_resume, aschedule_resume = _both(_resume)
    schedule_run_now, aschedule_run_now = _both(_run_now)

    def schedule(
        self, name: str, *, args: Mapping[str, Any] | None = None, **options: Unpack[ScheduleOptions]
    ) -> Callable[[AnyTask], AnyTask]:
        """Declare a schedule of the task below, as `@app.schedule("nightly", cron="0 3 * * *", args={"full": True})`."""
        return self.code_schedules.decorator(schedule_name(name), args, options)


def _found(name: str) -> Steps[Schedule]:
    listed: tuple[Schedule, ...] = (yield ListSchedules(limit=MAX_LISTED)).schedules
    admitted = {schedule.spec.name: schedule for schedule in listed if in_scope(None).admits(schedule.spec.tenant)}
    if name not in admitted:
        raise ScheduleNotFound(name, admitted)
    return admitted[name]


def _require_own(name: str) -> Steps[None]:
    """Inside one tenant's context another tenant's schedule is not touched; what everybody may touch is not looked for."""
    scope = in_scope(None)
    if scope.tenant is None:
        return
    for schedule in (yield ListSchedules(limit=MAX_LISTED)).schedules:
        if schedule.spec.name == name and not scope.admits(schedule.spec.tenant):
            raise PermissionDenied(f'schedule "{name}"', scope.tenant)


def _schedule(name: str, act: ScheduleAct) -> Schedule:
    if act.schedule is None:
        raise ScheduleNotFound(name)
    return act.schedule
