"""`app.schedules`: schedules of tasks, by cron lines or intervals, declared by code or added at run time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, get_args

import msgspec
from msgspec.structs import replace

from fairlane.client.context import in_scope, tenant_in_force
from fairlane.client.enqueue.options import Options, instant, seconds
from fairlane.client.enqueue.prepare import refs_of, refuse_results
from fairlane.client.handle import BY_DEFAULT, ActOptions, Handle, audited
from fairlane.client.rights import Right
from fairlane.client.steps import Steps, Verbs, ask, both
from fairlane.client.task import Bound, Task
from fairlane.core.ids import JobId
from fairlane.core.job import JobSpec
from fairlane.core.names import check_key, check_own_tenant, check_task_name
from fairlane.core.ops import (
    Check,
    DeclareSchedules,
    ListSchedules,
    PauseSchedule,
    Planned,
    RemoveSchedule,
    RunSchedule,
    ScheduleAct,
)
from fairlane.core.schedules import (
    CatchUp,
    Cron,
    Every,
    Overlap,
    Schedule,
    ScheduleSpec,
    Timetable,
    job_of,
    timetable_of,
)
from fairlane.errors import InvalidOption, InvalidPayload, InvalidState, PermissionDenied, ScheduleNotFound, nearest

if TYPE_CHECKING:
    from fairlane.client.runtime import Runtime

AnyTask = TypeVar("AnyTask", bound=Task[..., Any])

MAX_LISTED = 10_000
MAX_CATCH_UP = 1_000
MAX_JITTER_S = 86_400
FIRST_BOUND, LAST_BOUND = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
"""Of what may start or end a schedule."""
TIMETABLE_OPTIONS = (
    *("cron", "every", "tz", "catch_up", "catch_up_limit", "overlap"),
    *("jitter", "starts_at", "ends_at"),
)
_TAKEN = ("tenant", "priority", "queue", "max_attempts", "timeout")


class ScheduleOptions(TypedDict, total=False):
    """Of `cron` and `every` one is given."""

    cron: str
    every: float | timedelta
    """An interval of whole seconds, counted from 1970 in UTC: `every=10` fires at :00, :10, :20."""
    tz: str
    """A zone of the IANA database, such as `Europe/Prague`; UTC by default."""
    catch_up: CatchUp
    """Which firings missed while no worker ran are made up for: none, the latest, or all."""
    catch_up_limit: int
    """With `all`: at most this many, the newest."""
    overlap: Overlap
    """While the job of the last firing is unfinished: fire anyway, skip, or wait for it."""
    jitter: float | timedelta
    """Its jobs begin up to this much later, each by its own share, so that not all schedules begin at once."""
    starts_at: datetime
    """No firing before it."""
    ends_at: datetime
    """No firing after it."""
    tenant: str | int
    """The tenant of its jobs, as `using(tenant=…)` on the task."""


class ScheduleAdmin(Verbs):
    """Methods for schedules. An unknown name raises `ScheduleNotFound`."""

    __slots__ = ()

    @property
    def declared(self) -> Mapping[str, ScheduleSpec]:
        """The schedules of this application's code, by name; workers write them to the store when they start."""
        return self._runtime.schedules

    def declare(
        self, name: str, *, args: Mapping[str, Any] | None = None, **options: Unpack[ScheduleOptions]
    ) -> Callable[[AnyTask], AnyTask]:
        """Declare a schedule of the task below it.

        For instance `@app.schedules.declare("nightly", cron="0 3 * * *", args={"full": True})`.
        """
        name = schedule_name(name)

        def declare(task: AnyTask) -> AnyTask:
            if not isinstance(task, Task):
                expected = "a task below it: put @app.task under @app.schedules.declare(…)"
                raise InvalidOption(f'schedule "{name}"', task, expected)
            declare_schedule(self._runtime, name, task.bind(**(args or {})), options)
            return task

        return declare

    def _list(self) -> Steps[tuple[Schedule, ...]]:
        """All schedules by name, declared by code or added at run time."""
        found = yield from ask(ListSchedules(limit=MAX_LISTED))
        scope = in_scope(None)
        return tuple(schedule for schedule in found.schedules if scope.admits(schedule.spec.tenant))

    def _get(self, name: str) -> Steps[Schedule]:
        """One schedule by its name."""
        asked = schedule_name(name)
        known = {schedule.spec.name: schedule for schedule in (yield from self._list())}
        if asked not in known:
            raise ScheduleNotFound(asked, known)
        return known[asked]

    def _add(
        self,
        name: str,
        call: Bound[Any] | Task[..., Any],
        *,
        by: str = BY_DEFAULT,
        notes: str | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Steps[Schedule]:
        """Add a schedule at run time, or change one added before.

        For instance `app.schedules.add("digest", task.bind(7), cron="0 9 * * *")`.
        """
        if isinstance(call, Task):
            call = call.bind()
        if not isinstance(call, Bound):
            raise InvalidOption(f'what schedule "{name}" runs', call, "a task, or a call made by task.bind(…)")
        spec = schedule_spec(self._runtime, name, call, options)
        by = check_key("by", by)
        in_scope(spec.tenant)
        yield from self._require_own(spec.name)
        planned = Planned(spec=spec, next_at=(yield from _next_at(spec)))
        yield from ask(DeclareSchedules(schedules=(planned,), source="person", by=by, notes=notes))
        schedule = yield from self._get(spec.name)
        if schedule.source == "code":
            raise InvalidState("add", f'schedule "{name}"', "declared by code; change it there, or choose another name")
        return schedule

    def _remove(self, name: str, **about: Unpack[ActOptions]) -> Steps[Schedule]:
        """Remove a schedule; its jobs stay.

        One that code still declares comes back with the next worker: pause it instead.
        """
        yield from self._require_own(schedule_name(name))
        return _found(name, (yield from ask(RemoveSchedule(name=name, **audited(about)))))

    def _pause(self, name: str, **about: Unpack[ActOptions]) -> Steps[Schedule]:
        """Stop a schedule from firing until it is resumed."""
        yield from self._require_own(schedule_name(name))
        return _found(name, (yield from ask(PauseSchedule(name=name, **audited(about)))))

    def _resume(self, name: str, **about: Unpack[ActOptions]) -> Steps[Schedule]:
        """Resume a paused schedule, from its next time on; firings missed during the pause are dropped."""
        audit, schedule = audited(about), (yield from self._get(name))
        next_at = yield from _next_at(schedule.spec)
        return _found(name, (yield from ask(PauseSchedule(name=name, paused=False, next_at=next_at, **audit))))

    def _run(self, name: str, **about: Unpack[ActOptions]) -> Steps[Handle[Any]]:
        """Enqueue a schedule's job now, in addition to its timetable, paused or not."""
        audit, schedule = audited(about), (yield from self._get(name))
        job = scheduled_job(self._runtime, schedule.spec, None)
        act = yield from ask(RunSchedule(name=name, job=job, **audit))
        _found(name, act)
        assert act.job_id is not None
        return Handle(act.job_id, self._runtime, in_scope(None), read_result=msgspec.json.decode)

    list, alist = both(_list, Right.READ)
    get, aget = both(_get, Right.READ)
    add, aadd = both(_add, Right.ACT)
    remove, aremove = both(_remove, Right.ACT)
    pause, apause = both(_pause, Right.ACT)
    resume, aresume = both(_resume, Right.ACT)
    run, arun = both(_run, Right.ACT)

    def _require_own(self, name: str) -> Steps[None]:
        """Refuse another tenant's schedule inside a tenant's context; outside of one nothing is read."""
        scope = in_scope(None)
        if scope.tenant is None:
            return
        for schedule in (yield from ask(ListSchedules(limit=MAX_LISTED))).schedules:
            if schedule.spec.name == name and not scope.admits(schedule.spec.tenant):
                raise PermissionDenied(f'schedule "{name}"', scope.tenant)


def declare_schedule(runtime: Runtime, name: str, call: Bound[Any], given: Mapping[str, Any]) -> None:
    """Add a schedule to those of the application's code."""
    spec = schedule_spec(runtime, name, call, given)
    if name in runtime.schedules:
        taken = runtime.schedules[name].type
        raise InvalidOption("schedule name", name, f'a name of its own: a schedule of task "{taken}" has it')
    runtime.schedules[name] = spec


def schedule_spec(runtime: Runtime, name: object, call: Bound[Any], given: Mapping[str, Any]) -> ScheduleSpec:
    """A call and its timetable as a checked schedule; `using(…)` on the task sets tenant, priority and queue."""
    name = schedule_name(name)
    known = (*TIMETABLE_OPTIONS, "tenant")
    for option in given:
        if option not in known:
            raise InvalidOption("schedule option", option, f"one of {', '.join(known)}.{nearest(option, known)}")
    timetable = _timetable(name, given)
    _refuse_untaken(name, call.options)
    refuse_results(call)
    task, options = call.definition, call.options
    if task.key is not None:
        task.key.key_of(call.args)
    queue = options.queue or task.queue
    return ScheduleSpec(
        name=name,
        type=task.name,
        cron=timetable.expression,
        timezone=timetable.timezone,
        payload=bytes(call.payload).decode(),
        payload_version=task.version,
        tenant=_tenant(name, given, options) or tenant_in_force.get() or runtime.settings.default_tenant,
        queue=queue,
        priority=task.priority if options.priority is None else options.priority,
        priority_label=task.priority_label if options.priority is None else options.priority_label,
        category=task.category,
        max_attempts=options.max_attempts or runtime.preparer.rules(task, queue).max_attempts,
        timeout_s=options.timeout or task.timeout_s,
        catch_up=_one_of("catch_up", given.get("catch_up") or "latest", get_args(CatchUp)),
        catch_up_limit=_limit(10 if given.get("catch_up_limit") is None else given["catch_up_limit"]),
        overlap=_one_of("overlap", given.get("overlap") or "allow", get_args(Overlap)),
        jitter_s=_jitter_s(given.get("jitter"), timetable),
        starts_at=timetable.starts_at,
        ends_at=timetable.ends_at,
    )


def scheduled_job(runtime: Runtime, spec: ScheduleSpec, nominal: datetime | None) -> JobSpec:
    """The job of one firing. Its task need not be registered here: a worker that knows it will run it."""
    task = runtime.tasks.get(spec.type)
    refs, key = {}, None
    if task is not None and task.definition.refs:
        refs = refs_of(task.definition, Options(), msgspec.json.decode(spec.payload))
    if task is not None and task.definition.key is not None:
        # Where the arguments do not fit any more, the job itself says so.
        with suppress(InvalidPayload):
            key = task.definition.key.key_of(task.definition.signature.read(spec.payload))
    scope = runtime.preparer.router.policy_for(spec.queue).priority_scope
    job = job_of(spec, JobId(runtime.new_job_id()), nominal=nominal, priority_scope=scope, refs=refs)
    return job if key is None else replace(job, key=key)


def schedule_name(name: object) -> str:
    try:
        return check_task_name(name)
    except InvalidOption as refused:
        raise InvalidOption("schedule name", name, refused.expected) from None


def _next_at(spec: ScheduleSpec) -> Steps[datetime | None]:
    """The next time after the store's now."""
    now = (yield from ask(Check())).now
    return timetable_of(spec).next_after(now)


def _found(name: str, act: ScheduleAct) -> Schedule:
    if act.schedule is None:
        raise ScheduleNotFound(name)
    return act.schedule


def _refuse_untaken(name: str, options: Options) -> None:
    plain = Options()
    for option in Options.__struct_fields__:
        value = getattr(options, option)
        if option not in (*_TAKEN, "priority_label") and value != getattr(plain, option):
            raise InvalidOption(f'{option} of schedule "{name}"', value, f"using() with {', '.join(_TAKEN)} only")


def _timetable(name: str, given: Mapping[str, Any]) -> Timetable:
    cron: Any = given.get("cron")
    every, timezone = given.get("every"), given.get("tz")
    if (cron is None) == (every is None):
        expected = 'a cron line, as in cron="0 9 * * MON-FRI", or an interval, as in every=10: one of the two'
        raise InvalidOption(f'cron of schedule "{name}"', cron, expected)
    found: Timetable
    if every is None:
        found = Cron(cron, timezone or "UTC")
    elif timezone not in (None, "UTC"):
        raise InvalidOption("tz", timezone, "none with every=, which counts from 1970 in UTC; cron= has a time zone")
    else:
        found = Every(seconds("every", every))
    found.starts_at, found.ends_at = _bound("starts_at", given), _bound("ends_at", given)
    if found.starts_at and found.ends_at and found.next_after(FIRST_BOUND) is None:
        raise InvalidOption("ends_at", given["ends_at"], "an instant that leaves a firing after starts_at")
    return found


def _bound(option: str, given: Mapping[str, Any]) -> datetime | None:
    """In UTC: the same words again, in whatever zone, are the same schedule."""
    value = given.get(option)
    if value is None:
        return None
    at = instant(option, value)
    if not FIRST_BOUND < at < LAST_BOUND:
        raise InvalidOption(option, value, f"an instant between {FIRST_BOUND:%Y} and {LAST_BOUND:%Y}")
    return at.astimezone(UTC)


def _jitter_s(value: object, timetable: Timetable) -> float | None:
    if value is None:
        return None
    most_s = timetable.span.total_seconds() if isinstance(timetable, Every) else MAX_JITTER_S
    return seconds("jitter", value, at_most=min(most_s, MAX_JITTER_S)) or None


def _tenant(name: str, given: Mapping[str, Any], options: Options) -> str | None:
    if given.get("tenant") is None:
        return options.tenant
    found = check_own_tenant(given["tenant"])
    if options.tenant not in (None, found):
        raise InvalidOption(f'tenant of schedule "{name}"', found, f'"{options.tenant}", as using() on the task says')
    return found


def _one_of(option: str, value: Any, known: tuple[str, ...]) -> Any:
    if value not in known:
        raise InvalidOption(option, value, f"one of {', '.join(known)}.{nearest(value, known)}")
    return value


def _limit(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_CATCH_UP:
        raise InvalidOption("catch_up_limit", value, f"a whole number from 1 to {MAX_CATCH_UP}")
    return value
