"""Bulk acts: selection of the targets, and the result for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from fairlane.client.admin.filters import seq_before, whole_number
from fairlane.client.enqueue.options import row_id
from fairlane.client.steps import Steps, ask
from fairlane.core.ids import Seq
from fairlane.core.job import DeadLetter
from fairlane.core.ops import MAX_PAGE, GetJob, Scope
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
    """How many targets this call selects; a dry run: how many it would change."""
    done: tuple[T, ...]
    refused: tuple[RefusedAct, ...]
    next: Seq | None = None
    """With a filter: there are more; pass it as `before`."""
    total: int | None = None
    """Dry run with a filter: how many match in total, without those of `left`; None if not counted."""
    left: dict[str, int] = {}
    """Dry run: targets that would stay as they are, by their state. With a filter at most 1,000 are counted."""


W = TypeVar("W", bound=Struct)


def filter_meant(given: object, where: W | None, none: W, tenant: object, everything: bool) -> W | None:
    """The filter of a bulk act. One that names nothing stands for all there are, which has to be said."""
    if everything and given is None and where is None:
        return none
    if where == none and tenant is None and not everything:
        raise InvalidOption("where", {}, "a filter, such as a status, a type or a tenant; for all there are, all=True")
    return where


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


def preview(ids: Sequence[I], state_kept: Callable[[I], Steps[str | None]]) -> Steps[tuple[int, dict[str, int]]]:
    """How many targets an act would change, and the rest by the state that keeps them as they are."""
    left: Counter[str] = Counter()
    for target in ids:
        state = yield from state_kept(target)
        if state is not None:
            left[state] += 1
    return len(ids) - left.total(), dict(left)


def not_reprocessed(letter: DeadLetter, scope: Scope) -> Steps[str | None]:
    """The state in which a dead letter is not tried again; None: it would be."""
    if letter.status != "retried" or letter.reprocessed_as is None:
        return None if letter.status == "pending_review" else letter.status
    made = yield from ask(GetJob(scope=scope, id=letter.reprocessed_as))
    return None if made is None or made.job.status in ("dead", "cancelled") else "retried"


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
