"""Translates errors of psycopg and asyncpg into ours, by their codes."""

from __future__ import annotations

import re
from enum import Enum, auto

import psycopg
from psycopg.errors import ConnectionTimeout

from fairlane.errors import NotAdmitted, SchemaConflict, SchemaOutOfDate, StoreError, StoreRefused, StoreUnavailable
from fairlane.stores.postgres.schema import CORE
from fairlane.stores.retries import BUSY as BUSY, Again, Lost

STORE = "postgresql"
UNUSABLE = "cannot be used"


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


_NOT_ADMITTED = re.compile(
    r"password authentication failed|no password supplied|authentication failed for user|no pg_hba\.conf entry|"
    r'(?:database|role) "[^"]*" does not exist|is not permitted to log in|permission denied for database|'
    r"no such (?:database|user)|"
    r'invalid \w+ value: "|bad value for \w+: |invalid (?:integer value|port number)|'
    r"unrecognized configuration parameter"
)
"""What a server, a pooler or libpq answers to a wrong address. libpq gives no code for it, only words."""


def unreachable(error: BaseException) -> StoreUnavailable:
    """No connection could be made: nothing was sent."""
    text = one_line(error)
    return (NotAdmitted if _NOT_ADMITTED.search(text) else StoreUnavailable)(STORE, text)


class Meaning(Enum):
    """What an answer of the server means for the call, and for the session it was made in."""

    AGAIN = auto()
    """The call is undone, and may be sent again in this session."""
    LOST = auto()
    """The session is over: whether the call took effect is unknown."""
    NOT_NOW = auto()
    """Not in this session, or not on this server now: the session is given up, and another may be served."""
    BUSY = auto()
    DENIED = auto()
    DATA = auto()
    SCHEMA = auto()
    IN_THE_WAY = auto()
    ABORTED = auto()


_MEANINGS = {
    "08": Meaning.LOST,
    "22": Meaning.DATA,
    "23": Meaning.DATA,
    "25006": Meaning.NOT_NOW,  # read-only: a standby, or a server that is failing over
    "25P02": Meaning.ABORTED,  # in a transaction that has failed
    "25P03": Meaning.LOST,  # idle in a transaction for too long
    "25P04": Meaning.LOST,  # a transaction for too long
    "3F000": Meaning.SCHEMA,
    "40001": Meaning.AGAIN,  # serialization failure; a standby's conflict with recovery
    "40003": Meaning.LOST,
    "40P01": Meaning.AGAIN,  # deadlock
    "42501": Meaning.DENIED,
    "42883": Meaning.SCHEMA,  # no such function
    "42P01": Meaning.SCHEMA,  # no such table
    "42P06": Meaning.IN_THE_WAY,  # a schema that is there already
    "54": Meaning.DATA,  # beyond a limit of the server
    "55P03": Meaning.BUSY,  # a lock
    "57": Meaning.BUSY,  # cancelled: the statement's timeout
    "57P": Meaning.LOST,  # shutting down, starting up, ended by an administrator
}
"""By the longest prefix of the code. All others, such as 53 out of resources, 55 wrong state, 58 system, 26 and 0A a
prepared statement that is gone or outdated, XX internal: NOT_NOW."""


def meaning_of(state: str) -> Meaning:
    """Of a code of the server."""
    found = (_MEANINGS.get(state[:length]) for length in (5, 3, 2))
    return next((meaning for meaning in found if meaning is not None), Meaning.NOT_NOW)


def translated(error: Exception) -> StoreError | Lost | Again:
    """One of our errors, or `Lost` or `Again`, for an error of psycopg or asyncpg."""
    state: str = getattr(error, "sqlstate", None) or ""
    text = one_line(error)
    if not state:
        if isinstance(error, psycopg.DataError):
            return StoreRefused(STORE, text)
        if isinstance(error, psycopg.OperationalError | ConnectionError):
            return Lost(text)
        return StoreUnavailable(STORE, f"{type(error).__name__}: {text}")
    match meaning_of(state):
        case Meaning.AGAIN:
            return Again(text)
        case Meaning.LOST:
            return Lost(text)
        case Meaning.SCHEMA:
            return SchemaOutOfDate(0, CORE.migrations.needed.expanded, why=text)
        case Meaning.IN_THE_WAY:
            return SchemaConflict(text)
        case Meaning.DATA:
            return StoreRefused(STORE, text)
        case Meaning.ABORTED:
            return StoreError(f"the transaction on this connection has failed before; roll it back first ({text})")
        case Meaning.BUSY:
            advice = "; another transaction holds it: commit or end that one" if state == "55P03" else ""
            return StoreUnavailable(STORE, text + advice, BUSY)
        case Meaning.DENIED:
            return NotAdmitted(STORE, f"{text}; grant this role the schema and its functions", UNUSABLE)
    advice = "; the server or the role is read-only: connect to the primary" if state == "25006" else ""
    return StoreUnavailable(STORE, text + advice, UNUSABLE)
