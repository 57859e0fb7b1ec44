"""What every operation is: a frozen value that knows the type of its answer."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import repeat
from operator import attrgetter
from typing import ClassVar, Generic, Literal, TypeVar, get_args

from msgspec import Struct

from fairlane.core.names import check_words

T = TypeVar("T")


class Listing:
    """Shows a page as a table in a notebook: one row for each record, some of its fields."""

    __slots__ = ()
    shown: ClassVar[tuple[str, ...]]
    """The field that holds the records, then those of a record, by their path."""

    def _repr_html_(self) -> str:
        from html import escape

        holder, *fields = self.shown
        records = getattr(self, holder)
        rows = [fields, *([_text_at(record, field) for field in fields] for record in records)]
        cells = [
            "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row) for tag, row in zip(_tags(), rows, strict=False)
        ]
        more = getattr(self, "next", None)
        foot = "" if more is None else f"<caption>there are more, behind {escape(str(more))}</caption>"
        return f"<table>{foot}{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def _tags() -> Iterator[str]:
    yield "th"
    yield from repeat("td")


def _text_at(record: object, path: str) -> str:
    value = attrgetter(path)(record)
    if isinstance(value, datetime):
        return value.isoformat(" ", "seconds")
    return "" if value is None else str(value)


class Op(Struct, Generic[T], frozen=True, kw_only=True):
    """A question to a store or a change of it. Atomic; losing a race is an answer, not an error."""

    answer: ClassVar[object]
    """The type `T`, where a decoder can read it."""

    repeatable: ClassVar[bool] = True
    """Whether a store may send it again when the reply was lost: by its ids, claim numbers or nature the second call
    has no further effect."""

    now: datetime | None = None
    """None: the store's clock. Tests give an instant."""

    def __init_subclass__(cls) -> None:
        for base in cls.__dict__.get("__orig_bases__", ()):
            [answer] = get_args(base)
            if not isinstance(answer, TypeVar):
                cls.answer = answer


class Act(Op[T], frozen=True, kw_only=True):
    """A change that somebody makes by hand: audited under `by`, with their `notes`.

    Values that are not text are refused before any store sees them.
    """

    repeatable: ClassVar[bool] = False
    """Repeating an act can apply it twice, so a lost reply is reported as unknown."""
    words: ClassVar[tuple[str, ...]] = ("by", "notes")
    """Its fields of free text."""

    by: str
    notes: str | None = None

    def __post_init__(self) -> None:
        for field in self.words:
            if field != "notes" or self.notes is not None:
                check_words(field, getattr(self, field))


class Scope(Struct, frozen=True):
    """Whose jobs an operation may see or touch: one tenant's, or all tenants'."""

    tenant: str | None

    def admits(self, tenant: str) -> bool:
        return self.tenant is None or self.tenant == tenant


ALL_TENANTS = Scope(None)


def only(tenant: str) -> Scope:
    return Scope(tenant)


RefusalCode = Literal["not_found", "not_allowed"]
"""not_found    no such thing in this scope; a foreign tenant's counts as none
not_allowed  the thing is there, but in a place this act does not start from
"""

MAX_PAGE = 200
COUNT_CAP = 100_000
"""Counts stop here: the cap itself means "that many or more"."""
ROUGH_CAP = 10_000
"""For those who ask often: higher counts are estimates."""
