"""A worker whose store's clock is set: it notices by its own, and brings back what began in the future."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from fairlane import Fairlane, FakeClock
from fairlane.core.chance import FixedChance
from fairlane.core.ids import WorkerId
from fairlane.core.ops import BringBack
from fairlane.core.profiles import ANY, Lane
from fairlane.errors import StoreUnavailable
from fairlane.stores.sqlite import MemoryStore
from fairlane.testing.conformance.samples import NOON
from fairlane.worker.config import WorkerConfig
from fairlane.worker.duties.schedules import DueSchedules
from fairlane.worker.duties.table import ClockCheck
from fairlane.worker.state import WorkerState

WARNING = "the store's clock was set back by 3600 s"


class Site:
    def __init__(self) -> None:
        self.clock = FakeClock(NOON)
        self.app = Fairlane(store=MemoryStore(clock=self.clock), clock=self.clock, chance=FixedChance())
        config = WorkerConfig(lanes=(Lane("general", 2, (ANY,)),))
        self.state = WorkerState(self.app, config, WorkerId(self.app.runtime.new_job_id()))
        self.work = self.app.task(name="work")(lambda: None)
        self.schedules = DueSchedules(self.app)

    def check(self) -> ClockCheck:
        return ClockCheck(self.state, self.schedules)

    def jump(self, seconds: float) -> None:
        """The store's clock, not that by which a worker measures spans."""
        self.clock._now += timedelta(seconds=seconds)

    def turned(self, took_s: float = 0.0, waits_s: float = 0.0) -> None:
        """A Turn is sent, answered after `took_s`, and the next one comes `waits_s` later."""
        sent_s = self.clock.monotonic()
        self.clock.advance(took_s)
        self.state.set_store_time(self.clock.now(), sent_s, self.clock.monotonic())
        self.clock.advance(waits_s)


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.app.close()


@pytest.mark.parametrize("waits_s", [0.0, 5.0, 4000.0])
def test_a_clock_set_back_is_noticed_by_the_next_turn_and_told_once(
    site: Site, caplog: pytest.LogCaptureFixture, waits_s: float
) -> None:
    site.turned(took_s=0.1, waits_s=waits_s)
    site.jump(-3600)
    site.turned()
    site.turned()
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [WARNING]
    assert site.state.take_set_back() == pytest.approx(3600, abs=1)
    assert site.state.take_set_back() is None


@pytest.mark.parametrize(("jump_s", "took_s"), [(0, 0), (0, 30), (-1.9, 0), (9, 0), (0, 3600)])
def test_a_slow_answer_or_a_small_step_is_no_clock_that_was_set(
    site: Site, caplog: pytest.LogCaptureFixture, jump_s: float, took_s: float
) -> None:
    site.turned(took_s=took_s, waits_s=1)
    site.jump(jump_s)
    site.turned(took_s=took_s)
    assert caplog.records == []
    assert site.state.take_set_back() is None


def test_a_clock_that_goes_ahead_is_told_and_nothing_is_brought_back(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.turned()
    site.jump(3600)
    site.turned()
    assert "the store's clock went ahead by 3600 s" in caplog.text
    assert site.state.take_set_back() is None


def test_a_worker_that_starts_looks_once_and_then_only_when_a_turn_has_noticed(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[Any] = []
    run = site.app.runtime.store.arun
    site.app.runtime.access.arun = lambda op, **on: (asked.append(op), run(op, **on))[1]  # type: ignore[method-assign]
    check = site.check()
    for _ in range(3):
        assert asyncio.run(check.run_once(site.clock.now())).next_s == 1
    assert asked == [BringBack()]
    site.jump(3600)
    site.turned()
    site.work.using(delay=30).enqueue()
    site.jump(-3600)
    site.turned()
    caplog.clear()
    for _ in range(3):
        asyncio.run(check.run_once(site.clock.now()))
    assert [op.behind_s for op in asked if isinstance(op, BringBack)] == [None, 3600]
    assert caplog.records == [], "told by the Turn already"
    asyncio.run(site.check().run_once(site.clock.now()))
    assert WARNING in caplog.text, "another worker, started afterwards"


def test_what_the_store_did_not_answer_is_sent_again(site: Site) -> None:
    site.turned()
    check = site.check()
    asyncio.run(check.run_once(site.clock.now()))
    site.jump(-3600)
    site.turned()
    run, failures = site.app.runtime.store.arun, [StoreUnavailable("memory", "away", "wait")]

    async def arun(op: Any, **on: Any) -> Any:
        if failures:
            raise failures.pop()
        return await run(op, **on)

    site.app.runtime.access.arun = arun  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        asyncio.run(check.run_once(site.clock.now()))
    asyncio.run(check.run_once(site.clock.now()))
    assert site.app.runtime.store.run(BringBack()).behind_s == 0
    assert site.state.take_set_back() is None


@pytest.mark.requirement("L12")
def test_schedules_fire_at_their_next_time_and_no_time_fires_twice(site: Site) -> None:
    for name, cron in (("minutely", "* * * * *"), ("daily", "0 9 * * *")):
        site.app.schedules.add(name, site.work, cron=cron)
    daily_at = {schedule.spec.name: schedule.next_at for schedule in site.app.schedules.list()}["daily"]
    check = site.check()
    asyncio.run(check.run_once(site.clock.now()))
    site.turned()
    site.jump(600)
    site.turned()
    for _ in range(3):
        asyncio.run(site.schedules.run_once(site.clock.now()))
        site.clock.advance(60)
    site.jump(-600)
    site.turned()
    asyncio.run(check.run_once(site.clock.now()))
    planned = {schedule.spec.name: schedule.next_at for schedule in site.app.schedules.list()}
    assert planned == {"minutely": NOON + timedelta(minutes=4), "daily": daily_at}
    for _ in range(12):
        site.clock.advance(60)
        asyncio.run(site.schedules.run_once(site.clock.now()))
    times = [job.idempotency_key[-9:-4] for job in site.app.jobs.list(limit=100).jobs]
    assert sorted(times) == [f"12:{minute:02}" for minute in range(4, 16)]
