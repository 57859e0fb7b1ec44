"""The text of a record that is sealed: PostgreSQL writes it to the letter as Python does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings, strategies as st

from fairlane.core.audit_chain import canonical_text
from fairlane.core.ops import AuditRecord
from fairlane.testing.conformance.samples import NOON
from tests.support.stores import Ground

pytestmark = pytest.mark.requirement("W12")

texts = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=12)
numbers = st.one_of(st.integers(-(2**70), 2**70), st.floats(-1e14, 1e14))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def conn(ground: Ground) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(ground.address("postgres"), autocommit=True) as conn:
        yield conn


@settings(max_examples=200, deadline=None)
@given(facts=st.dictionaries(texts, values, max_size=4), notes=texts)
def test_every_value_is_written_alike(conn: psycopg.Connection[Any], facts: dict[str, Any], notes: str) -> None:
    record = AuditRecord(
        id=1,
        at=NOON,
        by=notes,
        action="pause",
        tenant=None,
        target=notes,
        notes=notes,
        before=None,
        after=facts,
    )
    text = canonical_text(record)
    for written in (text, json.dumps(json.loads(text), ensure_ascii=False, indent=1)):
        [(again,)] = conn.execute("select fairlane.canonical_text(%s::json)", (written,)).fetchall()
        assert again == text


@pytest.mark.parametrize(
    "number", ["99999999999999.9", "0.0001", "0.00001", "60.0", "60", "-0.0", "1.50", "1E3", "5e-324"]
)
def test_numbers_are_written_as_python_writes_them(conn: psycopg.Connection[Any], number: str) -> None:
    [(written,)] = conn.execute("select fairlane.python_number(%s)", (number,)).fetchall()
    assert written == json.dumps(json.loads(number))
