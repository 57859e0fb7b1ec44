"""Translates errors of redis-py into ours, by their class and the server's own code."""

from __future__ import annotations

import redis.exceptions as their

from fairlane.errors import NotAdmitted, StoreError, StoreUnavailable
from fairlane.stores.retries import Again, Lost

STORE = "redis"
UNUSABLE = "cannot be used"
SILENCES = (their.TimeoutError,)
"""What redis-py raises where no answer came in time."""

_NOTHING_DONE = ("BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "READONLY", "TRYAGAIN")
"""What a server answers while it starts, fails over or moves our slot: it has done nothing of the call."""
_NOT_ADMITTED = {
    "NOAUTH": "it asks for a password; put it into the url",
    "WRONGPASS": "it does not know this user and password",
    "NOPERM": "this user lacks a right; docs/reference/redis-keys.md lists what is needed",
    "DENIED": "it takes connections from its own machine only",
}
_NOT_NOW = {
    "OOM": "its memory is full; raise maxmemory, or let retention remove more",
    "MISCONF": "it cannot write to its disk; free space there",
    "NOREPLICAS": "too few of its replicas answer (min-replicas-to-write)",
}


class Moved(Again):
    """Another node of the cluster serves our slot."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(f"our slot has moved to {host}:{port}")
        self.host, self.port = host, port


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def unreachable(error: BaseException) -> StoreUnavailable:
    """No connection could be made: nothing was sent."""
    text = one_line(error)
    if "DB index is out of range" in text:  # a plain ERR
        return NotAdmitted(STORE, text)
    return _unusable(text, _code(error)) or StoreUnavailable(STORE, text)


def _unusable(text: str, code: str) -> StoreUnavailable | None:
    """For an answer that names one of our codes; Redis 6.2 wraps those of commands in a script."""
    for kind, table in ((NotAdmitted, _NOT_ADMITTED), (StoreUnavailable, _NOT_NOW)):
        for name, advice in table.items():
            if code == name or f"-{name} " in text:
                return kind(STORE, f"{text}; {advice}", UNUSABLE)
    return None


def _code(error: BaseException) -> str:
    """The server's own code. Before release 8, redis-py keeps it out of the errors that it has classes for."""
    if isinstance(error, their.NoPermissionError):
        return "NOPERM"
    if isinstance(error, their.OutOfMemoryError):
        return "OOM"
    if isinstance(error, their.AuthenticationError):
        return "NOAUTH" if "required" in str(error) else "WRONGPASS"
    return str(getattr(error, "status_code", None) or one_line(error).partition(" ")[0])


def translated(error: Exception) -> StoreError | Lost | Again:
    """One of our errors, or `Lost` or `Again`, for an error of redis-py on an open connection."""
    text = one_line(error)
    if isinstance(error, their.MovedError | their.AskError):
        return Moved(error.host, error.port)
    if isinstance(error, their.ConnectionError | their.TimeoutError) and not isinstance(
        error, their.BusyLoadingError | their.AuthenticationError | their.AuthorizationError
    ):
        return Lost(text)
    code = _code(error)
    if code in _NOTHING_DONE or isinstance(error, their.BusyLoadingError | their.ReadOnlyError):
        return Again(text)
    if any(f" -{name} " in text for name in _NOTHING_DONE):  # Redis 6.2 wraps what a command of a script is answered
        return Again(text)
    return _unusable(text, code) or StoreError(f"Redis failed: {text}")
