"""The schema: made at the first opening, refused when it is of another age, brought up by the migrator."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fairlane.core.ops import Check, Enqueue
from fairlane.errors import SchemaOutOfDate
from fairlane.stores.sqlite import SqliteStore, migrating
from fairlane.stores.sqlite.migrating import MIGRATIONS, NEEDED, statements
from tests.support.making import Making


def set_version(store: SqliteStore, version: int) -> None:
    store._db.change(
        lambda db: db.execute("update fairlane_meta set value = ? where name = 'schema_version'", (version,))
    )


def test_opening_a_new_file_makes_the_schema(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "jobs.db")
    migrator = store.migrator()
    assert (migrator.current(), migrator.needed, migrator.pending(), migrator.up()) == (NEEDED, NEEDED, (), ())
    assert store.run(Check()).schema_version == NEEDED
    store.close()


@pytest.mark.parametrize(
    ("version", "step"), [(NEEDED + 1, "upgrade the fairlane package"), (-1, "run `fairlane migrate up`")]
)
def test_a_schema_of_another_age_is_refused_with_the_next_step(tmp_path: Path, version: int, step: str) -> None:
    store = SqliteStore(tmp_path / "jobs.db")
    set_version(store, version)
    store.close()
    again = SqliteStore(tmp_path / "jobs.db")
    for op in (Check(), Enqueue(jobs=(Making().job(),))):
        with pytest.raises(SchemaOutOfDate, match=step):
            again.run(op)
    assert again.migrator().current() == version
    again.close()


def test_the_migrator_brings_an_older_file_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(tmp_path / "jobs.db")
    newer = MIGRATIONS[0]._replace(version=NEEDED + 1, name="colour", sql="alter table fairlane_job add colour text;")
    monkeypatch.setattr(migrating, "MIGRATIONS", (*MIGRATIONS, newer))
    migrator = store.migrator()
    assert [step.name for step in migrator.pending()] == ["colour"]
    assert [step.name for step in migrator.up()] == ["colour"]
    assert (migrator.up(), migrator.current()) == ((), NEEDED + 1)
    store.close()


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


def test_files_with_the_same_number_are_one_step() -> None:
    assert [step.version for step in MIGRATIONS] == list(range(1, NEEDED + 1))
    assert "create table fairlane_job" in MIGRATIONS[0].sql
    assert "create table fairlane_event" in MIGRATIONS[0].sql
