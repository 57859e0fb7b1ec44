"""Print each requirement with its state and its tests, and what is missing of those that are not proven.

python tools/ledger.py             the whole ledger
python tools/ledger.py W5 Q17      these rows, with every test
python tools/ledger.py --missing   only the rows that are partial or open
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
from collections import defaultdict
from pathlib import Path
from typing import get_args

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tools.requirements import Row, State, disagreements, read_rows  # noqa: E402 - run as a script, the root is not on the path

SHOWN_TESTS = 3
SHOWN_TEXT = 96


class Collected:
    """A pytest plugin that notes which test claims which row."""

    def __init__(self) -> None:
        self.proofs: dict[str, list[str]] = defaultdict(list)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            name = item.nodeid.split("[")[0]
            for marker in item.iter_markers("requirement"):
                for row_id in marker.args:
                    if name not in self.proofs[row_id]:
                        self.proofs[row_id].append(name)


def collect() -> dict[str, list[str]]:
    """The tests by the row they claim; ends the program if the tests cannot be read."""
    collected, said = Collected(), io.StringIO()
    with contextlib.redirect_stdout(said):
        code = pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(ROOT)], [collected])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        sys.exit(f"{said.getvalue()[-4000:]}\nthe tests could not be collected, so there is no ledger to show")
    return dict(collected.proofs)


def show(row: Row, tests: list[str], limit: int | None) -> None:
    text = row.text if limit is None or len(row.text) <= SHOWN_TEXT else row.text[: SHOWN_TEXT - 1] + "…"
    print(f"{row.id:<4} {row.state:<8} {len(tests) or '-':>4}  {text}")
    if row.missing:
        print(f"{'':20}missing: {row.missing}")
    for test in tests[:limit]:
        print(f"{'':20}{test}")
    if limit is not None and len(tests) > limit:
        print(f"{'':20}… and {len(tests) - limit} more (make ledger ROWS={row.id})")


def main() -> int:
    parser = argparse.ArgumentParser(description="Each requirement with the tests that prove it.")
    parser.add_argument("rows", nargs="*", help="show these rows in full")
    parser.add_argument("--missing", action="store_true", help="only rows that are partial or open")
    options = parser.parse_args()
    rows = read_rows()
    if unknown := [row for row in options.rows if row not in rows]:
        parser.error(f"no such row: {', '.join(unknown)}; the rows are in docs/requirements.md")
    proofs = collect()
    section = ""
    for row in rows.values():
        if (options.rows and row.id not in options.rows) or (options.missing and row.state == "proven"):
            continue
        if row.section != section:
            section = row.section
            print(f"\n{section}\n row state    tests")
        show(row, proofs.get(row.id, []), None if options.rows else SHOWN_TESTS)
    for state in get_args(State):
        named = [row.id for row in rows.values() if row.state == state]
        print(
            f"\n{len(named)} of {len(rows)} rows {state}"
            + ("" if state == "proven" else f": {', '.join(named) or 'none'}")
        )
    wrong = disagreements(rows, proofs)
    for one in wrong:
        print(one, file=sys.stderr)
    stray = sorted(set(proofs) - set(rows))
    for row_id in stray:
        print(f"unknown row {row_id}, named by {', '.join(proofs[row_id])}", file=sys.stderr)
    return 1 if stray or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
