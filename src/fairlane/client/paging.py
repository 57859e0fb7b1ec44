"""How long a page may be."""

from __future__ import annotations

from fairlane.core.ops import MAX_PAGE
from fairlane.errors import InvalidOption


def page_size(limit: object) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_PAGE:
        raise InvalidOption("limit", limit, f"a whole number from 1 to {MAX_PAGE}")
    return limit
