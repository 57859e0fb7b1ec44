"""One face for the two SQLite libraries, with their errors translated by code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol, Self

from fairlane.errors import StoreError, StoreRefused, StoreUnavailable

Library = Literal["apsw", "stdlib"]

Row = tuple[Any, ...]


class Driver(Protocol):
    """A connection: SQL in, rows out. Never begins or commits by itself."""

    library: Library

    def execute(self, sql: str, params: Sequence[object] = ()) -> list[Row]: ...

    def executemany(self, sql: str, rows: Iterable[Sequence[object]]) -> None: ...

    def in_transaction(self) -> bool: ...

    def copy_to(self, other: Self) -> None:
        """Make another database of the same library what this one is."""
        ...

    def close(self) -> None: ...


class Locked(StoreUnavailable):
    """Another connection held the file for longer than we wait: the one error worth another try."""


class Unusable(StoreUnavailable):
    """The file or its disk: it may be true of this connection for ever, as of one made while the file was read-only."""


_UNAVAILABLE = {
    3: "permission denied; check the owner and mode of the file and its directory",
    8: "the file is read-only for this process; check its owner, its mode and its file system",
    10: "the disk reported an error; check the disk and the system log",
    13: "the disk, or the file's page limit, is full; free space and try again",
    14: "the file cannot be opened; check that its directory exists and may be written",
    15: "the locking protocol failed; is the file on a network file system?",
    23: "not authorised by the application's own SQLite authoriser",
}
_LOCKED = {
    5: "another connection, here or in another process, has not ended its transaction",
    6: "another connection in this process holds a table locked",
}
_REFUSED = {
    18: "a value is larger than SQLite takes",
    19: "a constraint was violated",
    20: "a value has the wrong type",
}
_DAMAGED = {11: "the file is damaged", 26: "the file is not a SQLite database"}


def translated(error: Exception, code: int | None) -> StoreError:
    """The typed error for a primary SQLite result code; the library's own words are kept."""
    if code in _LOCKED:
        return Locked("sqlite", f"{_LOCKED[code]} ({error})", "is busy")
    if code in _UNAVAILABLE:
        return Unusable("sqlite", f"{_UNAVAILABLE[code]} ({error})", "cannot be used")
    if code in _REFUSED:
        return StoreRefused("sqlite", f"{_REFUSED[code]} ({error})")
    if code in _DAMAGED:
        return StoreError(f"{_DAMAGED[code]} ({error}); restore it from a backup, or choose another file")
    return StoreError(f"SQLite failed: {error}")


def unstorable(error: Exception) -> StoreRefused:
    """For text with lone surrogates and numbers beyond 64 bits: a library refuses these before SQLite sees them."""
    return StoreRefused(
        "sqlite", f"a value cannot be written as UTF-8 text or a 64-bit number ({error}); nothing was changed"
    )
