"""Hooks of MkDocs: links that work in the repository also work on the site.

A link to a file outside docs/, such as a test, becomes its name: the site does not hold it. Headings have the anchors
that the repository's viewer gives them.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    folder = posixpath.dirname(page.file.src_uri)

    def kept(found: re.Match[str]) -> str:
        text, target = found.groups()
        place = posixpath.normpath(posixpath.join(folder, target.partition("#")[0]))
        return text if place.startswith("..") and "://" not in target else found[0]

    return LINK.sub(kept, markdown)


def slug(heading: str, separator: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)
