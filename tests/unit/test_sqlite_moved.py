"""A file that is removed or replaced under a store: nothing is acknowledged into it."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from fairlane import Fairlane
from fairlane.core.ops import ALL_TENANTS, Check, Enqueue, GetStats
from fairlane.errors import StoreUnavailable
from fairlane.stores.sqlite import SqliteStore
from fairlane.testing.conformance.samples import Making

LIBRARIES = pytest.mark.parametrize("library", ["apsw", "stdlib"])


def waiting(store: SqliteStore) -> int:
    return sum(queue.ready for queue in store.run(GetStats(scope=ALL_TENANTS)).queues)


def put_in_place(backup: Path, path: Path) -> None:
    """Restore a backup as its guide says: what belongs to the file before goes with it."""
    path.unlink()
    for rest in path.parent.glob(f"{path.name}-*"):
        rest.unlink()
    backup.rename(path)


@LIBRARIES
def test_a_removed_file_is_refused_and_never_made_again(tmp_path: Path, library: str) -> None:
    path, making = tmp_path / "jobs.db", Making()
    store = SqliteStore(path, library=library)  # type: ignore[arg-type]
    store.run(Enqueue(jobs=(making.job(),)))
    path.rename(tmp_path / "away.db")
    for op in (Enqueue(jobs=(making.job(),)), GetStats(scope=ALL_TENANTS), Check()):
        with pytest.raises(StoreUnavailable, match=r"jobs\.db is gone: put it back, or restart"):
            store.run(op)
    assert not path.exists()
    (tmp_path / "away.db").rename(path)
    store.run(Enqueue(jobs=(making.job(),)))
    assert waiting(store) == 2
    store.close()


@LIBRARIES
def test_a_file_in_its_place_is_opened_once_a_call_has_said_so(tmp_path: Path, library: str) -> None:
    path, making = tmp_path / "jobs.db", Making()
    backup = SqliteStore(tmp_path / "backup.db", library=library)  # type: ignore[arg-type]
    backup.run(Enqueue(jobs=tuple(making.job() for _ in range(5))))
    backup.close()
    store = SqliteStore(path, library=library)  # type: ignore[arg-type]
    store.run(Enqueue(jobs=(making.job(),)))
    assert waiting(store) == 1
    put_in_place(tmp_path / "backup.db", path)
    with pytest.raises(StoreUnavailable, match=r"jobs\.db was replaced by another while it was open: nothing was done"):
        store.run(Enqueue(jobs=(making.job(),)))
    store.run(Enqueue(jobs=(making.job(),)))
    assert waiting(store) == 6
    store.close()
    reopened = SqliteStore(path, library=library)  # type: ignore[arg-type]
    assert waiting(reopened) == 6
    reopened.close()


def test_a_file_beside_the_write_ahead_log_of_another_is_refused(tmp_path: Path) -> None:
    path, making = tmp_path / "jobs.db", Making()
    SqliteStore(tmp_path / "backup.db").close()
    store = SqliteStore(path)
    store.run(Enqueue(jobs=(making.job(),)))
    (tmp_path / "backup.db").replace(path)
    with pytest.raises(StoreUnavailable, match=r"remove .*jobs\.db-wal and .*jobs\.db-shm"):
        store.run(Enqueue(jobs=(making.job(),)))
    store.close()


@pytest.mark.parametrize("fate", ["removed", "replaced"])
def test_what_is_written_while_the_file_goes_is_not_acknowledged(tmp_path: Path, fate: str) -> None:
    path = tmp_path / "jobs.db"
    store = SqliteStore(path)
    shutil.copy(path, tmp_path / "other.db")

    def lose(_db: object) -> None:
        path.unlink() if fate == "removed" else (tmp_path / "other.db").replace(path)

    with pytest.raises(StoreUnavailable, match="removed or replaced while this was written, and it is lost"):
        store._db.change(lose)
    store.close()


def test_a_forked_child_does_not_make_a_removed_file_again(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    store = SqliteStore(path)
    path.unlink()
    child = os.fork()
    if child == 0:
        try:
            store.run(Check())
        except StoreUnavailable:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert not path.exists()
    store.close()


def test_limits_are_those_of_the_file_in_place(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    for name, most in (("backup.db", 7), ("jobs.db", 3)):
        with Fairlane(f"sqlite:///{tmp_path / name}") as app:
            app.limits.set(queue="mail", running=most, by="alice")
    with Fairlane(f"sqlite:///{path}") as app:
        assert [kept.limit.running for kept in app.limits.list()] == [3]
        put_in_place(tmp_path / "backup.db", path)
        with pytest.raises(StoreUnavailable):
            app.limits.list()
        assert [kept.limit.running for kept in app.limits.list()] == [7]


def test_a_worker_runs_what_the_new_file_holds(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    app = Fairlane(f"sqlite:///{path}", profile="development")

    @app.task(name="files.add")
    def add(a: int, b: int) -> int:
        return a + b

    with Fairlane(f"sqlite:///{tmp_path / 'backup.db'}") as other:
        kept = other.tasks.enqueue("files.add", {"a": 1, "b": 2})
    with app, app.running():
        assert add.enqueue(1, 1).result(timeout=10) == 2
        put_in_place(tmp_path / "backup.db", path)
        time.sleep(1.5)  # the worker looks at the file once a second
        assert app.jobs.handle(kept.id).result(timeout=20) == 3
        deadline = time.monotonic() + 10
        while not app.workers.list() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert add.enqueue(2, 2).result(timeout=10) == 4
