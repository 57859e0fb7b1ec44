"""What the hot statements read: an index, from the place they start at, never a whole table that grows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from fairlane.core.ops import ALL_TENANTS, Enqueue, GetStats, Mark, Op, PageJobs, Take, Turn, Want
from fairlane.core.ops.read import JobFilter
from fairlane.core.outcome import Completed
from fairlane.stores.sqlite import SqliteStore
from fairlane.stores.sqlite.driver import Driver, Row
from tests.support.acting import Scene
from tests.support.making import Making

T = TypeVar("T")

SMALL = {"fairlane_pause", "fairlane_lease", "l", "fairlane_worker", "c", "t", "line", "json_each"}
"""Tables no bigger than what workers hold, and lists we pass ourselves."""


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
    return [(sql, step) for sql, step in steps if step.split()[1] not in SMALL and "limit 1" not in sql]


def test_no_step_of_enqueue_and_turn_scans_a_growing_table(store: SqliteStore, plans: dict[str, list[str]]) -> None:
    scene = Scene(store)
    for tenant in ("a", "b", "c"):
        scene.put_many(5, tenant=tenant, dedup_key=None)
    scene.put(delay_s=5)
    scene.enqueue(scene.job(idempotency_key="i", dedup_key="d"))
    worker = scene.hire()
    leases = scene.claim(worker, 9)
    scene.later(10)
    ends = tuple(Completed(seq=lease.seq, attempt=lease.attempt) for lease in leases[:5])
    want = Want(lane="general", queues=("default",), limit=5, types=("mail.send",), cursor="b")
    scene.run(Turn(worker=worker, claim_no=9, outcomes=ends, wants=(want,)))
    assert len(plans) > 15
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
