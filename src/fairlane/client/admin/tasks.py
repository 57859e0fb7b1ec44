"""`app.tasks`: the registered tasks by name; pause, resume and drain one; enqueue one by its name.

The command line calls tasks by name, because it may have neither the function nor the application.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import msgspec

from fairlane.client.admin.pauses import PausingVerbs
from fairlane.client.admin.schedules import TIMETABLE_OPTIONS, declare_schedule
from fairlane.client.batch_tasks import AsyncBatchTask, SyncBatchTask
from fairlane.client.enqueue.options import EnqueueOptions, Options
from fairlane.client.enqueue.prepare import Preparer
from fairlane.client.handle import Handle
from fairlane.client.logs import GuardedLogger
from fairlane.client.rights import Right
from fairlane.client.signature import Signature
from fairlane.client.steps import Steps, both, compute
from fairlane.client.task import AsyncTask, Bound, Definition, SyncTask, Task
from fairlane.core.job import DEFAULT_PRIORITY
from fairlane.core.names import BUILT_IN_TASKS, check_task_name
from fairlane.core.ops import PauseKind
from fairlane.errors import InvalidOption, UnknownTask, nearest

if TYPE_CHECKING:
    from fairlane.client.runtime import Runtime


logger = GuardedLogger("fairlane.client")

MOST_WARNED = 100
"""Names of unknown tasks that are warned of; a process that makes names up is not followed."""


class AnyPayload(Signature[Any]):
    """Accepts any payload: only a worker that knows the task can validate it."""

    def __init__(self, task: str) -> None:
        self.task = task
        self.names = ()

    def __str__(self) -> str:
        return "(…)"

    def check(self, text: bytes) -> None:
        pass

    def changes(self, args: Mapping[str, Any]) -> list[str]:
        """None are known: the task that a worker has may be annotated."""
        return []

    @property
    def read_all(self) -> None:
        """Nothing is known to read them by: each is looked at by itself."""

    def read_result(self, text: str) -> Any:
        return msgspec.json.decode(text)


class TaskByName(Definition[Any]):
    """The settings' own rules for a type: its queue, category, payload limits and sensitive names."""

    is_registered = False

    def __init__(self, name: str, preparer: Preparer) -> None:
        settings = preparer.settings
        self.name = check_task_name(name)
        self.signature = AnyPayload(name)
        self.queue = preparer.router.queue_for(name)
        self.category = preparer.router.category_for(name) or settings.default_category
        self.priority, self.priority_label = DEFAULT_PRIORITY, None
        self.version = 1
        self.result_expires_s = self.timeout_s = self.retry = self.max_attempts = self.fast = self.sensitive = (
            self.key
        ) = None
        self.required = self.refs = self.aliases = ()
        self.is_large = False


def call_by_name(
    name: str, arguments: Mapping[str, Any], options: Mapping[str, Any], *, runtime: Runtime, rules: Runtime | None
) -> Bound[Any]:
    """A call of the task with this name, checked against it where `rules` are given; else by the settings alone."""
    preparer = (rules or runtime).preparer
    if not isinstance(arguments, Mapping):
        raise InvalidOption(f'arguments of "{name}"', arguments, "a dict of the arguments by name")
    if name in BUILT_IN_TASKS:
        raise UnknownTask(name, () if rules is None else set(rules.tasks) - BUILT_IN_TASKS)
    task: Definition[Any]
    if rules is None:
        task, args = TaskByName(name, preparer), dict(arguments)
        if name not in runtime.tasks and name not in runtime.unknown_tasks:
            _warn_of_unknown(name, runtime)
    else:
        if name not in rules.tasks:
            raise UnknownTask(name, rules.tasks)
        task = rules.tasks[name].definition
        args = task.signature.bind((), dict(arguments))
    chosen = Options().changed(
        {name: value for name, value in options.items() if value is not None}, preparer.priorities, task.key
    )
    return Bound(task, chosen, args, preparer.payload(task, args))


def _warn_of_unknown(name: str, runtime: Runtime) -> None:
    """Another application may have the task; where this one has some, too, it may be a slip."""
    known = set(runtime.tasks) - BUILT_IN_TASKS
    if known and len(runtime.unknown_tasks) < MOST_WARNED:
        runtime.unknown_tasks.add(name)
        logger.warning(
            'task "%s" is unknown here: no task of this application has that name. Does a worker of another run it?%s',
            name,
            nearest(name, known),
        )


class TaskAdmin(PausingVerbs, Mapping[str, Task[..., Any]]):
    """The registered tasks by name, also by those of `aliases`, and methods for tasks. Only registered tasks run."""

    __slots__ = ()
    _kind: ClassVar[PauseKind] = "type"

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        rules: Runtime | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> Bound[Any]:
        """A call of a task by its name, for `app.schedules.add`.

        `rules` is the application that knows the task; None: only its name is known.
        """
        return call_by_name(name, arguments, options, runtime=self._runtime, rules=rules)

    def _enqueue(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        rules: Runtime | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> Steps[Handle[Any]]:
        """Enqueue a call of a task by its name.

        The job follows the `rules` of the application and goes to this one's store.
        """
        call = yield from compute(partial(self.call, name, arguments, rules=rules, **options))
        return (yield from self._runtime.enqueuer_under(rules).prepared(call))

    enqueue, aenqueue = both(_enqueue, Right.ACT)

    def __getitem__(self, name: str) -> Task[..., Any]:
        """The task registered under a name. Nothing is ever imported to find one."""
        try:
            return self._runtime.tasks[name]
        except KeyError:
            raise UnknownTask(name, self._runtime.tasks) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._runtime.tasks)

    def __len__(self) -> int:
        return len(self._runtime.tasks)


def register(
    runtime: Runtime,
    function: Callable[..., Any],
    options: Mapping[str, Any],
    kind: type[Definition[Any]] = Definition,
) -> Task[..., Any]:
    """Register a function as a task and declare its breaker, limits and schedule."""
    definition = kind(function, options, runtime.preparer, runtime.classifier)
    for name in (definition.name, *definition.aliases):
        if name in runtime.tasks:
            first = runtime.tasks[name].definition.function
            where = f"{first.__module__}.{first.__qualname__}"
            option = "task name" if name == definition.name else f'an alias of task "{definition.name}"'
            raise InvalidOption(option, name, f"a name of its own: {where} is registered under it")
    if definition.breaker is not None:
        runtime.circuits.declare(definition.breaker)
    runtime.limits.add_task(definition)
    made_of: type[Task[..., Any]] = AsyncTask if definition.is_async else SyncTask
    if definition.batch is not None:
        made_of = AsyncBatchTask if definition.is_async else SyncBatchTask
    task = made_of(definition, runtime.enqueuer)
    timetable = {option: options[option] for option in TIMETABLE_OPTIONS if options.get(option) is not None}
    if timetable:
        declare_schedule(runtime, definition.name, task.bind(), timetable)
    runtime.tasks |= dict.fromkeys((definition.name, *definition.aliases), task)
    return task
