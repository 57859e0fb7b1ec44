"""Two versions of an application on one store, rolled forward and back under load: all jobs run, none is charged."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane import Fairlane
from fairlane.client.workflow_handle import WorkflowHandle
from fairlane.core.job import Job
from fairlane.core.ops import DeclareSchedules, Planned
from tests.support.stores import Ground, ground
from tests.upgrade.shop import shop
from tests.worker.foreman.conftest import LONG, crew_on
from tests.worker.foreman.crew import Crew, ForemanProcess

__all__ = ["ground"]

ROUNDS, ORDERS = (10, 200) if os.environ.get("FAIRLANE_LONG") else (1, 30)


class Rollout:
    """A shop whose workers and web processes are replaced by those of another version."""

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        self.web: dict[int, Fairlane] = {version: shop(version, crew.url) for version in (1, 2)}
        self.orders = 0

    def worker(self, version: int, **environment: str) -> ForemanProcess:
        flags = ("-p", "1", "-s", "4", "--grace", "1s")
        return self.crew.start(*flags, app="tests.upgrade.shop:app", SHOP_VERSION=str(version), **environment)

    def order(self, version: int, count: int = ORDERS) -> None:
        task = self.web[version].tasks["shop.order"]
        numbers = range(self.orders + 1, self.orders + count + 1)
        given = {"gift": True} if version == 2 else {}
        self.web[version].enqueue_many([task.bind(number=number, **given) for number in numbers])
        self.orders += count

    def chain(self, version: int) -> WorkflowHandle:
        """As many orders, each of which waits for the one before it."""
        task = self.web[version].tasks["shop.order"]
        numbers = range(self.orders + 1, self.orders + ORDERS + 1)
        self.orders += ORDERS
        return self.web[version].chain(*(task.bind(number=number) for number in numbers)).enqueue()

    def jobs(self) -> list[Job]:
        found, before = [], None
        while True:
            page = self.web[1].jobs.list(limit=200, before=before)
            found += page.jobs
            if (before := page.next) is None:
                return found

    def put_off(self) -> list[Job]:
        return [job for job in self.jobs() if job.error_type == "NeedsNewerCode"]

    def lines(self) -> Counter[str]:
        diary = self.crew.directory / "diary"
        return Counter(diary.read_text().splitlines() if diary.exists() else [])

    def make_schedule_due(self) -> None:
        """Declares it again, as if the new version had done so before this minute began."""
        new = self.web[2]
        new.schedules.remove("billing")
        planned = Planned(
            spec=new.schedules.declared["billing"], next_at=new.runtime.clock.now().replace(second=0, microsecond=0)
        )
        new.runtime.store.run(DeclareSchedules(schedules=(planned,)))

    def scheduled(self) -> list[Job]:
        return [job for job in self.jobs() if job.created_by == "schedule:billing"]

    def is_finished(self) -> bool:
        return all(job.status == "completed" for job in self.jobs())

    def check(self) -> None:
        """Every order and every child ran, once each; nothing was charged, nothing died."""
        jobs = self.jobs()
        assert {(job.status, job.attempts, job.crashes) for job in jobs} == {("completed", 0, 0)}
        ran = self.lines()
        assert ran.pop("bill 0") == len(self.scheduled())
        wanted = {f"{what} {number}" for number in range(1, self.orders + 1) for what in ("order", "bill", "pack")}
        assert wanted <= set(ran)
        assert set(ran.values()) == {1}
        outcomes = {attempt.outcome for job in self.put_off() for attempt in self.web[1].jobs.detail(job.id).attempts}
        assert outcomes <= {"snoozed", "released", "completed"}
        assert self.web[1].dead_letters.list().dead_letters == ()

    def close(self) -> None:
        for web in self.web.values():
            web.close()


@pytest.fixture(params=[pytest.param("sqlite-apsw", marks=LONG), "postgres", pytest.param("redis", marks=LONG)])
def rollout(request: pytest.FixtureRequest, ground: Ground, tmp_path: Path) -> Iterator[Rollout]:
    for crew in crew_on(request.param, ground, tmp_path):
        rollout = Rollout(crew)
        yield rollout
        rollout.close()


@pytest.mark.requirement("L17", "L18", "D19")
@pytest.mark.timeout(1800)
def test_versions_replace_each_other_in_both_directions_and_every_job_runs_uncharged(rollout: Rollout) -> None:
    old = [rollout.worker(1), rollout.worker(1)]
    eventually = rollout.crew.eventually
    for _ in range(ROUNDS):
        rollout.order(1)
        eventually(lambda: rollout.lines()["order 1"], 30)
        known = len(rollout.put_off())
        chain = rollout.chain(1)
        new = rollout.worker(2)
        rollout.order(2)
        eventually(lambda known=known: len(rollout.put_off()) > known, 30)
        rollout.order(1)
        assert chain.status().status == "running"
        for worker in old:
            assert worker.stop() == 0, worker.log()
        eventually(rollout.is_finished, 90)
        assert chain.status().status == "completed"
        eventually(rollout.web[1].schedules.list, 30)

        back = rollout.worker(1)
        assert new.stop() == 0, new.log()
        known = len(rollout.put_off())
        rollout.order(2)
        rollout.order(1)
        fired = len(rollout.scheduled())
        rollout.make_schedule_due()
        eventually(lambda known=known: len(rollout.put_off()) >= known + ORDERS, 60)
        eventually(lambda fired=fired: len(rollout.scheduled()) > fired, 30)
        waiting = [job for job in rollout.put_off() if job.status == "pending"]
        [reason, *_] = rollout.web[1].jobs.why(waiting[0].id).reasons
        assert reason.says.startswith("it needs newer code and has been put off, uncharged"), reason
        forward = rollout.worker(2)
        eventually(rollout.is_finished, 120)
        assert forward.stop() == 0, forward.log()
        old = [back]
    for worker in old:
        assert worker.stop() == 0, worker.log()
    rollout.check()
    assert rollout.put_off(), "an old worker met jobs of the new version"


@pytest.mark.requirement("L18", "W3")
@pytest.mark.parametrize("rollout", ["sqlite-apsw", "postgres", "redis"], indirect=True)
def test_a_workflow_half_done_goes_on_in_the_new_version_with_its_steps_and_results(rollout: Rollout) -> None:
    web, eventually = rollout.web[1], rollout.crew.eventually
    flow = web.workflow("pay")
    paid = flow.add(web.tasks["shop.pay"].bind(7))
    flow.add(web.tasks["shop.receipt"].bind(paid.result), name="receipt")
    handle, old = flow.enqueue(), rollout.worker(1)
    eventually(lambda: web.jobs.detail(handle.nodes()[0].job_id).waits_for, 30)
    new = rollout.worker(2)
    assert old.stop() == 0, old.log()
    rollout.web[2].signals.emit("approved", key=7)
    eventually(lambda: handle.status().status == "completed", 30)
    assert handle.result("receipt") == "7 in 2 copies"
    assert rollout.lines() == {"charge 7": 1, "thank 7": 1}
    assert new.stop() == 0, new.log()


@LONG
@pytest.mark.requirement("L17", "D19")
def test_an_isolated_task_of_newer_code_waits_as_well(rollout: Rollout) -> None:
    rollout.worker(1, SHOP_ISOLATED="1")
    rollout.order(2, 3)
    rollout.web[2].tasks["shop.pack"].enqueue(1_000, gift=True)
    rollout.crew.eventually(lambda: len(rollout.put_off()) == 4, 60)
    assert {(job.status, job.attempts) for job in rollout.put_off()} == {("pending", 0)}
    rollout.worker(2, SHOP_ISOLATED="1")
    rollout.crew.eventually(rollout.is_finished, 90)
