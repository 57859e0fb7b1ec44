"""The schema in numbered steps; files with the same number are one step."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from typing import TypeVar

from fairlane.stores.base import Migration
from fairlane.stores.sqlite.driver import Driver

T = TypeVar("T")


def _load() -> tuple[Migration, ...]:
    steps: dict[int, Migration] = {}
    for file in sorted(resources.files(__package__).joinpath("sql").iterdir(), key=lambda file: file.name):
        number, _, rest = file.name.removesuffix(".sql").partition("_")
        name, _, phase = rest.partition(".")
        step = steps.get(int(number), Migration(int(number), name, phase or "expand", ""))
        steps[step.version] = step._replace(sql=f"{step.sql}{file.read_text()}\n")
    return tuple(sorted(steps.values()))


MIGRATIONS = _load()
NEEDED = MIGRATIONS[-1].version


def current_version(db: Driver) -> int:
    """0: no Fairlane schema in this file."""
    if not db.execute("select 1 from sqlite_schema where type = 'table' and name = 'fairlane_meta'"):
        return 0
    [(version,)] = db.execute("select value from fairlane_meta where name = 'schema_version'")
    return int(version)


def migrate(db: Driver) -> tuple[Migration, ...]:
    """Run what is pending, inside the caller's transaction: a crash leaves the old schema whole."""
    version = current_version(db)
    pending = tuple(step for step in MIGRATIONS if step.version > version)
    for step in pending:
        for statement in statements(step.sql):
            db.execute(statement)
        db.execute("insert or replace into fairlane_meta values ('schema_version', ?)", (step.version,))
    return pending


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
    """Brings a file's schema up to date; works on files whose schema a store would refuse."""

    needed = NEEDED

    def __init__(self, change: Callable[[Callable[[Driver], object]], object]) -> None:
        self._change = change

    def current(self) -> int:
        return self._in_transaction(current_version)

    def pending(self) -> tuple[Migration, ...]:
        version = self.current()
        return tuple(step for step in MIGRATIONS if step.version > version)

    def up(self) -> tuple[Migration, ...]:
        return self._in_transaction(migrate)

    def _in_transaction(self, work: Callable[[Driver], T]) -> T:
        answers: list[T] = []
        self._change(lambda db: answers.append(work(db)))
        return answers[-1]
