"""Wake-ups across processes, and what becomes of workers nobody wakes."""

from __future__ import annotations

import asyncio
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane.core.ids import WorkerId
from fairlane.core.ops import ALL_TENANTS, Bury, Enqueue, PageDeadLetters, Renew, Reprocess, Turn
from fairlane.core.ops.enqueue import Notify
from fairlane.stores.sqlite import SqliteStore
from fairlane.stores.sqlite.listener import SqliteListener
from fairlane.testing.conformance.samples import Making
from fairlane.testing.conformance.scene import wanting

NEVER_S = 30.0
"""Longer than any wake-up takes; a test that waits this long has failed."""

ENQUEUE_ONE = """
import sys
from fairlane.core.ops import Enqueue
from fairlane.stores.sqlite import SqliteStore
from fairlane.testing.conformance.samples import Making
SqliteStore(sys.argv[1]).run(Enqueue(jobs=(Making(7).job(),)))
"""

making = Making(99)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "jobs.db")
    yield store
    store.close()


def listening(
    store: SqliteStore, *, waiting: bool = True, queues: tuple[str, ...] = ()
) -> tuple[WorkerId, SqliteListener]:
    worker = making.worker_id()
    listener = store.listener(worker)
    store.run(Renew(worker=worker, lease_s=60, wake_address=listener.address, queues=queues))
    store.run(Turn(worker=worker, claim_no=1, waiting=waiting))
    return worker, listener


def is_woken(listener: SqliteListener) -> bool:
    """By a datagram: a look at the file would find every change."""
    readable = bool(select.select([listener._socket], [], [], 0)[0])
    listener._drain()
    return readable


def put(store: SqliteStore, notify: Notify = "if_waiting", **options: str) -> None:
    store.run(Enqueue(jobs=(making.job(**options),), notify=notify))


def test_reprocessing_a_dead_letter_wakes_a_waiting_worker(store: SqliteStore) -> None:
    job = making.job()
    store.run(Enqueue(jobs=(job,)))
    store.run(Bury(scope=ALL_TENANTS, id=job.id, by="ada", reason="never mind"))
    [letter] = store.run(PageDeadLetters(scope=ALL_TENANTS)).dead_letters
    _, listener = listening(store)
    store.run(Reprocess(scope=ALL_TENANTS, id=letter.id, by="ada", new_job_id=making.job_id()))
    assert is_woken(listener)
    listener.close()


@pytest.mark.requirement("Q3")
def test_an_enqueue_in_another_process_wakes_a_waiting_worker(store: SqliteStore) -> None:
    _, listener = listening(store)
    command = [sys.executable, "-c", ENQUEUE_ONE, str(store._db.place)]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[2], timeout=60)
    assert is_woken(listener)
    assert listener.wait(NEVER_S)  # and the file has changed
    listener.close()


@pytest.mark.requirement("Q3")
def test_an_enqueue_wakes_a_worker_waiting_on_its_event_loop(store: SqliteStore) -> None:
    _, listener = listening(store)

    async def story() -> bool:
        waiting = asyncio.create_task(listener.await_(NEVER_S))
        await store.arun(Enqueue(jobs=(making.job(),)))
        return await waiting

    assert asyncio.run(story())
    listener.close()


@pytest.mark.parametrize(
    ("notify", "waiting", "woken"),
    [
        ("if_waiting", True, True),
        ("if_waiting", False, False),
        ("always", False, True),
        ("always", True, True),
        ("never", True, False),
    ],
)
def test_who_is_woken_is_the_callers_choice(store: SqliteStore, notify: Notify, waiting: bool, woken: bool) -> None:
    _, listener = listening(store, waiting=waiting)
    put(store, notify)
    assert is_woken(listener) is woken
    listener.close()


def test_a_worker_that_turns_to_work_is_no_longer_woken(store: SqliteStore) -> None:
    worker, listener = listening(store)
    store.run(Turn(worker=worker, claim_no=2, wants=(wanting(),)))
    put(store)
    assert not is_woken(listener)
    listener.close()


def test_only_workers_that_serve_the_queue_are_woken_and_no_more_than_four(store: SqliteStore) -> None:
    others = [listening(store, queues=("reports",))[1] for _ in range(6)]
    served = [listening(store, queues=("mail", "default"))[1] for _ in range(6)]
    put(store)
    assert [is_woken(listener) for listener in others] == [False] * 6
    assert sum(is_woken(listener) for listener in served) == 4
    for listener in others + served:
        listener.close()


def test_what_was_not_created_wakes_nobody(store: SqliteStore) -> None:
    put(store, idempotency_key="once")
    _, listener = listening(store)
    put(store, idempotency_key="once")
    assert not is_woken(listener)
    listener.close()


def test_a_dead_workers_socket_disturbs_nobody(store: SqliteStore) -> None:
    _, dead = listening(store)
    _, listener = listening(store)
    dead.close()
    put(store)
    assert is_woken(listener)
    listener.close()


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_missed_wake_up_is_found_by_looking_at_the_file(store: SqliteStore, colour: str) -> None:
    _, listener = listening(store)

    def wait() -> bool:
        return listener.wait(0) if colour == "sync" else asyncio.run(listener.await_(0))

    assert wait()  # its own registration
    assert not wait()
    put(store, "never")
    assert wait()
    assert not wait()
    listener.close()


def test_a_file_with_a_long_name_still_has_its_socket(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    store = SqliteStore(deep / "jobs.db")
    _, listener = listening(store)
    assert listener.address is not None
    assert not listener.address.startswith(str(deep))
    put(store)
    assert is_woken(listener)
    listener.close()
    assert not Path(listener.address).exists()
    store.close()
