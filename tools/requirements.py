"""The rows of docs/requirements.md, and the state of each as the page says it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

LEDGER = Path(__file__).parents[1] / "docs" / "requirements.md"
ROW = re.compile(r"^\| (?P<id>[A-Z]\d+)(?: (?P<topic>[^|]+?))? \| (?P<text>.+) \|$")
PROVEN = re.compile(r"^Proven: (.+?)\.$", re.MULTILINE | re.DOTALL)
UNPROVEN = re.compile(r"^\| (open|partial) \| ([A-Z]\d+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
PARTS = ("Redis", "supervisors", "workflows", "dashboard", "Django", "a container engine")
"""What is still to be built."""

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


def disagreements(rows: dict[str, Row], marked: Iterable[str]) -> list[str]:
    """Where the states and the marks of tests contradict each other."""
    named = set(marked)
    without = [
        f"{name} is {row.state} and no test is marked with it"
        for name, row in rows.items()
        if row.state != "open" and name not in named
    ]
    stray = [
        f"{name} is open and a test is marked with it"
        for name, row in rows.items()
        if row.state == "open" and name in named
    ]
    return without + stray
