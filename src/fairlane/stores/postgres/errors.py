"""Translates errors of psycopg and asyncpg into ours, by their codes."""

from __future__ import annotations

import psycopg
from psycopg.errors import ConnectionTimeout

from fairlane.errors import SchemaOutOfDate, StoreError, StoreRefused, StoreUnavailable
from fairlane.stores.postgres.schema import CORE
from fairlane.stores.retries import Again, Lost

STORE = "postgresql"
BUSY, UNUSABLE = "is busy", "cannot be used"


class NoAnswer(psycopg.OperationalError):
    """The server, or the way to it, has gone silent."""


SILENCES = (NoAnswer, ConnectionTimeout)
"""What a driver raises where no answer came in time."""


def one_line(error: BaseException) -> str:
    """The server's own words with its detail and hint; not the CONTEXT, which quotes the SQL of our functions."""
    diagnosis = getattr(error, "diag", None)
    primary = getattr(diagnosis, "message_primary", None)
    if primary is None:
        return " ".join(str(error).split()) or type(error).__name__
    parts = [primary, getattr(diagnosis, "message_detail", None), getattr(diagnosis, "message_hint", None)]
    return " ".join("; ".join(part for part in parts if part).split())


def unreachable(error: BaseException) -> StoreUnavailable:
    return StoreUnavailable(STORE, one_line(error))


def translated(error: Exception) -> StoreError | Lost | Again:
    """One of our errors, or `Lost` or `Again`, for an error of psycopg or asyncpg."""
    state: str = getattr(error, "sqlstate", None) or ""
    text = one_line(error)
    if state in ("40001", "40P01"):  # serialization failure, deadlock
        return Again(text)
    if state in ("42883", "42P01", "3F000"):  # no such function, table, schema
        return SchemaOutOfDate(0, CORE.migrations.needed.expanded)
    if state.startswith(("57P", "08")) or _has_lost_its_connection(error, state):
        return Lost(text)
    if state == "25006":
        return StoreUnavailable(STORE, f"{text}; the server or the role is read-only: connect to the primary", UNUSABLE)
    if state == "25P02":
        return StoreError(f"the transaction on this connection has failed before; roll it back first ({text})")
    if state == "42501":
        return StoreUnavailable(STORE, f"{text}; grant this role the schema and its functions", UNUSABLE)
    if state.startswith(("22", "23", "54")) or isinstance(error, psycopg.DataError):
        return StoreRefused(STORE, text)
    if state == "55P03":
        return StoreUnavailable(STORE, f"{text}; another transaction holds it: commit or end that one", BUSY)
    if state.startswith("57"):  # cancelled: the statement's timeout
        return StoreUnavailable(STORE, text, BUSY)
    if state.startswith(("53", "55", "58")):  # out of resources, in the wrong state, system
        return StoreUnavailable(STORE, text, UNUSABLE)
    return StoreUnavailable(STORE, f"{type(error).__name__}: {text}", UNUSABLE if state else "cannot be reached")


def _has_lost_its_connection(error: object, state: str) -> bool:
    return not state and isinstance(error, psycopg.OperationalError | ConnectionError)
