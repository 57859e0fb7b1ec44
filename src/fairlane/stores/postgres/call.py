"""An operation made ready to send: SQL, its parameters, and how to read the rows that come back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

T = TypeVar("T")

Rows = Sequence[tuple[Any, ...]]


class Call(NamedTuple, Generic[T]):
    sql: str
    """With `%s` for parameters and `{schema}` for the quoted schema name."""
    params: tuple[object, ...]
    read: Callable[[Rows], T]


def instant(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def answering(answer: type[T]) -> Callable[[Rows], T]:
    """How to read the answer of a function: one row with one JSON text."""
    decode = msgspec.json.Decoder(answer).decode

    def read(rows: Rows) -> T:
        return decode(rows[0][0])

    return read
