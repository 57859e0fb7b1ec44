"""Migrates the schema in a SQLite file: numbered migrations, all that are pending in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from fairlane.errors import OldWorkersAlive
from fairlane.stores.migrations import Migration, Migrations, SchemaState, require
from fairlane.stores.sqlite.driver import Driver

T = TypeVar("T")

MIGRATIONS = Migrations.in_folder(Path(__file__).with_name("migrations"))

_STATE = """
select coalesce(max(value) filter (where name = 'schema_version'), 0),
       coalesce(max(value) filter (where name = 'schema_contracted'), 0) from fairlane_meta
"""
_RECORDED_AS = {"expand": "schema_version", "contract": "schema_contracted"}
_RECORD = "insert or replace into fairlane_meta values ('{}', {})"
_OLD_WORKERS = """
select name from fairlane_worker where expires_at > (julianday('now') - 2440587.5) * 86400e6
  and coalesce(json_extract(figures, '$."schema.version"'), 0) < ? order by 1
"""


class Transact(Protocol):
    def __call__(self, work: Callable[[Driver], T], /) -> T: ...


def current_state(db: Driver) -> SchemaState:
    if not db.execute("select 1 from sqlite_schema where type = 'table' and name = 'fairlane_meta'"):
        return SchemaState()
    [(expanded, contracted)] = db.execute(_STATE)
    return SchemaState(int(expanded), int(contracted))


def migrate(db: Driver, to: int | None = None) -> tuple[Migration, ...]:
    """Run what is pending, inside the caller's transaction: a crash leaves the old schema whole."""
    return _run(db, MIGRATIONS.pending(current_state(db), to))


def statements(sql: str) -> list[str]:
    """One by one, because stdlib's executescript would commit the transaction it is called in."""
    lines = (line for line in sql.splitlines() if not line.lstrip().startswith("--"))
    found: list[str] = []
    for part in "\n".join(lines).split(";"):
        text = part.strip()
        if found and found[-1].startswith("create trigger") and not found[-1].endswith("\nend"):
            found[-1] = f"{found[-1]};\n{text}"
        elif text:
            found.append(text)
    return found


class SqliteMigrator:
    """`change` runs work in a write transaction on any schema; `read`, if it is another, never makes a file."""

    def __init__(self, change: Transact, read: Transact | None = None) -> None:
        self._change, self._read = change, read or change
        self.needed = MIGRATIONS.needed

    def state(self) -> SchemaState:
        return self._read(current_state)

    def require(self) -> None:
        require(self.state(), self.needed)

    def pending(self, to: int | None = None) -> tuple[Migration, ...]:
        return MIGRATIONS.pending(self.state(), to)

    def up(self, to: int | None = None) -> tuple[Migration, ...]:
        return self._change(lambda db: migrate(db, to))

    def contracting(self) -> tuple[Migration, ...]:
        return MIGRATIONS.contracting(self.state())

    def contract(self) -> tuple[Migration, ...]:
        return self._change(self._contract)

    def script(self, to: int | None = None) -> str:
        """What is pending in the file as it is, each migration in a transaction of its own."""
        return "\n".join(
            f"-- Fairlane schema, version {step.version}: {step.name} ({step.phase})\n"
            f"begin immediate;\n{step.sql.strip()}\n{_recorded(step)};\ncommit;\n"
            for step in self.pending(to)
        )

    def _contract(self, db: Driver) -> tuple[Migration, ...]:
        steps = MIGRATIONS.contracting(current_state(db))
        old = db.execute(_OLD_WORKERS, (self.needed.expanded,)) if steps else []
        if old:
            raise OldWorkersAlive([str(name) for (name,) in old])
        return _run(db, steps)


def _run(db: Driver, steps: tuple[Migration, ...]) -> tuple[Migration, ...]:
    for step in steps:
        for statement in statements(step.sql):
            db.execute(statement)
        db.execute(_recorded(step))
    return steps


def _recorded(step: Migration) -> str:
    return _RECORD.format(_RECORDED_AS[step.phase], step.version)
