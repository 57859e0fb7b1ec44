"""Whatever a task leaves behind, its job settles."""

from __future__ import annotations

from typing import Any, NoReturn

import msgspec
import pytest
from hypothesis import given, strategies as st

from fairlane.core.payload.storable import (
    UnstorableResult,
    clean_text,
    encode_result,
    failure,
    fingerprint,
    format_traceback,
    safe_str,
    type_name,
)
from fairlane.errors import NonRetryable


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    def __repr__(self) -> str:
        raise RuntimeError("no words at all")


class Mumbling(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    def __repr__(self) -> str:
        return "Mumbling(…)"


class Odd(str):
    __slots__ = ()

    def __getitem__(self, _: object) -> NoReturn:
        raise RuntimeError("hands off")

    def __len__(self) -> NoReturn:
        raise RuntimeError("hands off")


def raised(exc: BaseException) -> BaseException:
    try:
        raise exc
    except BaseException as caught:
        return caught


@given(st.text(st.characters(), max_size=300), st.integers(1, 200))
def test_cleaned_text_can_be_stored_anywhere_and_fits(text: str, limit: int) -> None:
    cleaned = clean_text(text, limit)
    assert "\x00" not in cleaned
    assert cleaned.encode().decode() == cleaned
    assert len(cleaned) <= limit


def test_good_text_is_left_alone_and_long_text_keeps_both_ends() -> None:
    assert clean_text("all is well ✓", 100) == "all is well ✓"
    cut = clean_text("begin " + "x" * 5000 + " end", 200)
    assert cut.startswith("begin")
    assert cut.endswith(" end")
    assert "4,810 more characters" in cut
    assert clean_text("a\x00b\ud800c", 10) == "a\ufffdb\ufffdc"


@pytest.mark.parametrize(
    ("exc", "expected"),
    [
        (ValueError("plain"), "plain"),
        (Mumbling(), "Mumbling(…)"),
        (Unspeakable(), "whose str() raises"),
        (ValueError("a\x00\ud800"), "a\ufffd\ufffd"),
        (ValueError(Odd("odd")), "odd"),
    ],
    ids=["plain", "repr only", "neither", "unstorable", "hostile str"],
)
def test_every_exception_has_words(exc: BaseException, expected: str) -> None:
    assert expected in safe_str(exc)


@pytest.mark.requirement("W8")
def test_fifty_megabytes_of_error_text_become_two_thousand_characters() -> None:
    exc = raised(ValueError("x" * 50_000_000))
    what = failure(exc, "retryable", "mail.send")
    assert len(what.message) == 2000
    assert len(what.traceback or "") <= 16_384


@given(st.text(st.characters(), max_size=100))
def test_a_failure_is_always_storable_json(message: str) -> None:
    what = failure(raised(ValueError(message)), "retryable", "mail.send")
    text = msgspec.json.encode(what)
    assert b"\\u0000" not in text.replace(b"\\\\", b"")
    assert msgspec.json.decode(text, type=type(what)) == what


def test_a_traceback_shows_the_causes_and_where_but_no_local_values() -> None:
    def inner(secret: str) -> None:
        raise KeyError("inner")

    try:
        try:
            inner("hunter2-" + "x" * 3)
        except KeyError as error:
            raise ValueError("outer") from error
    except ValueError as caught:
        text = format_traceback(caught)
    assert text.index("KeyError: 'inner'") < text.index("direct cause") < text.index("ValueError: outer")
    assert "in inner" in text
    assert "hunter2-xxx" not in text


def test_a_chain_of_causes_that_leads_back_to_itself_ends() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    text = format_traceback(first)
    assert text.count("ValueError: first") == 1
    assert text.count("ValueError: second") == 1


def test_endless_chains_groups_and_recursion_stay_within_the_limit() -> None:
    exc: BaseException = ValueError("0")
    for n in range(5000):
        newer = ValueError(str(n))
        newer.__context__ = exc
        exc = newer
    assert len(format_traceback(exc)) <= 16_384

    group = ExceptionGroup("many", [ValueError("x" * 10_000) for _ in range(1000)])
    assert "ValueError: xxx" in format_traceback(group)

    def deeper() -> None:
        deeper()

    with pytest.raises(RecursionError) as caught:
        deeper()
    assert "RecursionError" in format_traceback(caught.value)


def test_an_unspeakable_exception_still_has_a_traceback() -> None:
    assert "Unspeakable" in format_traceback(raised(Unspeakable()))


def test_types_are_named_with_their_module_unless_everybody_knows_them() -> None:
    assert type_name(ValueError()) == "ValueError"
    assert type_name(NonRetryable()) == "NonRetryable"
    assert type_name(Unspeakable()).endswith("test_storable.Unspeakable")
    assert len(type_name(type("X" * 1000, (Exception,), {})())) <= 200


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("user 17 not found", "user 900001 not found"),
        ("no row 018f2c1e-9b5a-7cc3-98c4-dc0c0c07398f", "no row 11111111-2222-3333-4444-555555555555"),
        ("<Conn object at 0x7f3a2c>", "<Conn object at 0x7fffff0011>"),
        ("no key 'alice'", "no key 'bob'"),
        ('file "a.txt" is gone', 'file "b/c.txt" is gone'),
        ("commit deadbeef1 failed", "commit 0123456789abcdef failed"),
        ("took 1.5 s at 10:22:01", "took 22.75 s at 23:59:59"),
    ],
)
def test_failures_that_differ_only_in_values_are_grouped(one: str, other: str) -> None:
    assert fingerprint("ValueError", one, "t") == fingerprint("ValueError", other, "t")


def test_failures_of_another_kind_are_kept_apart() -> None:
    prints = {
        fingerprint("ValueError", "user 1 not found", "t"),
        fingerprint("KeyError", "user 1 not found", "t"),
        fingerprint("ValueError", "order 1 not found", "t"),
        fingerprint("ValueError", "user 1 not found", "other"),
        fingerprint("ValueError", "I can't read it, it's gone", "t"),
        fingerprint("ValueError", "I can't write it, it's gone", "t"),
    }
    assert len(prints) == 6
    assert all(len(each) == 16 for each in prints)


@given(st.text(st.characters(), max_size=2000))
def test_any_message_has_a_fingerprint(message: str) -> None:
    assert int(fingerprint("E", message, "t"), 16) >= 0


@pytest.mark.requirement("W7")
@pytest.mark.parametrize("result", [None, 0, False, "", [], {"a": [1, None]}, "text", 3.5])
def test_results_of_every_json_kind_are_stored(result: Any) -> None:
    assert msgspec.json.decode(encode_result(result)) == result


@pytest.mark.parametrize(
    "result",
    [
        *(float("nan"), [float("inf")], object(), {"a": object(), "b": "\x00"}, 10**301, "x" * 1_100_000),
        *("a\x00b", {"name\x00": 1}, ["\ud800"], ("x", {"y": "\udfff"})),
    ],
)
def test_a_result_that_cannot_be_kept_exactly_is_refused_with_the_reason(result: Any) -> None:
    with pytest.raises(UnstorableResult) as refused:
        encode_result(result)
    assert refused.value.problems
