"""Numbered migrations in two phases: which there are, which are pending, and which schemas this code runs on.

`0007_colour.expand.sql` runs before code that needs it; `0007_colour.contract.sql` removes what only older code needs,
once none is left, and only when asked for. Both are immutable once released. Code whose newest migration is 7 runs on
every schema that is expanded to 7 or further and contracted to 7 or less far.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, NamedTuple

from fairlane.errors import ConfigError, SchemaOutOfDate

Phase = Literal["expand", "contract", "functions", "obsolete"]

_NAME = re.compile(r"(\d{4})_(\w+)\.(expand|contract)\.sql")
_DESCRIBED = re.compile(r"expanded to (\d+), contracted to (\d+), functions (\d+)")
_FIRST_DESCRIBED = re.compile(r"schema version (\d+)$")
"""Written before functions were recorded apart from tables."""


class Migration(NamedTuple):
    version: int
    """Its number; of the step that applies functions, their release."""
    name: str
    phase: Phase
    sql: str


class SchemaState(NamedTuple):
    """How far a schema has been migrated; all 0: there is none."""

    expanded: int = 0
    contracted: int = 0
    functions: int = 0
    """The release of its functions; stays 0 in a store that has none."""

    def __str__(self) -> str:
        return f"expanded to {self.expanded}, contracted to {self.contracted}, functions {self.functions}"

    @classmethod
    def described(cls, text: str) -> SchemaState:
        """The state that a text describes; none where it describes none."""
        found = _DESCRIBED.search(text) or _FIRST_DESCRIBED.search(text)
        return cls(*map(int, found.groups())) if found else cls()


class Migrations:
    """The migrations of one store, in order."""

    def __init__(self, found: tuple[Migration, ...], functions: int = 0) -> None:
        self.expansions = tuple(sorted(step for step in found if step.phase == "expand"))
        self.contractions = tuple(sorted(step for step in found if step.phase == "contract"))
        self.needed = SchemaState(len(self.expansions), len(self.expansions), functions)
        numbers = [step.version for step in self.expansions]
        if numbers != list(range(1, len(numbers) + 1)):
            raise ValueError(f"migrations are numbered {numbers}: expected 1, 2, 3 and so on, each once")
        if not {step.version for step in self.contractions} <= set(numbers):
            raise ValueError("a migration contracts what none of the same number has expanded")

    @classmethod
    def in_folder(cls, folder: Path, functions: int = 0) -> Migrations:
        return cls(tuple(_read(file) for file in folder.iterdir() if file.name.endswith(".sql")), functions)

    def pending(self, state: SchemaState, to: int | None = None) -> tuple[Migration, ...]:
        """What `up` would run, as far as version `to`; raises for a schema that newer code has contracted."""
        last = self.needed.expanded if to is None else to
        if not 1 <= last <= self.needed.expanded:
            raise ConfigError(f"to = {last}: this Fairlane knows versions 1 to {self.needed.expanded}")
        if state.contracted > self.needed.contracted:
            raise SchemaOutOfDate(state.contracted, self.needed.contracted)
        return tuple(step for step in self.expansions if state.expanded < step.version <= last)

    def contracting(self, state: SchemaState) -> tuple[Migration, ...]:
        """What `contract` would run; raises while this code is older or newer than the schema."""
        require(state, self.needed)
        if state.expanded > self.needed.expanded:
            raise SchemaOutOfDate(state.expanded, self.needed.expanded)
        if state.functions > self.needed.functions:
            raise SchemaOutOfDate(state.functions, self.needed.functions, "functions")
        return tuple(step for step in self.contractions if step.version > state.contracted)


def require(state: SchemaState, needed: SchemaState, where: str = "") -> None:
    """Raises `SchemaOutOfDate` unless code that needs `needed` can run on it; newer and only expanded is fine."""
    if state.expanded < needed.expanded:
        raise SchemaOutOfDate(state.expanded, needed.expanded, why=where)
    if state.contracted > needed.contracted:
        raise SchemaOutOfDate(state.contracted, needed.contracted, why=where)
    if state.functions < needed.functions:
        raise SchemaOutOfDate(state.functions, needed.functions, "functions", where)


def _read(file: Path) -> Migration:
    found = _NAME.fullmatch(file.name)
    if found is None:
        raise ValueError(f"{file.name}: expected a name such as 0007_colour.expand.sql")
    phase: Phase = "expand" if found[3] == "expand" else "contract"
    return Migration(int(found[1]), found[2], phase, file.read_text("utf-8"))
