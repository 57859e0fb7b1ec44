"""Enqueueing through the caller's own connection: it commits and rolls back with the caller's rows."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from fairlane.core.ids import JobId
from fairlane.core.ops import ALL_TENANTS, Enqueue, GetJob
from fairlane.errors import StoreRefused, UnsupportedConnection
from fairlane.stores.sqlite import SqliteStore
from fairlane.testing.conformance.samples import Making


class Caller:
    """An application's connection, in its own words."""

    def __init__(self, path: Path) -> None:
        self.path = path

    on: Any
    execute: Callable[[str], Any]
    commit: Callable[[], Any]
    rollback: Callable[[], Any]
    close: Callable[[], Any]


class PlainSqlite3(Caller):
    library = "stdlib"

    def __init__(self, path: Path) -> None:
        self.on = sqlite3.connect(path)
        self.on.row_factory = sqlite3.Row
        self.on.text_factory = bytes
        self.execute, self.commit, self.rollback, self.close = (
            self.on.execute,
            self.on.commit,
            self.on.rollback,
            self.on.close,
        )


class ManualSqlite3(Caller):
    library = "stdlib"

    def __init__(self, path: Path) -> None:
        self.on = sqlite3.connect(path, isolation_level=None)
        self.on.execute("begin")
        self.execute, self.close = self.on.execute, self.on.close
        self.commit = lambda: self.on.execute("commit")
        self.rollback = lambda: self.on.execute("rollback")


class Apsw(Caller):
    library = "apsw"

    def __init__(self, path: Path) -> None:
        self.on = apsw.Connection(str(path))
        self.on.row_trace = lambda cursor, row: dict(enumerate(row))
        self.on.execute("begin")
        self.execute, self.close = self.on.execute, self.on.close
        self.commit = lambda: self.on.execute("commit")
        self.rollback = lambda: self.on.execute("rollback")


class AlchemyConnection(Caller):
    library = "stdlib"

    def __init__(self, path: Path) -> None:
        self.engine = sqlalchemy.create_engine(f"sqlite:///{path}")
        self.on = self.engine.connect()
        self.execute = lambda sql: self.on.execute(sqlalchemy.text(sql))
        self.commit, self.rollback = self.on.commit, self.on.rollback

    def close(self) -> None:  # type: ignore[override]
        self.on.close()
        self.engine.dispose()


class AlchemySession(AlchemyConnection):
    def __init__(self, path: Path) -> None:
        self.engine = sqlalchemy.create_engine(f"sqlite:///{path}")
        self.on = Session(self.engine)  # type: ignore[assignment]
        self.execute = lambda sql: self.on.execute(sqlalchemy.text(sql))
        self.commit, self.rollback = self.on.commit, self.on.rollback


CALLERS = [PlainSqlite3, ManualSqlite3, Apsw, AlchemyConnection, AlchemySession]


@pytest.fixture(params=CALLERS, ids=lambda kind: kind.__name__)
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[SqliteStore, Any]]:
    path = tmp_path / "application.db"
    store = SqliteStore(path, library=request.param.library)
    store._db.change(lambda db: db.execute("create table invoice (id integer primary key, text)"))
    caller = request.param(path)
    yield store, caller
    caller.close()
    store.close()


def is_there(store: SqliteStore, job: JobId) -> bool:
    return store.run(GetJob(scope=ALL_TENANTS, id=job)) is not None


def invoices(store: SqliteStore) -> int:
    [(count,)] = store._db.read(lambda db: db.execute("select count(*) from invoice"))
    return int(count)


def test_the_job_comes_with_the_callers_commit(both: tuple[SqliteStore, Any]) -> None:
    store, caller = both
    job = Making().job(dedup_key="d", idempotency_key="i", refs={"invoice": 1})
    [receipt] = store.run(Enqueue(jobs=(job,)), on=caller.on).receipts
    caller.execute("insert into invoice values (1, 'due')")
    assert receipt.disposition == "created"
    assert not is_there(store, job.id)
    caller.commit()
    assert is_there(store, job.id)
    assert invoices(store) == 1


def test_the_job_goes_with_the_callers_rollback(both: tuple[SqliteStore, Any]) -> None:
    store, caller = both
    job = Making().job(dedup_key="d", idempotency_key="i")
    caller.execute("insert into invoice values (1, 'due')")
    store.run(Enqueue(jobs=(job,)), on=caller.on)
    caller.rollback()
    assert not is_there(store, job.id)
    assert invoices(store) == 0
    assert store.run(Enqueue(jobs=(job,))).receipts[0].disposition == "created"


def test_a_duplicate_and_a_full_store_leave_the_callers_transaction_whole(both: tuple[SqliteStore, Any]) -> None:
    store, caller = both
    making = Making()
    store.run(Enqueue(jobs=(making.job(idempotency_key="taken"),)))
    caller.execute("insert into invoice values (1, 'due')")
    [receipt] = store.run(Enqueue(jobs=(making.job(idempotency_key="taken"),)), on=caller.on).receipts
    assert (receipt.disposition, receipt.key) == ("duplicate", "idempotency")
    assert store.run(Enqueue(jobs=(making.job(),), capacity=1), on=caller.on).full
    caller.commit()
    assert invoices(store) == 1


def test_jobs_that_are_refused_leave_neither_rows_nor_a_broken_transaction(both: tuple[SqliteStore, Any]) -> None:
    store, caller = both
    making = Making()
    good, bad = making.job(), making.job(tenant="\ud800")
    caller.execute("insert into invoice values (1, 'due')")
    with pytest.raises(StoreRefused):
        store.run(Enqueue(jobs=(good, bad)), on=caller.on)
    caller.commit()
    assert invoices(store) == 1
    assert not is_there(store, good.id)


def test_the_async_face_borrows_too(both: tuple[SqliteStore, Any]) -> None:
    store, caller = both
    job = Making().job()
    asyncio.run(store.arun(Enqueue(jobs=(job,)), on=caller.on))
    caller.commit()
    assert is_there(store, job.id)


def test_the_callers_connection_is_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "application.db"
    store = SqliteStore(path, library="stdlib")
    caller = PlainSqlite3(path)
    store.run(Enqueue(jobs=(Making().job(),)), on=caller.on)
    assert caller.on.in_transaction
    assert caller.on.text_factory is bytes
    assert isinstance(caller.on.execute("select 'x'").fetchone(), sqlite3.Row)
    caller.close()
    store.close()


def test_on_a_connection_in_autocommit_mode_the_enqueue_stands_for_itself(tmp_path: Path) -> None:
    path = tmp_path / "application.db"
    store = SqliteStore(path)
    connection = apsw.Connection(str(path))
    making = Making()
    good, bad = making.job(), making.job(tenant="\ud800")
    with pytest.raises(StoreRefused):
        store.run(Enqueue(jobs=(good, bad)), on=connection)
    assert not connection.in_transaction
    assert not is_there(store, good.id)
    store.run(Enqueue(jobs=(good,)), on=connection)
    assert is_there(store, good.id)
    connection.close()
    store.close()


@pytest.mark.parametrize("elsewhere", ["other.db", ":memory:"])
def test_a_connection_to_another_file_is_refused_with_both_paths(tmp_path: Path, elsewhere: str) -> None:
    store = SqliteStore(tmp_path / "jobs.db", library="stdlib")
    other = sqlite3.connect(elsewhere if elsewhere == ":memory:" else tmp_path / elsewhere)
    other.execute("create table invoice (id)")
    with pytest.raises(UnsupportedConnection, match=r"jobs\.db; this one is open on .*(other\.db|no file)"):
        store.run(Enqueue(jobs=(Making().job(),)), on=other)
    assert not other.in_transaction
    other.close()
    store.close()


@pytest.mark.parametrize("thing", [object(), "sqlite:///jobs.db", 7])
def test_what_is_no_connection_is_refused(tmp_path: Path, thing: object) -> None:
    store = SqliteStore(tmp_path / "jobs.db")
    with pytest.raises(UnsupportedConnection, match=r"an apsw\.Connection to its own file"):
        store.run(Enqueue(jobs=(Making().job(),)), on=thing)
    store.close()
