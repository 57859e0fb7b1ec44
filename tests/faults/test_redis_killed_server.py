"""kill -9 of Valkey while processes enqueue, claim and settle: what was acknowledged is there afterwards."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from fairlane.core.ids import JobId
from fairlane.core.ops import ALL_TENANTS, GetJob, GetStats, Lapse, ListWorkers
from fairlane.stores.redis import RedisStore
from fairlane.testing.conformance.samples import completed
from fairlane.testing.conformance.scene import Scene
from tests.faults.eventually import eventually
from tests.servers.valkey import ValkeyServer

WRITERS = 3
LINES_BEFORE_THE_KILL = 200


@pytest.fixture
def valkey() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        yield server


def kill_under_load(valkey: ValkeyServer, directory: Path, round_: int) -> dict[str, set[str]]:
    """Kill the server while processes are at it; what had been acknowledged, by what was done."""
    files = [directory / f"{round_}-{number}" for number in range(WRITERS)]
    for file in files:
        file.touch()
    writers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.faults.redis_process", valkey.url, str(round_ * 10 + number), str(file)]
        )
        for number, file in enumerate(files)
    ]

    def lines() -> list[str]:
        # Only whole ones: a writer may be in the middle of one.
        return [line for file in files for line in file.read_text().split("\n")[:-1]]

    def each_has_begun() -> bool:
        return all(file.stat().st_size for file in files) and len(lines()) >= LINES_BEFORE_THE_KILL

    try:
        eventually(each_has_begun)
        valkey.kill9()
        assert [writer.wait(30) for writer in writers] == [0] * WRITERS
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
        valkey.start()
    found: dict[str, set[str]] = defaultdict(set)
    for line in lines():
        what, job = line.split()
        found[what].add(job)
    return found


def assert_all_there(store: RedisStore, acknowledged: dict[str, set[str]]) -> None:
    for what, allowed in (
        ("completed", {"completed"}),
        ("claimed", {"processing", "completed"}),
        ("enqueued", {"pending", "processing", "completed"}),
    ):
        for job in acknowledged[what]:
            kept = store.run(GetJob(scope=ALL_TENANTS, id=JobId(UUID(job))))
            assert kept is not None, f"{job} was {what} and is gone"
            assert kept.job.status in allowed, f"{job} was {what} and is {kept.job.status}"


def drain(store: RedisStore, seed: int) -> set[str]:
    """Run everything that is left as one worker would, once the others are known to be gone; the ids."""
    for gone in store.run(ListWorkers()).workers:
        store.run(Lapse(worker=gone.id))
    scene = Scene(store, seed)
    scene.now = store.run(GetStats(scope=ALL_TENANTS)).now
    worker, run = scene.hire(3600.0), set[str]()
    while leases := scene.claim(worker, 100):
        assert not scene.settle(worker, *map(completed, leases)).refused
        assert not {str(lease.id) for lease in leases} & run, "a job ran twice"
        run |= {str(lease.id) for lease in leases}
    return run


def outlive(valkey: ValkeyServer, directory: Path, rounds: int) -> None:
    store = RedisStore(valkey.url)
    for round_ in range(rounds):
        acknowledged = kill_under_load(valkey, directory, round_)
        assert min(map(len, acknowledged.values())) > 0
        assert_all_there(store, acknowledged)
        run = drain(store, seed=1_000 + round_)
        assert not run & acknowledged["completed"], "what was settled ran again"
        for job in acknowledged["enqueued"]:
            kept = store.run(GetJob(scope=ALL_TENANTS, id=JobId(UUID(job))))
            assert kept is not None
            assert kept.job.status == "completed"
        stats = store.run(GetStats(scope=ALL_TENANTS))
        assert [(queue.pending, queue.processing) for queue in stats.queues] in ([], [(0, 0)]), "an index is off"
    store.close()


@pytest.mark.requirement("Q17")
def test_nothing_acknowledged_is_lost_when_valkey_is_killed_under_load(valkey: ValkeyServer, tmp_path: Path) -> None:
    outlive(valkey, tmp_path, 2)


@pytest.mark.long
def test_many_kills_of_valkey_in_a_row_lose_nothing_acknowledged(valkey: ValkeyServer, tmp_path: Path) -> None:
    outlive(valkey, tmp_path, 25)
