"""What workers do for tenants beside running jobs: weights, held jobs, aging, names, figures, and the audit's seal."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from fairlane.core.audit_chain import verify
from fairlane.core.limits import Limit
from fairlane.core.ops import (
    ALL_TENANTS,
    AddEvents,
    EventDraft,
    PageTenants,
    PauseClaims,
    ReadAuditChain,
    ReadEvents,
    SetLimit,
    SetTenant,
)
from fairlane.core.queues import QueuePolicy
from fairlane.worker.duties import StepReport
from fairlane.worker.duties.table import EVENTS_KEPT, NOTHING_HELD_S, TABLE, DutyRow, TableDuty
from fairlane.worker.state import WorkerState
from tests.worker.conftest import Works

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def step(state: WorkerState, name: str, now: datetime = NOW) -> StepReport:
    """One step, whoever has taken the duty."""
    return asyncio.run(TableDuty(TABLE[name], state).step(now))


@pytest.mark.requirement("W14")
def test_a_weight_set_at_run_time_reaches_every_lane(works: Works) -> None:
    state = works.engine().state
    works.app.runtime.store.run(SetTenant(name="acme", weight=3.0, by="ops"))
    step(state, "weights")
    [lane] = state.lanes
    lane.planner.accounts.claim("acme", 1, 0.0)
    account = lane.planner.accounts.of("acme")
    assert account is not None
    assert account.weight == 3.0


@pytest.mark.requirement("I2")
def test_held_jobs_go_on_where_their_tenant_has_room_again(works: Works) -> None:
    state = works.engine().state
    limit = Limit(kind="tenant", name="acme", queue="default", waiting=1, when_full="hold")
    works.app.runtime.store.run(SetLimit(limit=limit, by="ops"))
    handles = [works.task("add").using(tenant="acme").enqueue(n, n) for n in range(2)]
    assert step(state, "held_jobs") == StepReport(done=0, next_s=1.0)
    works.drain()
    assert [handle.status() for handle in handles] == ["completed", "pending"]
    assert step(state, "held_jobs").done == 1
    works.drain()
    assert handles[1].status() == "completed"


def test_where_nothing_is_ever_held_nobody_looks_every_second(works: Works) -> None:
    assert step(works.engine().state, "held_jobs").next_s == NOTHING_HELD_S


@pytest.mark.requirement("W14")
def test_tenants_with_jobs_become_known(works: Works) -> None:
    for tenant in ("acme", "beta"):
        works.task("add").using(tenant=tenant).enqueue(1, 1)
    assert step(works.engine().state, "tenants").done == 2
    page = works.app.runtime.store.run(PageTenants(scope=ALL_TENANTS))
    assert [tenant.name for tenant in page.tenants] == ["acme", "beta"]
    assert step(works.engine().state, "tenants").done == 0


@pytest.mark.requirement("W14")
def test_jobs_that_wait_long_in_a_queue_that_asks_for_it_move_up(works: Works, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(works.app.runtime.settings.queues, "default", QueuePolicy(name="default", aging_s=0.001))  # type: ignore[arg-type]
    order: list[str] = []

    @works.app.task(name="say")
    async def say(word: str) -> None:
        order.append(word)

    say.using(priority=9).enqueue("old")
    works.time.ahead_s = 1.0
    assert step(works.engine().state, "aging").done == 1
    say.using(priority=5).enqueue("young")
    works.drain()
    assert order[0] == "old"


def test_no_queue_asks_for_aging_so_the_duty_ends(works: Works) -> None:
    assert step(works.engine().state, "aging").next_s is None


def test_jobs_enqueued_are_counted_into_their_minutes(works: Works) -> None:
    works.task("add").enqueue(1, 1)
    state = works.engine().state
    assert step(state, "enqueued_jobs").done == 0  # too young: a lower number may still be on its way
    works.time.ahead_s = 60.0
    assert step(state, "enqueued_jobs").done == 1
    assert step(state, "enqueued_jobs").done == 0


@pytest.mark.requirement("W12")
def test_the_audit_is_sealed_by_workers_and_the_chain_is_good(works: Works) -> None:
    for queue in ("default", "bulk", "critical"):
        works.app.runtime.store.run(PauseClaims(kind="queue", name=queue, by="ops"))
    assert step(works.engine().state, "audit").done == 3
    assert step(works.engine().state, "audit").done == 0
    chain = works.app.runtime.store.run(ReadAuditChain())
    assert (verify(chain.sealed).links, verify(chain.sealed).broken, chain.unsealed) == (3, None, 0)


def test_old_events_are_forgotten(works: Works) -> None:
    store = works.app.runtime.store
    store.run(AddEvents(events=(EventDraft(kind="job_dead"),)))
    state = works.engine().state
    now = store.run(ReadEvents(scope=ALL_TENANTS)).events[0].at
    assert step(state, "old_events", now + EVENTS_KEPT).done == 0
    assert step(state, "old_events", now + EVENTS_KEPT + timedelta(seconds=1)).done == 1


class Counted:
    def __init__(self, steps: int) -> None:
        self.left, self.done = steps, 0

    async def step(self, duty: TableDuty, now: datetime) -> StepReport:
        self.left -= 1
        self.done += 1
        return StepReport(done=1, next_s=0 if self.left else 30.0)


def test_a_duty_for_one_is_done_by_the_worker_that_took_it_until_there_is_no_more_to_do(works: Works) -> None:
    first, second = Counted(3), Counted(1)
    ours, theirs = (
        TableDuty(DutyRow("counted", 30.0, counted.step, one_worker=True), works.engine().state)
        for counted in (first, second)
    )

    def run(duty: TableDuty) -> StepReport:
        return asyncio.run(duty.run_once(NOW))

    assert run(ours).next_s == 0
    assert run(theirs) == StepReport(next_s=30.0)
    assert run(ours).next_s == 0
    assert run(ours).next_s == 30.0
    assert (first.done, second.done) == (3, 0)
