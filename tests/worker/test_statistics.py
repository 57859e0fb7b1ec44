"""Figures: what attempts came to, added up by minute, written once, read back."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from fairlane import Fairlane, FakeClock
from fairlane.core.attempt_sums import AttemptStatistics
from fairlane.core.ids import WorkerId
from fairlane.core.job import Lease
from fairlane.core.ops import AddStats, ReadStats, Renew
from fairlane.errors import StoreUnavailable
from fairlane.stores.sqlite import MemoryStore
from fairlane.testing.conformance.samples import NOON, Making, cancelled, completed, died, released, retried, snoozed
from fairlane.worker.duties.statistics import BATCH, KEPT_BATCHES, StatisticsFlush
from tests.worker.conftest import Works

MAKING = Making()


def lease(type: str = "mail.send", *, waited_s: float = 0.0, **given: Any) -> Lease:
    facts: dict[str, Any] = {
        "seq": 1,
        "id": MAKING.job_id(),
        "attempt": 1,
        "claim_no": 1,
        "attempts": 0,
        "crashes": 0,
        "suspect": False,
        "started": True,
        "lane": "general",
        "type": type,
        "tenant": "acme",
        "queue": "default",
        "band": 5,
        "rank": 0,
        "due_at": NOON,
        "leased_at": NOON + timedelta(seconds=waited_s),
        "deadline_at": NOON,
        "enqueued_at": NOON,
        "max_attempts": 5,
    }
    return Lease(**{**facts, **given})


class Office:
    """The duty over a memory store at noon, for one registered worker."""

    def __init__(self) -> None:
        self.clock = FakeClock(NOON)
        self.app = Fairlane(store=MemoryStore(clock=self.clock), clock=self.clock)
        self.worker = WorkerId(self.app.runtime.new_job_id())
        self.app.runtime.store.run(Renew(worker=self.worker, lease_s=3600))
        self.statistics = AttemptStatistics()
        self.duty = StatisticsFlush(self.app.runtime.access, self.worker, self.statistics, self.clock)

    def flush(self) -> int:
        return asyncio.run(self.duty.run_once(self.clock.now())).done

    def rows(self) -> tuple[Any, ...]:
        return self.app.runtime.store.run(
            ReadStats(since=NOON - timedelta(days=1), until=NOON + timedelta(days=1))
        ).rows


@pytest.fixture
def office() -> Office:
    return Office()


@pytest.mark.requirement("L13")
def test_attempts_of_a_minute_are_added_up_by_type_queue_and_tenant(office: Office) -> None:
    one, other = lease(waited_s=0.5), lease(tenant="globex")
    for outcome in (completed(one), completed(one), retried(one), died(one), cancelled(one)):
        office.statistics.add(one, outcome, 0.010)
    office.statistics.add(other, completed(other), 2.0)
    assert office.flush() == 2
    acme, globex = office.rows()
    assert (acme.minute, acme.tenant, acme.completed, acme.failed, acme.dead, acme.cancelled) == (
        NOON,
        "acme",
        2,
        1,
        1,
        1,
    )
    assert (acme.run_us, acme.run_buckets) == (50_000, {4: 5})
    assert (acme.wait_us, acme.wait_buckets) == (2_500_000, {9: 5})
    assert (globex.run_us, globex.run_buckets, globex.wait_buckets) == (2_000_000, {11: 1}, {0: 1})


def test_attempts_that_are_not_over_yet_count_nothing(office: Office) -> None:
    one = lease()
    for outcome in (snoozed(one), released(one)):
        office.statistics.add(one, outcome, 0.010)
    assert office.flush() == 0


def test_only_a_first_attempt_says_how_long_jobs_wait(office: Office) -> None:
    office.statistics.add(lease(waited_s=1), completed(lease()), 0.0)
    office.statistics.add(lease(waited_s=60, attempt=2), completed(lease()), 0.0)
    office.flush()
    assert office.rows()[0].wait_us == 1_000_000


def test_figures_belong_to_the_minute_in_which_they_were_gathered(office: Office) -> None:
    office.statistics.add(lease(), completed(lease()), 0.0)
    office.clock.advance(60.2)
    office.flush()
    office.statistics.add(lease(), completed(lease()), 0.0)
    office.clock.advance(15)
    office.flush()
    assert [row.minute for row in office.rows()] == [NOON, NOON + timedelta(minutes=1)]


class Unsure(MemoryStore):
    """A store whose reply is lost when asked to: the work was done, and nobody knows."""

    loses = 0

    async def arun(self, op: Any, *, on: object | None = None) -> Any:
        answer = await super().arun(op, on=on)
        if isinstance(op, AddStats) and self.loses:
            self.loses -= 1
            raise StoreUnavailable("memory", "the reply was lost")
        return answer


def test_figures_whose_reply_was_lost_are_sent_again_and_count_once() -> None:
    office = Office()
    store = Unsure(clock=office.clock)
    store.run(Renew(worker=office.worker, lease_s=3600))
    office.app = Fairlane(store=store, clock=office.clock)
    office.duty = StatisticsFlush(office.app.runtime.access, office.worker, office.statistics, office.clock)
    store.loses = 2
    office.statistics.add(lease(), completed(lease()), 0.0)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            office.flush()
        office.statistics.add(lease(), completed(lease()), 0.0)
    office.flush()
    assert office.rows()[0].completed == 3


def test_while_the_store_is_away_a_bounded_number_of_figures_is_kept(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    office.app.close()
    for number in range(KEPT_BATCHES + 5):
        office.statistics.add(lease(f"task.{number}"), completed(lease()), 0.0)
        office.duty._gather(office.clock.now())
    assert len(office.duty._batches) == KEPT_BATCHES
    assert "are dropped" in caplog.text


def test_many_tenants_are_written_in_batches(office: Office) -> None:
    for number in range(2 * BATCH + 1):
        one = lease(tenant=f"tenant-{number}")
        office.statistics.add(one, completed(one), 0.0)
    assert office.flush() == 2 * BATCH + 1
    assert sum(row.completed for row in office.rows()) == 2 * BATCH + 1


@pytest.mark.requirement("L21")
def test_payload_sizes_are_counted_in_powers_of_two(office: Office) -> None:
    for size in (0, 1, 900, 1_024):
        office.statistics.add(lease(payload="x" * size), completed(lease()), 0.0)
    counted = {bucket: count for bucket, count in enumerate(office.statistics.payload_buckets) if count}
    assert counted == {0: 1, 1: 1, 10: 1, 11: 1}


@pytest.mark.requirement("L21")
def test_an_engine_leaves_its_figures_behind(works: Works) -> None:
    for number in range(5):
        works.task("add").enqueue(number, number)
    works.task("refuse").enqueue()
    engine = works.drain()
    now = works.app.runtime.clock.now()
    rows = works.app.runtime.store.run(ReadStats(since=now - timedelta(hours=1), until=now + timedelta(hours=1))).rows
    assert sum(row.completed for row in rows if row.type == "shop.add") == 5
    assert sum(row.dead for row in rows if row.type == "shop.refuse") == 1
    figures = engine.duties.figures()
    assert sum(count for name, count in figures.items() if name.startswith("payload.under_")) == 6
