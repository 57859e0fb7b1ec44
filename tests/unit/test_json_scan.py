"""The scanner over raw JSON text agrees with real parsers, and survives what kills them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, strategies as st

from fairlane.core.payload.codec import may_break
from fairlane.core.payload.json_scan import LIMITS, ScanLimits, scan
from fairlane.errors import InvalidOption

texts = st.text(max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=20,
)


def depth_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max((depth_of(item) for item in inner), default=0)


def holds_nul(value: Any) -> bool:
    if isinstance(value, dict):
        return any(holds_nul(key) or holds_nul(item) for key, item in value.items())
    return any(map(holds_nul, value)) if isinstance(value, list) else isinstance(value, str) and "\x00" in value


@given(values, st.booleans(), st.sampled_from([None, 2]))
def test_a_document_that_python_wrote_is_clean_unless_it_breaks_a_rule(
    value: Any, ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    limits = ScanLimits(max_depth=3, max_keys=4, max_digits=30)

    def widest(item: Any) -> int:
        inner = list(item.values()) if isinstance(item, dict) else item if isinstance(item, list) else []
        return max([len(item) if isinstance(item, dict) else 0, *map(widest, inner)])

    def long_number(item: Any) -> bool:
        if isinstance(item, (dict, list)):
            return any(map(long_number, item.values() if isinstance(item, dict) else item))
        return isinstance(item, (int, float)) and sum(map(str.isdigit, json.dumps(item))) > 30

    broken = depth_of(value) > 3 or widest(value) > 4 or holds_nul(value) or long_number(value)
    assert bool(scan(text, limits)) == broken
    assert not broken or may_break(text, limits), "the quick look never clears a bad one"


@given(st.binary(max_size=60))
@example(b'"\\ud800\\udc00"')
@example(b"-")
@example(b"01")
@example(b"1.")
@example(b'{"a":1 "b":2}')
@example(b'"\x7f"')
@example(b"\xef\xbb\xbf1")
def test_what_the_scanner_clears_every_parser_can_read(text: bytes) -> None:
    if not scan(text):
        assert msgspec.json.decode(text) == json.loads(text)


@given(st.text(alphabet='{}[]",:\\u0ad8fce1-+.eE tnl\n', max_size=40))
def test_texts_that_look_like_json_are_judged_as_parsers_do(text: str) -> None:
    raw = text.encode()
    try:
        json.loads(raw, parse_constant=pytest.fail)
    except ValueError:
        assert scan(raw)
    else:
        if not scan(raw):
            msgspec.json.decode(raw)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "expected a value"),
        (b"NaN", "expected a value"),
        (b"[1,]", "expected a value"),
        (b'{"a":1,}', "expected a key in quotes"),
        (b"[1 2]", "expected , or ]"),
        (b'{"a" 1}', "expected : after a key"),
        (b"[1] 2", "text follows"),
        (b'"\xff"', "not valid UTF-8"),
        (b'{"a":"x\\u0000y"}', "$.a: text holds a NUL"),
        (b'{"a\\u0000":1}', "NUL"),
        (b'["\\ud800"]', "$[0]: a lone surrogate"),
        (b'["\\udc00\\ud800"]', "a lone surrogate"),
        (b'["\\ud800\\n"]', "a lone surrogate"),
        (b'{"a":{"b":1,"b":2}}', "$.a.b: this key comes twice"),
        (b'{"A":1,"\\u0041":2}', "$.A: this key comes twice"),
        ('{"😀":1,"\\ud83d\\ude00":2}'.encode(), "$.😀: this key comes twice"),
        (b"[1e999]", "$[0]: a number too large for a float"),
        (b"[" + b"1" * 301 + b"]", "$[0]: a number of 301 digits"),
        (b'"' + b"x" * LIMITS.max_bytes + b'"', "1,048,578 bytes are more than the 1,048,576 allowed"),
    ],
    ids=lambda value: value[:20] if isinstance(value, bytes) else None,
)
def test_each_problem_is_named_with_its_path(text: bytes, problem: str) -> None:
    assert any(problem in found for found in scan(text))


@pytest.mark.parametrize(
    "text", [b'"\\ud83d\\ude00"', b'"\\\\u0000"', b"[-0.0, 1E5, 0]", b'{"__proto__":{}}', b" [ ] ", b"9" * 300]
)
def test_odd_but_valid_texts_are_clean(text: bytes) -> None:
    assert scan(text) == []


@pytest.mark.requirement("W3")
def test_all_problems_are_reported_at_once() -> None:
    found = scan(b'{"a":"\\u0000","b":["\\ud800",1e999],"a":2}')
    assert [problem.split(":")[0] for problem in found] == ["$.a", "$.b[0]", "$.b[1]", "$.a"]


@pytest.mark.parametrize("text", [b"[" * 500_000, b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000])
def test_nesting_without_end_is_refused_without_exhausting_the_stack(text: bytes) -> None:
    assert any("nested deeper than 64 levels" in problem for problem in scan(text))


@pytest.mark.parametrize("depth", [64, 65])
def test_brackets_in_strings_hide_no_level(depth: int) -> None:
    text = b"1"
    for _ in range(depth):
        text = b'["]",%b,"["]' % text
    assert may_break(text, LIMITS) == bool(scan(text)) == (depth > 64)


def test_sixty_four_levels_and_ten_thousand_keys_are_still_fine() -> None:
    assert scan(b"[" * 64 + b"]" * 64) == []
    wide = "{" + ",".join(f'"{n}":0' for n in range(10_000)) + "}"
    assert scan(wide.encode()) == []
    wider = "{" + ",".join(f'"{n}":0' for n in range(10_001)) + "}"
    assert scan(wider.encode()) == ["$: more than 10,000 keys in one object"]


def test_a_hostile_text_gets_no_endless_list_of_problems() -> None:
    assert len(scan(b"[" + b",".join([b"1e999"] * 1000) + b"]")) == 20


@pytest.mark.parametrize(
    "options", [{"max_bytes": 0}, {"max_depth": -1}, {"max_keys": True}, {"max_digits": 1.5}], ids=str
)
def test_limits_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        ScanLimits(**options)
