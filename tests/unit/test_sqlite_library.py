"""One library to a file in one process, and what an old one is trusted with."""

from __future__ import annotations

import gc
import sqlite3
from pathlib import Path

import apsw
import pytest

from fairlane.core.ops import ALL_TENANTS, Check, Enqueue, GetStats
from fairlane.errors import SqliteLibraryMismatch
from fairlane.stores.sqlite import SqliteStore
from fairlane.stores.sqlite.journal import FIRST_SAFE_WAL
from fairlane.stores.sqlite.migrator import MIGRATIONS
from fairlane.testing.conformance.samples import Making

OLD_STDLIB = sqlite3.sqlite_version_info < FIRST_SAFE_WAL


def test_stores_of_two_libraries_never_meet_on_one_file(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with_apsw = SqliteStore(path)
    (tmp_path / "same.db").hardlink_to(path)
    for name in ("jobs.db", "same.db"):
        with pytest.raises(SqliteLibraryMismatch, match='sqlite_library = "apsw"'):
            SqliteStore(tmp_path / name, library="stdlib")
    second = SqliteStore(path)
    with_apsw.close()
    with pytest.raises(SqliteLibraryMismatch):
        SqliteStore(path, library="stdlib")
    second.close()
    with_stdlib = SqliteStore(path, library="stdlib")
    with pytest.raises(SqliteLibraryMismatch, match='sqlite_library = "stdlib"'):
        SqliteStore(path)
    with_stdlib.close()


def test_a_store_that_was_dropped_without_closing_holds_nothing(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "jobs.db")
    gc.collect()
    SqliteStore(tmp_path / "jobs.db", library="stdlib").close()


@pytest.mark.parametrize("library", ["apsw", "stdlib"])
def test_a_foreign_librarys_connection_is_refused_and_nothing_is_done(tmp_path: Path, library: str) -> None:
    path = tmp_path / "jobs.db"
    store = SqliteStore(path, library=library)  # type: ignore[arg-type]
    elsewhere = str(tmp_path / "elsewhere.db")
    theirs = sqlite3.connect(elsewhere) if library == "apsw" else apsw.Connection(elsewhere)
    with pytest.raises(SqliteLibraryMismatch, match="can corrupt it"):
        store.run(Enqueue(jobs=(Making().job(),)), on=theirs)
    assert not store.run(GetStats(scope=ALL_TENANTS)).queues
    theirs.close()
    store.close()


def test_an_old_library_does_without_the_write_ahead_log_and_says_why(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "jobs.db", library="stdlib")
    health = store.run(Check())
    assert health.durable
    assert health.server == f"SQLite {sqlite3.sqlite_version} (stdlib)"
    journal_mode = store._db.change(lambda db: db.execute("pragma journal_mode"))[0][0] if OLD_STDLIB else "truncate"
    assert journal_mode == "truncate"
    assert ["older than 3.51.3" in sentence for sentence in health.degraded] == [True] * OLD_STDLIB
    store.close()


def test_the_default_library_syncs_every_commit_to_a_write_ahead_log(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "jobs.db")
    health = store.run(Check())
    assert (health.store, health.durable, health.degraded, health.schema_version) == (
        *("sqlite", True, ()),
        MIGRATIONS.needed.expanded,
    )
    assert store._db.change(lambda db: db.execute("pragma journal_mode")) == [("wal",)]
    assert store._db.change(lambda db: db.execute("pragma synchronous")) == [(2,)]
    store.close()
