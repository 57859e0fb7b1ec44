"""Which failures are worth another try."""

from __future__ import annotations

import asyncio
import socket
import ssl
import urllib.error
from datetime import timedelta
from email.message import Message
from typing import Any

import pytest

from fairlane.core.error_classes import Classifier, http_status, retry_after
from fairlane.errors import (
    InvalidOption,
    InvalidPayload,
    MissingData,
    NonRetryable,
    QueueFull,
    RateLimited,
    StoreUnavailable,
)
from fairlane.testing.conformance.samples import NOON


class Response:
    def __init__(self, status_code: int, headers: dict[str, str] | None = None) -> None:
        self.status_code, self.headers = status_code, headers or {}


class ResponseError(Exception):
    """As httpx and requests raise it."""

    def __init__(self, status_code: int, headers: dict[str, str] | None = None) -> None:
        self.response = Response(status_code, headers)
        super().__init__(f"HTTP {status_code}")


class StatusError(Exception):
    """As aiohttp raises it."""

    def __init__(self, status: int, headers: dict[str, str] | None = None) -> None:
        self.status, self.headers = status, headers or {}
        super().__init__(f"HTTP {status}")


class Untouchable(Exception):
    @property
    def response(self) -> object:
        raise RuntimeError("not for you")

    @property
    def headers(self) -> object:
        raise KeyError("nor this")


@pytest.mark.requirement("W9")
@pytest.mark.parametrize(
    ("exc", "expected"),
    [
        (ConnectionResetError("gone"), "transient"),
        (TimeoutError(), "transient"),
        (socket.gaierror("no such host"), "transient"),
        (ssl.SSLError("handshake"), "transient"),
        (asyncio.IncompleteReadError(b"", 4), "transient"),
        (MemoryError(), "transient"),
        (StoreUnavailable("postgresql", "refused"), "transient"),
        (OSError(28, "no space left"), "transient"),
        (FileNotFoundError("not yet"), "retryable"),
        (ValueError("odd"), "retryable"),
        (TypeError("odd"), "retryable"),
        (KeyError("odd"), "retryable"),
        (ZeroDivisionError(), "retryable"),
        (RuntimeError("unknown"), "retryable"),
        (SystemExit(3), "retryable"),
        (MissingData(), "retryable"),
        (PermissionError("no"), "non_retryable"),
        (NotImplementedError(), "non_retryable"),
        (NonRetryable("never"), "non_retryable"),
        (InvalidPayload("mail.send", ["bad"]), "non_retryable"),
        (RateLimited(), "rate_limited"),
        (QueueFull(10, 10), "rate_limited"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else value,
)
def test_common_exceptions_have_sensible_classes(exc: BaseException, expected: str) -> None:
    assert Classifier().classify(exc) == expected


@pytest.mark.requirement("W9")
@pytest.mark.parametrize("kind", [ResponseError, StatusError])
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (429, "rate_limited"),
        (408, "transient"),
        (500, "transient"),
        (503, "transient"),
        (400, "non_retryable"),
        (404, "non_retryable"),
    ],
)
def test_an_http_status_tells_the_class_whatever_library_raised_it(kind: Any, status: int, expected: str) -> None:
    assert Classifier().classify(kind(status)) == expected


def test_the_standard_librarys_http_error_is_seen_by_its_status_not_as_an_os_error() -> None:
    error = urllib.error.HTTPError("http://localhost/", 404, "gone", Message(), None)
    assert Classifier().classify(error) == "non_retryable"
    error.close()


@pytest.mark.requirement("W9")
def test_the_application_and_then_the_task_override_the_defaults() -> None:
    app = Classifier({OSError: "non_retryable", LookupError: "rate_limited"})
    task = app.extended({KeyError: "transient"})
    assert app.classify(ConnectionResetError()) == "non_retryable"
    assert app.classify(KeyError("x")) == "rate_limited"
    assert task.classify(KeyError("x")) == "transient"
    assert task.classify(IndexError()) == "rate_limited"
    assert app.classify(KeyError("x")) == "rate_limited", "extending leaves the application's own as it was"


def test_within_one_map_the_nearest_class_wins() -> None:
    classifier = Classifier({Exception: "non_retryable", ConnectionError: "rate_limited"})
    assert classifier.classify(ConnectionRefusedError()) == "rate_limited"
    assert classifier.classify(ValueError()) == "non_retryable"


def test_what_task_code_says_by_a_signal_stands_above_every_override() -> None:
    classifier = Classifier({Exception: "transient"})
    assert classifier.classify(NonRetryable("never")) == "non_retryable"
    assert classifier.classify(RateLimited()) == "rate_limited"


def test_an_override_stands_above_an_http_status() -> None:
    assert Classifier({ResponseError: "retryable"}).classify(ResponseError(404)) == "retryable"


def test_a_group_counts_as_its_gravest_member() -> None:
    classify = Classifier().classify
    assert classify(ExceptionGroup("both", [ConnectionResetError(), TimeoutError()])) == "transient"
    assert classify(ExceptionGroup("both", [ConnectionResetError(), ValueError()])) == "retryable"
    nested = ExceptionGroup("deep", [ExceptionGroup("in", [RateLimited()]), ValueError()])
    assert classify(nested) == "rate_limited"
    assert classify(ExceptionGroup("both", [nested, NonRetryable("no")])) == "non_retryable"


def test_an_exception_whose_attributes_raise_is_still_classified() -> None:
    assert Classifier().classify(Untouchable()) == "retryable"
    assert retry_after(Untouchable()) is None


@pytest.mark.parametrize("status", [True, "503", 99, 600, None, 3.5])
def test_what_is_not_an_http_status_is_not_taken_for_one(status: Any) -> None:
    assert http_status(StatusError(status)) is None


@pytest.mark.parametrize(
    "overrides", [{"ValueError": "transient"}, {int: "transient"}, {ValueError: "sometimes"}], ids=str
)
def test_a_wrong_override_is_refused_when_it_is_given(overrides: Any) -> None:
    with pytest.raises(InvalidOption):
        Classifier(overrides)


@pytest.mark.requirement("W9")
@pytest.mark.parametrize(
    ("exc", "expected"),
    [
        (RateLimited(retry_after=12.5), 12.5),
        (RateLimited(retry_after=-1), None),
        (RateLimited(retry_after=float("nan")), None),
        (RateLimited(retry_after=float("inf")), None),
        (RateLimited(), None),
        (ResponseError(429, {"Retry-After": "120"}), 120.0),
        (ResponseError(503, {"retry-after": " 7 "}), 7.0),
        (StatusError(429, {"Retry-After": "3"}), 3.0),
        (ResponseError(429, {"Retry-After": "soon"}), None),
        (ResponseError(429, {"Retry-After": "9" * 100}), None),
        (ResponseError(429), None),
        (ValueError(), None),
    ],
)
def test_the_servers_retry_after_is_read(exc: BaseException, expected: float | None) -> None:
    assert retry_after(exc, NOON) == expected


def test_a_retry_after_given_as_a_date_counts_from_now() -> None:
    at = (NOON + timedelta(seconds=90)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    assert retry_after(ResponseError(503, {"Retry-After": at}), NOON) == 90
    past = (NOON - timedelta(days=1)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    assert retry_after(ResponseError(503, {"Retry-After": past}), NOON) == 0
