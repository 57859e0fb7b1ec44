"""Stores that refuse for a while, read-only, full or a replica: who used them before goes on by itself afterwards."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from fairlane.core.ops import ALL_TENANTS, Enqueue, GetStats
from fairlane.errors import StoreUnavailable
from fairlane.stores.redis import RedisStore
from fairlane.stores.sqlite import SqliteStore
from fairlane.stores.sqlite.driver import Library
from fairlane.testing.conformance.samples import Making
from tests.faults.conftest import Stores
from tests.faults.places import Place
from tests.faults.test_recovery import fill
from tests.servers.account import server_account
from tests.servers.valkey import ValkeyServer
from tests.support.stores import Face, ground
from tests.worker.foreman.crew import Crew

__all__ = ["ground"]

pytestmark = pytest.mark.requirement("D26")

both_colours = pytest.mark.parametrize("colour", ["sync", "async"])


def set_read_only(place: Place, value: str) -> None:
    """What a managed failover does: sessions that begin now are read-only for as long as they live."""
    with psycopg.connect(place.server.dsn(), autocommit=True) as conn:
        conn.execute(f'alter database "{place.name}" set default_transaction_read_only = {value}'.encode())


def one_job() -> Enqueue:
    return Enqueue(jobs=(Making().job(),))


@both_colours
def test_sessions_that_began_read_only_are_given_up(place: Place, stores: Stores, colour: str) -> None:
    store = stores.open(place.dsn)
    set_read_only(place, "on")
    fill(store)
    face = Face(store, colour)
    face.run(GetStats(scope=ALL_TENANTS))
    with pytest.raises(StoreUnavailable, match="read-only: connect to the primary"):
        face.run(one_job())
    set_read_only(place, "off")
    for number in range(1, 10):
        face.run(Enqueue(jobs=(Making(number).job(),)))
    face.close()


@pytest.mark.requirement("Q17")
def test_an_old_worker_and_an_old_client_outlive_a_read_only_window(own_place: Place, tmp_path: Path) -> None:
    with closing(Crew(own_place.dsn, tmp_path)) as crew:
        foreman = crew.start("-p", "1", "-s", "4")
        crew.eventually(lambda: crew.task("work").enqueue(0.0).status() and crew.diary("began"))
        set_read_only(own_place, "on")
        own_place.end_sessions()
        crew.eventually(lambda: "read-only: connect to the primary" in foreman.log())
        with pytest.raises(StoreUnavailable, match="read-only"):
            crew.task("work").enqueue(0.0)
        workers = foreman.workers()
        set_read_only(own_place, "off")
        handles = [crew.task("work").enqueue(0.0) for _ in range(8)]
        crew.eventually(lambda: {handle.status() for handle in handles} == {"completed"}, 40)
        assert foreman.workers() == workers
        assert foreman.stop() == 0


@both_colours
def test_connections_to_a_server_that_was_a_replica_for_a_while_are_given_up(colour: str) -> None:
    with ValkeyServer(appendfsync="everysec") as primary, ValkeyServer(appendfsync="everysec") as server:
        face = Face(RedisStore(server.url), colour)
        face.run(one_job())
        server.call("REPLICAOF", "127.0.0.1", str(primary.port))
        with pytest.raises(StoreUnavailable):
            face.run(Enqueue(jobs=(Making(2).job(),)))
        server.call("REPLICAOF", "NO", "ONE")
        face.run(Enqueue(jobs=(Making(3).job(),)))
        face.close()


@contextmanager
def no_more_room(file: Path) -> Iterator[None]:
    """Files of this process may not grow beyond the largest one there."""
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    largest = max(part.stat().st_size for part in file.parent.iterdir())
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))


@contextmanager
def read_only(file: Path) -> Iterator[None]:
    for part in file.parent.iterdir():
        part.chmod(0o444)
    yield
    for part in file.parent.iterdir():
        part.chmod(0o600)


@pytest.fixture
def file() -> Iterator[Path]:
    """In a directory of an account that, unlike root, may not write where a mode forbids it."""
    account, ours = server_account(), os.geteuid()
    directory = account.make_directory("fairlane-sqlite-")
    os.seteuid(account.uid)
    try:
        yield directory / "jobs.db"
    finally:
        os.seteuid(ours)
        shutil.rmtree(directory)


def enqueue_for_ever(store: SqliteStore, making: Making, acknowledged: list[int]) -> None:
    while True:
        acknowledged.append(len(store.run(Enqueue(jobs=(making.job(),))).receipts))


@pytest.mark.parametrize("trouble", [no_more_room, read_only])
@pytest.mark.parametrize("library", ["apsw", "stdlib"])
def test_a_file_that_cannot_be_written_for_a_while_is_written_again(
    file: Path, library: Library, trouble: Callable[[Path], AbstractContextManager[None]]
) -> None:
    making = Making()
    with closing(SqliteStore(file, library=library)) as first:
        first.run(Enqueue(jobs=(making.job(),)))
    with ExitStack() as stack:
        with trouble(file):
            store = stack.enter_context(closing(SqliteStore(file, library=library)))
            store.run(GetStats(scope=ALL_TENANTS))
            acknowledged = [1]
            with pytest.raises(StoreUnavailable, match="sqlite store cannot be used"):
                enqueue_for_ever(store, making, acknowledged)
        store.run(Enqueue(jobs=(making.job(),)))
        assert sum(queue.ready for queue in store.run(GetStats(scope=ALL_TENANTS)).queues) == len(acknowledged) + 1
