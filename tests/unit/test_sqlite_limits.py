"""What is the SQLite store's own about limits: leases counted only when asked for, limits read once, a word to those who wait."""

from __future__ import annotations

import select
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fairlane.core.ids import WorkerId
from fairlane.core.limits import Limit
from fairlane.core.ops import ClearLimit, Enqueue, PauseClaims, Purge, Renew, Reset, SetLimit, Turn, Unhold
from fairlane.core.ops.base import ALL_TENANTS
from fairlane.core.outcome import Completed
from fairlane.stores.sqlite import SqliteStore
from fairlane.stores.sqlite.driver import Driver, Row
from fairlane.stores.sqlite.listener import SqliteListener
from fairlane.testing.conformance.limits import clear_limit, queue, rate, set_limit, task, tenant
from fairlane.testing.conformance.scene import Scene, wanting


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "jobs.db")
    yield store
    store.close()


@pytest.fixture
def scene(store: SqliteStore) -> Scene:
    return Scene(store)


def rows(store: SqliteStore, sql: str) -> list[tuple[Any, ...]]:
    return store._db.read(lambda db: db.execute(sql))


def test_leases_are_not_counted_before_a_limit_asks(store: SqliteStore, scene: Scene) -> None:
    scene.put_many(3)
    set_limit(scene, tenant("acme", payload_bytes=1000))
    scene.claim(scene.hire(), 2, limits=(task(rate=rate(50)),))
    assert rows(store, "select distinct queue, tenant, type from fairlane_lease") == [(None, None, None)]


@pytest.mark.requirement("I3")
def test_leases_from_before_a_limit_count_under_it(store: SqliteStore, scene: Scene) -> None:
    scene.put_many(9, tenant="acme")
    scene.claim(scene.hire(), 2)
    set_limit(scene, tenant("acme", running=3))
    assert len(scene.claim(scene.hire(), 9)) == 1
    assert rows(store, "select distinct queue, tenant, type from fairlane_lease") == [("default", "acme", "mail.send")]


def test_leases_of_workers_that_know_of_no_limit_count_once_another_has_asked(scene: Scene) -> None:
    scene.put_many(9)
    assert len(scene.claim(scene.hire(), 1, limits=(queue(running=4),))) == 1
    scene.claim(scene.hire(), 2)
    assert len(scene.claim(scene.hire(), 9, limits=(queue(running=4),))) == 1


def test_a_limit_set_through_another_store_is_in_force_at_once(
    tmp_path: Path, store: SqliteStore, scene: Scene
) -> None:
    scene.put_many(9)
    assert len(scene.claim(scene.hire(), 1, limits=(queue(running=5),))) == 1
    other = SqliteStore(tmp_path / "jobs.db")
    set_limit(Scene(other), queue(running=2))
    assert len(scene.claim(scene.hire(), 9, limits=(queue(running=5),))) == 1
    clear_limit(Scene(other), queue())
    assert len(scene.claim(scene.hire(), 9, limits=(queue(running=5),))) == 3
    other.close()


def test_a_limit_that_was_rolled_back_with_its_transaction_is_not_remembered(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "jobs.db", library="stdlib")
    scene = Scene(store)
    refusing = tenant("system", waiting=0, when_full="reject")
    connection = sqlite3.connect(tmp_path / "jobs.db")
    store.run(SetLimit(limit=refusing, by="ada", now=scene.now), on=connection)
    refused = store.run(Enqueue(jobs=(scene.job(),), now=scene.now), on=connection)
    assert refused.refused is not None
    connection.rollback()
    set_limit(scene, tenant("acme", waiting=0, when_full="reject"))
    assert scene.enqueue(scene.job()).refused is None
    assert scene.enqueue(scene.job(tenant="acme")).refused is not None
    connection.close()
    store.close()


def test_a_purge_empties_every_table_of_sqlite(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "jobs.db", library="stdlib")
    asked: list[str] = []
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
        store.run(PauseClaims(kind="queue", name="bulk", refuse=True, by="ada"))
        connection.set_trace_callback(asked.append)
        store.run(Purge(), on=connection)
        tables = connection.execute("select name from sqlite_schema where type = 'table' and name like 'fairlane%'")
        kept = {name for (name,) in tables if not any(f"delete from {name}" in sql for sql in asked)}
        assert kept == {"fairlane_lease_end", "fairlane_step", "fairlane_wait"}, "triggers empty them with the jobs"
        states = dict(connection.execute("select * from fairlane_meta"))
    assert not states.get("limits_refusals")
    store.close()


def test_a_refused_enqueue_leaves_the_rest_of_the_callers_transaction_alone(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "jobs.db", library="stdlib")
    scene = Scene(store)
    connection = sqlite3.connect(tmp_path / "jobs.db")
    connection.execute("create table orders (id integer)")
    connection.execute("insert into orders values (1)")
    limits = (tenant("system", waiting=1, when_full="reject"),)
    refused = store.run(Enqueue(jobs=(scene.job(), scene.job()), limits=limits, now=scene.now), on=connection)
    assert refused.refused is not None
    connection.commit()
    assert connection.execute("select count(*) from orders").fetchone() == (1,)
    assert connection.execute("select count(*) from fairlane_job").fetchone() == (0,)
    connection.close()
    store.close()


def test_claims_under_a_rate_are_forgotten_when_their_period_is_over(store: SqliteStore, scene: Scene) -> None:
    scene.put_many(20)
    for _ in range(5):
        assert len(scene.claim(scene.hire(6000), 9, limits=(queue(rate=rate(2, 10.0)),))) == 2
        scene.later(10)
    assert rows(store, "select count(*), sum(number) from fairlane_rate_use") == [(1, 2)]


class Counted:
    """A driver that counts its statements and the rows they gave."""

    def __init__(self, driver: Driver, counts: Counter[str]) -> None:
        self.library, self.executemany = driver.library, driver.executemany
        self._driver, self._counts = driver, counts
        self.in_transaction, self.close = driver.in_transaction, driver.close

    def execute(self, sql: str, params: Sequence[object] = ()) -> list[Row]:
        rows = self._driver.execute(sql, params)
        self._counts.update(statements=1, rows=len(rows))
        return rows


@pytest.mark.requirement("W14")
def test_a_backlog_of_a_full_type_is_passed_once_and_in_few_statements(store: SqliteStore, scene: Scene) -> None:
    for name in "abcde":
        scene.enqueue(*(scene.job(type="x", tenant=name) for _ in range(999)), scene.job(type="y", tenant=name))
    worker, counts, handle = scene.hire(), Counter[str](), store._handle
    store._handle = lambda db, op, writing: handle(Counted(db, counts), op, writing=writing)  # type: ignore[method-assign]
    result = scene.turn(worker, wanting(9), limits=(task("x", running=0),))
    assert [(lease.tenant, lease.type) for lease in result.leases] == [(name, "y") for name in "abcde"]
    assert counts["rows"] < 5 * 1000 + 50
    assert counts["statements"] < 100


# Who is woken.


class Waiter:
    """A worker that waits, and hears datagrams: a look at the file would find every change."""

    def __init__(self, store: SqliteStore, scene: Scene) -> None:
        self.id: WorkerId = scene.making.worker_id()
        self._listener: SqliteListener = store.listener(self.id)
        store.run(Renew(worker=self.id, lease_s=6000, wake_address=self._listener.address, now=scene.now))
        store.run(Turn(worker=self.id, claim_no=1, waiting=True, now=scene.now))

    def is_woken(self) -> bool:
        heard = bool(select.select([self._listener._socket], [], [], 0)[0])
        self._listener._drain()
        return heard

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def waiter(store: SqliteStore, scene: Scene) -> Iterator[Waiter]:
    waiter = Waiter(store, scene)
    yield waiter
    waiter.close()


def test_setting_and_clearing_a_limit_wakes_those_who_wait(scene: Scene, waiter: Waiter) -> None:
    scene.put()
    waiter.is_woken()
    set_limit(scene, queue(running=5))
    assert waiter.is_woken()
    set_limit(scene, queue(running=5))
    assert not waiter.is_woken()
    scene.run(ClearLimit(kind="queue", name="default", by="ada"))
    assert waiter.is_woken()


def test_nobody_is_woken_for_a_limit_while_nothing_is_ready(scene: Scene, waiter: Waiter) -> None:
    set_limit(scene, queue(running=5))
    assert not waiter.is_woken()


@pytest.mark.parametrize(
    ("limit", "woken"),
    [
        (queue(running=1), True),
        (task(running=1), True),
        (queue("bulk", running=1), False),
        (queue(rate=rate(9)), False),
    ],
)
def test_the_end_of_a_lease_wakes_others_only_if_a_running_limit_counted_it(
    scene: Scene, waiter: Waiter, limit: Limit, woken: bool
) -> None:
    scene.put_many(2)
    worker = scene.hire(6000)
    [lease] = scene.claim(worker, 1, limits=(limit,))
    waiter.is_woken()
    scene.turn(
        worker, outcomes=(Completed(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no),), limits=(limit,)
    )
    assert waiter.is_woken() is woken


@pytest.mark.parametrize("limit", [queue(running=2), task(running=2), tenant("acme", running=2)])
def test_a_place_that_is_taken_again_at_once_wakes_nobody(scene: Scene, waiter: Waiter, limit: Limit) -> None:
    scene.put_many(4, tenant="acme")
    worker = scene.hire(6000)
    first, second = scene.claim(worker, 9, limits=(limit,))
    waiter.is_woken()
    scene.turn(
        worker,
        wanting(9),
        outcomes=(Completed(seq=first.seq, attempt=first.attempt, claim_no=first.claim_no),),
        limits=(limit,),
    )
    assert not waiter.is_woken()
    scene.turn(
        worker, outcomes=(Completed(seq=second.seq, attempt=second.attempt, claim_no=second.claim_no),), limits=(limit,)
    )
    assert waiter.is_woken()


@pytest.mark.parametrize("kept", [False, True])
def test_a_turn_that_claims_nothing_and_gives_no_limits_wakes_those_who_wait(
    scene: Scene, waiter: Waiter, kept: bool
) -> None:
    if kept:
        set_limit(scene, queue("bulk", running=5))
    scene.put_many(2)
    worker = scene.hire(6000)
    [lease] = scene.claim(worker, 2, limits=(queue(running=1),))
    waiter.is_woken()
    scene.turn(worker, outcomes=(Completed(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no),))
    assert waiter.is_woken()


def test_who_ends_a_lease_and_waits_is_not_woken_by_itself(scene: Scene, waiter: Waiter) -> None:
    scene.put_many(2)
    limits = (queue(running=1),)
    [lease] = scene.turn(waiter.id, wanting(1), claim_no=2, limits=limits, waiting=True).leases
    waiter.is_woken()
    ends = (Completed(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no),)
    scene.turn(waiter.id, claim_no=3, outcomes=ends, limits=limits, waiting=True)
    assert not waiter.is_woken()


def test_a_lease_taken_away_by_hand_wakes_those_who_wait_for_room(scene: Scene, waiter: Waiter) -> None:
    scene.put_many(2)
    set_limit(scene, queue(running=1))
    [lease] = scene.claim(scene.hire(6000), 1)
    waiter.is_woken()
    scene.run(Reset(scope=ALL_TENANTS, id=lease.id, by="ada"))
    assert waiter.is_woken()


def test_a_held_job_wakes_somebody_only_when_it_may_go_on(scene: Scene, waiter: Waiter) -> None:
    full = (tenant("system", waiting=0, when_full="hold"),)
    scene.enqueue(scene.job(), limits=full)
    assert not waiter.is_woken()
    scene.run(Unhold(limits=full))
    assert not waiter.is_woken()
    scene.run(Unhold())
    assert waiter.is_woken()
