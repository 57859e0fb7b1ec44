"""Duties: bounded steps that any worker may do, in a loop that nothing ends."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fairlane import ConfigError, Fairlane, FakeClock, JobFailed, MissingData, NonRetryable
from fairlane.core.chance import FixedChance
from fairlane.core.ids import WorkerId
from fairlane.core.ops import AddStats, ReadStats, Renew, Retain, StatRow, Turn, Want
from fairlane.core.profiles import ANY, Lane
from fairlane.stores.sqlite import MemoryStore
from fairlane.testing import run_due
from fairlane.testing.conformance.samples import NOON, completed
from fairlane.worker.config import WorkerConfig
from fairlane.worker.duties import StepReport
from fairlane.worker.duties.loop import DutyLoop
from fairlane.worker.duties.statistics import FastLane
from fairlane.worker.duties.table import BATCH, FIRST_BATCH, TABLE, AlertCheck, TableDuty
from fairlane.worker.lanes import Slot
from fairlane.worker.state import WorkerState
from tests.worker.conftest import Works, eventually

DAY = 86_400.0


class Yard:
    """An application over a memory store whose time stands still."""

    def __init__(self, **settings: Any) -> None:
        self.clock = FakeClock(NOON)
        self.app = Fairlane(store=MemoryStore(clock=self.clock), clock=self.clock, chance=FixedChance(), **settings)

        @self.app.task(name="yard.work")
        def work(n: int = 0) -> int:
            return n

        @self.app.task(name="yard.break")
        def break_() -> None:
            raise NonRetryable("no")

        self.work, self.break_ = work, break_

    def duty(self, name: str) -> TableDuty:
        config = WorkerConfig(lanes=(Lane("general", 2, (ANY,)),))
        return TableDuty(TABLE[name], WorkerState(self.app, config, WorkerId(self.app.runtime.new_job_id())))

    def step(self, duty: TableDuty) -> StepReport:
        report: StepReport = asyncio.run(duty.run_once(self.clock.now()))
        return report

    def claim(self, limit: int = 10, timeout_s: float = 60.0) -> tuple[WorkerId, tuple[Any, ...]]:
        """A worker that claims jobs and is heard of no more."""
        worker = WorkerId(self.app.runtime.new_job_id())
        self.app.runtime.store.run(Renew(worker=worker, lease_s=15))
        want = Want(lane="general", queues=("default",), limit=limit, start=limit, timeout_s=timeout_s)
        return worker, self.app.runtime.store.run(Turn(worker=worker, claim_no=1, wants=(want,))).leases


@pytest.fixture
def yard() -> Iterator[Yard]:
    yard = Yard()
    yield yard
    yard.app.close()


@pytest.mark.requirement("Q12")
def test_a_job_that_waits_for_missing_data_is_ready_again_by_itself_after_half_an_hour(yard: Yard) -> None:
    @yard.app.task(name="yard.needs")
    def needs() -> None:
        raise MissingData

    handle = needs.enqueue()
    run_due(yard.app)
    due_jobs = yard.duty("due_jobs")
    due_jobs.state.woken = False
    yard.clock.advance(1_799)
    assert yard.step(due_jobs).done == 0
    yard.clock.advance(1)
    assert yard.step(due_jobs).done == 1
    assert due_jobs.state.woken
    assert handle.status() == "pending"
    [queue] = yard.app.statistics.counts().queues
    assert queue.ready == 1


@pytest.mark.parametrize("what", ["a wake-up", "an ended job", "an outage", "a minute"])
def test_an_idle_worker_leaves_steps_out_until_something_happens(yard: Yard, what: str) -> None:
    lost_jobs = yard.duty("lost_jobs")
    state = lost_jobs.state
    yard.work.enqueue(1)
    yard.step(lost_jobs)
    yard.claim()
    yard.clock.advance(16)
    state.is_woken_reliably = True
    assert yard.step(lost_jobs).done == 0, "nothing has happened here"
    if what == "a wake-up":
        state.on_wake_up()
    elif what == "an ended job":
        state.ended += 1
    elif what == "an outage":
        state.outage.failed("gone")
        state.outage.answered()
    else:
        yard.clock.advance(60)
    assert yard.step(lost_jobs).done == 1


@pytest.mark.requirement("I12")
@pytest.mark.parametrize(("is_idle", "after_s"), [(False, 15), (True, 60)])
def test_alerts_are_evaluated_every_15_seconds_and_by_an_idle_worker_every_60(is_idle: bool, after_s: int) -> None:
    yard = Yard(alerts={"rules": {"pending_jobs": {"threshold": 1, "for_s": 0}}})
    state = yard.duty("lost_jobs").state
    state.is_woken_reliably = True
    check = AlertCheck(state)
    asyncio.run(check.run_once(yard.clock.now()))
    yard.app.enqueue_many([yard.work.bind(n) for n in range(2)])
    for _ in range(15, after_s + 1, 15):
        assert yard.app.alerts.list().alerts == ()
        yard.clock.advance(15)
        state.ended += not is_idle
        assert asyncio.run(check.run_once(yard.clock.now())).next_s == 15
    assert [alert.rule for alert in yard.app.alerts.list().alerts] == ["pending_jobs"]
    yard.app.close()


@pytest.mark.requirement("I9")
def test_jobs_of_a_lost_worker_run_again_and_stuck_ones_are_buried(
    yard: Yard, caplog: pytest.LogCaptureFixture
) -> None:
    handle = yard.work.enqueue(1)
    worker, leases = yard.claim()
    assert len(leases) == 1
    lost_jobs = yard.duty("lost_jobs")
    assert yard.step(lost_jobs).done == 0
    yard.clock.advance(16)
    assert yard.step(lost_jobs).done == 1
    assert handle.status() == "pending"

    alive, [_] = yard.claim()
    for _ in range(9):
        yard.clock.advance(14)
        yard.app.runtime.store.run(Renew(worker=alive, lease_s=15))
    assert yard.step(lost_jobs).done == 1
    assert handle.status() == "dead"
    assert str(worker) in caplog.text
    assert "deadline_passed" in caplog.text


@pytest.mark.requirement("L19", "I8")
def test_what_is_past_its_age_goes_and_what_waits_for_review_stays(yard: Yard) -> None:
    done, closed, open_ = yard.work.enqueue(), yard.break_.enqueue(), yard.break_.enqueue()
    run_due(yard.app)
    yard.app.dead_letters.discard(yard.app.dead_letters.list(limit=2).dead_letters[1])
    retention = yard.duty("retention")
    yard.clock.advance(7 * DAY - 1)
    assert yard.step(retention).done == 0
    yard.clock.advance(600)
    assert yard.step(retention).done == 2
    assert [yard.app.jobs.get(job.id) is None for job in (done, closed, open_)] == [True, True, False]
    yard.clock.advance(365 * DAY)
    assert yard.step(retention).done == 0
    assert yard.app.jobs.get(open_.id) is not None


@pytest.mark.requirement("L19", "S10")
def test_a_queue_keeps_its_jobs_for_as_long_as_its_own_setting_says() -> None:
    yard = Yard(queues={"supervisors": {"retain_days": 90}, "brief": {"retain_days": 0.5}})
    ids = {}
    for queue in ("supervisors", "brief", "default"):
        ids[queue] = [yard.work.using(queue=queue).enqueue().id, yard.break_.using(queue=queue).enqueue().id]
    run_due(yard.app)
    for letter in yard.app.dead_letters.list().dead_letters:
        yard.app.dead_letters.discard(letter.id)
    retention = yard.duty("retention")

    def left_after(days: float) -> set[str]:
        yard.clock.advance(days * DAY)
        yard.step(retention)
        return {queue for queue, kept in ids.items() if any(yard.app.jobs.get(job) for job in kept)}

    assert left_after(0.6) == {"supervisors", "default"}
    assert left_after(7) == {"supervisors"}
    assert left_after(80) == {"supervisors"}
    assert left_after(3) == set()


def test_many_jobs_that_are_kept_are_passed_in_bounded_steps() -> None:
    yard = Yard(queues={"supervisors": {"retain_days": 90}})
    for _ in range(30):
        yard.work.using(queue="supervisors").enqueue()
        run_due(yard.app)
        yard.clock.advance(1)
    yard.work.enqueue()
    run_due(yard.app)
    yard.clock.advance(8 * DAY)
    retention = yard.duty("retention")
    retention.batch = 1
    steps = [yard.step(retention) for _ in range(3)]
    assert [(step.done, step.next_s) for step in steps] == [(0, 0), (0, 0), (1, 600.0)], "10, 20, and the last"


@pytest.mark.requirement("L19")
def test_figures_past_their_age_go_too() -> None:
    yard = Yard(retain_stats_days=2.0)
    worker = WorkerId(yard.app.runtime.new_job_id())
    yard.app.runtime.store.run(Renew(worker=worker, lease_s=3600))
    row = StatRow(minute=NOON, type="yard.work", queue="default", tenant="system", completed=1)
    yard.app.runtime.store.run(AddStats(worker=worker, batch=1, rows=(row,)))
    read = ReadStats(since=NOON, until=NOON + timedelta(hours=1))
    retention = yard.duty("retention")
    yard.clock.advance(2 * DAY)
    yard.step(retention)
    assert len(yard.app.runtime.store.run(read).rows) == 1
    yard.clock.advance(600)
    yard.step(retention)
    assert yard.app.runtime.store.run(read).rows == ()


def test_statistics_past_their_age_are_removed_until_none_is_left(yard: Yard) -> None:
    worker, store = WorkerId(yard.app.runtime.new_job_id()), yard.app.runtime.store
    store.run(Renew(worker=worker, lease_s=3600))
    rows = [
        StatRow(minute=NOON + timedelta(minutes=nth), type="a", queue="q", tenant="t", completed=1)
        for nth in range(2_500)
    ]
    store.run(AddStats(worker=worker, batch=1, rows=tuple(rows)))
    yard.clock.advance(1000 * DAY)
    retention = yard.duty("retention")
    assert [yard.step(retention).next_s for _ in range(2)] == [0, 600.0]
    assert store.run(ReadStats(since=NOON, until=NOON + timedelta(days=2))).rows == ()


@pytest.mark.requirement("L19", "I8", "D20")
@pytest.mark.parametrize(
    ("hours", "removes_at"),
    [(None, set(range(24))), ("02:00-05:00", {2, 3, 4}), ("22:00-01:00", {22, 23, 0}), ("04:00-04:00", set(range(24)))],
)
def test_retention_goes_on_all_day_or_in_the_hours_that_are_set(hours: str | None, removes_at: set[int]) -> None:
    yard = Yard(retain_between=hours, retain_completed_days=0.01)
    retention, midnight = yard.duty("retention"), NOON.replace(hour=0)
    yard.clock.advance((midnight + timedelta(days=1) - yard.clock.now()).total_seconds() - 1800)
    removed = set()
    for hour in range(24):
        yard.work.enqueue()
        run_due(yard.app)
        yard.clock.advance(3600 if hour else 1800)
        if yard.step(retention).done:
            removed.add(hour)
    assert removed == removes_at


@pytest.mark.requirement("D20")
@pytest.mark.parametrize("hours", ["night", "24:00-05:00", "2:00-5:00", "02:00", "02:00-05:60", "02:00 - 05:00"])
def test_hours_of_retention_that_are_none_are_refused(hours: str) -> None:
    with pytest.raises(ConfigError, match="retain_between"):
        Yard(retain_between=hours)


@pytest.mark.requirement("L19")
def test_a_large_backlog_is_removed_in_bounded_steps(yard: Yard) -> None:
    yard.app.enqueue_many([yard.work.bind(n) for n in range(BATCH + 10)])
    run_due(yard.app, limit=BATCH + 10)
    yard.clock.advance(8 * DAY)
    retention = yard.duty("retention")
    done = []
    while (report := yard.step(retention)).next_s == 0:
        done.append(report.done)
    assert (done[0], max(done) <= BATCH, sum(done) + report.done) == (FIRST_BATCH, True, BATCH + 10)
    assert report.next_s == 600.0


@pytest.mark.requirement("L19")
def test_removals_are_bounded_by_the_time_they_take(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that needs a millisecond for each row."""
    yard.app.enqueue_many([yard.work.bind(n) for n in range(BATCH)])
    run_due(yard.app, limit=BATCH)
    yard.clock.advance(8 * DAY)
    retention = yard.duty("retention")
    run = retention.store.arun

    async def slow(op: Any) -> Any:
        answer = await run(op)
        if isinstance(op, Retain):
            yard.clock.advance(0.001 * answer.jobs)
        return answer

    monkeypatch.setattr(retention.store, "arun", slow)
    done = [yard.step(retention).done for _ in range(10)]
    assert done[:4] == [200, 100, 50, 25]
    assert {*done[4:]} <= {19, 20}


@pytest.mark.requirement("L2")
def test_a_long_job_on_the_fast_lane_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    yard = Yard()
    lanes = (Lane("fast", 2, ("critical",), prompt=True), Lane("general", 2, (ANY,)))

    async def story() -> int:
        state = WorkerState(yard.app, WorkerConfig(lanes=lanes), WorkerId(yard.app.runtime.new_job_id()))
        watcher = FastLane(state)
        _, leases = yard.claim()
        for lane, lease in zip(("fast", "general"), leases, strict=True):
            slot = Slot()
            slot.begin(replace(lease, lane=lane), state.monotonic(), 300.0)
            state.slots.append(slot)
        yard.clock.advance(30)
        assert (await watcher.run_once(yard.clock.now())).done == 0
        yard.clock.advance(1)
        assert (await watcher.run_once(yard.clock.now())).done == 1
        fast = state.slots[0].lease
        assert fast is not None
        state.slots[0].end()
        state.put(completed(fast), fast, 31.0)
        assert (await watcher.run_once(yard.clock.now())).done == 0
        state.put(completed(fast), replace(fast, attempt=2), 30.5)  # too short to be seen while it ran
        assert (await watcher.run_once(yard.clock.now())).done == 1
        return watcher.seen

    yard.app.enqueue_many([yard.work.bind(1), yard.work.bind(2)])
    assert asyncio.run(story()) == 2
    assert caplog.text.count("longer than 30 s on the fast lane fast") == 2


class Counter:
    """A duty that notes when it ran, and fails when told to."""

    def __init__(self, name: str, *, every_s: float | None = 5.0, fails: int = 0) -> None:
        self.name, self.every_s, self.fails, self.steps = name, every_s, fails, 0

    async def run_once(self, now: datetime) -> StepReport:
        self.steps += 1
        if self.fails:
            self.fails -= 1
            raise RuntimeError("the disk is full")
        return StepReport(next_s=self.every_s)


class Race:
    """A loop over duties with time in the test's hands."""

    def __init__(self, *duties: Any) -> None:
        self.clock = FakeClock(NOON)
        self.loop = DutyLoop(duties, self.clock, FixedChance())
        self.duties = duties

    def run(self, seconds: float, step_s: float = 0.1) -> None:
        async def run() -> None:
            for _ in range(round(seconds / step_s)):
                self.clock.advance(step_s)
                await self.loop.run_due()

        asyncio.run(run())


def test_a_duty_that_fails_is_tried_again_for_ever_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    broken, sound, once = Counter("broken", fails=10**9), Counter("sound"), Counter("once", every_s=None)
    race = Race(broken, sound, once)
    race.run(600)
    assert 100 <= sound.steps <= 121
    assert 12 <= broken.steps <= 60, "backs off to half a minute, and never gives up"
    assert once.steps == 1
    assert "duty broken failed, trying again in" in caplog.text
    ages = race.loop.ages_s()
    assert ages["broken"] > 590
    assert ages["sound"] < 6
    broken.fails = 0
    race.run(60)
    assert race.loop.ages_s()["broken"] < 6


def test_a_duty_with_more_to_do_goes_on_at_once_and_leaves_the_others_their_turn() -> None:
    hungry, sound = Counter("hungry", every_s=0), Counter("sound", every_s=1.0)
    race = Race(hungry, sound)
    race.run(20)
    assert hungry.steps > 150
    assert 17 <= sound.steps <= 21


def test_a_duty_whose_store_never_answers_is_given_up_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fairlane.worker.duties.loop.STEP_S", 0.01)

    class Hanging(Counter):
        async def run_once(self, now: datetime) -> StepReport:
            self.steps += 1
            await asyncio.Event().wait()
            raise AssertionError

    hanging, sound = Hanging("hanging"), Counter("sound")
    Race(hanging, sound).run(12, step_s=1.0)
    assert hanging.steps >= 3
    assert sound.steps >= 2
    assert "no answer within" in caplog.text


def test_workers_that_start_together_do_not_call_at_once() -> None:
    def first_step(seed: int) -> float:
        loop = DutyLoop((Counter("any"),), FakeClock(NOON), FixedChance(seed))
        return loop._timers[0].due_s or 0.0

    moments = [first_step(seed) for seed in range(200)]
    assert max(sum(1 for at in moments if low <= at < low + 0.1) for low in (n / 10 for n in range(10))) < 50


def test_duties_run_beside_jobs_and_end_with_the_engine(works: Works, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    async def story() -> None:
        engine = works.engine()
        running = asyncio.create_task(engine.run())
        handle = works.task("add").enqueue(1, 2)
        await eventually(lambda: handle.status() == "completed")
        await eventually(lambda: max(engine.duties.loop.ages_s().values()) < 1.5)
        engine.stop()
        await running
        assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []

    asyncio.run(story())
    assert "duty" not in caplog.text


@pytest.mark.parametrize("round_", range(20))
def test_starting_and_stopping_at_any_moment_leaves_nothing_behind(works: Works, round_: int) -> None:
    async def story() -> None:
        engine = works.engine()
        running = asyncio.create_task(engine.run())
        for _ in range(round_):
            await asyncio.sleep(0)
        engine.stop()
        await asyncio.wait_for(running, 10)
        assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []

    asyncio.run(story())


def test_results_of_nodes_are_removed_after_their_workflow_has_ended() -> None:
    yard = Yard()
    brief = yard.app.task(name="yard.brief", result_expires=60)(lambda: "brief")
    flow = yard.app.workflow("slow")
    node = flow.add(brief.bind())
    flow.add(yard.work.using(delay=5000).bind(7), after=[node])
    handle, duty = flow.enqueue(), yard.duty("results")
    run_due(yard.app)
    for _ in range(2):
        yard.clock.advance(61)
        assert yard.step(duty).done == 0
    assert handle.result(node) == "brief"
    yard.clock.advance(5000)
    run_due(yard.app)
    assert handle.status().status == "completed"
    assert yard.step(duty).done == 0  # looks at what it had left from now on
    assert yard.step(duty).done == 1
    assert yard.app.jobs.get(handle.nodes()[0].job_id).result is None
    yard.app.close()


@pytest.mark.requirement("L18")
def test_a_result_that_was_removed_is_an_error_and_one_that_was_none_is_not(yard: Yard) -> None:
    seen: list[object] = []
    brief = yard.app.task(name="yard.brief", result_expires=60)(lambda says: says)
    take = yard.app.task(name="yard.take")(lambda it: seen.extend([it]))
    flow = yard.app.workflow("short")
    said, silent = flow.add(brief.bind("hello"), name="said"), flow.add(brief.bind(None), name="silent")
    ends = [flow.add(take.using(delay=100).bind(node.result), name=f"take {node.name}") for node in (said, silent)]
    handle = flow.enqueue()
    run_due(yard.app)
    yard.clock.advance(101)
    run_due(yard.app)
    assert sorted(map(str, seen)) == ["None", "hello"]  # kept beyond its time, for those that need it
    assert (handle.result(said), handle.result(silent)) == ("hello", None)
    duty = yard.duty("results")
    assert yard.step(duty).done == 2
    why = "ResultExpired: it completed at .*, and its result was kept for 60 s; handle.retry.*said"
    with pytest.raises(JobFailed, match=why):
        handle.result(said)
    handle.retry(from_=ends[0])
    run_due(yard.app)
    [dead] = yard.app.dead_letters.list().dead_letters
    assert dead.reason.startswith(
        'the stored payload of "yard.take" cannot be taken, nothing ran: the result of node "said"'
    )
    handle.retry(from_=said)
    run_due(yard.app)
    yard.clock.advance(101)
    run_due(yard.app)
    assert (handle.status().status, len(seen)) == ("completed", 3)


@pytest.mark.requirement("L18")
def test_a_parent_that_is_past_its_retention_is_an_error_to_what_runs_again(yard: Yard) -> None:
    seen: list[object] = []
    take = yard.app.task(name="yard.take")(lambda it: seen.extend([it]))
    flow = yard.app.workflow("long")
    first = flow.add(yard.work.bind(7))
    last = flow.add(take.using(delay=3600).bind(first.result))
    handle = flow.enqueue()
    run_due(yard.app)
    yard.clock.advance(3600)
    run_due(yard.app)
    yard.app.runtime.store.run(Retain(finished_before=yard.clock.now()))
    handle.retry(from_=last)
    run_due(yard.app)
    [dead] = yard.app.dead_letters.list().dead_letters
    assert 'node "work" is past its retention' in dead.reason
    assert seen == [7]


def test_the_documentation_names_every_duty(works: Works) -> None:
    page = (Path(__file__).parents[2] / "docs/operate/duties.md").read_text().partition("## Retention")[0]
    documented = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    named = {timer.duty.name for timer in works.engine().duties.loop._timers}
    assert documented == named


def test_results_are_removed_when_their_task_says_and_the_job_stays() -> None:
    yard = Yard()
    brief = yard.app.task(name="yard.brief", result_expires=60)(lambda: "brief")
    handles = [brief.enqueue(), yard.work.enqueue(7)]
    run_due(yard.app)
    duty = yard.duty("results")
    yard.clock.advance(59)
    assert yard.step(duty).done == 0
    yard.clock.advance(2)
    late = brief.enqueue()
    run_due(yard.app)
    assert [yard.step(duty), yard.step(duty)] == [StepReport(done=1, next_s=60.0), StepReport(done=0, next_s=60.0)]
    assert [handle.job().result for handle in (*handles, late)] == [None, "7", '"brief"']
    assert handles[0].status() == "completed"
    yard.clock.advance(61)
    assert yard.step(duty).done == 1
    assert yard.step(Yard().duty("results")) == StepReport(next_s=60.0)
    yard.app.close()
