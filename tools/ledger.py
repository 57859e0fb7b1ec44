"""Print each requirement with its state and its tests, and what is missing of those that are not proven.

python tools/ledger.py             the whole ledger
python tools/ledger.py W5 Q17      these rows, with every test
python tools/ledger.py --missing   only the rows that are partial or open
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import get_args

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tools.requirements import (  # noqa: E402 - run as a script, the root is not on the path
    Row,
    State,
    read_marks,
    read_rows,
    scenes_of,
    unplayed,
    untried,
)

SHOWN_TESTS = 3
SHOWN_TEXT = 96


def show(row: Row, tests: list[str], limit: int | None) -> None:
    text = row.text if limit is None or len(row.text) <= SHOWN_TEXT else row.text[: SHOWN_TEXT - 1] + "…"
    print(f"{row.id:<4} {row.state:<8} {len(tests) or '-':>5} {len(scenes_of(tests)) or '-':>6}  {text}")
    if row.missing:
        print(f"{'':27}missing: {row.missing}")
    for test in tests[:limit]:
        print(f"{'':27}{test}")
    if limit is not None and len(tests) > limit:
        print(f"{'':27}… and {len(tests) - limit} more (make ledger ROWS={row.id})")


def main() -> int:
    parser = argparse.ArgumentParser(description="Each requirement with the tests that prove it.")
    parser.add_argument("rows", nargs="*", help="show these rows in full")
    parser.add_argument("--missing", action="store_true", help="only rows that are partial or open")
    options = parser.parse_args()
    rows = read_rows()
    if unknown := [row for row in options.rows if row not in rows]:
        parser.error(f"no such row: {', '.join(unknown)}; the rows are in docs/requirements.md")
    proofs = read_marks()
    section = ""
    for row in rows.values():
        if (options.rows and row.id not in options.rows) or (options.missing and row.state == "proven"):
            continue
        if row.section != section:
            section = row.section
            print(f"\n{section}\n row state    tests scenes")
        show(row, proofs.get(row.id, []), None if options.rows else SHOWN_TESTS)
    for state in get_args(State):
        named = [row.id for row in rows.values() if row.state == state]
        print(
            f"\n{len(named)} of {len(rows)} rows {state}"
            + ("" if state == "proven" else f": {', '.join(named) or 'none'}")
        )
    played = [name for name in rows if scenes_of(proofs.get(name, []))]
    print(f"\n{len(played)} of {len(rows)} rows played by a scene")
    for row in rows.values():
        if row.id not in played:
            print(f"no scene plays {row.id}, which is {row.state}{': ' if row.missing else ''}{row.missing}")
    wrong = untried(rows, proofs) + unplayed(rows, proofs)
    for one in wrong:
        print(one, file=sys.stderr)
    stray = sorted(set(proofs) - set(rows))
    for row_id in stray:
        print(f"unknown row {row_id}, named by {', '.join(proofs[row_id])}", file=sys.stderr)
    return 1 if stray or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
