"""The schema of a SQLite file: made at the first opening, accepted while it fits, brought up by the migrator."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fairlane.core.ops import Check, Enqueue, Renew
from fairlane.errors import OldWorkersAlive, SchemaOutOfDate
from fairlane.stores.migrations import Migration, Migrations, SchemaState
from fairlane.stores.sqlite import SqliteStore, migrator
from fairlane.stores.sqlite.migrator import MIGRATIONS, statements
from fairlane.testing.conformance.samples import Making

NEEDED = MIGRATIONS.needed.expanded
COLOUR = Migration(NEEDED + 1, "colour", "expand", "alter table fairlane_job add colour text;")
NO_COLOUR = Migration(NEEDED + 1, "colour", "contract", "alter table fairlane_job drop colour;")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "jobs.db")
    yield store
    store.close()


def record(store: SqliteStore, name: str, version: int) -> None:
    store._db.change(lambda db: db.execute("insert or replace into fairlane_meta values (?, ?)", (name, version)))


def know(monkeypatch: pytest.MonkeyPatch, *steps: Migration) -> None:
    """Migrations of a later release."""
    ours = (*MIGRATIONS.expansions, *MIGRATIONS.contractions)
    monkeypatch.setattr(migrator, "MIGRATIONS", Migrations((*ours, *steps)))


def test_opening_a_new_file_makes_the_schema(store: SqliteStore) -> None:
    ours = store.migrator()
    assert (ours.state(), ours.pending(), ours.up()) == (SchemaState(NEEDED), (), ())
    assert store.run(Check()).schema_version == NEEDED


def test_a_schema_that_is_newer_and_only_expanded_is_accepted(tmp_path: Path, store: SqliteStore) -> None:
    record(store, "schema_version", NEEDED + 1)
    again = SqliteStore(tmp_path / "jobs.db")
    again.migrator().require()
    assert again.migrator().up() == ()
    assert again.run(Check()).schema_version == NEEDED + 1
    again.run(Enqueue(jobs=(Making().job(),)))
    again.close()


@pytest.mark.parametrize(
    ("name", "version", "step"),
    [
        ("schema_contracted", NEEDED + 1, "upgrade the fairlane package"),
        ("schema_version", -1, "run `fairlane migrate up`"),
    ],
)
def test_a_schema_this_code_cannot_run_on_is_refused_with_the_next_step(
    tmp_path: Path, store: SqliteStore, name: str, version: int, step: str
) -> None:
    record(store, name, version)
    again = SqliteStore(tmp_path / "jobs.db")
    for op in (Check(), Enqueue(jobs=(Making().job(),))):
        with pytest.raises(SchemaOutOfDate, match=step):
            again.run(op)
    with pytest.raises(SchemaOutOfDate, match=step):
        again.migrator().require()
    again.close()


def test_the_migrator_brings_an_older_file_up(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    know(monkeypatch, COLOUR)
    newer = store.migrator()
    assert newer.pending() == (COLOUR,)
    assert (newer.up(to=NEEDED), newer.up(), newer.up()) == ((), (COLOUR,), ())
    assert newer.state() == SchemaState(NEEDED + 1)


def test_a_file_is_contracted_when_asked_for_and_no_older_worker_lives(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    know(monkeypatch, COLOUR, NO_COLOUR)
    newer = store.migrator()
    with pytest.raises(SchemaOutOfDate, match="run `fairlane migrate up`"):
        newer.contract()
    newer.up()
    worker = Making().worker_id()
    store.run(Renew(worker=worker, name="an older one"))
    with pytest.raises(OldWorkersAlive, match="an older one; stop or upgrade them first"):
        newer.contract()
    store.run(Renew(worker=worker, figures={"schema.version": NEEDED + 1.0}))
    assert (newer.contract(), newer.contract()) == ((NO_COLOUR,), ())
    assert newer.state() == SchemaState(NEEDED + 1, NEEDED + 1)


def test_many_may_open_one_new_file_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        stores = list(threads.map(lambda _: SqliteStore(tmp_path / "jobs.db"), range(8)))
    assert {store.run(Check()).schema_version for store in stores} == {NEEDED}
    for store in stores:
        store.close()


def test_an_applications_tables_stand_beside_ours(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "application.db")
    names = store._db.read(lambda db: db.execute("select name from sqlite_schema where name not like 'sqlite_%'"))
    assert all(name.startswith("fairlane_") for (name,) in names)
    store.close()


def test_statements_are_split_without_their_comments() -> None:
    assert statements("-- one; two\ncreate table a (b);\n\n  -- three\ncreate table c (d);\n") == [
        "create table a (b)",
        "create table c (d)",
    ]


def test_a_trigger_is_one_statement() -> None:
    trigger = "create trigger a before delete on b begin\n  select raise(abort, 'no');\n  delete from c;\nend"
    assert [" ".join(text.split()) for text in statements(f"{trigger};\ncreate table c (d);")] == [
        " ".join(trigger.split()),
        "create table c (d)",
    ]
