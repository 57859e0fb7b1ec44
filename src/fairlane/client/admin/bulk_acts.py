"""Bulk acts: selection of the targets, and the result for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from fairlane.client.admin.filters import seq_before, whole_number
from fairlane.client.enqueue.options import row_id
from fairlane.client.steps import Steps
from fairlane.core.ids import Seq
from fairlane.core.ops import MAX_PAGE
from fairlane.errors import DeadLetterNotFound, FairlaneError, InvalidOption, InvalidState, JobNotFound

T = TypeVar("T")
I = TypeVar("I")  # noqa: E741 - an id

MOST_ACTS = 1_000
"""Most targets of one bulk act."""


OnEach = Callable[[int, int], None]
"""Called after each target of a bulk act: how many are behind it, of how many."""


class RefusedAct(Struct, frozen=True, kw_only=True):
    """A target that does not exist, or whose state does not allow the act."""

    id: str
    code: str
    message: str


class ManyActs(Struct, Generic[T], frozen=True, kw_only=True):
    """The result of a bulk act."""

    matched: int
    """How many targets this call selects."""
    done: tuple[T, ...]
    refused: tuple[RefusedAct, ...]
    next: Seq | None = None
    """With a filter: there are more; pass it as `before`."""
    total: int | None = None
    """Dry run with a filter: how many match in total; None if not counted."""


def those_meant(
    given: Iterable[I] | None,
    where: object,
    page: Callable[[Seq | None, int], Steps[tuple[list[tuple[Seq, I]], Seq | None]]],
    limit: int,
    before: int | None,
    down_to: int | None,
) -> Steps[tuple[list[I], Seq | None]]:
    """The ids of a bulk act: those given, each once, or the first `limit` that match and the start of the rest.

    With a filter, rows older than `down_to` do not belong to it.
    """
    if (given is None) == (where is None):
        raise InvalidOption("ids, where", None, "exactly one of them")
    size = whole_number("limit", limit, MOST_ACTS)
    if given is not None:
        ids = list(dict.fromkeys(given))
        if len(ids) > MOST_ACTS:
            raise InvalidOption("ids", len(ids), f"at most {MOST_ACTS} in one call")
        return ids, None
    found: list[I] = []
    cursor = seq_before(before)
    oldest = None if down_to is None else row_id("down_to", down_to)
    while len(found) < size:
        rows, cursor = yield from page(cursor, min(size - len(found), MAX_PAGE))
        within = [target for seq, target in rows if oldest is None or seq >= oldest]
        found += within
        if cursor is None or len(within) < len(rows):
            return found, None
    return found, cursor


def act_on_each(
    ids: Sequence[I], act: Callable[[int, I], Steps[T]], on_each: OnEach | None
) -> Steps[tuple[tuple[T, ...], tuple[RefusedAct, ...]]]:
    """Act on each in turn; a refusal does not stop the others."""
    done: list[T] = []
    refused: list[RefusedAct] = []
    for index, target in enumerate(ids):
        try:
            done.append((yield from act(index, target)))
        except (JobNotFound, DeadLetterNotFound, InvalidState) as error:
            refused.append(_refused(target, error))
        if on_each is not None:
            on_each(index + 1, len(ids))
    return tuple(done), tuple(refused)


def _refused(id: object, error: FairlaneError) -> RefusedAct:
    return RefusedAct(id=str(id), code=error.code, message=str(error))
