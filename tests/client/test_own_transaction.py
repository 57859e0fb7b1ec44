"""Enqueueing in the caller's own transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
import sqlalchemy
import sqlalchemy.orm

from fairlane import Fairlane, SyncTask
from fairlane.errors import SqliteLibraryMismatch


class Place:
    """A file with a table of the caller's own beside the jobs, and a way to write to it."""

    def __init__(self, library: str, file: Path) -> None:
        self.file = file
        self.app = Fairlane(f"sqlite:///{file}", sqlite_library="apsw" if library == "apsw" else "stdlib")

        @self.app.task(name="welcome")
        def welcome(user: int) -> None: ...

        self.welcome: SyncTask[[int], None] = welcome
        self.app.statistics.health()
        self.closing: list[Any] = []
        if library == "sqlalchemy":
            engine = sqlalchemy.create_engine(f"sqlite:///{file}")
            self.closing.append(engine.dispose)
            self.conn: Any = sqlalchemy.orm.Session(engine)
        elif library == "apsw":
            self.conn = apsw.Connection(str(file))
        else:
            self.conn = sqlite3.connect(file, isolation_level=None)
        self.closing.insert(0, self.conn.close)
        self.execute("create table users (id integer)")
        self.finish("commit")

    def execute(self, sql: str) -> Any:
        return self.conn.execute(sqlalchemy.text(sql) if hasattr(self.conn, "get_bind") else sql)

    def begin(self) -> None:
        if not hasattr(self.conn, "get_bind"):
            self.execute("begin immediate")
        self.execute("insert into users values (1)")

    def finish(self, how: str) -> None:
        if hasattr(self.conn, "get_bind"):
            getattr(self.conn, how)()
        elif self.conn.in_transaction:
            self.execute(how)

    def counts(self) -> tuple[int, int]:
        [(users,)] = self.execute("select count(*) from users")
        self.finish("rollback")
        return users, len(self.app.jobs.list().jobs)


@pytest.fixture(params=["apsw", "stdlib", "sqlalchemy"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    place = Place(request.param, tmp_path / "jobs.db")
    yield place
    for close in place.closing:
        close()
    place.app.close()


def test_a_job_commits_with_the_callers_data(place: Place) -> None:
    place.begin()
    handle = place.welcome.using(conn=place.conn).enqueue(1)
    [many] = place.app.enqueue_many([place.welcome.bind(2)], conn=place.conn)
    place.finish("commit")
    assert place.counts() == (1, 2)
    assert (handle.status(), many.status()) == ("pending", "pending")


def test_a_job_rolls_back_with_the_callers_data(place: Place) -> None:
    place.begin()
    handle = place.welcome.using(conn=place.conn, idempotency_key="k").enqueue(1)
    assert not handle.duplicate
    place.app.enqueue_many([place.welcome.using(conn=place.conn).bind(2)])
    place.finish("rollback")
    assert place.counts() == (0, 0)
    assert not place.welcome.using(idempotency_key="k").enqueue(1).duplicate


def test_a_duplicate_leaves_the_callers_transaction_usable(place: Place) -> None:
    first = place.welcome.using(idempotency_key="k").enqueue(1)
    place.begin()
    second = place.welcome.using(conn=place.conn, idempotency_key="k").enqueue(2)
    place.finish("commit")
    assert (second.id, second.duplicate) == (first.id, True)
    assert place.counts() == (1, 1)


def test_two_sqlite_libraries_never_meet_on_one_file(tmp_path: Path) -> None:
    with Fairlane(f"sqlite:///{tmp_path}/jobs.db") as app:
        task = app.task(name="t")(lambda: None)
        task.enqueue()
        foreign = sqlite3.connect(":memory:")
        with pytest.raises(SqliteLibraryMismatch, match='Set sqlite_library = "stdlib"'):
            task.using(conn=foreign).enqueue()
        foreign.close()
        assert len(app.jobs.list().jobs) == 1
