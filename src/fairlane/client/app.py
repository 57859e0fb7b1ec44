"""The application's Fairlane: its tasks, its settings, its store."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, ParamSpec, Self, TypedDict, TypeVar, Unpack, overload

import msgspec

from fairlane.client.acting import Acting, JobLike
from fairlane.client.breakers import PROFILE_POLICIES, Breaking, Circuits
from fairlane.client.enqueue.depth import waiting
from fairlane.client.enqueue.enqueuer import Enqueuer
from fairlane.client.enqueue.options import job_id
from fairlane.client.enqueue.prepare import EnqueueHook, Preparer
from fairlane.client.exceptions import LastExceptions
from fairlane.client.explaining import Explaining
from fairlane.client.handle import Handle, Surroundings
from fairlane.client.inspecting import Inspecting
from fairlane.client.limiting import CodeLimits, Limiting
from fairlane.client.pausing import Pausing
from fairlane.client.principals import Principals
from fairlane.client.resources import Resourcing
from fairlane.client.running import Running
from fairlane.client.scheduling import OPTIONS as SCHEDULE_OPTIONS, CodeSchedules
from fairlane.client.scheduling_acts import Scheduling
from fairlane.client.settings.load import load
from fairlane.client.settings.model import SettingArguments, Settings
from fairlane.client.store_access import StoreAccess
from fairlane.client.task import AsyncTask, Bound, Definition, SyncTask, Task, TaskDecorator, TaskOptions
from fairlane.client.tenant_scope import in_scope, require_all_tenants
from fairlane.client.tenanting import Tenanting
from fairlane.client.waiting import Pause, SystemPause
from fairlane.core.chance import Chance, SystemChance
from fairlane.core.clock import Clock, SystemClock
from fairlane.core.error_classes import Classifier
from fairlane.core.ids import JobId
from fairlane.core.job import ErrorClass
from fairlane.core.ops import GetStats, Purge, Stats
from fairlane.core.payload.validator import PayloadValidator
from fairlane.core.retry import Policy
from fairlane.errors import InvalidOption, NotAllowed, UnknownTask
from fairlane.stores.base import Store

P = ParamSpec("P")
R = TypeVar("R")
Hook = TypeVar("Hook", bound=EnqueueHook)


class Snapshot(TypedDict):
    depth: int | None
    """Ready and scheduled together. The three counts are None once the application is closed."""
    ready: int | None
    scheduled: int | None
    shutdown: bool
    redis_active: bool
    store: str


class Fairlane(
    Acting, Scheduling, Breaking, Explaining, Inspecting, Limiting, Pausing, Principals, Resourcing, Running, Tenanting
):
    """Jobs for one application: register tasks, enqueue them, inspect and act on what became of them.

    Nothing is connected until the first operation. Safe to share between threads and event loops.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        settings: Settings | None = None,
        config: str | os.PathLike[str] | None = None,
        store: Store | None = None,
        clock: Clock | None = None,
        chance: Chance | None = None,
        pause: Pause | None = None,
        errors: Mapping[type[BaseException], ErrorClass] | None = None,
        enqueue_hook: EnqueueHook | None = None,
        validator: PayloadValidator | None = None,
        **arguments: Unpack[SettingArguments],
    ) -> None:
        given: dict[str, Any] = dict(arguments)
        if url is not None:
            given["url"] = url
        if settings is not None and (given or config is not None):
            named = ", ".join([*given, *(["config"] if config is not None else [])])
            raise InvalidOption("settings", named, "either ready settings or single ones, not both")
        self.settings = load(given, config=config) if settings is None else settings
        self.clock = clock or SystemClock()
        self.chance = chance or SystemChance()
        self.tasks: dict[str, Task[..., Any]] = {}
        """Every registered task by name. Only these ever run."""
        self.classifier = Classifier(errors)
        self.last_exceptions = LastExceptions()
        """What jobs that ran in this process raised, the newest 100."""
        self._access = StoreAccess(self.settings, clock, store)
        self.circuits = Circuits(
            self._access, self.clock, self.chance, self.classifier, PROFILE_POLICIES[self.settings.profile]
        )
        self._around = Surroundings(self._access, self.clock, pause or SystemPause())
        self._preparer = Preparer(self.settings, self.clock, self.chance, validator)
        self.code_limits = CodeLimits(self.settings)
        self._enqueuer = Enqueuer(self._preparer, self._around, self.code_limits)
        self.code_schedules = CodeSchedules(self._preparer)
        if enqueue_hook is not None:
            self.on_enqueue(enqueue_hook)

    @property
    def access(self) -> StoreAccess:
        return self._access

    @property
    def preparer(self) -> Preparer:
        """The application's rules for a job, whichever store it then goes to."""
        return self._preparer

    @property
    def store(self) -> Store:
        """The store itself, opened if it is not yet."""
        return self._access.store

    def new_job_id(self) -> JobId:
        return self._preparer.new_id()

    @overload
    def task(  # type: ignore[overload-overlap]  # an async function is the narrower case, and comes first
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...
    @overload
    def task(self, /, **options: Unpack[TaskOptions]) -> TaskDecorator: ...
    def task(self, function: Callable[..., Any] | None = None, /, **options: Unpack[TaskOptions]) -> Any:
        """Register a function, as `@app.task` or `@app.task(queue="critical", timeout=60, …)`."""
        if function is None:
            return TaskDecorator(lambda function: self._register(function, options))
        return self._register(function, options)

    def _register(self, function: Callable[..., Any], options: Mapping[str, Any]) -> Task[..., Any]:
        definition: Definition[Any] = Definition(function, options, self._preparer, self.classifier)
        if definition.name in self.tasks:
            first = self.tasks[definition.name].definition.function
            where = f"{first.__module__}.{first.__qualname__}"
            raise InvalidOption("task name", definition.name, f"a name of its own: {where} is registered under it")
        if definition.breaker is not None:
            self.circuits.declare(definition.breaker)
        self.code_limits.add_task(definition)
        kind: type[Task[..., Any]] = AsyncTask if definition.is_async else SyncTask
        task = kind(definition, self._enqueuer)
        if timetable := {option: options[option] for option in SCHEDULE_OPTIONS if options.get(option) is not None}:
            self.code_schedules.decorator(definition.name, None, timetable)(task)
        self.tasks[definition.name] = task
        return task

    def require_task(self, name: str) -> Task[..., Any]:
        """The task registered under a name. Nothing is ever imported to find one."""
        try:
            return self.tasks[name]
        except KeyError:
            raise UnknownTask(name, self.tasks) from None

    def policy_for(self, task: Task[..., Any], queue: str) -> Policy:
        """The retry policies that stand behind an attempt of this task in this queue."""
        return self._preparer.policy(task.definition, queue)

    def on_enqueue(self, hook: Hook) -> Hook:
        """Register a hook that sees each job before it is enqueued and may change its priority and delay."""
        self._preparer.hooks.append(hook)
        return hook

    def enqueue_many(self, jobs: Iterable[Bound[R]], *, conn: object | None = None) -> list[Handle[R]]:
        """Enqueue calls made by `task.bind(…)`, all in one commit; one handle each, in order."""
        return self._enqueuer.many(jobs, conn)

    async def aenqueue_many(self, jobs: Iterable[Bound[R]], *, conn: object | None = None) -> list[Handle[R]]:
        return await self._enqueuer.amany(jobs, conn)

    def handle(self, job: JobLike, *, tenant: str | int | None = None) -> Handle[Any]:
        """A handle on a job by its id; its result is plain JSON values."""
        return Handle(job_id("job", job), self._around, in_scope(tenant), read_result=msgspec.json.decode)

    def snapshot(self) -> Snapshot:
        """How full the queues are and which store is in use."""
        if self._access.closed:
            return self._snapshot(None)
        stats = self._access.run(GetStats(scope=in_scope(None)))
        return self._snapshot(stats)

    async def asnapshot(self) -> Snapshot:
        if self._access.closed:
            return self._snapshot(None)
        stats = await self._access.arun(GetStats(scope=in_scope(None)))
        return self._snapshot(stats)

    def _snapshot(self, stats: Stats | None) -> Snapshot:
        return Snapshot(
            depth=None if stats is None else waiting(stats),
            ready=None if stats is None else sum(queue.ready for queue in stats.queues),
            scheduled=None if stats is None else sum(queue.scheduled for queue in stats.queues),
            shutdown=self._access.closed,
            redis_active=self._access.name == "redis",
            store=self._access.name,
        )

    def purge(self) -> int:
        """Remove every job there is, of all tenants. For tests: refused in the production profile."""
        self._require_development()
        return self._access.run(Purge()).jobs

    async def apurge(self) -> int:
        self._require_development()
        return (await self._access.arun(Purge())).jobs

    def _require_development(self) -> None:
        require_all_tenants("purge")
        if self.settings.profile != "development":
            raise NotAllowed("purge", "the store", 'in the production profile; set profile = "development" for tests')

    def close(self) -> None:
        """Close the store, if this application opened it. Later calls raise `StoreClosed`."""
        self._access.close()

    async def aclose(self) -> None:
        await self._access.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<Fairlane {self.settings!r}, {len(self.tasks)} tasks>"
