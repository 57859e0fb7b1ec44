"""The chain that seals the audit: what breaks it, and how exactly it is made."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from fairlane.core.audit_chain import GENESIS, canonical_text, seal, verify
from fairlane.core.ops import AuditLink, AuditRecord, SealedRecord
from fairlane.testing.conformance.samples import NOON

pytestmark = pytest.mark.requirement("W12")


def record(id: int, **facts: Any) -> AuditRecord:
    words: dict[str, Any] = {"at": NOON, "by": "ada", "action": "job_cancel", "tenant": "acme", "target": "job:1"}
    return AuditRecord(id=id, **{**words, "notes": None, "before": {"status": "pending"}, "after": None, **facts})


def chain(*records: AuditRecord) -> list[SealedRecord]:
    return [SealedRecord(link=link, record=one) for link, one in zip(seal(None, records), records, strict=True)]


def five() -> list[SealedRecord]:
    return chain(*(record(nth, notes=f"note {nth}") for nth in (1, 2, 4, 3, 9)))


def broken(sealed: list[SealedRecord]) -> tuple[int, int | None, str] | None:
    found = verify(sealed).broken
    return found and (found.n, found.audit_id, found.why)


def test_the_text_that_is_sealed_never_changes() -> None:
    """A chain sealed today has to verify in ten years: whoever changes this text breaks all of them."""
    one = record(
        7,
        at=datetime(2026, 3, 1, 12, 0, 0, 5, tzinfo=UTC),
        notes='née "x"\n',
        before={"b": 1, "a": {"z": None, "y": [1.5, True]}},
    )
    text = (
        '{"action":"job_cancel","after":null,"at":1772366400000005,"before":{"a":{"y":[1.5,true],"z":null},"b":1},'
        '"by":"ada","id":7,"notes":"n\\u00e9e \\"x\\"\\n","target":"job:1","tenant":"acme"}'
    )
    assert canonical_text(one) == text
    [first] = seal(None, [one])
    assert first == AuditLink(n=1, audit_id=7, hash=sha256(f"{GENESIS}\n{text}".encode()).hexdigest())
    [second] = seal(first, [one])
    assert second == AuditLink(n=2, audit_id=7, hash=sha256(f"{first.hash}\n{text}".encode()).hexdigest())


def test_an_instant_is_the_same_in_every_zone_and_a_key_in_every_order() -> None:
    one = record(1, before={"a": 1, "b": 2})
    elsewhere = replace(one, at=NOON.astimezone(timezone(timedelta(hours=9))), before={"b": 2, "a": 1})
    assert canonical_text(one) == canonical_text(elsewhere)


def test_a_microsecond_is_not_lost_however_far_the_year() -> None:
    far = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    assert canonical_text(record(1, at=far)) != canonical_text(record(1, at=far - timedelta(microseconds=1)))


def test_a_whole_chain_is_good() -> None:
    sealed = five()
    found = verify(sealed)
    assert (found.links, found.last, found.broken) == (5, sealed[-1].link, None)
    assert (verify([]).links, verify([]).last, verify([]).broken) == (0, None, None)


def test_records_sealed_in_two_goes_make_the_same_chain() -> None:
    records = [one.record for one in five() if one.record is not None]
    first = seal(None, records[:2])
    assert first + seal(first[-1], records[2:]) == seal(None, records)
    assert seal(first[-1], []) == ()


def test_a_chain_is_verified_part_by_part() -> None:
    sealed = five()
    first = verify(sealed[:3])
    rest = verify(sealed[3:], behind=first.last)
    assert (first.links, rest.links, rest.broken) == (3, 2, None)
    assert broken(sealed[3:]) == (1, None, "gap")


CHANGES: dict[str, Any] = {
    "at": NOON + timedelta(microseconds=1),
    "by": "mallory",
    "action": "job_bury",
    "tenant": None,
    "target": "job:2",
    "notes": None,
    "before": {"status": "dead"},
    "after": {},
    "id": 5,
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("nth", [0, 2, 4])
def test_whatever_is_changed_in_a_record_its_link_is_named(name: str, nth: int) -> None:
    sealed = five()
    there = sealed[nth].record
    assert there is not None
    sealed[nth] = replace(sealed[nth], record=replace(there, **{name: CHANGES[name]}))
    found = verify(sealed)
    assert broken(sealed) == (nth + 1, sealed[nth].link.audit_id, "record_changed")
    assert (found.links, found.last) == (nth, sealed[nth - 1].link if nth else None)


@pytest.mark.parametrize("nth", [0, 2, 4])
def test_a_record_that_is_gone_is_named(nth: int) -> None:
    sealed = five()
    sealed[nth] = replace(sealed[nth], record=None)
    assert broken(sealed) == (nth + 1, sealed[nth].link.audit_id, "record_gone")


@pytest.mark.parametrize("nth", [0, 1, 3])
def test_a_changed_hash_is_told_from_a_changed_record_by_the_link_that_follows(nth: int) -> None:
    sealed = five()
    sealed[nth] = replace(sealed[nth], link=replace(sealed[nth].link, hash="a" * 64))
    assert broken(sealed) == (nth + 1, sealed[nth].link.audit_id, "link_changed")


@pytest.mark.parametrize("hash", ["", "A" * 64, "a" * 63, "a" * 64 + "\n", "é"])
def test_what_is_no_hash_was_changed(hash: str) -> None:
    sealed = five()
    sealed[4] = replace(sealed[4], link=replace(sealed[4].link, hash=hash))
    assert broken(sealed) == (5, 9, "link_changed")


def test_a_record_changed_together_with_its_hash_breaks_the_next_link() -> None:
    sealed = five()
    there = sealed[1].record
    assert there is not None
    forged = replace(there, by="mallory")
    [link] = seal(sealed[0].link, [forged])
    sealed[1] = SealedRecord(link=link, record=forged)
    assert broken(sealed) == (3, 4, "record_changed")


def test_a_link_that_names_another_record_was_changed() -> None:
    sealed = five()
    sealed[2] = replace(sealed[2], link=replace(sealed[2].link, audit_id=77))
    assert broken(sealed) == (3, 77, "link_changed")


@pytest.mark.parametrize(("gone", "named"), [(0, 1), (2, 3)])
def test_a_missing_link_is_named_by_its_number(gone: int, named: int) -> None:
    sealed = five()
    del sealed[gone]
    assert broken(sealed) == (named, None, "gap")


def test_links_out_of_order_are_named() -> None:
    sealed = five()
    assert broken([*sealed[:3], sealed[1], *sealed[3:]]) == (2, 2, "order")
    assert broken([*sealed, sealed[-1]]) == (5, 9, "order")
    assert broken([sealed[1], sealed[0], *sealed[2:]]) == (1, None, "gap")


def test_a_chain_closed_over_a_removed_record_is_broken_all_the_same() -> None:
    """Renumbering the links does not help whoever took one out."""
    sealed = five()
    renumbered = [replace(one, link=replace(one.link, n=one.link.n - 1)) for one in sealed[2:]]
    assert broken([sealed[0], *renumbered]) == (2, 4, "record_changed")


def test_a_broken_link_says_which_record_and_why() -> None:
    sealed = five()
    sealed[2] = replace(sealed[2], record=None)
    assert str(verify(sealed).broken) == "link 3 (audit record 4): the audit record it seals is gone"
    assert str(verify(sealed[1:]).broken) == "link 1: the link is missing"


@dataclass
class Pages:
    """Links as a store gives them: one by one, once."""

    sealed: list[SealedRecord]
    given: list[int] = field(default_factory=list)

    def __iter__(self) -> Any:
        for one in self.sealed:
            self.given.append(one.link.n)
            yield one


def test_a_chain_is_walked_without_being_held_in_memory() -> None:
    sealed = five()
    sealed[1] = replace(sealed[1], record=None)
    pages = Pages(sealed)
    assert verify(pages).links == 1
    assert pages.given == [1, 2, 3]


facts = st.none() | st.dictionaries(st.text(max_size=3), st.none() | st.integers() | st.text(max_size=3))
records = st.builds(
    record,
    st.integers(1, 2**62),
    by=st.text(max_size=4),
    tenant=st.none() | st.text(max_size=3),
    notes=st.none() | st.text(max_size=5),
    before=facts,
    after=facts,
)


@given(st.lists(records, min_size=1, max_size=6), st.data())
def test_any_two_different_records_have_different_hashes_in_one_place(some: list[AuditRecord], data: Any) -> None:
    sealed = chain(*some)
    assert verify(sealed).broken is None
    nth = data.draw(st.integers(0, len(sealed) - 1))
    other = data.draw(records)
    sealed[nth] = replace(sealed[nth], record=other)
    assert (verify(sealed).broken is None) == (other == some[nth])
