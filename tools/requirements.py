"""The rows of docs/requirements.md, and the state of each as the page says it."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

ROOT = Path(__file__).parents[1]
LEDGER = ROOT / "docs" / "requirements.md"
ROW = re.compile(r"^\| (?P<id>[A-Z]\d+)(?: (?P<topic>[^|]+?))? \| (?P<text>.+) \|$")
PROVEN = re.compile(r"^Proven: (.+?)\.$", re.MULTILINE | re.DOTALL)
UNPROVEN = re.compile(r"^\| (open|partial) \| ([A-Z]\d+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
PARTS = ("What Fairlane says is so", "Gates", "a container engine")
"""What is still to be built."""

SCENES = "tests/acceptance/scenes/"
"""Where the tests are that play a row as its document's author would type it; the others name it."""

State = Literal["proven", "partial", "open"]


class Row(NamedTuple):
    id: str
    text: str
    section: str
    state: State
    missing: str = ""
    """What is missing, and which part brings it."""


def read_rows(ledger: Path = LEDGER) -> dict[str, Row]:
    """Every row by its id, in the order of the page."""
    rows: dict[str, Row] = {}
    section, text = "", ledger.read_text(encoding="utf-8")
    states = read_states(text)
    for line in text.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif found := ROW.match(line):
            name = found["id"]
            if name in rows:
                raise ValueError(f"{ledger.name} has two rows {name}")
            if name not in states:
                raise ValueError(f"{ledger.name} does not say whether {name} is proven, partial or open")
            rows[name] = Row(name, found["text"].strip(), section, *states.pop(name))
    if states:
        raise ValueError(f"{ledger.name} gives a state to {', '.join(states)}, which are no rows")
    return rows


def read_states(text: str) -> dict[str, tuple[State, str]]:
    """The state of each row and what is missing of it; refuses a row with two states and an unknown part."""
    proven = [name for found in PROVEN.finditer(text) for name in re.split(r"[,\s]+", found[1])]
    states: dict[str, tuple[State, str]] = dict.fromkeys(proven, ("proven", ""))
    listed = len(proven)
    for state, name, missing, part in UNPROVEN.findall(text):
        if part not in PARTS:
            raise ValueError(f"{name} comes with {part!r}; expected one of {', '.join(PARTS)}")
        states[name] = (state, f"{missing}; comes with {part}")
        listed += 1
    if len(states) != listed:
        raise ValueError("a row has two states")
    return states


def read_marks() -> dict[str, list[str]]:
    """The tests by the row that they are marked with, read from their sources: collecting them takes half a minute."""
    marks: dict[str, list[str]] = defaultdict(list)
    for folder in ("tests", "src"):
        for file in sorted(ROOT.joinpath(folder).rglob("test_*.py")):
            name = file.relative_to(ROOT).as_posix()
            for part in ast.parse(file.read_text(encoding="utf-8")).body:
                own = getattr(part, "name", None)
                test = f"{name}::{own}" if own else name
                for row in _rows_named_in(part):
                    if test not in marks[row]:
                        marks[row].append(test)
    return dict(marks)


def _rows_named_in(part: ast.stmt) -> list[str]:
    return [
        arg.value
        for node in ast.walk(part)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "requirement"
        for arg in node.args
        if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
    ]


def untried(rows: dict[str, Row], marked: Container[str]) -> list[str]:
    """The rows that are said to be proven, or partly so, and that no test names."""
    return [
        f"{name} is {row.state} and no test is marked with it"
        for name, row in rows.items()
        if row.state != "open" and name not in marked
    ]


def scenes_of(tests: Iterable[str]) -> list[str]:
    return [test for test in tests if test.startswith(SCENES)]


def unplayed(rows: dict[str, Row], marks: Mapping[str, Iterable[str]]) -> list[str]:
    """The rows that are said to be proven and that no scene plays. A row that is partial or open says what is missing."""
    return [
        f"{name} is proven and no scene plays it"
        for name, row in rows.items()
        if row.state == "proven" and not scenes_of(marks.get(name, ()))
    ]
