"""Conditions of listings: scope, filters that several share, and how many rows a page holds."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from fairlane.core.ops import (
    MAX_PAGE,
    Scope,
)


class Condition(NamedTuple):
    sql: str
    params: tuple[object, ...]


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
