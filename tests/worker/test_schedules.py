"""Schedules fired: each nominal time once, by policy, whoever fires and whoever dies."""

from __future__ import annotations

import asyncio
import logging
import random
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fairlane import Fairlane, FakeClock
from fairlane.core.job import PRIORITY_HEADER
from fairlane.core.ops import ALL_TENANTS, DeclareSchedules, JobFilter, PageJobs, Planned
from fairlane.core.schedules import (
    NOMINAL_HEADER,
    SCHEDULE_HEADER,
    CatchUp,
    Cron,
    Overlap,
    Schedule,
    ScheduleSpec,
    firing_of,
    nominal_text,
    run_at_of,
)
from fairlane.stores.sqlite import MemoryStore
from fairlane.testing import run_due
from fairlane.worker.duties.schedules import DueSchedules, ScheduleDeclarations
from tests.support.stores import SHARED_KINDS, Ground, ground, open_at
from tests.worker.conftest import Works, eventually
from tests.worker.scheduler_process import Timed

__all__ = ["ground"]

ROOT = Path(__file__).parents[2]
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def minutes(*numbers: int) -> tuple[datetime, ...]:
    return tuple(NOON + number * MINUTE for number in numbers)


def standing(catch_up: CatchUp, overlap: Overlap = "allow", *, limit: int = 3, **given: Any) -> Schedule:
    """A schedule of every minute that is due since noon."""
    spec = ScheduleSpec(name="s", type="t", cron="* * * * *", catch_up=catch_up, catch_up_limit=limit, overlap=overlap)
    return Schedule(**{"spec": spec, "source": "code", "next_at": NOON, "declared_at": NOON, **given})


@pytest.mark.requirement("L12")
@pytest.mark.parametrize(
    ("catch_up", "overlap", "late_min", "nominal", "next_"),
    [
        ("none", "allow", 0, (0,), 1),
        ("none", "allow", 5, (), 6),
        ("latest", "allow", 5, (5,), 6),
        ("all", "allow", 1, (0, 1), 2),
        ("all", "allow", 5, (3, 4, 5), 6),
        ("all", "skip", 5, (5,), 6),
        ("all", "queue", 5, (3,), 4),
        ("latest", "queue", 5, (5,), 6),
        ("none", "queue", 5, (5,), 6),
    ],
)
def test_missed_firings_are_made_up_for_by_policy(
    catch_up: CatchUp, overlap: Overlap, late_min: int, nominal: tuple[int, ...], next_: int
) -> None:
    now = NOON + late_min * MINUTE + timedelta(seconds=20)
    firing = firing_of(standing(catch_up, overlap), Cron("* * * * *"), now)
    assert (firing.nominal, firing.next_at) == (minutes(*nominal), minutes(next_)[0])


def test_a_firing_that_is_only_late_is_made_under_every_policy() -> None:
    daily = replace(standing("none").spec, cron="0 12 * * *")
    schedule = standing("none", spec=daily)
    firing = firing_of(schedule, Cron("0 12 * * *"), NOON + timedelta(hours=23))
    assert firing.nominal == (NOON,)


def test_a_worker_whose_clock_is_behind_fires_what_the_store_calls_due() -> None:
    firing = firing_of(standing("latest"), Cron("* * * * *"), NOON - timedelta(hours=1))
    assert (firing.nominal, firing.next_at) == (minutes(0), minutes(1)[0])


def test_new_rules_of_a_zone_move_a_firing_and_lose_none() -> None:
    """Planned when Prague was an hour off; its rules have changed since."""
    cron = Cron("0 9 * * *", "Europe/Prague")
    nine = datetime(2026, 3, 2, 8, tzinfo=UTC)
    spec = replace(standing("latest").spec, cron="0 9 * * *", timezone="Europe/Prague")
    early = standing("latest", spec=spec, next_at=nine - timedelta(hours=1), last_at=nine - timedelta(days=1))
    assert firing_of(early, cron, nine - timedelta(hours=1)).nominal == ()
    assert firing_of(early, cron, nine - timedelta(hours=1)).next_at == nine
    late = standing("latest", spec=spec, next_at=nine + timedelta(hours=1), last_at=nine - timedelta(days=1))
    assert firing_of(late, cron, nine + timedelta(hours=1)).nominal == (nine,)


class Clockwork:
    """An application on a memory store at noon, and duties for it."""

    def __init__(self) -> None:
        self.clock = FakeClock(NOON)
        self.store = MemoryStore(clock=self.clock)
        self.app = Fairlane(store=self.store, clock=self.clock)
        self.duty = DueSchedules(self.app)

        @self.app.task(name="tick", refs=("user_id",))
        def tick(user_id: int = 0) -> None: ...

        self.tick = tick

    def fire(self) -> int:
        return asyncio.run(self.duty.run_once(self.clock.now())).done

    def fired(self) -> list[str]:
        """The nominal times of all jobs, oldest first."""
        jobs = self.store.run(PageJobs(scope=ALL_TENANTS, where=JobFilter(), limit=200)).jobs
        return [job.headers[NOMINAL_HEADER][11:16] for job in reversed(jobs)]


@pytest.fixture
def clockwork() -> Iterator[Clockwork]:
    clockwork = Clockwork()
    yield clockwork
    clockwork.app.close()


@pytest.mark.requirement("L12")
def test_a_due_schedule_makes_one_job_that_says_what_it_stands_for(clockwork: Clockwork) -> None:
    bound = clockwork.tick.using(tenant="acme", priority="high").bind(7)
    clockwork.app.schedules.add("quarter", bound, cron="*/15 * * * *")
    assert clockwork.fire() == 0
    clockwork.clock.advance(15 * 60)
    assert [clockwork.fire(), clockwork.fire()] == [1, 0]
    [job] = clockwork.app.jobs.list().jobs
    assert (job.type, job.tenant, job.priority, job.payload) == ("tick", "acme", 0, '{"user_id":7}')
    assert (job.idempotency_key, job.created_by, job.refs) == (
        "schedule:quarter:2026-03-01T12:15:00Z",
        "schedule:quarter",
        {"user_id": 7},
    )
    named = {SCHEDULE_HEADER: "quarter", NOMINAL_HEADER: "2026-03-01T12:15:00Z"}
    assert job.headers == {**named, PRIORITY_HEADER: "high"}
    [schedule] = clockwork.app.schedules.list()
    assert (schedule.last_at, schedule.next_at, schedule.last_job_id) == (
        *minutes(15, 30),
        job.id,
    )


@pytest.mark.requirement("L12")
def test_many_workers_fire_each_nominal_time_once(clockwork: Clockwork) -> None:
    for number in range(1, 6):
        clockwork.app.schedules.add(f"every-{number}", clockwork.tick, cron=f"*/{number} * * * *", catch_up="all")

    async def story() -> None:
        duties = [DueSchedules(clockwork.app) for _ in range(8)]
        for _ in range(20):
            clockwork.clock.advance(60)
            await asyncio.gather(*(duty.run_once(clockwork.clock.now()) for duty in duties))

    asyncio.run(story())
    jobs = clockwork.app.jobs.list(limit=200).jobs
    assert sorted((j.headers[SCHEDULE_HEADER], j.headers[NOMINAL_HEADER]) for j in jobs) == sorted(
        (f"every-{n}", nominal_text(NOON + m * MINUTE)) for n in range(1, 6) for m in range(1, 21) if m % n == 0
    )


@pytest.mark.requirement("L12")
def test_the_next_look_is_when_the_next_schedule_is_due(clockwork: Clockwork) -> None:
    def look() -> tuple[int, float | None]:
        report = asyncio.run(clockwork.duty.run_once(clockwork.clock.now()))
        return report.done, report.next_s

    assert look() == (0, 10)
    clockwork.clock.advance(0.75)
    clockwork.app.schedules.add("rare", clockwork.tick, cron="0 * * * *")
    assert look() == (0, 10)
    clockwork.app.schedules.add("s", clockwork.tick, every=4)
    assert look() == (0, 3.25)
    clockwork.clock.advance(3.75)  # half a second late
    assert [look(), look()] == [(1, 3.5), (0, 3.5)]
    clockwork.clock.advance(3.5)
    assert look() == (1, 4)
    clockwork.app.schedules.pause("s")
    assert look() == (0, 10)
    assert clockwork.app.schedules.get("s").last_at == NOON + timedelta(seconds=8)


def test_a_firing_that_waits_for_a_job_is_tried_again_at_the_next_time(clockwork: Clockwork) -> None:
    clockwork.app.schedules.add("s", clockwork.tick, every=2, overlap="queue")
    clockwork.clock.advance(2)
    clockwork.fire()
    clockwork.clock.advance(2.5)
    report = asyncio.run(clockwork.duty.run_once(clockwork.clock.now()))
    assert (report.done, report.next_s) == (0, 1.5)


@pytest.mark.requirement("L12")
def test_many_workers_fire_each_instant_of_an_interval_once(clockwork: Clockwork) -> None:
    clockwork.app.schedules.add("s", clockwork.tick, every=10, catch_up="all", ends_at=NOON + 2 * MINUTE)

    async def story() -> None:
        duties = [DueSchedules(clockwork.app) for _ in range(4)]
        for span_s in (3, 7, 1, 9, 44, 13, 600):
            clockwork.clock.advance(span_s)
            await asyncio.gather(*(duty.run_once(clockwork.clock.now()) for duty in duties))

    asyncio.run(story())
    jobs = clockwork.app.jobs.list(limit=200).jobs
    expected = [nominal_text(NOON + timedelta(seconds=10 * number)) for number in range(1, 13)]
    assert sorted(job.headers[NOMINAL_HEADER] for job in jobs) == expected
    assert clockwork.app.schedules.get("s").state == "ended"


def test_jitter_lets_the_job_of_a_firing_begin_later(clockwork: Clockwork) -> None:
    clockwork.app.schedules.add("s", clockwork.tick, every=30, jitter=20)
    clockwork.clock.advance(30)
    assert clockwork.fire() == 1
    [job] = clockwork.app.jobs.list().jobs
    spec = clockwork.app.schedules.get("s").spec
    assert job.headers[NOMINAL_HEADER] == nominal_text(NOON + timedelta(seconds=30))
    assert job.run_at == run_at_of(spec, NOON + timedelta(seconds=30))
    assert NOON + timedelta(seconds=30) < job.run_at < NOON + timedelta(seconds=50)
    assert len(run_due(clockwork.app)) == 0
    clockwork.clock.advance(20)
    assert len(run_due(clockwork.app)) == 1


def test_skip_passes_over_a_firing_while_the_last_job_is_unfinished(clockwork: Clockwork) -> None:
    clockwork.app.schedules.add("s", clockwork.tick, cron="* * * * *", overlap="skip")
    for _ in range(3):
        clockwork.clock.advance(60)
        clockwork.fire()
    assert clockwork.fired() == ["12:01"]
    run_due(clockwork.app)
    clockwork.clock.advance(60)
    clockwork.fire()
    assert clockwork.fired() == ["12:01", "12:04"]


def test_queue_waits_for_the_last_job_and_then_goes_on_one_by_one(clockwork: Clockwork) -> None:
    clockwork.app.schedules.add(
        "s", clockwork.tick, cron="* * * * *", overlap="queue", catch_up="all", catch_up_limit=2
    )
    for _ in range(4):
        clockwork.clock.advance(60)
        clockwork.fire()
    assert clockwork.fired() == ["12:01"]
    for _ in range(5):
        run_due(clockwork.app)
        clockwork.fire()
    assert clockwork.fired() == ["12:01", "12:03", "12:04"]


def test_a_worker_whose_clock_is_ahead_fires_nothing_early(clockwork: Clockwork) -> None:
    clockwork.app.schedules.add("s", clockwork.tick, cron="* * * * *", catch_up="all")
    ahead = FakeClock(NOON + timedelta(hours=5))
    duty = DueSchedules(Fairlane(store=clockwork.store, clock=ahead))
    clockwork.clock.advance(60)
    for _ in range(3):
        asyncio.run(duty.run_once(ahead.now()))
    assert clockwork.fired() == ["12:01"]


def test_a_paused_schedule_fires_nothing_and_goes_on_from_its_next_time(clockwork: Clockwork) -> None:
    clockwork.app.schedules.add("s", clockwork.tick, cron="* * * * *", catch_up="all")
    clockwork.app.schedules.pause("s")
    clockwork.clock.advance(600)
    assert clockwork.fire() == 0
    clockwork.app.schedules.resume("s")
    assert clockwork.fire() == 0
    clockwork.clock.advance(60)
    clockwork.fire()
    assert clockwork.fired() == ["12:11"]


def test_a_schedule_nobody_can_read_is_reported_once_and_keeps_no_other_from_firing(
    clockwork: Clockwork, caplog: pytest.LogCaptureFixture
) -> None:
    odd = ScheduleSpec(name="a-odd", type="tick", cron="every now and then")
    clockwork.store.run(DeclareSchedules(schedules=(Planned(spec=odd, next_at=NOON),)))
    clockwork.app.schedules.add("s", clockwork.tick, cron="* * * * *")
    for _ in range(3):
        clockwork.clock.advance(60)
        clockwork.fire()
    assert clockwork.fired() == ["12:01", "12:02", "12:03"]
    assert caplog.text.count("a-odd cannot be read") == 1


@pytest.mark.requirement("L12")
def test_a_worker_declares_the_schedules_of_its_code_and_prunes_only_when_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    clock = FakeClock(NOON)
    store = MemoryStore(clock=clock)

    def started(*names: str, **settings: Any) -> list[str]:
        app = Fairlane(store=store, clock=clock, **settings)
        for name in names:

            @app.task(name=name, cron="@daily")
            def any_() -> None: ...

        report = asyncio.run(ScheduleDeclarations(app).run_once(clock.now()))
        assert report.next_s is None
        return [schedule.spec.name for schedule in app.schedules.list()]

    assert started("a", "b") == ["a", "b"]
    assert started("b") == ["a", "b"]
    assert started("b", prune_schedules=True) == ["b"]
    assert started(prune_schedules=True) == []
    assert "schedules added: a, b" in caplog.text
    assert "schedules removed: a" in caplog.text


@pytest.mark.requirement("L12")
def test_an_engine_fires_the_schedules_of_its_code(works: Works) -> None:
    ran: list[str] = []

    @works.app.task(name="shop.cron", cron="* * * * *")
    async def cron() -> None:
        ran.append("cron")

    async def story() -> None:
        engine = works.engine()
        running = asyncio.create_task(engine.run())
        await eventually(works.app.schedules.list)
        # Nobody waits a minute for it: the schedule is put back to a time that has come.
        [schedule] = works.app.schedules.list()
        past = Planned(spec=replace(schedule.spec, catch_up_limit=5), next_at=works.app.runtime.clock.now() - MINUTE)
        works.app.runtime.store.run(DeclareSchedules(schedules=(past,)))
        await eventually(lambda: ran, within_s=15)
        engine.stop()
        await running

    asyncio.run(story())


class Schedulers:
    """Processes that fire, each of which may die at any operation."""

    def __init__(self, kind: str, address: str, count: int) -> None:
        self._command = [sys.executable, "-m", "tests.worker.scheduler_process", kind, address]
        self._alive = [self._start() for _ in range(count)]
        for process in self._alive:
            self._hear(process, "ready")

    def tick(self, at: datetime, chance: random.Random, kills: int) -> None:
        """Let all fire at one instant, and kill so many of them on the way; others take their place."""
        for process in self._alive:
            self._say(process, at)
        for process in chance.sample(self._alive, kills):
            for _ in range(chance.randrange(0, 12)):
                if self._line(process) == "done":
                    break
            process.kill()
            with process:
                pass
            self._alive.remove(process)
        for process in self._alive:
            self._hear(process, "done")
        self._alive += [self._start() for _ in range(kills)]

    def close(self) -> None:
        for process in self._alive:
            process.kill()
            with process:
                pass

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(self._command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def _say(self, process: subprocess.Popen[str], at: datetime) -> None:
        assert process.stdin is not None
        process.stdin.write(f"{at.isoformat()}\n")
        process.stdin.flush()

    def _line(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"a scheduler ended with {process.wait(10)}; its traceback is above"
        return line.strip()

    def _hear(self, process: subprocess.Popen[str], word: str) -> None:
        while self._line(process) != word:
            pass


LONG = [pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.mark.requirement("L12")
@pytest.mark.parametrize(
    ("kind", "processes", "schedules", "ticks", "kills"),
    [
        pytest.param("sqlite-apsw", 3, 8, 12, 5, id="sqlite"),
        *(pytest.param(kind, 8, 50, 120, 60, id=f"{kind}-long", marks=LONG) for kind in SHARED_KINDS),
    ],
)
def test_schedulers_that_are_killed_at_any_moment_fire_exactly_the_nominal_times(
    ground: Ground, kind: str, processes: int, schedules: int, ticks: int, kills: int
) -> None:
    address, chance = ground.address(kind), random.Random(7)
    store = open_at(kind, address)
    clock = FakeClock(NOON)
    timed = Timed(store, clock)
    crons = {
        f"schedule-{n:02}": Cron(f"{n % 4 and '*'}/{n % 5 + 1} * * * *", "Asia/Kathmandu") for n in range(schedules)
    }
    specs = [
        ScheduleSpec(name=name, type="tick", cron=cron.expression, timezone=cron.timezone, catch_up="all")
        for name, cron in crons.items()
    ]
    timed.run(
        DeclareSchedules(
            schedules=tuple(Planned(spec=spec, next_at=crons[spec.name].next_after(NOON)) for spec in specs)
        )
    )
    running = Schedulers(kind, address, processes)
    fatal = chance.sample(range(1, ticks), kills) if kills < ticks else list(range(1, ticks))
    try:
        for number in range(1, ticks + 1):
            running.tick(NOON + number * MINUTE, chance, kills=fatal.count(number))
    finally:
        running.close()
    end = NOON + ticks * MINUTE
    expected = sorted(
        (name, nominal_text(at))
        for name, cron in crons.items()
        for at in cron.latest(10_000, NOON + timedelta(seconds=1), end)
    )
    assert sorted(_fired(timed)) == expected
    store.close()


def _fired(store: Timed) -> Iterator[tuple[str, str]]:
    before = None
    while True:
        page = store.run(PageJobs(scope=ALL_TENANTS, where=JobFilter(), limit=200, before=before))
        yield from ((job.headers[SCHEDULE_HEADER], job.headers[NOMINAL_HEADER]) for job in page.jobs)
        if page.next is None:
            return
        before = page.next
