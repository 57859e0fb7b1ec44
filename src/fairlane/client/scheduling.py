"""Schedules as an application declares them: a cron line beside a task and its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Required, TypedDict, TypeVar, get_args

from fairlane.client.context import tenant_in_force
from fairlane.client.enqueue.options import Options
from fairlane.client.enqueue.prepare import refs_of
from fairlane.client.task import Bound, Task
from fairlane.core.ids import JobId
from fairlane.core.job import JobSpec
from fairlane.core.names import check_task_name
from fairlane.core.schedules.schedule import CatchUp, Overlap, ScheduleSpec
from fairlane.errors import InvalidOption, nearest

if TYPE_CHECKING:
    from datetime import datetime

    from fairlane.client.enqueue.prepare import Preparer

AnyTask = TypeVar("AnyTask", bound=Task[..., Any])

MAX_CATCH_UP = 1000
OPTIONS = ("cron", "tz", "catch_up", "catch_up_limit", "overlap")
_TAKEN = ("tenant", "priority", "queue", "max_attempts", "timeout")


class ScheduleOptions(TypedDict, total=False):
    cron: Required[str]
    tz: str
    """A zone of the IANA database, as in `Europe/Prague`; UTC if left out."""
    catch_up: CatchUp
    """Of several firings missed while no worker ran: make up for none, the latest, or all."""
    catch_up_limit: int
    """With `all`: the newest so many."""
    overlap: Overlap
    """While the job of the last firing is unfinished: fire all the same, skip, or wait for it."""


class CodeSchedules:
    """The schedules an application's code declares; workers bring them to the store when they start."""

    def __init__(self, preparer: Preparer) -> None:
        self._preparer = preparer
        self.specs: dict[str, ScheduleSpec] = {}

    def decorator(
        self, name: str, args: Mapping[str, Any] | None, given: Mapping[str, Any]
    ) -> Callable[[AnyTask], AnyTask]:
        def declare(task: AnyTask) -> AnyTask:
            if not isinstance(task, Task):
                raise InvalidOption(f'schedule "{name}"', task, "a task below it: put @app.task under @app.schedule(…)")
            self.add(schedule_spec(self._preparer, name, task.bind(**(args or {})), given))
            return task

        return declare

    def add(self, spec: ScheduleSpec) -> None:
        if spec.name in self.specs:
            taken = self.specs[spec.name].type
            raise InvalidOption("schedule name", spec.name, f'a name of its own: a schedule of task "{taken}" has it')
        self.specs[spec.name] = spec


def schedule_spec(preparer: Preparer, name: object, call: Bound[Any], given: Mapping[str, Any]) -> ScheduleSpec:
    """A call and its timetable as a checked schedule; `using(…)` on the task says whose it is, how urgent and where."""
    from fairlane.core.schedules.cron import Cron

    name = schedule_name(name)
    _refuse_unknown(given)
    if given.get("cron") is None:
        raise InvalidOption(f'cron of schedule "{name}"', None, 'a cron line, as in cron="0 9 * * MON-FRI"')
    cron = Cron(given["cron"], given.get("tz") or "UTC")
    _refuse_untaken(name, call.options)
    task, options = call.definition, call.options
    queue = options.queue or task.queue
    return ScheduleSpec(
        name=name,
        type=task.name,
        cron=cron.expression,
        timezone=cron.timezone,
        payload=bytes(call.payload).decode(),
        payload_version=task.version,
        tenant=options.tenant or tenant_in_force.get() or preparer.settings.default_tenant,
        queue=queue,
        priority=task.priority if options.priority is None else options.priority,
        category=task.category,
        max_attempts=options.max_attempts or task.max_attempts or preparer.policy(task, queue).max_attempts(),
        timeout_s=options.timeout or task.timeout_s,
        catch_up=_one_of("catch_up", given.get("catch_up") or "latest", get_args(CatchUp)),
        catch_up_limit=_limit(10 if given.get("catch_up_limit") is None else given["catch_up_limit"]),
        overlap=_one_of("overlap", given.get("overlap") or "allow", get_args(Overlap)),
    )


def scheduled_job(
    preparer: Preparer, tasks: Mapping[str, Task[..., Any]], spec: ScheduleSpec, nominal: datetime | None
) -> JobSpec:
    """The job of one firing. Its task need not be registered here: a worker that knows it will run it."""
    import msgspec

    from fairlane.core.schedules.schedule import job_of

    task = tasks.get(spec.type)
    refs = {}
    if task is not None and task.definition.refs:
        refs = refs_of(task.definition, Options(), msgspec.json.decode(spec.payload))
    scope = preparer.router.policy_for(spec.queue).priority_scope
    return job_of(spec, JobId(preparer.new_id()), nominal=nominal, priority_scope=scope, refs=refs)


def schedule_name(name: object) -> str:
    try:
        return check_task_name(name)
    except InvalidOption as refused:
        raise InvalidOption("schedule name", name, refused.expected) from None


def _refuse_unknown(given: Mapping[str, Any]) -> None:
    for option in given:
        if option not in OPTIONS:
            raise InvalidOption("schedule option", option, f"one of {', '.join(OPTIONS)}.{nearest(option, OPTIONS)}")


def _refuse_untaken(name: str, options: Options) -> None:
    plain = Options()
    for option in Options.__struct_fields__:
        value = getattr(options, option)
        if option not in _TAKEN and value != getattr(plain, option):
            raise InvalidOption(f'{option} of schedule "{name}"', value, f"using() with {', '.join(_TAKEN)} only")


def _one_of(option: str, value: Any, known: tuple[str, ...]) -> Any:
    if value not in known:
        raise InvalidOption(option, value, f"one of {', '.join(known)}.{nearest(value, known)}")
    return value


def _limit(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_CATCH_UP:
        raise InvalidOption("catch_up_limit", value, f"a whole number from 1 to {MAX_CATCH_UP}")
    return value
