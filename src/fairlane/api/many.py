"""Acts on many: by selection or by filter, counted first where asked for, in bounded batches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated, TypeVar

from pydantic import BaseModel, Field

from fairlane.api.fields import Act
from fairlane.api.paging import NextCursor, next_cursor, seq_at
from fairlane.core.ids import Seq
from fairlane.core.ops import MAX_PAGE
from fairlane.errors import DeadLetterNotFound, InvalidOption, InvalidState, JobNotFound

I = TypeVar("I")  # noqa: E741 - an id

MOST = 1_000
"""Acts of one request."""


class Many(Act):
    """Which ones, and whether they are only to be counted."""

    dry_run: bool = Field(default=False, description="Change nothing; say how many it would be.")
    most: Annotated[int, Field(ge=1, le=MOST)] = Field(
        default=MOST, description="By filter: at most so many in one request."
    )
    cursor: Annotated[str, Field(pattern=r"^[0-9]{1,18}$")] | None = Field(
        default=None, description="By filter: go on here, with the `next_cursor` of the request before."
    )


class Refused(BaseModel):
    id: str
    code: str = Field(examples=["invalid_state"])


class Done(BaseModel):
    dry_run: bool
    matched: int = Field(description="How many were meant by this request.", examples=[12])
    total_count: int | None = Field(
        default=None, description="By filter, dry run: how many match in all, where that is counted."
    )
    done: int = Field(examples=[11])
    refused: list[Refused] = Field(description="Those that were not there, or not in a place the act starts from.")
    next_cursor: NextCursor = None


def require_one(ids: object, where: object) -> None:
    if (ids is None) == (where is None):
        raise InvalidOption("ids, where", None, "exactly one of them")


async def each(ids: Iterable[I], act: Callable[[int, I], Awaitable[object]]) -> tuple[int, list[Refused]]:
    """Do it to each; one that is refused does not keep the others from it."""
    done, refused = 0, []
    for index, target in enumerate(ids):
        try:
            await act(index, target)
        except (JobNotFound, DeadLetterNotFound, InvalidState) as error:
            refused.append(Refused(id=str(target), code=error.code))
        else:
            done += 1
    return done, refused


async def gathered(
    page: Callable[[Seq | None, int], Awaitable[tuple[list[I], Seq | None]]], most: int, cursor: str | None
) -> tuple[list[I], str | None]:
    """The first `most` ids of a listing, page by page, and the cursor behind them."""
    found: list[I] = []
    before = seq_at(cursor)
    while len(found) < most:
        ids, before = await page(before, min(most - len(found), MAX_PAGE))
        found += ids
        if before is None:
            break
    return found, next_cursor(before)
