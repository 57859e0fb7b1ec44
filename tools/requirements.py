"""The rows of docs/requirements.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

LEDGER = Path(__file__).parents[1] / "docs" / "requirements.md"
ROW = re.compile(r"^\| (?P<id>[A-Z]\d+)(?: (?P<topic>[^|]+?))? \| (?P<text>.+) \|$")


class Row(NamedTuple):
    id: str
    text: str
    section: str


def read_rows(ledger: Path = LEDGER) -> dict[str, Row]:
    """Every row by its id, in the order of the page."""
    rows: dict[str, Row] = {}
    section = ""
    for line in ledger.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif found := ROW.match(line):
            row = Row(found["id"], found["text"].strip(), section)
            if row.id in rows:
                raise ValueError(f"{ledger.name} has two rows {row.id}")
            rows[row.id] = row
    return rows
