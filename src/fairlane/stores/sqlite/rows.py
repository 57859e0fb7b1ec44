"""Rows and listings: Structs read from rows by their fields, conditions that listings share, sizes of pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Generic, Literal, NamedTuple, TypeVar, get_args, get_origin
from uuid import UUID

import msgspec

from fairlane.core.ops import MAX_PAGE, Scope
from fairlane.stores.instants import from_us

S = TypeVar("S", bound=msgspec.Struct)

_PLAIN = (int, float, str)


class RowReader(Generic[S]):
    """Reads a Struct from a row that has a column for each of its fields, in their order.

    Instants are kept as microseconds, ids as bytes, tuples, tables and Structs as JSON.
    """

    def __init__(self, of: type[S], *, without: Sequence[str] = ()) -> None:
        fields = [field for field in msgspec.structs.fields(of) if field.name not in without]
        self._of = of
        self._converts = [(field.name, _convert(field.type)) for field in fields]
        self.names = tuple(field.name for field in fields)
        self.columns = ", ".join(self.names)

    def __call__(self, row: Sequence[Any], **more: Any) -> S:
        return self._of(**self.values(row), **more)

    def values(self, row: Sequence[Any]) -> dict[str, Any]:
        return {
            name: value if convert is None or value is None else convert(value)
            for (name, convert), value in zip(self._converts, row, strict=True)
        }


def _convert(kind: Any) -> Callable[[Any], Any] | None:
    """What makes a value of this type from what SQLite keeps; None: the two are the same."""
    parts = [part for part in get_args(kind) if part is not type(None)]
    if len(parts) < len(get_args(kind)):
        [kind] = parts
    kind = getattr(kind, "__supertype__", kind)
    if kind is datetime:
        return from_us
    if kind is UUID:
        return lambda raw: UUID(bytes=raw)
    if kind is bool:
        return bool
    return None if kind in _PLAIN or get_origin(kind) is Literal else msgspec.json.Decoder(kind).decode


class Condition(NamedTuple):
    sql: str
    params: tuple[object, ...]


def equal(*columns: tuple[str, object]) -> list[Condition]:
    """Each column has the value given; None: any."""
    return [Condition(f"{column} = ?", (value,)) for column, value in columns if value is not None]


def bounded(limit: int) -> int:
    return max(1, min(limit, MAX_PAGE))


def in_scope(scope: Scope) -> list[Condition]:
    return [] if scope.tenant is None else [Condition("j.tenant = ?", (scope.tenant,))]


def given_or_own_id(column: str, value: str) -> Condition:
    """A job without the value shows its own id there."""
    try:
        own_id = UUID(value)
    except ValueError:
        own_id = None
    if own_id is None or str(own_id) != value:
        return Condition(f"j.{column} = ?", (value,))
    return Condition(f"(j.{column} = ? or (j.{column} is null and j.id = ?))", (value, own_id.bytes))


def joined(conditions: list[Condition]) -> tuple[str, tuple[object, ...]]:
    where = " and ".join(condition.sql for condition in conditions) or "true"
    return where, tuple(value for condition in conditions for value in condition.params)
