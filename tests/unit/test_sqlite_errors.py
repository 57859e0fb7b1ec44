"""What goes wrong with a file: one typed error each, nothing changed, and work goes on once the cause is gone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path

import pytest
from msgspec import Raw

from fairlane.core.ops import ALL_TENANTS, Check, Enqueue, GetStats, Scope
from fairlane.core.outcome import Completed, Snoozed
from fairlane.errors import InvalidOption, StoreClosed, StoreError, StoreRefused, StoreUnavailable
from fairlane.stores.sqlite import SqliteStore
from fairlane.stores.sqlite.driver import Library
from fairlane.testing.conformance.samples import Making
from fairlane.testing.conformance.scene import Scene

LIBRARIES: tuple[Library, ...] = ("apsw", "stdlib")

HOLD_THE_LOCK = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("begin immediate")
print("held", flush=True)
sys.stdin.readline()
db.execute("commit")
"""


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Library:
    library: Library = request.param
    return library


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@contextmanager
def another_process_holding(path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLD_THE_LOCK, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield holder
        let_go(holder)


def let_go(holder: subprocess.Popen[str]) -> None:
    if holder.poll() is None:
        holder.communicate("\n", timeout=20)


def waiting(store: SqliteStore) -> int:
    return sum(queue.pending for queue in store.run(GetStats(scope=ALL_TENANTS)).queues)


def test_a_lock_held_for_less_than_the_timeout_is_waited_for(path: Path, library: Library) -> None:
    store, job = SqliteStore(path, library=library, busy_timeout_s=60), Making().job()
    with another_process_holding(path) as holder, ThreadPoolExecutor(1) as thread:
        enqueued = thread.submit(store.run, Enqueue(jobs=(job,)))
        assert not enqueued.done()
        let_go(holder)
        assert enqueued.result(timeout=60).receipts[0].disposition == "created"
    assert waiting(store) == 1
    store.close()


def test_a_lock_held_for_longer_is_an_unavailable_store_and_nothing_is_changed(path: Path, library: Library) -> None:
    store = SqliteStore(path, library=library, busy_timeout_s=0.1)
    op = Enqueue(jobs=(Making().job(),))
    with another_process_holding(path), pytest.raises(StoreUnavailable, match="has not ended its transaction"):
        store.run(op)
    assert waiting(store) == 0
    assert store.run(op).receipts[0].disposition == "created"
    store.close()


@contextmanager
def an_unprivileged_user() -> Iterator[None]:
    """Root may write anywhere, and tests may run as root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_file_that_may_only_be_read_is_unavailable(tmp_path: Path, library: Library) -> None:
    ours = Path("/tmp") / f"fairlane-read-only-{os.getpid()}-{library}"
    ours.mkdir()
    path = ours / "jobs.db"
    try:
        SqliteStore(path, library=library).close()
        ours.chmod(0o777)
        path.chmod(0o444)
        with (
            an_unprivileged_user(),
            pytest.raises(StoreUnavailable, match=r"read-only|cannot be opened"),
            closing(SqliteStore(path, library=library)) as store,
        ):
            store.run(Enqueue(jobs=(Making().job(),)))
    finally:
        for file in ours.iterdir():
            file.unlink()
        ours.rmdir()


def test_a_full_disk_refuses_and_work_goes_on_once_there_is_room(path: Path, library: Library) -> None:
    store = SqliteStore(path, library=library)
    making = Making()
    store.run(Enqueue(jobs=(making.job(),)))
    big = Enqueue(jobs=tuple(making.job(payload='{"text":"' + "x" * 50_000 + '"}') for _ in range(20)))
    pages = store._db.change(lambda db: db.execute("pragma page_count"))[0][0]
    store._db.change(lambda db: db.execute(f"pragma max_page_count = {pages + 10}"))
    with pytest.raises(StoreUnavailable, match="full; free space"):
        store.run(big)
    assert waiting(store) == 1
    store._db.change(lambda db: db.execute("pragma max_page_count = 1000000"))
    assert {receipt.disposition for receipt in store.run(big).receipts} == {"created"}
    assert waiting(store) == 21
    store.close()


def test_a_file_that_is_no_database_is_left_alone(path: Path, library: Library) -> None:
    path.write_text("a letter, not a database\n" * 100)
    with pytest.raises(StoreError, match=r"not a SQLite database.*choose another file"):
        SqliteStore(path, library=library).run(Check())
    assert path.read_text().startswith("a letter")


def test_a_store_that_could_not_be_opened_holds_nothing_open(path: Path, library: Library) -> None:
    path.write_text("a letter, not a database\n" * 100)
    with pytest.raises(StoreError, match="not a SQLite database") as failed:
        SqliteStore(path, library=library)
    [other] = {*LIBRARIES} - {library}
    with pytest.raises(StoreError, match="not a SQLite database"):  # and not: open through the other library
        SqliteStore(path, library=other)
    assert failed.value.__traceback__ is not None, "what failed is still referred to"


def test_a_damaged_file_is_reported_as_damaged(path: Path, library: Library) -> None:
    store = SqliteStore(path, library=library)
    store.run(Enqueue(jobs=tuple(Making().job() for _ in range(500))))
    store.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with (
        pytest.raises(StoreError, match=r"the file is damaged.*backup"),
        closing(SqliteStore(path, library=library)) as damaged,
    ):
        damaged.run(GetStats(scope=ALL_TENANTS))


@pytest.mark.parametrize(
    "spoilt",
    [
        {"payload": Raw(b'"\xff"')},
        {"run_at": datetime(2026, 1, 1)},  # noqa: DTZ001 - the point of it
        {"delay_s": float("nan")},
        {"timeout_s": float("nan")},
        {"tenant": "\ud800"},
        {"priority": 2**70},
    ],
    ids=["not UTF-8", "no time zone", "no delay", "no timeout", "half a character", "beyond 64 bits"],
)
def test_one_job_that_cannot_be_kept_refuses_the_whole_enqueue(
    path: Path, library: Library, spoilt: dict[str, object]
) -> None:
    store, making = SqliteStore(path, library=library), Making()
    good = making.job()
    bad = type(good)(**{"id": making.job_id(), "type": "t", "payload": Raw(b"{}"), **spoilt})  # type: ignore[arg-type]
    with pytest.raises(StoreRefused, match="nothing was changed"):
        store.run(Enqueue(jobs=(good, bad)))
    assert waiting(store) == 0
    store.close()


def test_one_outcome_that_cannot_be_kept_refuses_the_whole_turn(path: Path, library: Library) -> None:
    store = SqliteStore(path, library=library)
    scene = Scene(store)
    worker = scene.hire()
    scene.put_many(2)
    first, second = scene.claim(worker, 2)
    good = Completed(seq=first.seq, attempt=first.attempt, claim_no=first.claim_no)
    for bad in (
        Completed(seq=second.seq, attempt=second.attempt, claim_no=second.claim_no, result=Raw(b"\xff")),
        Completed(seq=second.seq, attempt=second.attempt, claim_no=second.claim_no, ended_ago_s=float("nan")),
        Snoozed(seq=second.seq, attempt=second.attempt, claim_no=second.claim_no, delay_s=float("nan")),
    ):
        with pytest.raises(StoreRefused, match="nothing was changed"):
            scene.settle(worker, good, bad)
    assert scene.stats().completed == 0
    store.close()


def test_spans_past_the_end_of_the_calendar_end_with_it(path: Path) -> None:
    store = SqliteStore(path)
    scene = Scene(store)
    scene.put(timeout_s=1e30)
    scene.put(delay_s=1e18)
    [lease] = scene.claim(scene.hire())
    assert lease.deadline_at.year == 9999
    next_due_at = scene.promote().next_due_at
    assert next_due_at is not None
    assert next_due_at.year == 9999
    store.close()


def test_what_is_no_operation_is_refused(path: Path) -> None:
    with pytest.raises(InvalidOption, match="operation"):
        SqliteStore(path).run(Scope(None))  # type: ignore[arg-type]


@pytest.mark.requirement("Q6")
def test_a_closed_store_refuses_everything(path: Path, library: Library) -> None:
    store = SqliteStore(path, library=library)
    store.close()
    store.close()
    for op in (Check(), Enqueue(jobs=(Making().job(),))):
        with pytest.raises(StoreClosed):
            store.run(op)
