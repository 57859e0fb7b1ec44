"""Payloads on their way in and out."""

from __future__ import annotations

import dataclasses
import enum
import math
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given, strategies as st

from fairlane.core.payload.codec import decode, encode, encode_plain, encode_value, is_plain, size_warning
from fairlane.core.payload.json_scan import ScanLimits, scan
from fairlane.errors import InvalidPayload

safe_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
any_text = st.text(st.characters(), max_size=20)
leaves = st.none() | st.booleans() | st.integers(-(10**60), 10**60) | st.floats(allow_nan=False, allow_infinity=False)


def objects(texts: st.SearchStrategy[str], leaf: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    inner = st.recursive(
        leaf | texts, lambda each: st.lists(each, max_size=4) | st.dictionaries(texts, each, max_size=4), max_leaves=12
    )
    return st.dictionaries(texts, inner, max_size=5)


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Address:
    zip_code: str
    city: str


class Person(msgspec.Struct):
    name: str
    born: date


class Order(pydantic.BaseModel):
    id: UUID
    total: Decimal


@given(objects(safe_text, leaves))
def test_a_payload_comes_back_exactly_as_it_went_in(payload: dict[str, Any]) -> None:
    text = encode(payload)
    assert decode(text) == payload
    assert decode(bytes(text).decode()) == payload
    assert bytes(encode(decode(text))) == bytes(text), "written again it is the same, byte for byte"
    assert scan(bytes(text)) == []


@given(objects(any_text, leaves | st.floats()))
def test_whatever_is_accepted_is_kept_exactly_and_the_rest_is_refused(payload: dict[str, Any]) -> None:
    try:
        text = bytes(encode(payload))
    except InvalidPayload as error:
        text, problems = b"", error.problems
    else:
        problems = ()
    assert bool(text) != bool(problems)
    assert all(map(str.isprintable, problems))
    assert not text or decode(text) == payload
    assert b"\\u0000" not in text.replace(b"\\\\", b"")


def test_the_sign_of_zero_and_every_bit_of_a_float_survive() -> None:
    back = decode(encode({"a": -0.0, "b": 0.1 + 0.2, "c": 5e-324, "d": 1.7976931348623157e308}))
    assert math.copysign(1, back["a"]) == -1
    assert (back["b"], back["c"], back["d"]) == (0.1 + 0.2, 5e-324, sys.float_info.max)


def test_equal_payloads_give_equal_text_whatever_their_order() -> None:
    assert bytes(encode({"b": {"y": 1, "x": {3, 1, 2}}, "a": 2})) == b'{"a":2,"b":{"x":[1,2,3],"y":1}}'


@pytest.mark.requirement("L3")
def test_typed_values_are_taken_as_the_json_they_stand_for() -> None:
    text = encode(
        {
            "address": Address("10115", "Berlin"),
            "at": datetime(2026, 3, 1, 12, tzinfo=UTC),
            "colour": Colour.RED,
            "order": Order(id=UUID(int=7), total=Decimal("1.10")),
            "orders": [Order(id=UUID(int=8), total=Decimal(2))],
            "person": Person("Ada", date(1815, 12, 10)),
            "scores": {7: 0.5},
        }
    )
    assert decode(text) == {
        "address": {"city": "Berlin", "zip_code": "10115"},
        "at": "2026-03-01T12:00:00Z",
        "colour": "red",
        "order": {"id": "00000000-0000-0000-0000-000000000007", "total": "1.10"},
        "orders": [{"id": "00000000-0000-0000-0000-000000000008", "total": "2"}],
        "person": {"born": "1815-12-10", "name": "Ada"},
        "scores": {"7": 0.5},
    }


def test_a_model_as_the_whole_payload_is_taken_too() -> None:
    assert decode(encode(Person("Ada", date(1815, 12, 10)))) == {"name": "Ada", "born": "1815-12-10"}


class Looping(pydantic.BaseModel):
    def model_dump(self, **_: Any) -> dict[str, Any]:
        raise RuntimeError("dump went wrong")


def itself() -> dict[str, Any]:
    loop: dict[str, Any] = {}
    loop["me"] = loop
    return loop


def nested(levels: int) -> dict[str, Any]:
    inner: Any = 1
    for _ in range(levels):
        inner = [inner]
    return {"a": inner}


@pytest.mark.requirement("W3")
@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        ({"a": float("nan")}, "$.a: nan has no place in JSON"),
        ({"a": [None, {"b": float("-inf")}]}, "$.a[1].b: -inf"),
        ({"p": msgspec.structs.replace(Person("x", date(2000, 1, 1)), name=float("nan"))}, "$.p.name: nan"),
        ({"a": "x\x00"}, "$.a: text holds a NUL"),
        ({"a\x00": 1}, "NUL"),
        ({"a": "\ud800"}, "$.a: a lone surrogate"),
        ({"\udfff": 1}, "a lone surrogate"),
        ({"a": object()}, "$.a: objects of type object cannot be stored"),
        ({"a": 10**300}, "$.a: a number of 301 digits"),
        ({"a": 10**5000}, "$.a: a number of more than 300 digits"),
        ({"a": {1: 2, "1": 3}}, "$.a.1: this key comes twice"),
        ({"a": {(1, 2): 3}}, "a key is tuple, expected text"),
        ({"a": {None: 3}}, "a key is NoneType, expected text"),
        ({"a": Looping()}, "$.a: dump went wrong"),
        (itself(), "nested deeper than 64 levels, or refers to itself"),
        (nested(64), "nested deeper than 64 levels"),
        (nested(100_000), "nested deeper than 64 levels"),
        ({"a": "x" * 1_048_576}, "more than the 1,048,576 allowed"),
        ({"a": {str(n): n for n in range(10_001)}}, "$.a: more than 10,000 keys"),
        ([1], "expected one object"),
        (None, "expected one object"),
        ("text", "expected one object"),
        ({"a": msgspec.Raw(b"{broken")}, "expected a key in quotes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_kept_is_refused_with_its_path(payload: object, problem: str) -> None:
    with pytest.raises(InvalidPayload) as refused:
        encode(payload, task="mail.send")
    assert any(problem in each for each in refused.value.problems), refused.value.problems
    assert refused.value.task == "mail.send"


@pytest.mark.requirement("W2")
def test_all_problems_of_a_payload_come_at_once() -> None:
    with pytest.raises(InvalidPayload) as refused:
        encode({"a": float("nan"), "b": ["\ud800", "\x00"], "c": object(), "d": 10**301})
    assert [each.split(":")[0] for each in refused.value.problems] == ["$.a", "$.b[0]", "$.b[1]", "$.c", "$.d"]


@pytest.mark.requirement("W3")
def test_a_heavy_payload_is_warned_about_and_a_light_one_is_not() -> None:
    heavy, light = encode({"a": "x" * 10_240}), encode({"a": "x" * 10_000})
    assert "10,248 bytes, more than the recommended 10,240" in (size_warning(heavy) or "")
    assert size_warning(light) is None
    assert size_warning(light, ScanLimits(warn_bytes=100)) is not None


@pytest.mark.parametrize(
    "row",
    ["", "null", "[1]", "{", '{"a":1,"a":2}', '{"a":"\\u0000"}', '{"a":1e999}', "[" * 100_000, '{"a":"\ud800"}'],
    ids=lambda row: row[:20].encode("unicode_escape").decode(),
)
def test_a_row_written_straight_by_sql_that_breaks_the_rules_raises_one_clear_error(row: str) -> None:
    with pytest.raises(InvalidPayload):
        decode(row)


def test_a_row_written_straight_by_sql_in_another_style_is_read() -> None:
    assert decode('{ "b" : 1.50, "a":"\\u00e9\\ud83d\\ude00" }') == {"b": 1.5, "a": "é😀"}


@pytest.mark.parametrize(
    "payload",
    [
        {"py/object": "os.system", "py/reduce": ["id"]},
        {"__class__": "subprocess.Popen", "args": ["id"]},
        {"exc_module": "os", "exc_type": "system", "exc_message": ["id"]},
        {"__reduce__": "posix.system"},
        {"yaml": "!!python/object/apply:os.system ['id']"},
    ],
    ids=lambda payload: next(iter(payload)),
)
def test_nothing_a_payload_says_is_ever_imported_or_called(payload: dict[str, Any]) -> None:
    before = set(sys.modules)
    assert decode(encode(payload)) == payload
    assert set(sys.modules) == before


pieces = st.sampled_from(
    [
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        '"',
        "\\",
        '"a"',
        '"b"',
        '"a":',
        '"b":',
        "1",
        "null",
        " ",
        "\\u0000",
        "9" * 400,
        "\ud800",
    ]
)


@given(
    st.lists(pieces, max_size=12).map("".join) | st.builds("{{{}:1,{}:2}}".format, pieces, pieces), st.integers(0, 3)
)
def test_what_looks_plain_and_reads_as_so_many_keys_has_nothing_wrong_with_it(text: str, keys: int) -> None:
    """A worker reads such a text straight away: one read for all arguments that a task needs."""
    if not is_plain(text, keys):
        return
    try:
        read = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError):
        return
    if len(read) == keys:
        assert scan(text.encode()) == []


def test_plain_is_what_most_jobs_have() -> None:
    assert is_plain('{"n":1,"name":"Ann Lee","rate":-1.5e3,"is_new":true}', 4)
    assert not is_plain('{"n":1,"n":2}', 1)
    assert not is_plain('{"n":{"m":1}}', 2)
    assert not is_plain('{"n":"' + "9" * 301 + '"}', 1)
    assert not is_plain('{"n":1}', 1, ScanLimits(max_bytes=5))


@given(st.lists(objects(any_text, leaves), min_size=1, max_size=4), st.booleans())
def test_several_looked_at_together_are_written_as_each_by_itself(values: list[dict[str, Any]], odd: bool) -> None:
    limits = ScanLimits(max_depth=3, max_keys=2, max_digits=3, max_bytes=40) if odd else ScanLimits()
    one_by_one = [encode_value(value, limits=limits) for value in values]
    together = encode_plain(values, limits)
    if together is not None:
        assert [(text, []) for text in together[0]] == one_by_one
        assert msgspec.json.decode(together[1]) == [msgspec.json.decode(text) for text in together[0]]


@pytest.mark.parametrize(
    "odd",
    [
        {"a": math.nan},
        {"a": "\0"},
        {"a": "\ud800"},
        {"a": 10**400},
        {"a": object()},
        {"a": msgspec.Raw(b"1},{}")},
        {"a": msgspec.Raw(b'1,"a":2')},
        {1: "a", "1": "b"},
        {"a": [[[[[[[[[[[]]]]]]]]]]] * 70},
    ],
    ids=("nan", "nul", "surrogate", "digits", "object", "two values", "key twice", "keys alike", "deep"),
)
def test_one_odd_value_among_several_is_left_to_the_closer_look(odd: dict[Any, Any]) -> None:
    limits = ScanLimits(max_depth=10)
    assert encode_plain([{"a": 1, "b": None}, {"a": 2}], limits) is not None
    assert encode_plain([{"a": 1}, odd, {"a": 2}], limits) is None


def test_texts_that_make_up_for_each_other_are_not_taken() -> None:
    values = [{"a": msgspec.Raw(b'"x')}, {"": msgspec.Raw(b',"b":1')}, {"a": msgspec.Raw(b"1},{}")}]
    assert encode_plain(values) is None
