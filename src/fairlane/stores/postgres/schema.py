"""The schema this code needs: its numbered migrations, and its functions, views and types as one script.

`CORE` is the store's own. A package that brings SQL of its own, as the supervisors do, has `SchemaFiles` of its own, in
a schema of its own beside the store's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, cached_property
from graphlib import TopologicalSorter
from hashlib import sha256
from pathlib import Path

from fairlane.stores.migrations import Migration, Migrations

FUNCTIONS_RELEASE = 3
"""Raised with the first change in functions/ after the baseline (tests/upgrade/baseline.txt): functions are never
replaced by those of an older release."""

_DEFINED = re.compile(r"^create (?:or replace (?:function|view)|type) (\w+)", re.MULTILINE)
_COMMENT = re.compile(r"--.*")
_LATE_BOUND = re.compile(r"\$\$.*?\$\$", re.DOTALL)
"""Bodies in PL/pgSQL: what they name is looked up when they run, but for types."""
_TYPE = re.compile(r"^create type (\w+) as (\(.*?\));\n", re.MULTILINE | re.DOTALL)
_MADE_TYPE = re.compile(r"^    \['(\w+)', \$columns\$", re.MULTILINE)
_VIEW = re.compile(r"^create or replace view (\w+)", re.MULTILINE)


class SchemaFiles:
    """The files of a folder in migrations/ and functions/, and where they go.

    `home` is the schema they are applied in, where that is not the store's, which then stands behind it on the search
    path. `guard` and `rights` are SQL before and behind every step, given the name of the store's schema.
    """

    def __init__(
        self,
        folder: Path,
        release: int,
        *,
        home: str | None = None,
        guard: str = "",
        rights: Callable[[str], str] = lambda schema: "",
    ) -> None:
        self.folder, self.release, self.home, self.guard, self.rights = folder, release, home, guard, rights

    @cached_property
    def migrations(self) -> Migrations:
        return Migrations.in_folder(self.folder / "migrations", self.release)

    @cached_property
    def functions(self) -> str:
        """Every file of functions/, in an order in which they can be created: types first."""
        texts = {
            f"{noun.name}/{file.name}": file.read_text("utf-8")
            for noun in (self.folder / "functions").iterdir()
            for file in noun.iterdir()
        }
        whole = "\n".join(texts[name] for name in in_order(texts))
        types = ",\n".join(f"    ['{name}', $columns${columns}$columns$]" for name, columns in _TYPE.findall(whole))
        made = step_sql("types").replace("{types}", types) if types else ""
        return f"{made}\n{_TYPE.sub('', whole)}"

    @property
    def functions_step(self) -> Migration:
        name = f"functions of {self.home}" if self.home else "functions"
        return Migration(self.release, name, "functions", self.functions)

    @property
    def checksum(self) -> str:
        return sha256(self.functions.encode()).hexdigest()[:16]

    @property
    def types_and_views(self) -> tuple[list[str], list[str]]:
        return _MADE_TYPE.findall(self.functions), _VIEW.findall(self.functions)


CORE = SchemaFiles(Path(__file__).parent, FUNCTIONS_RELEASE)


@cache
def step_sql(name: str) -> str:
    """One statement that every migration, or the isolation of roles, goes through: a file of steps/."""
    return (CORE.folder / "steps" / f"{name}.sql").read_text("utf-8")


def in_order(texts: dict[str, str]) -> tuple[str, ...]:
    """The names of files, each after the files that define what it names outside of late-bound bodies."""
    homes: dict[str, set[str]] = {}
    for name, text in texts.items():
        for defined in _DEFINED.findall(text):
            homes.setdefault(defined, set()).add(name)
    needs: TopologicalSorter[str] = TopologicalSorter()
    for name, text in sorted(texts.items()):
        named = set(re.findall(r"\w+", _LATE_BOUND.sub("", _COMMENT.sub("", text))))
        needs.add(name, *sorted({home for word in named & homes.keys() for home in homes[word]} - {name}))
    return tuple(needs.static_order())
