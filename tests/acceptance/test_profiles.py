"""The three profiles, seen in jobs: what they wait, how many run at once, when they are stopped, who is refused."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import psycopg
import pytest

from fairlane import Fairlane, QueuePolicy, RateLimited, Retry, current_job
from fairlane.client.settings.load import load
from fairlane.core.chance import FixedChance
from fairlane.core.clock import FakeClock, SystemClock
from fairlane.core.ids import JobId, WorkerId
from fairlane.core.ops import Reclaim, Renew, Turn
from fairlane.core.profiles import Lane, ProfileName
from fairlane.errors import ConfigError
from fairlane.stores.sqlite import MemoryStore
from fairlane.testing import run_due
from fairlane.testing.conformance.samples import NOON
from fairlane.worker import turns
from fairlane.worker.config import WorkerConfig
from fairlane.worker.engine import Engine
from tests.support.stores import Ground, open_at

UNLIMITED = ("development", "production")
QUEUES = ("critical", "default", "bulk", "mail")
"""The three that every profile has, and one that nobody configured."""
W = (2, 4, 8, 16)


class Middle(FixedChance):
    """Draws the middle, so that a delay is its figure; or another fraction."""

    def __init__(self, at: float = 0.5) -> None:
        super().__init__(1)
        self._at = at

    def fraction(self) -> float:
        return self._at


def made(clock: FakeClock, at: float = 0.5, **settings: Any) -> Fairlane:
    return Fairlane(store=MemoryStore(clock), clock=clock, chance=Middle(at), **settings)


def waits(app: Fairlane, enqueue: Callable[[], Any]) -> list[float]:
    """Run a job each time it is due, never before, until it is dead: how long it waited after each failure."""
    clock = cast("FakeClock", app.runtime.clock)
    handle, found = enqueue(), []
    while True:
        [ran] = run_due(app)
        assert ran.lease.id == handle.id
        job = handle.job()
        if job.status == "dead":
            return [round(wait, 6) for wait in found]
        wait_s = (job.run_at - clock.now()).total_seconds()
        clock.advance(wait_s - 0.001)
        assert run_due(app) == (), "not before its time"
        clock.advance(0.001)
        found.append(wait_s)


def failing(app: Fairlane, error: Exception | None = None, seen: dict[UUID, int] | None = None, **options: Any) -> Any:
    """A task that fails, and notes how many attempts its jobs say they have."""

    @app.task(name=f"fails.{len(app.tasks)}", **options)
    def fails() -> None:
        if seen is not None:
            seen[current_job().id] = current_job().max_attempts
        raise error or ConnectionError("no")

    return fails


@pytest.mark.requirement("W8", "W9", "I1", "I6", "D1", "D17")
@pytest.mark.parametrize(
    ("profile", "queue", "delays"),
    [
        *((profile, queue, W) for profile in UNLIMITED for queue in QUEUES),
        ("isolation", "critical", (10, 30, 60)),
        ("isolation", "default", (60, 300, 900)),
        ("isolation", "bulk", (300, 900)),
        ("isolation", "mail", W),
    ],
)
def test_a_failing_job_waits_as_its_profile_and_queue_say_and_then_is_dead(
    profile: str, queue: str, delays: tuple[float, ...]
) -> None:
    with made(FakeClock(NOON), profile=profile) as app:
        task = failing(app, queue=queue)
        handle = task.enqueue()
        assert waits(app, lambda: handle) == list(delays)
        assert (handle.job().attempts, handle.job().max_attempts) == (len(delays) + 1, len(delays) + 1)
        [letter] = app.dead_letters.list().dead_letters
        assert letter.job.id == handle.id


@pytest.mark.requirement("W9", "L11", "D17")
@pytest.mark.parametrize(("profile", "cap_s"), [("development", 60), ("production", 300), ("isolation", 300)])
def test_no_delay_is_above_the_cap_of_the_profile_nor_beyond_a_fifth_of_its_figure(profile: str, cap_s: float) -> None:
    figures = [min(2.0**n, cap_s) for n in range(1, 12)]
    for at in (0.0, 0.5, 0.999999):
        with made(FakeClock(NOON), at, profile=profile) as app:
            found = waits(app, failing(app, queue="mail", max_attempts=12).enqueue)
        spread = [min(1.2 * figure, cap_s) - 0.8 * figure for figure in figures]
        expected = [0.8 * figure + at * wide for figure, wide in zip(figures, spread, strict=True)]
        assert found == pytest.approx(expected, rel=1e-4)
        assert max(found) <= cap_s


@pytest.mark.requirement("W9", "D1")
@pytest.mark.parametrize(
    ("profile", "queue", "delays"),
    [
        ("development", "default", (60, 60, 60, 60)),
        ("production", "default", (60, 120, 240, 300)),
        ("isolation", "bulk", (60, 120)),
    ],
)
def test_a_rate_limited_job_takes_the_slow_list_whatever_its_queue_says(
    profile: str, queue: str, delays: tuple[float, ...]
) -> None:
    with made(FakeClock(NOON), profile=profile, retry={"jitter": 0.0}) as app:
        assert waits(app, failing(app, RateLimited(), queue=queue).enqueue) == list(delays)
    with made(FakeClock(NOON), 0.0, profile=profile) as app:
        task = failing(app, RateLimited(retry_after=7), queue=queue, retry=Retry(max_attempts=2, delays=(90.0,)))
        assert waits(app, task.enqueue) == [7], "a server's own time goes before everything"


@pytest.mark.requirement("D1", "L7")
def test_call_task_queue_error_class_and_application_go_before_each_other_in_this_order() -> None:
    def policy(s: float) -> Retry:
        return Retry(max_attempts=2, delays=(s,))

    settings: dict[str, Any] = {
        "retry": policy(50),
        "retry_by_class": {"transient": {"delays": [40]}},
        "queues": {"mail": {"retry": {"max_attempts": 2, "delays": [30]}}},
    }
    with made(FakeClock(NOON), **settings) as app:
        own = failing(app, queue="mail", retry=policy(20))
        assert waits(app, own.using(retry=policy(10)).enqueue) == [10]
        assert waits(app, own.enqueue) == [20]
        assert waits(app, failing(app, queue="mail").enqueue) == [30]
        assert waits(app, failing(app).enqueue) == [40]
        assert waits(app, failing(app, ValueError("x")).enqueue) == [50]


@pytest.mark.requirement("L7", "D17")
def test_the_application_s_policy_can_be_an_argument_a_table_or_a_variable(tmp_path: Path) -> None:
    file = tmp_path / "fairlane.toml"
    file.write_text(
        "[retry]\nmax_attempts = 4\nbase_s = 1\njitter = 0\ncap_s = 3\n[retry_by_class.rate_limited]\nbase_s = 9\n"
    )
    environ = {"FAIRLANE_RETRY": '{"max_attempts": 3, "delays": [5, 6]}'}
    for settings, delays in (
        (load({"retry": Retry.doubling(max_attempts=4)}, environ={}, directory=tmp_path), [1, 2, 4]),
        (load(environ={}, directory=tmp_path), [1, 2, 3]),
        (load(environ=environ, directory=tmp_path), [5, 6]),
    ):
        clock = FakeClock(NOON)
        with Fairlane(settings=settings, store=MemoryStore(clock), clock=clock, chance=Middle()) as app:
            assert waits(app, failing(app).enqueue) == delays
    with made(FakeClock(NOON), settings=load(environ={}, directory=tmp_path)) as app:
        assert waits(app, failing(app, RateLimited()).enqueue) == [9, 18, 36]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"retry": {"attempts": 3}}, 'Nearest: "max_attempts"'),
        ({"retry": {"max_attempts": 0}}, "max_attempts"),
        ({"retry": 5}, "expected a table"),
        ({"retry_by_class": {"transiet": {}}}, 'Nearest: "transient"'),
        ({"retry_by_class": {"non_retryable": {}}}, "expected one of transient, retryable, rate_limited"),
        ({"retry_by_class": {"transient": {"max_attempts": 3}}}, "a job has its attempts before it fails"),
        ({"breaker": {"treshold": 3}}, 'Nearest: "threshold"'),
        ({"breaker": {"threshold": 0}}, "threshold"),
        ({"fast_timeout_s": 0}, "fast_timeout_s"),
        ({"profile": "isolated"}, "expected one of development, production, isolation"),
    ],
    ids=str,
)
def test_a_figure_that_makes_no_sense_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Fairlane("memory://", **settings)


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    ground = Ground()
    yield ground
    ground.close()


@pytest.mark.requirement("D17", "W8")
@pytest.mark.parametrize("profile", UNLIMITED)
def test_a_job_enqueued_by_sql_has_the_policy_of_one_enqueued_by_the_client(
    ground: Ground, profile: ProfileName
) -> None:
    dsn = ground.address("postgres")
    with closing(open_at("postgres", dsn)) as store, Fairlane(store=store, chance=Middle(), profile=profile) as app:
        for queue in QUEUES:
            task = failing(app, queue=queue)
            ours, theirs = task.enqueue().id, by_sql(dsn, task.name, queue)
            assert policy_of(app, theirs) == policy_of(app, ours) == (5, None, 5, queue)
            run_due(app)
            assert [first_wait_s(app, job) for job in (ours, theirs)] == [2, 2]


@pytest.mark.requirement("D17")
def test_a_job_enqueued_by_sql_has_the_attempts_of_its_queue_and_task_too(ground: Ground) -> None:
    """Told by how often it fails before it is dead, under the profile whose queues have lists, and with a task's own."""
    dsn = ground.address("postgres")
    policies = {
        name: QueuePolicy(name=name, retry=Retry(max_attempts=n, delays=(0.0,))) for name, n in (("two", 2), ("six", 6))
    }
    with closing(open_at("postgres", dsn)) as store, Fairlane(store=store, queues=policies, profile="isolation") as app:
        for options, attempts in (
            ({"queue": "two"}, 2),
            ({"queue": "six"}, 6),
            ({"queue": "two", "max_attempts": 3}, 3),
            ({"queue": "six", "retry": Retry(max_attempts=4, delays=(0.0,))}, 4),
        ):
            seen: dict[UUID, int] = {}
            task = failing(app, seen=seen, **options)
            name, queue = task.name, task.definition.queue
            ours = task.enqueue().id
            theirs, keyed = by_sql(dsn, name, queue), by_sql(dsn, name, queue, idempotency_key=name)
            own = by_sql(dsn, name, queue, max_attempts=1)
            run_due(app)
            found = [app.jobs.get(job) for job in (ours, theirs, keyed, own)]
            assert seen == {ours: attempts, theirs: attempts, keyed: attempts, own: 1}, "as the code of the job sees it"
            assert [(job.status, job.attempts) for job in found if job] == [("dead", attempts)] * 3 + [("dead", 1)]


@pytest.mark.requirement("D17")
def test_under_isolation_a_job_enqueued_by_sql_waits_as_its_queue_says(ground: Ground) -> None:
    dsn = ground.address("postgres")
    with closing(open_at("postgres", dsn)) as store, Fairlane(store=store, profile="isolation") as app:
        for queue, delay_s in (("critical", 10), ("default", 60), ("bulk", 300)):
            task = failing(app, queue=queue)
            ours, theirs = task.enqueue().id, by_sql(dsn, task.name, queue)
            run_due(app)
            assert [first_wait_s(app, job) for job in (ours, theirs)] == [delay_s, delay_s]


def by_sql(dsn: str, type: str, queue: str, **more: Any) -> JobId:
    with psycopg.connect(dsn, autocommit=True) as conn:
        call = json.dumps([{"type": type, "queue": queue, "payload": {}, **more}])
        row = conn.execute("select fairlane.enqueue_v1(%s::json)", (call,)).fetchone()
    assert row is not None
    return JobId(UUID(row[0]["receipts"][0]["id"]))


def policy_of(app: Fairlane, id: JobId) -> tuple[object, ...]:
    job = app.jobs.get(id)
    assert job is not None
    return job.max_attempts, job.timeout_s, job.priority, job.queue


def first_wait_s(app: Fairlane, id: JobId) -> float:
    job = app.jobs.get(id)
    assert job is not None
    assert job.last_error_at is not None
    return round((job.run_at - job.last_error_at).total_seconds(), 1)


class Gate:
    """Jobs that run until they are let go, and how many of each queue ran at once."""

    def __init__(self, app: Fairlane, queues: tuple[str, ...] = QUEUES) -> None:
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.open = asyncio.Event()
        for queue in queues:

            @app.task(name=f"gate.{queue}", queue=queue)
            async def wait(queue: str) -> None:
                self.running[queue] += 1
                self.most[queue] = max(self.most[queue], self.running[queue])
                await self.open.wait()
                self.running[queue] -= 1

            app.enqueue_many([wait.bind(queue) for _ in range(12)])


async def at_once(app: Fairlane, gate: Gate, expected: Mapping[str, int]) -> None:
    async with app.running(drain=True):
        await eventually(lambda: gate.running == expected)
        for _ in range(20):  # the lanes have claimed all they may: nothing more begins
            await asyncio.sleep(0)
        assert gate.running == expected
        gate.open.set()
    assert gate.running.total() == 0


@pytest.mark.requirement("I1", "D8", "D17")
@pytest.mark.parametrize(
    ("profile", "slots", "expected"),
    [
        ("development", {}, {"critical": 3}),
        ("production", {}, {"critical": 8}),
        ("isolation", {}, {"critical": 4, "default": 8, "bulk": 2}),
        ("isolation", {"bulk": 3, "mail": 1}, {"critical": 4, "default": 8, "bulk": 3, "mail": 1}),
        ("production", {"bulk": 1}, {"critical": 8, "bulk": 1}),
    ],
)
def test_as_many_jobs_of_a_queue_run_at_once_as_it_has_slots(
    profile: ProfileName, slots: dict[str, int], expected: dict[str, int]
) -> None:
    queues = {name: {"slots": count} for name, count in slots.items()}
    with Fairlane(store=MemoryStore(), profile=profile, queues=cast("Any", queues)) as app:

        async def story() -> Gate:
            gate = Gate(app)
            await at_once(app, gate, expected)
            return gate

        gate = asyncio.run(story())
        for queue, count in expected.items():
            assert gate.most[queue] >= count
        if profile == "isolation":
            assert {queue: gate.most[queue] for queue in expected} == expected, "never more than the queue's slots"


class Ahead(SystemClock):
    """The machine's time, and as much more as a test says."""

    ahead_s = 0.0

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.ahead_s)

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s


@pytest.mark.requirement("L9", "I1", "D8", "D17")
@pytest.mark.parametrize(
    ("profile", "queue", "fast", "timeout_s"),
    [
        *((profile, "critical", None, 120) for profile in UNLIMITED),
        *((profile, queue, None, 1200) for profile in UNLIMITED for queue in ("default", "bulk", "mail")),
        ("production", "default", True, 120),
        ("production", "critical", False, 1200),
        ("isolation", "critical", None, 60),
        ("isolation", "default", None, 300),
        ("isolation", "bulk", None, 600),
        ("isolation", "mail", None, 1200),
        ("isolation", "mail", True, 120),
    ],
)
def test_a_job_is_stopped_at_the_timeout_of_its_queue_or_at_the_fast_or_the_slow_one(
    profile: ProfileName, queue: str, fast: bool | None, timeout_s: float
) -> None:
    clock = Ahead()
    with Fairlane(store=MemoryStore(clock), clock=clock, profile=profile) as app:

        async def story() -> None:
            began, ended = asyncio.Event(), asyncio.Event()

            @app.task(name="hangs", queue=queue, max_attempts=1, **({} if fast is None else {"fast": fast}))
            async def hangs() -> None:
                began.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.set()

            handle = hangs.enqueue()
            worker = WorkerId(app.runtime.new_job_id())
            app.runtime.store.run(Renew(worker=worker, lease_s=1e6))
            engine = Engine(app, WorkerConfig(poll_s=0.05), worker)
            running = asyncio.create_task(engine.run())
            await began.wait()
            await eventually(lambda: handle.status() == "processing")
            clock.ahead_s = timeout_s - 20
            await asyncio.to_thread(app.runtime.store.run, Reclaim())
            engine.watchdog.run_once(clock.monotonic())
            assert not ended.is_set()
            assert handle.status() == "processing"
            clock.ahead_s = timeout_s + 1
            await eventually(lambda: handle.status() == "dead")
            job = handle.job()
            assert (job.error_type, job.last_error) == (
                "TimeoutError",
                f"ran longer than its timeout of {timeout_s:g} s",
            )
            engine.stop()
            await running

        asyncio.run(story())


@pytest.mark.requirement("L9")
def test_a_fast_task_joins_the_fast_queue_and_settings_change_both_timeouts() -> None:
    with Fairlane("memory://", fast_timeout_s=5, slow_timeout_s=50) as app:
        quick, other = failing(app, fast=True), failing(app)
        rules = app.runtime.preparer.rules
        assert (quick.definition.queue, other.definition.queue) == ("critical", "default")
        assert rules(quick.definition, "critical").timeout_s == 5
        assert rules(other.definition, "default").timeout_s == 50
        assert rules(other.definition, "critical").timeout_s == 5


@pytest.mark.requirement("L9", "D7")
def test_the_store_gives_a_job_twice_the_timeout_it_really_has() -> None:
    """The deadline in the store follows the task's timeout, also where the claim could not know it."""
    clock = Ahead()
    with Fairlane(store=MemoryStore(clock), clock=clock, profile="production") as app:

        async def story() -> None:
            gate = Gate(app, ("critical", "bulk"))
            worker = WorkerId(app.runtime.new_job_id())
            app.runtime.store.run(Renew(worker=worker, lease_s=1e6))
            engine = Engine(app, WorkerConfig(lanes=(Lane("all", 24),), poll_s=0.05), worker)
            running = asyncio.create_task(engine.run())
            await eventually(lambda: gate.running.total() == 24)
            clock.ahead_s = 1.0  # past the time after which a start is reported
            await eventually(lambda: all(slot.reported for slot in engine.state.slots))
            now, found = clock.now(), Counter[tuple[float, str]]()
            for after_s in (230, 250, 2390, 2410):
                reclaimed = app.runtime.store.run(Reclaim(now=now + timedelta(seconds=after_s))).reclaimed
                found.update((after_s, app.jobs.get(one.id).type) for one in reclaimed)  # type: ignore[union-attr]
            assert found == {(250, "gate.critical"): 12, (2410, "gate.bulk"): 12}
            gate.open.set()
            engine.stop()
            await running

        asyncio.run(story())


@pytest.mark.requirement("L11")
def test_a_worker_of_certain_types_leaves_the_others_unclaimed() -> None:
    with Fairlane(store=MemoryStore(), profile="development") as app:
        ran = []

        @app.task(name="mail.send")
        def send() -> None:
            ran.append("mail.send")

        @app.task(name="report.make")
        def make() -> None:
            ran.append("report.make")

        others = app.enqueue_many([make.bind() for _ in range(30)])
        mails = app.enqueue_many([send.bind() for _ in range(3)])
        with app.running(types=["mail.send"], drain=True):
            for mail in mails:
                mail.result(timeout=30)
        assert ran == ["mail.send"] * 3
        assert {(other.status(), other.job().attempt) for other in others} == {("pending", 0)}


class Listening(MemoryStore):
    """Keeps the Turns it is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[Turn] = []

    async def arun(self, op: Any, **more: Any) -> Any:
        if isinstance(op, Turn):
            self.turns.append(op)
        return await super().arun(op, **more)


@pytest.mark.requirement("L11", "D17")
@pytest.mark.parametrize(
    ("profile", "config", "most"),
    [
        ("development", WorkerConfig(), 5),
        ("production", WorkerConfig(), 20),
        ("production", WorkerConfig(batch=7), 7),
        ("development", WorkerConfig(slots=3), None),
    ],
)
def test_no_claim_asks_for_more_than_the_batch(profile: ProfileName, config: WorkerConfig, most: int | None) -> None:
    store = Listening()
    with Fairlane(store=store, profile=profile) as app:

        @app.task(name="quick")
        async def quick() -> None: ...

        app.enqueue_many([quick.bind() for _ in range(2000)])
        with app.running(config=config, drain=True):
            pass
        asked = [want.limit for turn in store.turns for want in turn.wants]
        assert max(asked) == most if most is not None else max(asked) > 5


@pytest.mark.requirement("L11", "Q7", "D17")
@pytest.mark.parametrize(
    ("profile", "config", "poll_s"),
    [
        ("development", WorkerConfig(), 2.0),
        ("production", WorkerConfig(), 1.0),
        ("isolation", WorkerConfig(), 5.0),
        ("production", WorkerConfig(poll_s=0.3), 0.3),
    ],
)
def test_an_idle_worker_that_nobody_wakes_claims_again_after_the_poll_interval(
    monkeypatch: pytest.MonkeyPatch, profile: ProfileName, config: WorkerConfig, poll_s: float
) -> None:
    pauses: list[float] = []

    class NoTime:
        """A timeout that is over at once, and remembers what it was asked for."""

        def __init__(self, pause_s: float) -> None:
            pauses.append(pause_s)

        async def __aenter__(self) -> None:
            await asyncio.sleep(0)
            raise TimeoutError

        async def __aexit__(self, *error: object) -> None: ...

    with Fairlane(store=MemoryStore(), profile=profile) as app:

        @app.task(name="quick")
        async def quick() -> None: ...

        async def story() -> None:
            worker = WorkerId(app.runtime.new_job_id())
            app.runtime.store.run(Renew(worker=worker, lease_s=1e6))
            engine = Engine(app, config, worker)
            monkeypatch.setattr(turns, "asyncio", SimpleNamespace(timeout=NoTime, sleep=asyncio.sleep))
            running = asyncio.create_task(engine.run())
            await eventually(lambda: len(pauses) > 8)
            engine.stop()
            await running

        asyncio.run(story())
        assert set(pauses[4:8]) == {poll_s}, "after the first claims of a worker that has just fallen idle"


async def eventually(condition: Callable[[], bool], within_s: float = 30.0) -> None:
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - what it waits for is in a store
            await asyncio.sleep(0.005)
