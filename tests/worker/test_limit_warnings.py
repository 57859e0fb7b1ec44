"""The duty that finds tenants past a limit that only warns, whoever enqueued the jobs."""

from __future__ import annotations

import asyncio
import logging

import pytest

from fairlane.core.limits import FullPolicy, Limit
from fairlane.core.ops import ALL_TENANTS, Enqueue, Purge, ReadEvents, SetLimit
from fairlane.testing.conformance.samples import Making
from fairlane.worker.duties import limit_warnings
from fairlane.worker.duties.limit_warnings import EVERY_S, NO_LIMITS_S, LimitWarnings
from tests.worker.conftest import Works

pytestmark = pytest.mark.requirement("I2", "D23")


class Watch:
    """The duty of one worker, of which each step is due; jobs come from processes that count nothing."""

    def __init__(self, works: Works) -> None:
        self.works, self.store, self.making = works, works.app.runtime.store, Making()
        self.duty = self.another()

    def another(self) -> LimitWarnings:
        state = self.works.engine().state
        state.monotonic = self.works.time.monotonic
        return LimitWarnings(state)

    def limit(self, tenant: str, waiting: int, policy: FullPolicy | None = None, queue: str = "default") -> None:
        limit = Limit(kind="tenant", name=tenant, queue=queue, waiting=waiting, when_full=policy)
        self.store.run(SetLimit(limit=limit, by="ops"))
        self.works.time.ahead_s += NO_LIMITS_S

    def put(self, count: int, tenant: str = "acme", queue: str = "default") -> None:
        self.store.run(Enqueue(jobs=tuple(self.making.job(tenant=tenant, queue=queue) for _ in range(count))))

    def step(self, duty: LimitWarnings | None = None) -> int:
        """How many it has warned of."""
        self.works.time.ahead_s += EVERY_S
        report = asyncio.run((duty or self.duty).run_once(self.works.time.now()))
        return report.done

    def told(self) -> list[object]:
        events = self.store.run(ReadEvents(scope=ALL_TENANTS, kinds=("job_limit_warning",))).events
        return [event.data for event in events]


@pytest.fixture
def watch(works: Works) -> Watch:
    return Watch(works)


def test_without_a_limit_that_warns_no_job_is_looked_at(watch: Watch) -> None:
    watch.limit("acme", 1, "reject")
    watch.limit("beta", -1)
    report = asyncio.run(watch.duty.run_once(watch.works.time.now()))
    assert report.next_s == NO_LIMITS_S


def test_one_more_than_the_limit_warns_and_no_job_before(watch: Watch, caplog: pytest.LogCaptureFixture) -> None:
    watch.limit("acme", 3)
    watch.put(2)
    assert watch.step() == 0
    watch.put(1)
    assert watch.step() == 0
    with caplog.at_level(logging.WARNING, "fairlane.client"):
        watch.put(1)
        assert watch.step() == 1
    assert watch.told() == [{"organization": "acme", "queue": "default", "limit": 3, "policy": "warn"}]
    assert caplog.messages == ['tenant "acme" is at its limit of 3 jobs in queue "default"; further ones are queued']


def test_other_tenants_and_queues_and_policies_are_left_alone(watch: Watch) -> None:
    watch.limit("acme", 1)
    watch.limit("held", 1, "hold")
    for tenant, queue in (("beta", "default"), ("acme", "bulk"), ("held", "default")):
        watch.put(5, tenant, queue)
    assert [watch.step(), watch.step()] == [0, 0]


def test_it_warns_once_a_minute_for_each_tenant_and_queue(watch: Watch) -> None:
    watch.limit("acme", 1)
    watch.limit("acme", 1, queue="bulk")
    watch.put(2)
    watch.put(2, queue="bulk")
    assert watch.step() == 2
    watch.put(2)
    assert [watch.step(), watch.step()] == [0, 0]
    assert watch.step(watch.another()) == 0, "another worker knows of the warning"
    watch.works.time.ahead_s += 60
    assert watch.step() == 0, "nothing new"
    watch.put(1)
    assert watch.step() == 1


def test_a_tenant_whose_jobs_have_run_has_room_again(watch: Watch) -> None:
    watch.limit("acme", 3)
    for _ in range(4):
        for handle in [watch.works.task("add").using(tenant="acme").enqueue(1, 1) for _ in range(3)]:
            assert watch.step() == 0, handle
        watch.works.drain()
    assert watch.told() == []


def test_a_tenant_that_there_was_no_time_to_count_is_counted_in_the_next_step(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limit_warnings, "COUNTED", 1)
    for tenant, count in (("a", 2), ("b", 4), ("c", 3)):
        watch.limit(tenant, 1)
        watch.put(count, tenant)
    assert [watch.step() for _ in range(5)] == [1, 1, 1, 0, 0]
    assert [event["organization"] for event in watch.told()] == ["b", "c", "a"]  # type: ignore[index]


def test_a_store_that_gives_its_numbers_again_is_read_from_the_beginning(watch: Watch) -> None:
    watch.limit("acme", 3)
    watch.put(3)
    assert watch.step() == 0
    watch.store.run(Purge())
    watch.limit("acme", 1)
    watch.put(2)
    assert watch.step() + watch.step() == 1
