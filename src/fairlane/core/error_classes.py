"""What kind of failure an exception is, and so whether trying again can help."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime

from fairlane.core.job import ERROR_CLASSES, ErrorClass
from fairlane.errors import (
    BadInput,
    InvalidOption,
    MissingData,
    NonRetryable,
    QueueFull,
    QueuePaused,
    RateLimited,
    StoreUnavailable,
)

DEFAULTS: Mapping[type[BaseException], ErrorClass] = {
    ConnectionError: "transient",
    TimeoutError: "transient",
    OSError: "transient",
    EOFError: "transient",
    MemoryError: "transient",
    StoreUnavailable: "transient",
    FileNotFoundError: "retryable",
    FileExistsError: "retryable",
    PermissionError: "non_retryable",
    IsADirectoryError: "non_retryable",
    NotADirectoryError: "non_retryable",
    NotImplementedError: "non_retryable",
    BadInput: "non_retryable",
    QueueFull: "rate_limited",
    QueuePaused: "rate_limited",
}
"""Everything else is `retryable`, ValueError, TypeError and KeyError among them: the data that caused them may be
mended and the code redeployed before the last attempt. Only exceptions whose type means "never" are `non_retryable`."""

_VERDICTS: Mapping[type[BaseException], ErrorClass] = {
    RateLimited: "rate_limited",
    NonRetryable: "non_retryable",
    MissingData: "retryable",
}

_GRAVEST_FIRST: tuple[ErrorClass, ...] = ("non_retryable", "rate_limited", "retryable", "transient")
_MOST_LEAVES = 100


class Classifier:
    """Maps exceptions to error classes.

    In this order: what task code said itself, the task's overrides, the application's, the HTTP status the
    exception carries, the defaults. Within one of them the nearest class in the exception's ancestry wins.
    """

    def __init__(self, overrides: Mapping[type[BaseException], ErrorClass] | None = None) -> None:
        self._layers: tuple[Mapping[type[BaseException], ErrorClass], ...] = (_checked(overrides or {}),)

    def extended(self, overrides: Mapping[type[BaseException], ErrorClass]) -> Classifier:
        """The same, with these looked at first: a task's own."""
        extended = Classifier(overrides)
        extended._layers += self._layers
        return extended

    def classify(self, exc: BaseException) -> ErrorClass:
        """The error class; a group of exceptions counts as its gravest member."""
        if isinstance(exc, BaseExceptionGroup):
            found = {self._classify_one(leaf) for leaf in _leaves(exc)}
            return next((kind for kind in _GRAVEST_FIRST if kind in found), "retryable")
        return self._classify_one(exc)

    def _classify_one(self, exc: BaseException) -> ErrorClass:
        for layer in (_VERDICTS, *self._layers):
            if found := _nearest_class(exc, layer):
                return found
        return _by_status(http_status(exc)) or _nearest_class(exc, DEFAULTS) or "retryable"


def http_status(exc: BaseException) -> int | None:
    """The HTTP status an exception carries, whichever client library raised it."""
    for holder in (_attribute(exc, "response"), exc):
        for name in ("status_code", "status"):
            value = _attribute(holder, name)
            if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599:
                return int(value)
    return None


def retry_after(exc: BaseException, now: datetime | None = None) -> float | None:
    """Seconds the other side asked us to wait, if it did; an HTTP date needs `now`."""
    if isinstance(exc, RateLimited):
        return _seconds(exc.retry_after)
    for holder in (_attribute(exc, "response"), exc):
        headers = _attribute(holder, "headers")
        for name in ("Retry-After", "retry-after"):
            # Any mapping may stand here, and it belongs to somebody else: it must not break the settling of a job.
            with suppress(BaseException):
                if (value := headers.get(name)) is not None:  # type: ignore[attr-defined]
                    return _seconds(value) if now is None else _seconds(value, now)
    return None


def _seconds(value: object, now: datetime | None = None) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value) if 0 <= value < math.inf else None
    if not isinstance(value, str) or len(value) > 64:
        return None
    if value.strip().isdecimal():
        return float(value)
    return _until(value, now) if now is not None else None


def _until(http_date: str, now: datetime) -> float | None:
    from email.utils import parsedate_to_datetime

    try:
        instant = parsedate_to_datetime(http_date)
    except ValueError:
        return None
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    return max((instant - now).total_seconds(), 0.0)


def _by_status(status: int | None) -> ErrorClass | None:
    if status is None or status < 400:
        return None
    if status == 429:
        return "rate_limited"
    return "transient" if status == 408 or status >= 500 else "non_retryable"


def _nearest_class(exc: BaseException, layer: Mapping[type[BaseException], ErrorClass]) -> ErrorClass | None:
    return next((layer[kind] for kind in type(exc).__mro__ if kind in layer), None)


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    waiting: list[BaseException] = [group]
    for _ in range(_MOST_LEAVES):
        if not waiting:
            return
        exc = waiting.pop()
        if isinstance(exc, BaseExceptionGroup):
            waiting.extend(exc.exceptions)
        else:
            yield exc


def _attribute(holder: object, name: str) -> object:
    # A property of a foreign exception may raise anything, SystemExit too; a failed look is no answer.
    with suppress(BaseException):
        return getattr(holder, name, None)
    return None


def _checked(overrides: Mapping[type[BaseException], ErrorClass]) -> Mapping[type[BaseException], ErrorClass]:
    given: list[tuple[object, object]] = list(overrides.items())
    for kind, error_class in given:
        if not isinstance(kind, type) or not issubclass(kind, BaseException):
            raise InvalidOption("error class of", kind, "an exception class")
        if error_class not in ERROR_CLASSES:
            raise InvalidOption(f"error class of {kind.__name__}", error_class, "one of " + ", ".join(ERROR_CLASSES))
    return dict(overrides)
