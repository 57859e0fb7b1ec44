"""What the hot statements read: an index, from the place they start at, never a whole table that grows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from fairlane.core.job_keys import JobKey
from fairlane.core.limits import Limit, Rate
from fairlane.core.ops import (
    ALL_TENANTS,
    AddTenants,
    Age,
    Enqueue,
    FreePlace,
    GetStats,
    HasTenants,
    Mark,
    Op,
    PageJobs,
    PageTenants,
    Take,
    TakeTokens,
    Turn,
    Unhold,
    Want,
    Why,
    only,
)
from fairlane.core.ops.jobs import JobFilter
from fairlane.core.outcome import Completed, Released
from fairlane.stores.sqlite import SqliteStore
from fairlane.stores.sqlite.driver import Driver, Row
from fairlane.testing.conformance.limits import every_tenant, named, queue, rate, set_limit, task, tenant
from fairlane.testing.conformance.samples import OUTCOMES, Making, completed, died, retried
from fairlane.testing.conformance.scene import Scene, wanting

T = TypeVar("T")

SMALL = {"fairlane_pause", "fairlane_limit", "fairlane_lease", "l", "fairlane_worker", "c", "t", "json_each"}
"""Tables no bigger than what people set and workers hold, and lists we pass ourselves."""
STEPWISE = {"line", "bands", "queues", "name"}
"""What recursive statements have found so far, one seek each."""


class Watched:
    """A driver that writes down the plan of everything it is asked."""

    def __init__(self, driver: Driver, plans: dict[str, list[str]]) -> None:
        self.library = driver.library
        self._driver, self._plans = driver, plans
        self.in_transaction, self.close = driver.in_transaction, driver.close

    def execute(self, sql: str, params: object = ()) -> list[Row]:
        self._plan(sql, params)
        return self._driver.execute(sql, params)  # type: ignore[arg-type]

    def executemany(self, sql: str, rows: object) -> None:
        rows = list(rows)  # type: ignore[call-overload]
        if rows:
            self._plan(sql, rows[0])
        self._driver.executemany(sql, rows)

    def _plan(self, sql: str, params: object) -> None:
        plan = self._driver.execute(f"explain query plan {sql}", params)  # type: ignore[arg-type]
        self._plans[sql] = [row[3] for row in plan]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "jobs.db")
    yield store
    store.close()


@pytest.fixture
def plans(store: SqliteStore) -> dict[str, list[str]]:
    plans: dict[str, list[str]] = {}
    handle = store._handle
    store._handle = lambda db, op, writing: handle(Watched(db, plans), op, writing=writing)  # type: ignore[method-assign]
    return plans


def scans(plans: dict[str, list[str]]) -> list[tuple[str, str]]:
    steps = [(sql, step) for sql, plan in plans.items() for step in plan if step.startswith("SCAN")]
    steps = [(sql, step) for sql, step in steps if "VIRTUAL TABLE" not in step and "(subquery" not in step]
    return [(sql, step) for sql, step in steps if step.split()[1] not in SMALL | STEPWISE and "limit 1" not in sql]


def test_no_step_of_enqueue_and_turn_scans_a_growing_table(store: SqliteStore, plans: dict[str, list[str]]) -> None:
    scene = Scene(store)
    for name in ("a", "b", "c"):
        scene.put_many(5, tenant=name, dedup_key=None)
    scene.put(delay_s=5)
    scene.enqueue(scene.job(idempotency_key="i", dedup_key="d"))
    worker = scene.hire()
    leases = scene.claim(worker, 9)
    scene.later(10)
    ends = tuple(Completed(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no) for lease in leases[:5])
    want = Want(lane="general", queues=("default",), limit=5, types=("mail.send",), cursor="b")
    scene.run(Turn(worker=worker, claim_no=9, outcomes=ends, wants=(want,)))
    assert len(plans) > 15
    assert scans(plans) == []


@pytest.mark.requirement("I3")
def test_no_step_under_limits_scans_a_growing_table(store: SqliteStore, plans: dict[str, list[str]]) -> None:
    scene = Scene(store)
    limits = (
        queue(running=50, rate=rate(50)),
        every_tenant("default", running=9, rate=rate(9), waiting=4, when_full="hold"),
        every_tenant(running=9, enqueue_rate=rate(100)),
        task(running=20),
        named("smtp", "mail.send", "report.make", running=20, rate=rate(20)),
    )
    for name in ("a", "b", "c"):
        scene.enqueue(*(scene.job(tenant=name, delay_s=delay) for delay in (0, 0, 0, 5, 0, 0)), limits=limits)
    worker = scene.hire(6000)
    leases = scene.claim(worker, 5, limits=limits, survey=2)
    assert len(leases) == 5
    ends = tuple(Released(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no) for lease in leases[:3])
    scene.turn(worker, wanting(5), outcomes=ends, limits=limits)
    assert scene.run(Unhold(limits=limits, limit=1)).count == 0
    assert scene.run(Unhold(limit=3)).count == 3
    scene.later(100)
    assert scene.run(Age(queue="default", every_s=10)).count > 0
    assert scene.run(TakeTokens(counts={"a": 1}, limits=limits)).granted
    assert scene.run(HasTenants())
    assert scene.run(AddTenants()).added == 3
    set_limit(scene, tenant("a", running=3))
    waiting = scene.put(tenant="a")
    plans_of_changes = len(plans)
    assert scene.run(Why(scope=ALL_TENANTS, id=waiting.id, limits=limits)) is not None
    assert len(scene.run(PageTenants(scope=ALL_TENANTS, tier=None)).tenants) == 3
    assert len(plans) > plans_of_changes > 40
    assert scans(plans) == []


def steps_of(store: SqliteStore, op: Op[T]) -> tuple[T, int]:
    """The answer, and how many tens of SQLite's own steps it took: the same on every machine."""
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    for driver in (store._db._writer, store._db._reader):
        driver.connection.set_progress_handler(count, 10)  # type: ignore[union-attr]
    answer = store.run(op)
    for driver in (store._db._writer, store._db._reader):
        driver.connection.set_progress_handler(None)  # type: ignore[union-attr]
    return answer, steps


def passed_over(tmp_path: Path, foreign: int) -> tuple[int, int]:
    """Steps of a claim behind so many jobs of another type, all of one enqueue; and of the statistics then."""
    store = SqliteStore(tmp_path / f"behind-{foreign}.db")
    scene = Scene(store)
    receipts = scene.put_many(foreign, "report.make")
    scene.put_many(100, "mail.send")
    worker = scene.hire()
    scene.stats()
    mark = Mark(queue="default", band=5, tenant="system", rank=0, due_at=scene.now, seq=receipts[-1].seq)
    take = Take(queue="default", band=5, tenant="system", limit=50, after=mark)
    want = Want(lane="general", queues=("default",), limit=50, types=("mail.send",), takes=(take,), discover=False)
    answer, claiming = steps_of(store, Turn(worker=worker, claim_no=1, wants=(want,), now=scene.now))
    assert len(answer.leases) == 50
    _, counting = steps_of(store, GetStats(scope=ALL_TENANTS, cap=10))
    store.close()
    return claiming, counting


@pytest.mark.requirement("W5")
def test_a_claim_behind_a_mark_and_the_statistics_cost_the_same_however_many_wait(tmp_path: Path) -> None:
    (claim_few, count_few), (claim_many, count_many) = passed_over(tmp_path, 100), passed_over(tmp_path, 10_000)
    assert 0 < claim_many <= 1.5 * claim_few
    assert 0 < count_many <= 1.5 * count_few


def counted_for_one(tmp_path: Path, others: int) -> int:
    """Steps of a scrape's look at one tenant beside so many jobs and dead letters of another."""
    store = SqliteStore(tmp_path / f"beside-{others}.db")
    scene = Scene(store)
    for delay_s in (0, 60):
        scene.put_many(others, tenant="crowd", delay_s=delay_s)
    scene.put(tenant="small")
    for _ in range(others // 20):
        assert scene.bury(scene.put(tenant="crowd").id).refused is None
    scene.stats()
    look = GetStats(scope=only("small"), cap=10, rough=True, parts=("queues", "dead_letters"))
    stats, steps = steps_of(store, look)
    assert [queue.ready for queue in stats.queues] == [1]
    store.close()
    return steps


@pytest.mark.requirement("I11")
def test_a_look_at_one_tenant_costs_the_same_however_many_jobs_others_have(tmp_path: Path) -> None:
    assert 0 < counted_for_one(tmp_path, 5_000) <= 1.5 * counted_for_one(tmp_path, 400)


def under_limits(tmp_path: Path, waiting: int) -> tuple[int, int]:
    """Steps of a claim beside so many jobs of a tenant without room, and of an enqueue to it, over its limit already."""
    store = SqliteStore(tmp_path / f"full-{waiting}.db")
    scene = Scene(store)
    scene.put_many(waiting, tenant="full")
    scene.put(tenant="free")
    worker = scene.hire()
    limits = (tenant("full", running=0, waiting=50),)
    scene.stats()
    turn = Turn(worker=worker, claim_no=1, wants=(wanting(5),), limits=limits, now=scene.now)
    answer, claiming = steps_of(store, turn)
    assert [lease.tenant for lease in answer.leases] == ["free"]
    one = Enqueue(jobs=(scene.job(tenant="full"),), limits=limits, now=scene.now)
    receipt, enqueueing = steps_of(store, one)
    assert [hit.found for hit in receipt.hits] == [50]
    store.close()
    return claiming, enqueueing


@pytest.mark.requirement("I3")
def test_what_a_limit_costs_grows_with_the_limit_and_not_with_what_waits(tmp_path: Path) -> None:
    (claim_few, put_few), (claim_many, put_many) = under_limits(tmp_path, 100), under_limits(tmp_path, 10_000)
    assert 0 < claim_many <= 1.5 * claim_few
    assert 0 < put_many <= 1.5 * put_few


@pytest.mark.requirement("D24")
def test_no_step_at_keys_scans_a_growing_table(store: SqliteStore, plans: dict[str, list[str]]) -> None:
    scene = Scene(store)
    tasks = (
        JobKey(value="customer:1"),
        JobKey(value="customer:1", ordered=True),
        JobKey(value="shop:1", running=3, rate=Rate(2, 10.0)),
        JobKey(value="shop:2", running=2, on_conflict="replace"),
        JobKey(value="shop:2", on_conflict="discard"),
    )
    for key in tasks:
        scene.enqueue(*(scene.job(key=key, delay_s=delay_s) for delay_s in (0, 0, 0, 5)))
    worker = scene.hire(6000)
    leases = scene.claim(worker, 9)
    for outcome in (completed, died, retried):
        [lease, *leases] = leases
        leases += scene.turn(worker, wanting(9), outcomes=(outcome(lease),)).leases
    scene.later(100)
    set_limit(scene, Limit(kind="key", name="shop", running=2))
    scene.turn(worker, wanting(9))
    assert scene.run(FreePlace(scope=ALL_TENANTS, id=leases[0].id, by="ada")).refused is None
    told = scene.run(Why(scope=ALL_TENANTS, id=leases[0].id))
    assert told is not None
    assert told.key is not None
    scene.run(Unhold())
    assert sum("fairlane_job_key" in sql for sql in plans) > 20
    assert scans(plans) == []


@pytest.mark.requirement("D24")
def test_where_no_job_has_a_key_no_statement_asks_for_one(store: SqliteStore, plans: dict[str, list[str]]) -> None:
    scene = Scene(store)
    scene.put_many(5)
    scene.put(delay_s=5)
    worker = scene.hire(6000)
    leases = scene.claim(worker, 4)
    scene.later(10)
    ends = (completed(leases[0]), retried(leases[1]), OUTCOMES["released"](leases[2]), died(leases[3]))
    assert len(scene.turn(worker, wanting(9), outcomes=ends).leases) == 3
    assert [sql for sql in plans if "fairlane_job_key" in sql or "fairlane_knock" in sql] == []


def behind_one_place(tmp_path: Path, held: int, *, ordered: bool) -> int:
    """Steps of a Turn that ends the job of a key and claims the next, with so many held behind it."""
    store = SqliteStore(tmp_path / f"key-{held}.db")
    scene = Scene(store)
    scene.put_many(held, key=JobKey(value="customer:1", ordered=ordered))
    worker = scene.hire()
    [lease] = scene.claim(worker, 5)
    [lease] = scene.turn(worker, wanting(5), outcomes=(completed(lease),)).leases
    scene.stats()
    turn = Turn(worker=worker, claim_no=99, wants=(wanting(5),), outcomes=(completed(lease),), now=scene.now)
    answer, steps = steps_of(store, turn)
    assert len(answer.leases) == 1
    store.close()
    return steps


@pytest.mark.requirement("D24")
@pytest.mark.parametrize("ordered", [False, True])
def test_a_place_costs_the_same_however_many_are_held_for_it(tmp_path: Path, *, ordered: bool) -> None:
    few, many = behind_one_place(tmp_path, 20, ordered=ordered), behind_one_place(tmp_path, 10_000, ordered=ordered)
    assert 0 < many <= 1.5 * few


@pytest.mark.parametrize("statuses", [("pending",), ("failed",), ("processing",), ("dead",), ("cancelled",)])
def test_a_page_starts_from_the_facts_of_the_status_asked_for(
    store: SqliteStore, plans: dict[str, list[str]], statuses: tuple[str, ...]
) -> None:
    store.run(Enqueue(jobs=(Making().job(),)))
    plans.clear()
    store.run(PageJobs(scope=ALL_TENANTS, where=JobFilter(statuses=statuses), limit=10))  # type: ignore[arg-type]
    listing = [plan for sql, plan in plans.items() if "order by f.seq" in sql]
    assert listing
    assert not [step for plan in listing for step in plan if "USE TEMP B-TREE" in step or "SCAN j" in step]
