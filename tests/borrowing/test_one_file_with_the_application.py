"""A SQLite file that an application opens through SQLAlchemy or sqlite3, and Fairlane beside it, from the first day."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session

from fairlane import Fairlane, Handle, StoreUnavailable
from fairlane.core.ops import Enqueue
from fairlane.errors import SqliteLibraryMismatch, UnsupportedConnection
from fairlane.stores.sqlite import SqliteStore, borrowed
from fairlane.stores.sqlite.journal import FIRST_SAFE_WAL
from fairlane.testing import run_due
from fairlane.testing.conformance.samples import Making

OLD_STDLIB = sqlite3.sqlite_version_info < FIRST_SAFE_WAL


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def engine(file: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{file}")
    with engine.begin() as connection:
        connection.execute(text("create table orders (id integer primary key, item text)"))
    yield engine
    engine.dispose()


def shop(file: Path, **settings: str) -> Fairlane:
    app = Fairlane(f"sqlite:///{file}", **settings)  # type: ignore[arg-type]
    app.task(name="receipt")(receipt)
    return app


def receipt(order: int) -> int:
    return order


def status(app: Fairlane, handle: Handle[Any]) -> str:
    job = app.jobs.get(handle.id)
    return "not there" if job is None else job.status


def tables(file: Path) -> set[str]:
    with sqlite3.connect(file) as db:
        found = {name for (name,) in db.execute("select name from sqlite_schema where type = 'table'")}
    db.close()
    return found


def journal(file: Path) -> str:
    with sqlite3.connect(file) as db:
        [(mode,)] = db.execute("pragma journal_mode")
    db.close()
    return str(mode)


def test_a_mix_of_libraries_is_refused_before_the_file_is_touched(file: Path, engine: Engine) -> None:
    before, changed = file.read_bytes(), file.stat().st_mtime_ns
    with shop(file, sqlite_library="apsw") as app, Session(engine) as session:
        with pytest.raises(SqliteLibraryMismatch, match='Set sqlite_library = "stdlib"'):
            app.tasks["receipt"].using(conn=session).enqueue(7)
        session.rollback()
    assert (file.read_bytes(), file.stat().st_mtime_ns) == (before, changed)
    assert [path.name for path in file.parent.iterdir()] == ["shop.db"]
    assert (tables(file), journal(file)) == ({"orders"}, "delete")


def test_a_connection_to_another_file_makes_none(tmp_path: Path, engine: Engine) -> None:
    with shop(tmp_path / "jobs.db") as app, Session(engine) as session:
        for thing, said in ((session, "jobs.db; this one is open on"), (7, "to its own file")):
            with pytest.raises(UnsupportedConnection, match=said):
                app.tasks["receipt"].using(conn=thing).enqueue(7)
    assert not (tmp_path / "jobs.db").exists()


def test_the_first_enqueue_inside_an_open_transaction_waits_for_nobody(file: Path, engine: Engine) -> None:
    with shop(file) as app:
        began_s = time.monotonic()
        with Session(engine) as session, session.begin():
            session.execute(text("insert into orders (item) values ('book')"))
            handle = app.tasks["receipt"].using(conn=session).enqueue(1)
        assert time.monotonic() - began_s < 2.0
        assert status(app, handle) == "pending"
        assert [ran.outcome.__class__.__name__ for ran in run_due(app)] == ["Completed"]
        assert app.runtime.store._db.library == "stdlib"  # type: ignore[attr-defined]


def test_what_the_first_enqueue_made_goes_with_a_rollback(file: Path, engine: Engine) -> None:
    with shop(file) as app:
        with Session(engine) as session:
            session.execute(text("insert into orders (item) values ('book')"))
            lost = app.tasks["receipt"].using(conn=session).enqueue(1)
            session.rollback()
        assert tables(file) == {"orders"}
        with Session(engine) as session, session.begin():
            kept = app.tasks["receipt"].using(conn=session).enqueue(2)
        assert status(app, kept) == "pending"
        assert app.jobs.get(lost.id) is None


@pytest.mark.parametrize("isolation_level", ["DEFERRED", None])
@pytest.mark.parametrize("begins", [False, True])
def test_a_plain_connection_of_any_kind_can_be_the_first(file: Path, begins: bool, isolation_level: str | None) -> None:
    db = sqlite3.connect(file, isolation_level=isolation_level)
    with shop(file) as app:
        if begins:
            db.execute("begin")
        handle = app.tasks["receipt"].using(conn=db).enqueue(1)
        assert db.in_transaction == (begins or isolation_level is not None)
        if db.in_transaction:
            db.commit()
        assert status(app, handle) == "pending"
    db.close()


def test_an_apsw_connection_chooses_apsw(file: Path) -> None:
    db = apsw.Connection(str(file))
    with shop(file) as app:
        db.execute("begin")
        handle = app.tasks["receipt"].using(conn=db).enqueue(1)
        db.execute("commit")
        assert status(app, handle) == "pending"
        assert app.runtime.store._db.library == "apsw"  # type: ignore[attr-defined]
    db.close()


def test_a_schema_that_is_too_old_is_named_and_the_transaction_goes_on(file: Path, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("create table fairlane_meta (name text primary key, value integer not null)"))
        connection.execute(text("insert into fairlane_meta values ('schema_version', 1)"))
    with shop(file) as app, Session(engine) as session, session.begin():
        session.execute(text("insert into orders (item) values ('book')"))
        with pytest.raises(Exception, match="fairlane migrate up"):
            app.tasks["receipt"].using(conn=session).enqueue(1)
    with engine.begin() as connection:
        assert connection.execute(text("select count(*) from orders")).scalar() == 1


def test_without_a_connection_auto_uses_what_the_application_has_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert borrowed.chosen_library("auto") == "apsw"
    monkeypatch.setattr(borrowed, "USERS_OF_STDLIB", ("sqlalchemy.dialects.sqlite.pysqlite",))
    assert borrowed.chosen_library("auto") == "stdlib"
    assert borrowed.chosen_library("apsw") == "apsw"
    with Fairlane(f"sqlite:///{tmp_path}/jobs.db") as app:
        assert app.runtime.store._db.library == "stdlib"  # type: ignore[attr-defined]


def test_a_worker_uses_the_library_of_its_tasks(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from fairlane import Fairlane\n"
        "from sqlalchemy import create_engine, text\n"
        "engine = create_engine('sqlite:///shop.db')\n"
        "app = Fairlane('sqlite:///shop.db')\n"
        "@app.task\n"
        "def count() -> int:\n"
        "    with engine.begin() as db:\n"
        "        db.execute(text('create table if not exists orders (id integer)'))\n"
        "    return 1\n"
        "def main() -> None:\n"
        "    with engine.begin() as db:\n"
        "        print(count.using(conn=db).enqueue().id)\n"
    )
    run = [sys.executable, "-c", "import shop; shop.main()"]
    subprocess.run(run, cwd=tmp_path, check=True, capture_output=True, timeout=30)
    command = [sys.executable, "-m", "fairlane", "worker", "shop:app", "-p", "1", "--drain"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert "WARNING" not in ran.stderr
    assert "orders" in tables(tmp_path / "shop.db")
    assert journal(tmp_path / "shop.db") == ("delete" if OLD_STDLIB else "wal")


def test_an_old_library_and_a_new_one_never_share_a_write_ahead_log(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"

    def beside(library: str) -> str:
        code = f"import sys; from fairlane.stores.sqlite import SqliteStore as S; S(sys.argv[1], library='{library}')"
        ran = subprocess.run(
            [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False, env=dict(os.environ)
        )
        return ran.stderr

    store = SqliteStore(path, library="stdlib")
    assert beside("apsw") == ""
    assert journal(path) == ("delete" if OLD_STDLIB else "wal")
    store.close()
    path.unlink()
    store = SqliteStore(path)
    began_s = time.monotonic()
    assert ("cannot share" in beside("stdlib")) == OLD_STDLIB
    assert time.monotonic() - began_s < 8.0
    assert journal(path) == "wal"
    store.close()


def test_an_operation_without_the_connection_says_who_is_in_the_way(file: Path, engine: Engine) -> None:
    store = SqliteStore(file, library="stdlib", busy_timeout_s=0.05)
    with Session(engine) as session:
        session.execute(text("insert into orders (item) values ('book')"))
        with pytest.raises(StoreUnavailable, match="here or in another process, has not ended"):
            store.run(Enqueue(jobs=(Making().job(),)))
    store.close()
