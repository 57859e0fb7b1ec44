"""The quick look over a payload's text clears nothing that the walk over its values finds."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings, strategies as st

from fairlane.core.payload.codec import encode_plain, encode_value
from fairlane.core.payload.secrets import _TELLING, find, is_clean
from tests.support.leaks import KEYS, LEAKS
from tests.unit.test_secrets import CARDS, HARMLESS_NAMES, SENSITIVE_NAMES, TELLING

pytestmark = pytest.mark.requirement("W3")

ODD = [*'"\\:,{}[]/@ -_.\n\t\x1f\x7f', "é", "ß", "\u2028", '":', '\\"', "value", "val", "name", "subject", "to"]
names = st.one_of(
    st.sampled_from([*SENSITIVE_NAMES, *HARMLESS_NAMES, *ODD]),
    st.lists(st.sampled_from([*SENSITIVE_NAMES, *HARMLESS_NAMES, *ODD]), max_size=4).map("".join),
)
telling = st.one_of(
    st.from_regex(re.compile(_TELLING.pattern, re.VERBOSE | re.ASCII)),
    st.sampled_from([*CARDS, *KEYS, *TELLING.values(), *(leak.format(x="S3cret77") for leak in LEAKS)]),
)
texts = st.one_of(names, telling, st.text(max_size=20), st.tuples(names, telling, names).map("".join))
values = st.recursive(
    st.one_of(texts, st.integers(10**11, 10**19), st.sampled_from([4111111111111111, 7, None, True, 1.5])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(names, inner, max_size=3),
        st.lists(st.tuples(names, inner), max_size=2),
    ),
    max_leaves=6,
)


def cleared(payload: object) -> bool:
    text, _ = encode_value(payload)
    return text is not None and is_clean(text)


@given(payload=st.dictionaries(names, values, max_size=4))
@settings(max_examples=400)
@example(payload={'x"pin': "1234", 'a\\"password': "x"})
@example(payload={"x\npassword": "x"})
@example(payload={":password": "x", "a": ":password"})
@example(payload={"a": "\n4111111111111111"})
@example(payload={"documents": [{"content": "x"}]})
@example(payload={"password" + '"' * 70: "x"})
@example(payload={"document": {"content" + "\\" * 60: "x"}})
def test_what_the_walk_finds_is_never_cleared(payload: dict[str, Any]) -> None:
    text, _ = encode_value(payload)
    if text is not None and find(msgspec.json.decode(text)):
        assert not is_clean(text)


@given(payloads=st.lists(st.dictionaries(names, values, max_size=3), min_size=1, max_size=4))
@settings(max_examples=200)
@example(payloads=[{"name": "password"}, {"value": "x"}])
@example(payloads=[{"a": 4111}, {"b": 1111111111111111}])
def test_what_the_walk_finds_in_one_of_several_is_never_cleared_in_all(payloads: list[dict[str, Any]]) -> None:
    plain = encode_plain(payloads)
    if plain is not None and any(find(msgspec.json.decode(text)) for text in plain[0]):
        assert not is_clean(plain[1])


@pytest.mark.parametrize("name", SENSITIVE_NAMES)
def test_a_sensitive_name_is_never_cleared(name: str) -> None:
    for payload in ({name: "value-7"}, {"a": [{"b": {name: "value-7"}}]}, {"a": [[name, "value-7"]]}):
        assert not cleared(payload)
    assert not cleared({"a": {"name": name, "value": "value-7"}})


@pytest.mark.parametrize("value", [*CARDS, *KEYS, *TELLING.values()])
def test_a_telling_value_is_never_cleared(value: str) -> None:
    for text in (value, f"\n{value}", f'"{value}"', f"é {value} é", f"\\{value}"):
        if find({"a": text}):
            assert not cleared({"a": text})
    if find({value: 1}):
        assert not cleared({value: 1})


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"user_id": 7, "template": "welcome"},
        {"order": "0190163d-8694-739b-aea5-966c26f8ad91", "lines": [{"sku": "A-7", "price": "129.95"}], "note": None},
        {"text": 'He said "no": never\nagain \\o/', "data": {"key": 1, "number": 2}},
        {"url": "https://shop.example/o/7?page=2", "mail": "ada@example.com", "at": "2026-11-17T20:00:00Z"},
        {"numbers": list(range(1000)), "position": [52.520006599999995, 13.404953999999975]},
        {"desk-7": "task-12 of the risk-register", "key": "monkey-7"},
    ],
    ids=str,
)
def test_ordinary_payloads_are_cleared(payload: object) -> None:
    assert cleared(payload)
