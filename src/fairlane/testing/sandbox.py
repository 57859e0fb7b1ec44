"""`app.testing()`: the application itself, with its own tasks, on a store in memory and a clock of the test's.

Everything else is put back when the block ends: store, settings, clock, tasks, limits, schedules, hooks.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from msgspec.structs import replace

from fairlane.client.enqueue.enqueuer import Enqueuer
from fairlane.client.enqueue.options import seconds
from fairlane.client.steps import is_on_event_loop
from fairlane.core.clock import Clock, FakeClock, SystemClock
from fairlane.core.job import Job
from fairlane.core.ops import ALL_TENANTS, MAX_PAGE, DeclareSchedules, JobFilter, PageJobs, Planned
from fairlane.core.outcome import Died
from fairlane.errors import BlocksEventLoop, FairlaneError, InvalidOption
from fairlane.testing.assertions import AnyTask, CollectedJob, Expected, definition_of, failure, surplus
from fairlane.testing.runs import Ran, arun_due, run_due
from fairlane.testing.store import SandboxAccess, SandboxStore
from fairlane.worker.attempts import FAILED

if TYPE_CHECKING:
    from fairlane.client.app import Fairlane
    from fairlane.client.hooks import Hooks
    from fairlane.client.task import Definition

Mode = Literal["collect", "inline"]
"""collect: jobs wait until the test looks at them or runs them. inline: each job runs when it is enqueued, and what it
raises is raised there."""

LONGEST_WAIT_S = 600.0
"""Waiting moves the clock. Code that waits for ever, for something that only a worker does, is stopped."""

active: list[Sandbox] = []
"""The sandboxes in force, the innermost last."""


class NoSandbox(FairlaneError, RuntimeError):
    """No application is under test here."""

    def __init__(self) -> None:
        super().__init__(
            "no application is under test here: use the fixture fairlane_app, or `with app.testing() as jobs:`"
        )


class ClockSleeper:
    """Waiting moves the test's clock."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock, self._waited_s = clock, 0.0

    def sleep(self, seconds: float) -> None:
        self._clock.advance(seconds)
        self._waited_s += seconds
        if self._waited_s > LONGEST_WAIT_S:
            raise RuntimeError(
                f"waited for {LONGEST_WAIT_S:g} s of the test's clock: no worker runs here, call run_due() first"
            )

    async def asleep(self, seconds: float) -> None:
        self.sleep(seconds)


class Sandbox:
    """An application under test, from `with app.testing() as jobs:`."""

    def __init__(self, app: Fairlane, mode: Mode = "collect", clock: Clock | None = None, **settings: Any) -> None:
        if mode not in get_args(Mode):
            raise InvalidOption("mode", mode, f"one of {', '.join(get_args(Mode))}")
        self.app, self.mode = app, mode
        self._given = settings
        self._clock: Clock = clock or FakeClock(SystemClock().now())
        self._since = 0
        self._saved: dict[str, Any] = {}
        self._saved_enqueuer: dict[str, Any] = {}
        self._saved_hooks: list[tuple[Definition[Any], Hooks]] = []

    @property
    def clock(self) -> Clock:
        """The clock of application and store; it stands still until a test moves it."""
        return self._clock

    def advance(self, span: float | timedelta) -> None:
        """Move the clock by seconds, or a timedelta."""
        self._fake("advance").advance(seconds("advance", span))

    def enqueued(self, task: AnyTask | None = None, /, **expected: Any) -> list[CollectedJob]:
        """The jobs that were enqueued, oldest first: all, or those of a task, with these arguments and options.

        Arguments that are not named may be anything. Options are those of `using(…)`, also given as
        `enqueued(task.using(tenant="acme"), user_id=7)`. A job that was enqueued in a transaction of the test
        (`conn=`) is there until that is rolled back.
        """
        return self._matching(task, expected, self._every())

    def assert_enqueued(self, task: AnyTask, /, **expected: Any) -> CollectedJob:
        """Fail unless such a job was enqueued; returns the first."""
        __tracebackhide__ = True
        return self._first(task, expected, self._every())

    def assert_nothing_enqueued(self, task: AnyTask | None = None, /, **expected: Any) -> None:
        """Fail if any job was enqueued; or one of a task, with these arguments and options."""
        __tracebackhide__ = True
        self._none(task, expected, self._every())

    async def aenqueued(self, task: AnyTask | None = None, /, **expected: Any) -> list[CollectedJob]:
        return self._matching(task, expected, await self._aevery())

    async def aassert_enqueued(self, task: AnyTask, /, **expected: Any) -> CollectedJob:
        return self._first(task, expected, await self._aevery())

    async def aassert_nothing_enqueued(self, task: AnyTask | None = None, /, **expected: Any) -> None:
        self._none(task, expected, await self._aevery())

    def clear(self) -> None:
        """Forget the jobs enqueued so far: `enqueued` and the assertions look at later ones."""
        self._since = max((each.job.seq for each in self._every()), default=self._since)

    def run_due(self, *, limit: int = 1000, within: float | timedelta = 0.0, raising: bool = True) -> tuple[Ran, ...]:
        """Run what is due, through its retries: the clock moves to each of them. Returns every attempt.

        Jobs enqueued meanwhile run too. Delayed ones run if they are due `within` a span from now. A job that ends dead
        raises what it died of when all have run, unless not `raising`.
        """
        if is_on_event_loop():
            raise BlocksEventLoop("run_due()", "arun_due()")
        ran: list[Ran] = []
        until = self.clock.now() + timedelta(seconds=seconds("within", within))
        while len(ran) < limit:
            ran += run_due(self.app, limit - len(ran))
            if not self._travel(until):
                break
        return self._ended(ran, raising=raising)

    async def arun_due(
        self, *, limit: int = 1000, within: float | timedelta = 0.0, raising: bool = True
    ) -> tuple[Ran, ...]:
        """The same on the running loop: `async def` tasks run on it, plain functions in a thread."""
        ran: list[Ran] = []
        until = self.clock.now() + timedelta(seconds=seconds("within", within))
        while len(ran) < limit:
            await self._afollow()
            ran += await arun_due(self.app, limit - len(ran))
            if not self._travel(until):
                break
        return self._ended(ran, raising=raising)

    def __enter__(self) -> Self:
        runtime = self.app.runtime
        settings = replace(runtime.settings, **{"url": "memory://", "spool": None, "fallback": "refuse", **self._given})
        self._store = SandboxStore(self._clock)
        sleeper = ClockSleeper(self._clock) if isinstance(self._clock, FakeClock) else runtime.access.sleeper
        access: Any = SandboxAccess(settings, self._clock, self._store, sleeper)
        changed = vars(runtime.copied(settings, access, self._clock))
        if self.mode == "inline":
            self._store.after_enqueue, self._store.after_aenqueue = self._run_inline, self._arun_inline
        # In place: tasks, handles and every group of verbs hold on to these two objects.
        enqueuer = runtime.enqueuer
        self._saved = dict(vars(runtime))
        self._saved_enqueuer = {name: getattr(enqueuer, name) for name in Enqueuer.__slots__}
        self._saved_hooks = [(task.definition, task.definition.hooks) for task in runtime.tasks.values()]
        vars(runtime).update(changed)
        enqueuer.__init__(runtime)  # type: ignore[misc]
        # Enqueues do not wait for each other: one that runs its job inline may enqueue the next.
        enqueuer._round_trips = access
        for definition, hooks in self._saved_hooks:
            definition.hooks = hooks.copied()
        self._declare_schedules()
        active.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        runtime = self.app.runtime
        active.remove(self)
        vars(runtime).update(self._saved)
        for name, value in self._saved_enqueuer.items():
            setattr(runtime.enqueuer, name, value)
        for definition, hooks in self._saved_hooks:
            definition.hooks = hooks
        self._store.close()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()

    def __repr__(self) -> str:
        return f"<Sandbox of {self.app!r}, {self.mode}>"

    def _declare_schedules(self) -> None:
        """Register the schedules of the application's code, as a worker does when it starts."""
        specs, now = self.app.runtime.schedules.values(), self._clock.now()
        if specs:
            from fairlane.core.schedules import timetable_of

            planned = (Planned(spec=spec, next_at=timetable_of(spec).next_after(now)) for spec in specs)
            self._store.run(DeclareSchedules(schedules=tuple(planned)))

    def _matching(
        self, task: AnyTask | None, expected: dict[str, Any], every: list[CollectedJob]
    ) -> list[CollectedJob]:
        wanted = Expected(task, expected)
        return [each for each in every if not wanted.differences(each)]

    def _first(self, task: AnyTask, expected: dict[str, Any], every: list[CollectedJob]) -> CollectedJob:
        __tracebackhide__ = True
        for found in self._matching(task, expected, every):
            return found
        raise AssertionError(failure(Expected(task, expected), every))

    def _none(self, task: AnyTask | None, expected: dict[str, Any], every: list[CollectedJob]) -> None:
        __tracebackhide__ = True
        if found := self._matching(task, expected, every):
            raise AssertionError(surplus(Expected(task, expected), found))

    async def _aevery(self) -> list[CollectedJob]:
        await self._afollow()
        return self._every(is_asked=True)

    def _every(self, *, is_asked: bool = False) -> list[CollectedJob]:
        hidden = set(self._store.hidden(is_asked=is_asked))
        jobs = [job for job in self._jobs(JobFilter()) if job.seq > self._since and job.id not in hidden]
        return [CollectedJob(job) for job in reversed(jobs)]

    def _jobs(self, where: JobFilter) -> Iterable[Job]:
        before = None
        while True:
            page = self._store.run(PageJobs(scope=ALL_TENANTS, where=where, before=before, limit=MAX_PAGE))
            yield from page.jobs
            if len(page.jobs) < MAX_PAGE:
                return
            before = page.jobs[-1].seq

    async def _afollow(self) -> None:
        """Learn what became of transactions that only `await` can ask."""
        await self._store.arun(PageJobs(scope=ALL_TENANTS, limit=1))

    def _travel(self, until: Any) -> bool:
        """Move the clock to the next retry, or to the next delayed job by `until`; False: there is none."""
        if not isinstance(self._clock, FakeClock):
            return False
        now = self._clock.now()
        retries = [job.run_at for job in self._jobs(JobFilter(statuses=("failed",)))]
        delayed = [job.run_at for job in self._jobs(JobFilter(statuses=("pending",))) if now < job.run_at <= until]
        next_at = min((at for at in (*retries, *delayed) if at > now), default=None)
        if next_at is None:
            return False
        self._clock.advance((next_at - now).total_seconds())
        return True

    def _ended(self, ran: list[Ran], *, raising: bool) -> tuple[Ran, ...]:
        for each in ran:
            if raising and isinstance(each.outcome, Died):
                raise self._error(each)
        return tuple(ran)

    def _run_inline(self) -> None:
        if not is_on_event_loop():
            return self._raise_first(run_due(self.app))
        # An endpoint that enqueues without await: its loop cannot run a task meanwhile, so another thread does.
        with ThreadPoolExecutor(1) as elsewhere:
            return self._raise_first(elsewhere.submit(copy_context().run, run_due, self.app).result())

    async def _arun_inline(self) -> None:
        self._raise_first(await arun_due(self.app))

    def _raise_first(self, ran: tuple[Ran, ...]) -> None:
        for each in ran:
            if isinstance(each.outcome, FAILED):
                raise self._error(each)

    def _error(self, ran: Ran) -> BaseException:
        assert isinstance(ran.outcome, FAILED)
        error = ran.error or RuntimeError(ran.outcome.failure.message)
        error.add_note(f"raised by job {ran.lease.id} ({ran.lease.type}), attempt {ran.lease.attempt}")
        return error

    def _fake(self, what: str) -> FakeClock:
        if not isinstance(self._clock, FakeClock):
            raise InvalidOption(what, self._clock, "a FakeClock, which testing() uses unless another is given")
        return self._clock


def sandbox_of(task: AnyTask | None = None) -> Sandbox:
    """The sandbox of a task's application; without a task, the innermost."""
    for found in reversed(active):
        if task is None or definition_of(task) in (each.definition for each in found.app.tasks.values()):
            return found
    raise NoSandbox
