"""Alerts inside workers: what workers lose is told, and one that runs sends what it finds."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from fairlane import Fairlane, FakeClock
from fairlane.alerts import AlertDuty
from fairlane.core.breaker import BreakerPolicy
from fairlane.core.ids import WorkerId
from fairlane.core.ops import ALL_TENANTS, ReadEvents, Renew, Report, Turn, Want
from fairlane.core.profiles import ANY, Lane
from fairlane.stores.sqlite import MemoryStore
from fairlane.testing.conformance.samples import NOON
from fairlane.worker.config import WorkerConfig
from fairlane.worker.duties.table import TABLE, TableDuty
from fairlane.worker.engine import Engine
from fairlane.worker.foreman.heartbeat import Ending, return_leases
from fairlane.worker.state import WorkerState
from tests.alerts.test_sinks import SECRET, Receiver, hooks, receiver as receiver
from tests.worker.conftest import eventually


class Floor:
    """Jobs on a memory store at a standing clock, and workers that claim them and are heard of no more."""

    def __init__(self) -> None:
        self.clock = FakeClock(NOON)
        self.app = Fairlane(store=MemoryStore(clock=self.clock), clock=self.clock)

        @self.app.task(name="floor.work")
        def work() -> None: ...

        self.work = work

    def claim(self, lease_s: float = 15.0) -> WorkerId:
        worker = WorkerId(self.app.runtime.new_job_id())
        self.app.runtime.store.run(Renew(worker=worker, lease_s=lease_s))
        want = Want(lane="general", queues=("default",), limit=5, start=5, timeout_s=60.0)
        assert self.app.runtime.store.run(Turn(worker=worker, claim_no=1, wants=(want,))).leases
        return worker

    def reclaim(self) -> None:
        state = WorkerState(
            self.app, WorkerConfig(lanes=(Lane("general", 1, (ANY,)),)), WorkerId(self.app.runtime.new_job_id())
        )
        asyncio.run(TableDuty(TABLE["lost_jobs"], state).run_once(self.clock.now()))

    def events(self) -> list[tuple[str, Any]]:
        return [(event.kind, event.data) for event in self.app.runtime.store.run(ReadEvents(scope=ALL_TENANTS)).events]

    def alerts(self) -> list[str]:
        self.clock.advance(15)
        return [message.rule for message in asyncio.run(AlertDuty(self.app).evaluate(self.clock.now()))]


@pytest.mark.requirement("I12")
def test_a_worker_that_was_lost_with_its_jobs_is_told_once() -> None:
    floor = Floor()
    floor.work.enqueue()
    floor.work.enqueue()
    worker = floor.claim()
    floor.clock.advance(16)
    floor.reclaim()
    assert floor.events() == [("worker_lost", {"worker": str(worker), "jobs": 2})]
    assert floor.alerts() == ["worker_crash"]


@pytest.mark.requirement("I12", "I9")
def test_a_stuck_job_is_buried_and_told() -> None:
    floor = Floor()
    handle = floor.work.enqueue()
    worker = floor.claim(lease_s=3600)
    floor.clock.advance(121)
    floor.reclaim()
    assert handle.status() == "dead"
    assert floor.events() == [("job_stuck", {"id": str(handle.id), "attempt": 1, "worker": str(worker)})]
    assert floor.alerts() == ["stuck_job"]


@pytest.mark.requirement("I12")
@pytest.mark.parametrize(
    ("ending", "told"),
    [("crashed", True), ("silent", True), ("left", False), ("overstayed", False), ("stuck", False), ("lapsed", False)],
)
def test_a_foreman_tells_of_workers_that_died_and_not_of_those_that_left(ending: Ending, told: bool) -> None:
    floor = Floor()
    floor.work.enqueue()
    worker = floor.claim()
    asyncio.run(return_leases(floor.app.runtime.store, floor.clock, worker, ending, (), (), 1.0))
    expected = [("worker_crashed", {"worker": str(worker), "why": ending, "jobs": 0})] if told else []
    assert floor.events() == expected
    assert floor.alerts() == (["worker_crash"] if told else [])


@pytest.mark.requirement("L14", "I12")
def test_a_worker_notices_what_is_wrong_and_sends_the_webhook_itself(receiver: Receiver) -> None:
    app = Fairlane(store=MemoryStore(), profile="development", alerts={"webhooks": hooks(receiver)})
    app.runtime.store.run(Report(name="stripe", policy=BreakerPolicy(threshold=1), failures=1))
    worker = WorkerId(app.runtime.new_job_id())
    app.runtime.store.run(Renew(worker=worker, lease_s=3600))

    async def story() -> None:
        engine = Engine(app, WorkerConfig(lanes=(Lane("general", 2, (ANY,)),), poll_s=0.2, grace_s=5.0), worker)
        running = asyncio.create_task(engine.run())
        await eventually(lambda: receiver.requests)
        engine.stop()
        await running

    asyncio.run(story())
    [request] = receiver.requests
    assert msgspec.json.decode(request.body)["rule"] == "breaker_open"
    assert SECRET not in request.body.decode()
    app.close()
