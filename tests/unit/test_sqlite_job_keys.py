"""Keys of jobs in a SQLite file: bounded steps, other rates at the same key, and what older code leaves behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane.core.job_keys import JobKey
from fairlane.core.limits import NO_LIMIT, Rate
from fairlane.core.ops import ALL_TENANTS, ListKeys, Purge
from fairlane.stores.sqlite import SqliteStore
from fairlane.stores.sqlite.job_keys.places import KEYS_AT_ONCE, LET_IN_AT_ONCE
from fairlane.testing.conformance.limits import pause_limit, unhold
from fairlane.testing.conformance.samples import completed
from fairlane.testing.conformance.scene import Scene, wanting

pytestmark = pytest.mark.requirement("D24")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "jobs.db")
    yield store
    store.close()


@pytest.fixture
def scene(store: SqliteStore) -> Scene:
    return Scene(store)


OLD_CODE_COMPLETES = """
insert into fairlane_done
select seq, 'completed', leased_at, due_at, attempt, attempts, crashes, 'completed', worker, leased_at, started_at, 0,
  null, null, null, null, null from fairlane_lease
"""


def test_a_place_that_older_code_left_behind_is_found_free(store: SqliteStore, scene: Scene) -> None:
    jobs = [scene.put(key=JobKey(value="customer:42")).id for _ in range(2)]
    worker = scene.hire(6000)
    [lease] = scene.claim(worker, 9)
    for statement in (OLD_CODE_COMPLETES, "delete from fairlane_lease"):
        store._db.change(lambda db, sql=statement: db.execute(sql))
    assert scene.claim(worker, 9) == ()
    unhold(scene)
    scene.turn(worker)  # finds what is left behind
    assert (lease.id, [lease.id for lease in scene.claim(worker, 9)]) == (jobs[0], jobs[1:])


def test_more_keys_than_one_turn_looks_at_come_to_their_turn(scene: Scene) -> None:
    count = 2 * KEYS_AT_ONCE + 1
    scene.enqueue(*(scene.job(key=JobKey(value=f"customer:{n}")) for n in range(count)))
    worker = scene.hire(6000)
    claimed = [scene.turn(worker, wanting(count)) for _ in range(4)]
    assert [len(turn.leases) for turn in claimed] == [KEYS_AT_ONCE, KEYS_AT_ONCE, 1, 0]
    assert [turn.limited_until for turn in claimed] == [scene.now, scene.now, None, None]


def test_a_key_without_a_limit_lets_its_jobs_in_by_bounded_steps(scene: Scene) -> None:
    scene.put_many(LET_IN_AT_ONCE + 1, key=JobKey(value="customer:42", running=NO_LIMIT))
    worker = scene.hire(6000)
    assert [len(scene.claim(worker, 5000)) for _ in range(3)] == [LET_IN_AT_ONCE, 1, 0]


def test_jobs_with_a_longer_rate_count_what_those_with_a_shorter_one_used(scene: Scene) -> None:
    short, long = (JobKey(value="crm", running=NO_LIMIT, rate=Rate(1, period_s)) for period_s in (1.0, 10.0))
    worker = scene.hire(6000)
    scene.put_many(3, key=short)
    for _ in range(3):
        assert len(scene.claim(worker, 9)) == 1
        scene.later(1)
    scene.put(key=long)
    assert scene.claim(worker, 9) == ()
    scene.later(9)
    assert len(scene.claim(worker, 9)) == 1


def test_nothing_of_keys_is_left_when_all_jobs_have_ended(store: SqliteStore, scene: Scene) -> None:
    worker = scene.hire(6000)
    for key in (JobKey(value="a"), JobKey(value="b", ordered=True), JobKey(value="c", rate=Rate(5, 10.0))):
        scene.put_many(3, key=key)
    pause_limit(scene, "key", "a", 5.0)
    scene.later(5)
    for _ in range(3):
        scene.settle(worker, *map(completed, scene.claim(worker, 9)))
    scene.turn(worker)
    for table in ("job_key", "knock"):
        assert store._db.read(lambda db, table=table: db.execute(f"select * from fairlane_{table}")) == []


def test_a_purge_takes_keys_along(store: SqliteStore, scene: Scene) -> None:
    scene.put_many(3, key=JobKey(value="customer:42", rate=Rate(1, 10.0)))
    scene.claim(scene.hire(), 9)
    scene.run(Purge())
    for table in ("job_key", "knock", "rate_use"):
        assert store._db.read(lambda db, table=table: db.execute(f"select * from fairlane_{table}")) == []
    assert scene.run(ListKeys(scope=ALL_TENANTS)).keys == ()
