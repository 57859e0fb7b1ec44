"""Fail if a page of the documentation links to a file, a heading or a test that is not there."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The names a page's headings go by in links."""
    headings = HEADING.findall(CODE.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def is_there(page: Path, link: str) -> bool:
    place, _, name = link.partition("#")
    target = (page.parent / place).resolve() if place else page
    if not target.exists():
        return False
    if not name:
        return True
    if target.suffix == ".py":
        return (
            re.search(rf"^\s*(?:async )?(?:def|class) {re.escape(name)}\b", target.read_text(), re.MULTILINE)
            is not None
        )
    return name in anchors(target)


def broken() -> Iterator[str]:
    for page in PAGES:
        for link in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
            if not link.startswith(("https://", "http://", "mailto:")) and not is_there(page, link):
                yield f"{page.relative_to(ROOT)}: {link} leads nowhere"


if __name__ == "__main__":
    problems = list(broken())
    print("\n".join(problems), file=sys.stderr, end="\n" if problems else "")
    sys.exit(1 if problems else 0)
