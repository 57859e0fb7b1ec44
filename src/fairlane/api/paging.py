"""Pages: how many at once, and where to go on."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import Field

from fairlane.core.ids import Seq
from fairlane.core.ops import MAX_PAGE

PageSize = Annotated[int, Query(alias="limit", ge=1, le=MAX_PAGE, description="Rows on a page.")]
Cursor = Annotated[
    str | None,
    Query(pattern=r"^[0-9]{1,18}$", description="Go on here: the `next_cursor` of the page before.", examples=["41"]),
]
NextCursor = Annotated[
    str | None, Field(description="Pass as `cursor` for the next page; null: there is none.", examples=["41"])
]


def seq_at(cursor: str | None) -> Seq | None:
    return None if cursor is None else Seq(int(cursor))


def next_cursor(next: int | None) -> str | None:
    return None if next is None else str(next)
