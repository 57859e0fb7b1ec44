"""What every operation is: a frozen value that knows the type of its answer."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Generic, TypeVar

from msgspec import Struct

from fairlane.core.names import check_words

T = TypeVar("T")


class Op(Struct, Generic[T], frozen=True, kw_only=True):
    """A question to a store or a change of it. Atomic; losing a race is an answer, not an error."""

    answer: ClassVar[object]
    """The type `T` again, where a decoder can read it."""

    repeatable: ClassVar[bool] = True
    """Whether a store may send it again when the reply was lost: its ids, claim numbers or nature make the second one the first."""

    now: datetime | None = None
    """None: the store's clock. Tests give an instant."""


class Act(Op[T], frozen=True, kw_only=True):
    """A change that somebody makes by hand: audited under `by`, with their `notes`. What is no text is refused before any store sees it."""

    repeatable: ClassVar[bool] = False
    """Failed by hand twice is charged twice: a lost reply is reported as unknown instead."""
    words: ClassVar[tuple[str, ...]] = ("by", "notes")
    """Its fields of free text."""

    by: str
    notes: str | None = None

    def __post_init__(self) -> None:
        for field in self.words:
            if field != "notes" or self.notes is not None:
                check_words(field, getattr(self, field))


class Scope(Struct, frozen=True):
    """Whose jobs an operation may see or touch: one tenant's, or all tenants', said out loud."""

    tenant: str | None

    def admits(self, tenant: str) -> bool:
        return self.tenant is None or self.tenant == tenant


ALL_TENANTS = Scope(None)


def only(tenant: str) -> Scope:
    return Scope(tenant)
