"""Draw the life of a job in docs/concepts/lifecycle.md from the table of moves in `fairlane.core.lifecycle`.

python tools/lifecycle.py          write the diagram and the table
python tools/lifecycle.py --check  fail if the page says something else than the code
"""

from __future__ import annotations

import argparse
import difflib
import sys
from pathlib import Path

from fairlane.core.lifecycle import FINAL_PLACES, MOVES, Actor

PAGE = Path(__file__).parents[1] / "docs" / "concepts" / "lifecycle.md"
BEGIN = "<!-- generated from fairlane.core.lifecycle by `make docs`: do not edit below -->"
END = "<!-- end of the generated part -->"
ACTORS: dict[Actor, str] = {
    "client": "the application that enqueues",
    "worker": "the worker that holds the lease",
    "duty": "any worker, in a bounded step of housekeeping",
    "person": "a person, audited",
}


def diagram() -> list[str]:
    """A Mermaid state diagram: one arrow for each pair of places, labelled with the verbs that make it."""
    verbs: dict[tuple[str, str], list[str]] = {}
    for move in MOVES:
        arrow = ("[*]" if move.source == "new" else move.source, "[*]" if move.target == "removed" else move.target)
        verbs.setdefault(arrow, []).append(move.verb)
    arrows = [f"    {source} --> {target}: {', '.join(names)}" for (source, target), names in verbs.items()]
    finals = [f"    class {','.join(sorted(FINAL_PLACES))} final", "    classDef final font-weight:bold"]
    return ["```mermaid", "stateDiagram-v2", *arrows, *finals, "```"]


def table() -> list[str]:
    rows = [f"| {move.verb} | {move.source} | {move.target} | {ACTORS[move.actor]} |" for move in MOVES]
    return ["| move | from | to | made by |", "| --- | --- | --- | --- |", *rows]


def with_generated_part(page: str) -> str:
    head, rest = page.split(BEGIN)
    _, tail = rest.split(END)
    return head + "\n".join([BEGIN, "", *diagram(), "", *table(), "", END]) + tail


def main() -> int:
    parser = argparse.ArgumentParser(description="Draw the life of a job from the table of moves.")
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the page is out of date")
    options = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    drawn = with_generated_part(page)
    if page == drawn:
        return 0
    if not options.check:
        PAGE.write_text(drawn, encoding="utf-8")
        return 0
    difference = difflib.unified_diff(
        page.splitlines(), drawn.splitlines(), "as written", "as the moves are", lineterm=""
    )
    print("\n".join(difference), file=sys.stderr)
    print(f"docs/concepts/{PAGE.name} does not match fairlane.core.lifecycle: run `make docs`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
