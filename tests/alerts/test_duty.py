"""The duty behind alerts on a store: what it sees there, and that people hear of it once."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta
from typing import Any

import pytest

from fairlane import Fairlane, FakeClock
from fairlane.alerts import StoreOutage
from fairlane.alerts.duty import EVERY_S
from fairlane.client.logs import GuardedLogger, OutageLog
from fairlane.core.alerts import MOST_ABOUT, OTHER
from fairlane.core.breaker import BreakerPolicy
from fairlane.core.clock import SystemClock
from fairlane.core.ops import (
    ALL_TENANTS,
    AddStats,
    AlertsSaved,
    GetStats,
    Op,
    ReadAlerts,
    ReadEvents,
    Renew,
    Report,
    SaveAlerts,
    StatRow,
)
from fairlane.errors import StoreUnavailable
from fairlane.stores.sqlite import MemoryStore
from fairlane.testing import run_due
from fairlane.testing.conformance.samples import NOON
from tests.alerts.post import Post
from tests.faults.eventually import eventually


@pytest.mark.requirement("I8", "I12", "I13")
def test_more_than_fifty_dead_letters_raise_the_documents_event() -> None:
    post = Post()
    post.app.enqueue_many([post.break_.bind() for _ in range(50)])
    run_due(post.app)
    assert post.step() == []
    post.break_.enqueue()
    run_due(post.app)
    assert post.step() == ["alert_fired dead_letters", "dlq_alert"]
    [event] = post.app.runtime.store.run(ReadEvents(scope=ALL_TENANTS, kinds=("dlq_alert",))).events
    assert event.data == {"count": 51, "threshold": 50}
    assert post.steps(600) == []
    for letter in post.app.dead_letters.list(limit=2).dead_letters:
        post.app.dead_letters.discard(letter)
    assert post.steps(75) == ["alert_resolved dead_letters"]


@pytest.mark.requirement("I12", "L14")
def test_a_backlog_fires_after_its_time_and_is_over_when_it_is_worked_off() -> None:
    post = Post()
    post.app.enqueue_many([post.work.using(tenant=n % 5).bind(n) for n in range(1001)])
    assert post.steps(330) == ["alert_fired pending_jobs"]
    assert post.steps(615) == ["alert_fired queue_backlog default"]
    assert post.steps(2700) == ["alert_fired oldest_pending default"]
    run_due(post.app, limit=1001)
    assert sorted(post.steps(90)) == [
        "alert_resolved oldest_pending default",
        "alert_resolved pending_jobs",
        "alert_resolved queue_backlog default",
    ]


@pytest.mark.requirement("L14")
def test_a_task_that_fails_often_raises_an_alert_and_one_that_seldom_does_raises_none() -> None:
    post = Post()
    worker = post.worker()
    rows = (
        StatRow(minute=NOON, type="mail.send", queue="mail", tenant="a", completed=17, failed=2, dead=1),
        StatRow(minute=NOON, type="mail.sort", queue="mail", tenant="a", completed=18, failed=2),
        StatRow(minute=NOON, type="mail.rare", queue="mail", tenant="a", failed=5),
        StatRow(minute=NOON, type="fairlane.webhook", queue="default", tenant="system", failed=100),
    )
    post.app.runtime.store.run(AddStats(worker=worker, batch=1, rows=rows))
    assert post.step() == ["alert_fired error_rate mail.send"]
    assert post.steps(480) == ["alert_resolved error_rate mail.send"]


@pytest.mark.requirement("L14", "I12")
def test_a_busy_fast_lane_and_a_spool_that_is_not_empty_are_seen_in_what_workers_say() -> None:
    post = Post()
    worker = post.worker(lane__fast__slots=3, lane__fast__utilisation=0.99, lane__general__slots=5, spool__jobs=2)
    post.worker(lane__fast__slots=1, lane__fast__utilisation=0.8)
    assert post.step() == ["alert_fired spool_not_empty"]
    assert post.steps(120) == ["alert_fired fast_lane_busy fast"]
    post.app.runtime.store.run(
        Renew(worker=worker, lease_s=86_400, figures={"lane.fast.slots": 3, "lane.fast.utilisation": 0.1})
    )
    assert sorted(post.steps(75)) == ["alert_resolved fast_lane_busy fast", "alert_resolved spool_not_empty"]


@pytest.mark.requirement("L14")
def test_an_open_breaker_raises_an_alert() -> None:
    post = Post()
    post.app.runtime.store.run(Report(name="stripe", policy=BreakerPolicy(threshold=2), failures=2))
    assert post.step() == ["alert_fired breaker_open stripe"]
    post.app.breakers.reset("stripe")
    assert post.steps(75) == ["alert_resolved breaker_open stripe"]


@pytest.mark.requirement("I12")
@pytest.mark.parametrize(
    ("kind", "tenant", "alert", "window_s"),
    [
        ("worker_crashed", None, "worker_crash", 300),
        ("worker_lost", None, "worker_crash", 300),
        ("job_stuck", None, "stuck_job", 900),
        ("process_stopped", "acme", "process_stopped", 900),
        ("job_limit_warning", "acme", "tenant_limit acme", 300),
    ],
)
def test_what_happened_raises_an_alert_that_is_over_a_while_after_the_last_time(
    kind: str, tenant: str | None, alert: str, window_s: float
) -> None:
    post = Post()
    post.happen(kind, tenant)
    assert post.step() == [f"alert_fired {alert}"]
    assert post.steps(window_s - 60) == []
    post.happen(kind, tenant)
    assert post.steps(window_s) == []
    assert post.steps(90) == [f"alert_resolved {alert}"]


def test_a_process_that_looks_for_the_first_time_knows_what_happened_before_it_came() -> None:
    post = Post()
    for _ in range(1500):
        post.happen("job_completed", "acme")
    post.happen("worker_crashed")
    late = Post(post.store, post.clock)
    assert late.step() == ["alert_fired worker_crash"]


def test_alerts_of_the_day_before_leave_their_room_to_others() -> None:
    post = Post(alerts={"rules": {"tenant_limit": {"clear_s": 0, "window_s": 60}}})
    for day in range(3):
        for n in range(MOST_ABOUT):
            post.happen("job_limit_warning", f"day {day} tenant {n}")
        assert len(post.step()) == MOST_ABOUT
        post.steps(90)
        alerts = post.app.runtime.store.run(ReadAlerts()).alerts
        assert {alert.state for alert in alerts} == {"resolved"}
        assert OTHER not in {alert.about for alert in alerts}, "each has a name of its own"
        post.clock.advance(86_400)
    assert post.app.runtime.store.run(ReadAlerts()).alerts == ()


@pytest.mark.requirement("I12")
def test_however_many_look_people_hear_of_it_once() -> None:
    first = Post()
    others = [Post(first.store, first.clock) for _ in range(4)]
    first.app.runtime.store.run(Report(name="stripe", policy=BreakerPolicy(threshold=1), failures=1))
    told: list[str] = []
    for _ in range(20):
        first.clock.advance(EVERY_S)
        for post in (first, *others):
            asyncio.run(post.duty.step())
        told += first.told()
    assert told == ["alert_fired breaker_open stripe"]


def test_who_looks_at_the_same_moment_but_saves_second_tells_nothing() -> None:
    """Both have read and decided before either saves."""

    class Overtaken(MemoryStore):
        overtake: Any = None

        async def arun(self, op: Op[Any], *, on: object | None = None) -> Any:
            if isinstance(op, SaveAlerts) and self.overtake is not None:
                other, self.overtake = self.overtake, None
                await other.duty.evaluate(other.clock.now())
            return await super().arun(op, on=on)

    clock = FakeClock(NOON)
    store = Overtaken(clock=clock)
    slow, quick = Post(store, clock), Post(store, clock)
    slow.app.runtime.store.run(Report(name="stripe", policy=BreakerPolicy(threshold=1), failures=1))
    store.overtake = quick
    told = asyncio.run(slow.duty.evaluate(clock.now()))
    assert told == ()
    assert slow.told() == ["alert_fired breaker_open stripe"]
    [alert] = store.run(ReadAlerts()).alerts
    assert alert.version == 1


def test_the_log_says_how_grave_it_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="fairlane.alerts")
    post = Post()
    for kind, tenant in (("worker_crashed", None), ("job_limit_warning", "acme")):
        post.happen(kind, tenant)
    post.app.runtime.store.run(Report(name="stripe", policy=BreakerPolicy(threshold=1), failures=1))
    post.steps(600)
    written = [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "fairlane.alerts"]
    assert ("CRITICAL", "[critical] worker_crash: worker processes that died: 1") in written
    assert ("WARNING", '[warning] breaker_open: breaker "stripe" is open') in written
    assert ("INFO", '[info] tenant_limit: tenant "acme" is at its limit of jobs') in written
    assert any(level == "INFO" and line.startswith("[resolved] worker_crash is resolved") for level, line in written)


class Flaky(MemoryStore):
    """A store that can be taken away."""

    is_away = False

    async def arun(self, op: Op[Any], *, on: object | None = None) -> Any:
        if self.is_away:
            raise StoreUnavailable("memory", "the cable is out")
        return await super().arun(op, on=on)


class Outage:
    """What one process knows of outages of its store, and what it sends about them."""

    def __init__(self, app: Fairlane) -> None:
        self.app, self.log = app, OutageLog(GuardedLogger("fairlane.outage"), app.runtime.clock.monotonic)
        self._alert = StoreOutage(app, self.log)

    def step(self) -> float | None:
        return asyncio.run(self._alert.step())

    def lasts(self, seconds: float) -> None:
        assert isinstance(self.app.runtime.clock, FakeClock)
        self.log.failed("the cable is out")
        self.app.runtime.clock.advance(seconds)
        self.step()

    def ends(self) -> float | None:
        self.log.answered()
        return self.step()


@pytest.mark.requirement("I12")
def test_a_store_that_cannot_be_reached_is_told_by_each_process_and_its_return_by_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="fairlane.alerts")
    clock = FakeClock(NOON)
    store = MemoryStore(clock=clock)
    posts = [Post(store, clock), Post(store, clock)]
    watches = [Outage(post.app) for post in posts]
    asked_s = clock.monotonic()
    clock.advance(11)  # a frozen server: the call was given up as late as this
    for watch in watches:
        assert watch.step() is None
        watch.log.failed("the cable is out", asked_s)
        assert watch.step() == pytest.approx(19.0)
    clock.advance(19)
    assert "store_unreachable" not in caplog.text
    for watch in (*watches, *watches):
        assert watch.step() is None
    assert caplog.text.count("[critical] store_unreachable: the store could not be reached for 30 s") == 2
    clock.advance(15)
    for watch in watches:
        assert watch.ends() is None
    assert posts[0].told() == ["alert_resolved store_unreachable"]
    [alert] = store.run(ReadAlerts()).alerts
    assert (alert.rule, alert.state, alert.severity) == ("store_unreachable", "resolved", "critical")
    assert alert.fired_at == alert.since + timedelta(seconds=30)
    assert alert.resolved_at == alert.since + timedelta(seconds=45)


def test_the_end_of_an_outage_is_saved_when_the_store_takes_it() -> None:
    clock = FakeClock(NOON)
    store = Flaky(clock=clock)
    post = Post(store, clock)
    outage = Outage(post.app)
    outage.lasts(31)
    store.is_away = True
    assert outage.ends() == 1.0
    store.is_away = False
    assert outage.step() is None
    assert post.told() == ["alert_resolved store_unreachable"]


def test_a_short_absence_is_nothing_to_tell(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock(NOON)
    store = MemoryStore(clock=clock)
    outage = Outage(Post(store, clock).app)
    for _ in range(2):
        outage.lasts(20)
        assert outage.ends() is None
    assert "store_unreachable" not in caplog.text
    assert store.run(ReadAlerts()).alerts == ()


def test_an_outage_is_timed_by_the_rule_and_by_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    """The service itself, by the real clock."""

    async def story() -> None:
        app = Fairlane("memory://", alerts={"rules": {"store_unreachable": {"for_s": 0.05}}})
        outage = OutageLog(GuardedLogger("fairlane.outage"), SystemClock().monotonic)
        service = asyncio.create_task(StoreOutage(app, outage).run())
        await asyncio.sleep(0)
        outage.failed("the cable is out")
        await asyncio.to_thread(eventually, lambda: "[critical] store_unreachable" in caplog.text)
        outage.answered()
        await asyncio.to_thread(eventually, lambda: app.runtime.access.run(ReadAlerts()).alerts)
        service.cancel()
        await app.aclose()

    asyncio.run(story())


def test_switched_off_nothing_is_looked_at() -> None:
    post = Post(alerts={"enabled": False})
    assert asyncio.run(post.duty.step()) is None


def test_the_value_kept_follows_what_is_seen() -> None:
    post = Post(alerts={"rules": {"queue_backlog": {"threshold": 2, "for_s": 0}}})
    for count, expected in ((3, 3.0), (4, 7.0)):
        post.app.enqueue_many([post.work.bind(n) for n in range(count)])
        post.step()
        [alert] = post.app.runtime.store.run(ReadAlerts()).alerts
        assert (alert.state, alert.value) == ("firing", expected)


def test_alerts_of_an_hour_ago_are_not_handed_over_again() -> None:
    """Only what fired in the last minute is, in case whoever saved it died before telling."""
    handed: list[tuple[datetime, str]] = []
    post = Post()

    async def note(messages: Any) -> None:
        handed.extend((post.clock.now(), message.rule) for message in messages)

    post.duty._sinks.enqueue = note  # type: ignore[method-assign]
    post.app.runtime.store.run(Report(name="stripe", policy=BreakerPolicy(threshold=1), failures=1))
    post.steps(600)
    assert {rule for _, rule in handed} == {"breaker_open"}
    first = handed[0][0]
    assert {at for at, _ in handed} == {first + timedelta(seconds=15 * n) for n in range(5)}


def test_saving_is_what_decides() -> None:
    """A store that saves nothing: nothing is told."""

    class Refusing(MemoryStore):
        async def arun(self, op: Op[Any], *, on: object | None = None) -> Any:
            if isinstance(op, SaveAlerts):
                return AlertsSaved(saved=())
            return await super().arun(op, on=on)

    clock = FakeClock(NOON)
    post = Post(Refusing(clock=clock), clock)
    post.app.runtime.store.run(Report(name="stripe", policy=BreakerPolicy(threshold=1), failures=1))
    assert post.steps(60) == []
    assert post.app.runtime.store.run(ReadAlerts()).alerts == ()


def test_a_look_counts_no_job_that_has_ended() -> None:
    asked: list[Op[Any]] = []

    class Asked(MemoryStore):
        async def arun(self, op: Op[Any], *, on: object | None = None) -> Any:
            asked.append(op)
            return await super().arun(op, on=on)

    clock = FakeClock(NOON)
    Post(Asked(clock=clock), clock).step()
    [stats] = [op for op in asked if isinstance(op, GetStats)]
    assert set(stats.parts) == {"queues", "dead_letters"}
