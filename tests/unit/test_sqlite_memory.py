"""The SQLite store in memory: wake-ups in one process, closing, values that callers cannot change."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from threading import Thread

import pytest
from msgspec import Raw

from fairlane.core import ops
from fairlane.core.clock import FakeClock
from fairlane.core.ids import Seq, WorkerId
from fairlane.core.outcome import Completed, Snoozed
from fairlane.errors import InvalidOption, StoreClosed, StoreRefused, UnsupportedConnection
from fairlane.stores.sqlite import MemoryStore
from fairlane.stores.sqlite.memory import MemoryListener
from fairlane.testing.conformance.samples import NOON, Making
from fairlane.testing.conformance.scene import Scene
from fairlane.testing.conformance.schedules import declare, fire, firing, spec

NEVER_S = 30.0
"""Longer than any wake-up takes; a test that waits this long has failed."""


def depth(store: MemoryStore) -> int | None:
    return store.run(ops.Enqueue(jobs=(), capacity=1000)).depth


@pytest.fixture(params=["apsw", "stdlib"])
def store(request: pytest.FixtureRequest) -> Iterator[MemoryStore]:
    store = MemoryStore(library=request.param)
    yield store
    store.close()


@pytest.fixture
def scene(store: MemoryStore) -> Scene:
    return Scene(store)


def hired(store: MemoryStore, scene: Scene) -> tuple[WorkerId, MemoryListener]:
    """A registered worker and its listener."""
    worker = scene.making.worker_id()
    listener = store.listener(worker)
    scene.run(ops.Renew(worker=worker, lease_s=6000, wake_address=listener.address))
    return worker, listener


@pytest.mark.requirement("Q3")
def test_an_enqueue_wakes_a_waiting_worker_in_another_thread(store: MemoryStore, scene: Scene) -> None:
    worker, listener = hired(store, scene)
    scene.turn(worker, waiting=True)
    enqueuing = Thread(target=scene.put)
    enqueuing.start()
    assert listener.wait(NEVER_S)
    enqueuing.join()


@pytest.mark.requirement("Q3")
def test_an_enqueue_in_another_thread_wakes_a_worker_on_an_event_loop(store: MemoryStore, scene: Scene) -> None:
    worker, listener = hired(store, scene)
    scene.turn(worker, waiting=True)

    async def wait() -> bool:
        enqueuing = Thread(target=scene.put)
        waiting = asyncio.create_task(listener.await_(NEVER_S))
        await asyncio.sleep(0)
        enqueuing.start()
        woken = await waiting
        enqueuing.join()
        return woken

    assert asyncio.run(wait())


def test_a_wake_up_before_the_wait_is_not_lost_and_counts_once(store: MemoryStore, scene: Scene) -> None:
    worker, listener = hired(store, scene)
    scene.turn(worker, waiting=True)
    scene.put()
    assert listener.wait(0)
    assert not listener.wait(0)
    scene.put()
    assert asyncio.run(listener.await_(0))
    assert not asyncio.run(listener.await_(0))


@pytest.mark.parametrize(
    ("notify", "waiting", "woken"),
    [
        ("if_waiting", True, True),
        ("if_waiting", False, False),
        ("always", False, True),
        ("never", True, False),
    ],
)
def test_who_is_woken_is_the_enqueue_callers_choice(
    store: MemoryStore, scene: Scene, notify: ops.enqueue.Notify, waiting: bool, woken: bool
) -> None:
    worker, listener = hired(store, scene)
    scene.turn(worker, waiting=waiting)
    scene.run(ops.Enqueue(jobs=(scene.job(),), notify=notify))
    assert listener.wait(0) is woken


@pytest.mark.parametrize("how", ["a pause is lifted", "a schedule fires", "a schedule is run by hand"])
def test_work_that_appears_otherwise_wakes_a_waiting_worker(store: MemoryStore, scene: Scene, how: str) -> None:
    worker, listener = hired(store, scene)
    declare(scene, spec())
    scene.run(ops.PauseClaims(kind="queue", name="default", by="ada"))
    scene.put()
    scene.turn(worker, waiting=True)
    if how == "a pause is lifted":
        scene.run(ops.ResumeClaims(kind="queue", name="bulk", by="ada"))
        assert not listener.wait(0)
        scene.run(ops.ResumeClaims(kind="queue", name="default", by="ada"))
    elif how == "a schedule fires":
        fire(scene, firing(scene))
    else:
        scene.run(ops.RunSchedule(name="nightly", job=scene.job(), by="ada"))
    assert listener.wait(0)


def test_a_firing_that_was_lost_wakes_nobody(store: MemoryStore, scene: Scene) -> None:
    worker, listener = hired(store, scene)
    scene.turn(worker, waiting=True)
    assert fire(scene, firing(scene)).outcome == "lost"
    assert not listener.wait(0)


def test_a_worker_that_works_again_is_not_woken(store: MemoryStore, scene: Scene) -> None:
    worker, listener = hired(store, scene)
    scene.turn(worker, waiting=True)
    scene.turn(worker)
    scene.put()
    assert not listener.wait(0)


def test_an_enqueue_that_creates_nothing_wakes_nobody(store: MemoryStore, scene: Scene) -> None:
    worker, listener = hired(store, scene)
    job = scene.job()
    scene.enqueue(job)
    scene.turn(worker, waiting=True)
    scene.enqueue(job)
    assert not listener.wait(0)


def test_a_closed_store_answers_nothing_and_ends_every_wait(store: MemoryStore, scene: Scene) -> None:
    listener = store.listener(scene.hire())
    waiting = Thread(target=listener.wait, args=(NEVER_S,))
    waiting.start()
    store.close()
    waiting.join(NEVER_S)
    assert not waiting.is_alive()
    assert not listener.wait(NEVER_S)
    with pytest.raises(StoreClosed, match="closed"):
        store.run(ops.Check())
    with pytest.raises(StoreClosed):
        store.listener(scene.making.worker_id())
    store.close()


def test_a_closed_listener_is_forgotten(store: MemoryStore, scene: Scene) -> None:
    worker, listener = hired(store, scene)
    listener.close()
    listener.close()
    scene.turn(worker, waiting=True)
    scene.put()
    assert not listener.wait(0)


def test_a_callers_connection_is_refused_and_nothing_is_enqueued(store: MemoryStore) -> None:
    with pytest.raises(UnsupportedConnection, match=r"builtins\.object"):
        store.run(ops.Enqueue(jobs=(Making().job(),)), on=object())
    assert depth(store) == 0


def test_what_is_no_operation_is_refused(store: MemoryStore) -> None:
    with pytest.raises(InvalidOption, match="operation"):
        store.run(ops.ALL_TENANTS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "spoilt",
    [
        {"payload": Raw(b'"\xff"')},
        {"run_at": datetime(2026, 1, 1)},  # noqa: DTZ001 - the point of it
        {"delay_s": float("nan")},
        {"timeout_s": float("nan")},
    ],
    ids=["not UTF-8", "no time zone", "a delay that is no number", "a timeout that is no number"],
)
def test_one_job_that_cannot_be_kept_refuses_the_whole_enqueue(store: MemoryStore, spoilt: dict[str, object]) -> None:
    making = Making()
    good = making.job()
    bad = ops.enqueue.JobSpec(**{"id": making.job_id(), "type": "t", "payload": Raw(b"{}"), **spoilt})  # type: ignore[arg-type]
    with pytest.raises(StoreRefused, match="nothing was changed"):
        store.run(ops.Enqueue(jobs=(good, bad)))
    assert depth(store) == 0


def test_one_outcome_that_cannot_be_kept_refuses_the_whole_turn(store: MemoryStore, scene: Scene) -> None:
    worker = scene.hire()
    scene.put_many(2)
    first, second = scene.claim(worker, 2)
    good = Completed(seq=first.seq, attempt=first.attempt, claim_no=first.claim_no)
    for bad in (
        Completed(seq=second.seq, attempt=second.attempt, claim_no=second.claim_no, result=Raw(b"\xff")),
        Snoozed(seq=second.seq, attempt=second.attempt, claim_no=second.claim_no, delay_s=float("nan")),
    ):
        with pytest.raises(StoreRefused, match="nothing was changed"):
            scene.settle(worker, good, bad)
    assert store.run(ops.GetStats(scope=ops.ALL_TENANTS)).completed == 0


def test_a_delay_past_the_end_of_the_calendar_waits_till_the_end_of_the_calendar(store: MemoryStore) -> None:
    store.run(ops.Enqueue(jobs=(Making().job(delay_s=1e18),)))
    next_due_at = store.run(ops.Promote()).next_due_at
    assert next_due_at is not None
    assert next_due_at.year == 9999


def test_what_a_caller_does_to_its_dictionaries_changes_no_job(store: MemoryStore, scene: Scene) -> None:
    refs: dict[str, int | str] = {"order": 7}
    worker, receipt = scene.hire(), scene.put(refs=refs)
    refs["order"] = 8
    [lease] = scene.claim(worker)
    lease.refs["order"] = 9
    detail = store.run(ops.GetJob(scope=ops.ALL_TENANTS, id=receipt.id))
    assert detail is not None
    detail.job.refs["order"] = 10
    again = store.run(ops.GetJob(scope=ops.ALL_TENANTS, id=receipt.id))
    assert again is not None
    assert again.job.refs == {"order": 7}


def test_what_a_caller_does_to_figures_changes_none(scene: Scene) -> None:
    said, buckets = {"rss_bytes": 1.0}, {3: 1}
    worker = scene.making.worker_id()
    scene.run(ops.Renew(worker=worker, figures=said))
    row = ops.StatRow(minute=NOON, type="t", queue="q", tenant="a", run_buckets=buckets)
    scene.run(ops.AddStats(worker=worker, batch=1, rows=(row,)))
    said["rss_bytes"], buckets[3] = 2.0, 2
    asked = ops.ReadStats(since=NOON, until=NOON + timedelta(minutes=1))
    scene.run(asked).rows[0].run_buckets[3] = 3
    scene.run(ops.ListWorkers()).workers[0].figures["rss_bytes"] = 3.0
    assert scene.run(asked).rows[0].run_buckets == {3: 1}
    assert scene.run(ops.ListWorkers()).workers[0].figures == {"rss_bytes": 1.0}


def test_an_instant_without_a_zone_is_refused_wherever_it_stands(scene: Scene) -> None:
    zoneless, worker = datetime(2026, 1, 1), scene.hire()  # noqa: DTZ001 - the point of it
    declare(scene, spec())
    before = scene.run(ops.ListSchedules())
    row = ops.StatRow(minute=zoneless, type="t", queue="q", tenant="a")
    for refused in (
        ops.DeclareSchedules(schedules=(ops.Planned(spec=spec("other"), next_at=zoneless),)),
        ops.Fire(name="nightly", expected_at=NOON, jobs=(firing(scene),), fired_at=NOON, next_at=zoneless),
        ops.Fire(name="nightly", expected_at=NOON, jobs=(scene.job(run_at=zoneless),), fired_at=NOON, next_at=NOON),
        ops.AddStats(worker=worker, batch=1, rows=(row,)),
    ):
        with pytest.raises(StoreRefused, match="nothing was changed"):
            scene.run(refused)
    assert scene.run(ops.ListSchedules()) == before
    assert scene.run(ops.AddStats(worker=worker, batch=1, rows=())).added
    scene.run(ops.PauseSchedule(name="nightly", by="ada"))
    with pytest.raises(StoreRefused, match="nothing was changed"):
        scene.run(ops.PauseSchedule(name="nightly", by="ada", paused=False, next_at=zoneless))


def test_the_clock_is_the_injected_one_unless_the_operation_brings_its_own() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    assert store.run(ops.Check()).now == clock.now()
    berlin = datetime(2026, 6, 1, 14, tzinfo=timezone(timedelta(hours=2)))
    answered = store.run(ops.Check(now=berlin)).now
    assert answered == berlin
    assert answered.tzinfo is UTC


def test_nothing_is_left_of_what_a_removed_job_said(store: MemoryStore, scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.run(ops.Note(worker=worker, seq=lease.seq, attempt=1, claim_no=lease.claim_no, log=("hello",)))
    scene.settle(worker, Completed(seq=lease.seq, attempt=1, claim_no=lease.claim_no))
    assert scene.retain(finished_before=scene.at(1)) == 1
    assert store._memory.read(lambda db: db.execute("select * from fairlane_note")) == []


def test_numbers_are_not_given_again_after_a_purge(store: MemoryStore, scene: Scene) -> None:
    scene.put_many(3)
    assert store.run(ops.Purge()).jobs == 3
    assert scene.put().seq == Seq(4)


def test_the_check_says_that_nothing_survives_the_process(store: MemoryStore) -> None:
    health = store.run(ops.Check())
    assert (health.store, health.durable) == ("memory", False)
    assert "sqlite" in health.degraded[0]


def test_every_store_has_a_database_of_its_own(store: MemoryStore, scene: Scene) -> None:
    scene.put()
    other = MemoryStore()
    assert (depth(store), depth(other)) == (1, 0)
    other.close()
    assert depth(store) == 1


def test_more_workers_than_a_file_would_wake_are_woken(store: MemoryStore, scene: Scene) -> None:
    crew = [hired(store, scene) for _ in range(6)]
    for worker, _ in crew:
        scene.turn(worker, waiting=True)
    scene.put()
    assert all(listener.wait(0) for _, listener in crew)


def test_a_worker_that_does_not_serve_the_queue_is_not_woken(store: MemoryStore, scene: Scene) -> None:
    worker, listener = hired(store, scene)
    scene.run(ops.Renew(worker=worker, lease_s=6000, wake_address=listener.address, queues=("bulk",)))
    scene.turn(worker, waiting=True)
    scene.put()
    assert not listener.wait(0)


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_child_goes_on_with_a_copy(store: MemoryStore, scene: Scene) -> None:
    scene.put_many(2)
    child = os.fork()
    if child == 0:
        store.run(ops.Enqueue(jobs=(Making(7).job(),)))
        os._exit(0 if depth(store) == 3 and depth(MemoryStore()) == 0 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert depth(store) == 2


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_threads_that_fork_at_the_same_time_leave_no_lock_behind(store: MemoryStore) -> None:
    def fork_often() -> None:
        for _ in range(20):
            if (child := os.fork()) == 0:
                os._exit(0)
            os.waitpid(child, 0)

    forkers = [Thread(target=fork_often) for _ in range(3)]
    for forker in forkers:
        forker.start()
    for forker in forkers:
        forker.join(NEVER_S)
    another = Thread(target=MemoryStore, daemon=True)
    another.start()
    another.join(NEVER_S)
    assert not another.is_alive()
    assert depth(store) == 0
