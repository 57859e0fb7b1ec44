"""Names of tasks, queues, tenants and keys."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fairlane.core.names import check_key, check_queue_name, check_task_name, check_tenant
from fairlane.errors import InvalidOption

HOSTILE = [
    "",
    "a b",
    "a/b",
    "..\x00",
    "mail.sénd",
    "mаil",
    "a" * 129,
    "a" * 10_000_000,
    "a\n",
    "x;--",
    None,
    7,
    b"mail",
]


@pytest.mark.parametrize("name", ["mail.send", "MailSend", "a", "os:system", "a-b_c.d:e", "x" * 128])
def test_ordinary_names_are_taken_as_they_are(name: str) -> None:
    assert check_task_name(name) == check_queue_name(name) == name


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name)[:20])
@pytest.mark.parametrize("check", [check_task_name, check_queue_name])
def test_names_with_anything_else_in_them_are_refused_in_a_short_message(check: Any, name: object) -> None:
    with pytest.raises(InvalidOption) as refused:
        check(name)
    assert len(str(refused.value)) < 300


@pytest.mark.requirement("W2")
@pytest.mark.parametrize(
    ("tenant", "text"),
    [
        (123, "123"),
        (0, "0"),
        (-5, "-5"),
        ("acme", "acme"),
        ("Ümläut & Söhne", "Ümläut & Söhne"),
        ("x" * 128, "x" * 128),
    ],
)
def test_a_tenant_is_a_whole_number_or_text(tenant: int | str, text: str) -> None:
    assert check_tenant(tenant) == text


@pytest.mark.requirement("W2")
@pytest.mark.parametrize(
    "tenant",
    ["", "x" * 129, "ü" * 65, "a\x00", "a\n", "a\x7f", "\u2028", "\ud800", True, 1.5, None, [], 10**200, 10**5000],
    ids=lambda tenant: ascii(tenant)[:20] if not isinstance(tenant, int) else "number",
)
def test_a_tenant_that_no_store_could_keep_is_refused(tenant: object) -> None:
    with pytest.raises(InvalidOption):
        check_tenant(tenant)


@given(st.text(st.characters()) | st.text(min_size=400, max_size=600))
def test_a_key_is_taken_exactly_if_it_is_short_and_every_store_can_keep_it(key: str) -> None:
    unprintable = {"Cc", "Cs", "Zl", "Zp"}.intersection(map(unicodedata.category, key))
    good = not unprintable and 1 <= len(key.encode("utf-8", "replace")) <= 512
    try:
        taken = check_key("idempotency_key", key) == key
    except InvalidOption:
        taken = False
    assert taken == good
