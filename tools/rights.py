"""Write the table of rights in docs/guides/http-api.md from the verbs of the client and their rights.

python tools/rights.py          write the table
python tools/rights.py --check  fail if the page says something else than the code
"""

from __future__ import annotations

import argparse
import difflib
import sys
from pathlib import Path

from fairlane import Fairlane
from fairlane.client.rights import GRANTS, Right, may, right_of
from fairlane.client.steps import Verbs

PAGE = Path(__file__).parents[1] / "docs" / "guides" / "http-api.md"
BEGIN = "<!-- generated from fairlane.client.rights by `make docs`: do not edit below -->"
END = "<!-- end of the generated part -->"
COLUMNS: dict[str, tuple[str, ...]] = {
    "`viewer`": ("viewer",),
    "`operator`": ("operator",),
    "`staff` and `manager`": ("staff", "manager"),
    "`admin`": ("admin",),
    "`metrics`": ("metrics",),
}
MEANINGS = {
    Right.KNOWN: "its own identity, log out",
    Right.METRICS: "`/metrics` and one tenant's metrics",
    Right.READ: "states, counts, times and names",
    Right.CONTENTS: "payloads, headers, results, error texts, logs and notes of live jobs",
    Right.ACT: "acts on live jobs and on what governs them",
    Right.MANAGE: "dead letters: their contents and every act on them; all of `/api/jobs/admin/`",
    Right.TOKENS: "create, list and revoke credentials; their audit records",
}


def verbs_by_right() -> dict[Right, list[str]]:
    """The verbs of an application, such as `jobs.cancel`, by the right they declare."""
    found: dict[Right, list[str]] = {right: [] for right in GRANTS}
    app = Fairlane("memory://")
    for group in sorted(dir(app)):
        admin = getattr(app, group, None)
        if isinstance(admin, Verbs):
            names = [name[1:] for name in dir(type(admin)) if name.startswith("a") and hasattr(admin, f"_{name[1:]}")]
            for name in sorted(names):
                found[right_of(getattr(type(admin), name))].append(f"`{group}.{name}`")
    app.close()
    return found


def table() -> list[str]:
    verbs = verbs_by_right()
    rows = [
        f"| {meaning} | {' | '.join('yes' if may(roles, right) else '' for roles in COLUMNS.values())} "
        f"| {', '.join(verbs[right])} |"
        for right, meaning in MEANINGS.items()
    ]
    return [f"| may | {' | '.join(COLUMNS)} | verbs of the client |", f"|{' --- |' * (len(COLUMNS) + 2)}", *rows]


def with_generated_part(page: str) -> str:
    head, rest = page.split(BEGIN)
    _, tail = rest.split(END)
    return head + "\n".join([BEGIN, "", *table(), "", END]) + tail


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the table of rights from the verbs of the client.")
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the page is out of date")
    options = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    written = with_generated_part(page)
    if page == written:
        return 0
    if not options.check:
        PAGE.write_text(written, encoding="utf-8")
        return 0
    difference = difflib.unified_diff(
        page.splitlines(), written.splitlines(), "docs/guides/http-api.md", "what the code says", lineterm=""
    )
    sys.stderr.write("\n".join(difference) + "\nrun `make docs`\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
