"""`Fairlane`: an application's tasks, its store, and a group of methods for each noun."""

from __future__ import annotations

import importlib
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, Self, TypedDict, TypeVar, Unpack, overload

from fairlane.client.admin.alerts import AlertAdmin
from fairlane.client.admin.audit import AuditAdmin
from fairlane.client.admin.breakers import BreakerAdmin
from fairlane.client.admin.dead_letters import DeadLetterAdmin
from fairlane.client.admin.events import EventAdmin
from fairlane.client.admin.jobs import JobAdmin
from fairlane.client.admin.limits import LimitAdmin
from fairlane.client.admin.pauses import PauseAdmin
from fairlane.client.admin.queues import QueueAdmin
from fairlane.client.admin.schedules import ScheduleAdmin
from fairlane.client.admin.signals import SignalAdmin
from fairlane.client.admin.statistics import StatisticsAdmin
from fairlane.client.admin.tasks import TaskAdmin, register
from fairlane.client.admin.tenants import TenantAdmin
from fairlane.client.admin.tokens import TokenAdmin
from fairlane.client.admin.workers import WorkerAdmin
from fairlane.client.admin.workflows import WorkflowAdmin
from fairlane.client.batch_tasks import BatchDecorator
from fairlane.client.context import in_scope
from fairlane.client.enqueue.prepare import EnqueueHook
from fairlane.client.handle import Handle
from fairlane.client.hooks import HookDecorators, Hooks
from fairlane.client.resources import AsyncResource, ResourceDecorator, ResourceScope, SyncResource
from fairlane.client.runtime import Runtime
from fairlane.client.settings.load import load
from fairlane.client.settings.model import SettingArguments, Settings
from fairlane.client.steps import Sleeper, Steps, Verbs, ask, both
from fairlane.client.task import (
    ENQUEUING,
    AsyncTask,
    Bound,
    SyncTask,
    Task,
    TaskDecorator,
    TaskOptions,
    calls_of,
    missing,
)
from fairlane.client.workflow_maps import MOST_ITEMS, map_task
from fairlane.client.workflows import BatchBuilder, GroupBuilder, WorkflowBuilder
from fairlane.core.chance import Chance
from fairlane.core.clock import Clock
from fairlane.core.job import ErrorClass
from fairlane.core.ops import GetStats
from fairlane.core.payload.validator import PayloadValidator
from fairlane.core.workflows import OnFailure
from fairlane.errors import InvalidOption, StoreUnavailable
from fairlane.stores.base import Store

if TYPE_CHECKING:
    from fairlane.testing.sandbox import Sandbox

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Snapshot(TypedDict):
    depth: int | None
    """Ready and scheduled together. The three counts are None once the application is closed or its store away."""
    ready: int | None
    scheduled: int | None
    shutdown: bool
    redis_active: bool
    """The store is Redis, and is not known to be away."""
    store: str
    reachable: bool
    """False: the store is away, and enqueues are spooled. The counts above are None then."""
    spooled: int | None
    """Jobs in the spool of this machine, or of this process if it is in memory. None: the spool cannot be read."""
    spool_age_s: float
    """How long the oldest of them has waited."""


class RunningWorker(Protocol):
    """A worker for use with `with` or `async with`."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None: ...

    def stop(self) -> None: ...


_ELSEWHERE = {
    **dict.fromkeys(ENQUEUING, "task.enqueue(…) enqueues a call, app.enqueue_many([task.bind(…), …]) several"),
    **dict.fromkeys(
        ("run", "start", "worker", "start_worker", "run_worker"),
        "`fairlane worker module:app` runs jobs, or `with app.running():` in this process",
    ),
}
"""What other job systems have here."""


class Fairlane(HookDecorators, Verbs):
    """Jobs for one application: register tasks, enqueue them, inspect jobs and act on them.

    Nothing is connected until the first operation. Safe to share between threads and event loops. Every method has
    an async version, named `a…`.
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
        sleeper: Sleeper | None = None,
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
        runtime = Runtime(
            load(given, config=config) if settings is None else settings,
            store=store,
            clock=clock,
            chance=chance,
            sleeper=sleeper,
            errors=errors,
            validator=validator,
        )
        super().__init__(runtime)
        self.jobs = JobAdmin(runtime)
        self.dead_letters = DeadLetterAdmin(runtime)
        self.tasks = TaskAdmin(runtime)
        self.schedules = ScheduleAdmin(runtime)
        self.queues = QueueAdmin(runtime)
        self.tenants = TenantAdmin(runtime)
        self.pauses = PauseAdmin(runtime)
        self.limits = LimitAdmin(runtime)
        self.breakers = BreakerAdmin(runtime)
        self.workers = WorkerAdmin(runtime)
        self.statistics = StatisticsAdmin(runtime)
        self.events = EventAdmin(runtime)
        self.signals = SignalAdmin(runtime)
        self.alerts = AlertAdmin(runtime)
        self.audit = AuditAdmin(runtime)
        self.tokens = TokenAdmin(runtime)
        self.workflows = WorkflowAdmin(runtime)
        if enqueue_hook is not None:
            self.jobs.on_enqueue(enqueue_hook)

    if not TYPE_CHECKING:  # To a type checker it would mean that there is every attribute.

        def __getattr__(self, name: str) -> Any:
            raise missing(self, name, _ELSEWHERE)

    @property
    def runtime(self) -> Runtime:
        """Settings, clock, store and the rest: for workers, servers and tests."""
        return self._runtime

    @property
    def _hooks(self) -> Hooks:
        return self._runtime.hooks

    @overload
    def task(  # type: ignore[overload-overlap]  # an async function is the narrower case, and comes first
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...
    @overload
    def task(
        self, /, *, batch: int, within: float | timedelta = ..., **options: Unpack[TaskOptions]
    ) -> BatchDecorator: ...
    @overload
    def task(self, /, **options: Unpack[TaskOptions]) -> TaskDecorator: ...
    def task(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Register a function, as `@app.task` or `@app.task(queue="critical", timeout=60, …)`.

        With `batch=100` its jobs are run up to a hundred in one call, for which the first waits `within` 0.2 s.
        """
        if function is None:
            decorator = BatchDecorator if options.get("batch") is not None else TaskDecorator
            return decorator(lambda function: register(self._runtime, function, options))
        return register(self._runtime, function, options)

    @overload
    def resource(self, function: Callable[[], AsyncIterator[T]], /) -> AsyncResource[T]: ...
    @overload
    def resource(self, function: Callable[[], Iterator[T]], /) -> SyncResource[T]: ...
    @overload
    def resource(self, /, *, scope: ResourceScope) -> ResourceDecorator: ...
    def resource(self, function: Callable[[], Any] | None = None, /, *, scope: ResourceScope = "job") -> Any:
        """Register a generator function as a resource of each job, or of each worker with `scope="worker"`.

        The code after its `yield` runs when the job has ended, however it ended: an exception or a cancellation
        is raised at the `yield` first. A job that returned but whose resource fails to close has failed.
        """
        self._runtime.has_resources = True
        decorator = ResourceDecorator(scope)
        return decorator if function is None else decorator(function)

    def enqueue_many(self, jobs: Iterable[Bound[R]], *, conn: object | None = None) -> Sequence[Handle[R]]:
        """Enqueue calls made by `task.bind(…)`, all in one commit; returns one handle each, in order."""
        return self._runtime.enqueuer.many(calls_of(jobs), conn)

    async def aenqueue_many(self, jobs: Iterable[Bound[R]], *, conn: object | None = None) -> Sequence[Handle[R]]:
        return await self._runtime.enqueuer.amany(calls_of(jobs), conn)

    def workflow(
        self,
        name: str,
        *,
        idempotency_key: str | None = None,
        created_by: str | None = None,
        running: int | None = None,
    ) -> WorkflowBuilder:
        """Begin a workflow: `add` its nodes, then `enqueue` them all in one commit.

        `running`: how many of its nodes run at once, over all workers.
        """
        return WorkflowBuilder(self._runtime, name, idempotency_key, created_by, running)

    def chain(
        self, *jobs: Bound[Any] | Task[..., Any], name: str = "chain", idempotency_key: str | None = None
    ) -> WorkflowBuilder:
        """A workflow of calls each of which waits for the one before it: `app.chain(a.bind(1), b, c)`.

        A task without a call takes the result of the one before as its one parameter that has no default.
        """
        flow = self.workflow(name, idempotency_key=idempotency_key)
        flow.chain(*jobs)
        return flow

    def group(
        self,
        *jobs: Bound[Any],
        name: str = "group",
        idempotency_key: str | None = None,
        running: int | None = None,
    ) -> GroupBuilder:
        """A workflow of calls that may run at the same time, `running` of them; `.then(task)` takes their results."""
        flow = GroupBuilder(self._runtime, name, idempotency_key, running=running)
        flow.group(*jobs)
        return flow

    def map(
        self,
        task: Task[..., Any],
        /,
        *,
        into: Task[..., Any] | None = None,
        on_failure: OnFailure = "stop",
        limit: int = MOST_ITEMS,
        name: str | None = None,
    ) -> SyncTask[[Sequence[Any]], int]:
        """Register a task for workflows that takes a list and adds a node of `task` for each item: declare it like one.

        `into` runs behind them and takes the list of their results, in order; `on_failure` is its own. More than
        `limit` items are refused, and none of them is run. It is named after the task, `<task>_map`, unless `name`
        says otherwise, and returns how many items there were.
        """
        return map_task(self._runtime, task, into, on_failure, limit, name)

    def batch(
        self,
        name: str,
        *,
        on_success: Bound[Any] | None = None,
        on_failure: Bound[Any] | None = None,
        on_complete: Bound[Any] | None = None,
        idempotency_key: str | None = None,
        created_by: str | None = None,
    ) -> BatchBuilder:
        """Begin a batch: `add` its jobs, then `enqueue` them all in one commit.

        Each callback runs at most once: `on_complete` when all jobs have ended, `on_failure` if one of them is dead or
        cancelled then, `on_success` when all have completed, also if that took a reprocessed dead letter or a retry.
        """
        callbacks = {"on_success": on_success, "on_failure": on_failure, "on_complete": on_complete}
        return BatchBuilder(self._runtime, name, idempotency_key, created_by, callbacks)

    def running(
        self,
        *,
        slots: int | None = None,
        queues: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        drain: bool = False,
        grace: float | None = None,
        config: Any = None,
    ) -> RunningWorker:
        """Run this application's jobs in this process while a block lasts: `with app.running(): …`, or `async with`.

        Leaving it ends claims and gives running jobs the grace period; with `drain` it first waits until no job is
        ready or running.
        """
        # Imported by name: the client is a layer below the worker, and an application that only enqueues loads none.
        embedded = importlib.import_module("fairlane.worker.embedded")
        worker: RunningWorker = embedded.running(
            self, slots=slots, queues=queues, types=types, drain=drain, grace=grace, config=config
        )
        return worker

    def testing(
        self, mode: Literal["collect", "inline"] = "collect", *, clock: Clock | None = None, **settings: Any
    ) -> Sandbox:
        """Put this application under test while a block lasts: `with app.testing() as jobs: …`, or `async with`.

        Its jobs are kept in memory, its clock stands still until `jobs.advance(…)`; afterwards everything is as before.
        With "inline" a job runs when it is enqueued. `settings` replace those of the application.
        """
        sandbox = importlib.import_module("fairlane.testing.sandbox")
        found: Sandbox = sandbox.Sandbox(self, mode, clock, **settings)
        return found

    def _snapshot(self) -> Steps[Snapshot]:
        """Job counts, and the store in use."""
        access, queues = self._runtime.access, None
        if not access.closed:
            try:
                queues = (yield from ask(GetStats(scope=in_scope(None), parts=("queues",)))).queues
            except StoreUnavailable:
                if access.failover is None:
                    raise
        ready = None if queues is None else sum(queue.ready for queue in queues)
        scheduled = None if queues is None else sum(queue.scheduled for queue in queues)
        spool = None if access.closed else access.spool_state()
        reachable = spool is None or spool.reachable
        return Snapshot(
            depth=None if ready is None or scheduled is None else ready + scheduled,
            ready=ready,
            scheduled=scheduled,
            shutdown=access.closed,
            redis_active=access.name == "redis" and reachable,
            store=access.name,
            reachable=reachable,
            spooled=0 if spool is None else spool.jobs,
            spool_age_s=0.0 if spool is None else round(spool.age_s, 3),
        )

    snapshot, asnapshot = both(_snapshot)

    def close(self) -> None:
        """Close the store, if this application opened it: later calls raise `StoreClosed`. `with app:` opens it."""
        self._runtime.access.close()

    async def aclose(self) -> None:
        await self._runtime.access.aclose()

    def __enter__(self) -> Self:
        self._runtime.access.reopen()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        self._runtime.access.reopen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<Fairlane {self._runtime.settings!r}, {len(self.tasks)} tasks>"
