"""The chain that seals the audit: whoever changes a sealed record or link breaks it from there on.

    link 1                        link 2                        link 3
    hash(GENESIS, record) ──────► hash(link 1, record) ───────► hash(link 2, record) …

A hash is the SHA-256, in hex, of these bytes: the hash of the link before (64 zeros before the first), a line feed, and
the record's canonical text. That text is JSON without spaces, all of it ASCII (other characters as \\uXXXX), the keys
of every object sorted, with exactly the keys action, after, at, before, by, id, notes, target, tenant; `at` is the
whole microseconds since 1970-01-01 UTC, and null stands for what is missing. It never changes: chains sealed by older
versions stay good.

The chain shows any change behind it, but not that its end was cut off, or that all of it was made anew: for that, keep
the newest link somewhere its writers cannot reach, and compare.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Literal

from msgspec import Struct

from fairlane.core.ops import AuditLink, AuditRecord, SealedRecord

GENESIS = "0" * 64
"""Stands for the hash of the link before the first."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HASH = re.compile("[0-9a-f]{64}")

Why = Literal["record_gone", "record_changed", "link_changed", "gap", "order", "renewed", "cut_off", "unaccounted"]
_MEANING: dict[Why, str] = {
    "record_gone": "the audit record it seals is gone",
    "record_changed": "the audit record is not the one that was sealed",
    "link_changed": "the link itself was changed",
    "gap": "the link is missing",
    "order": "the link stands where an earlier one has been already",
    "renewed": "it is not the link that was kept: the chain was made anew",
    "unaccounted": "it is neither sealed nor waiting for it: no act of Fairlane's left it so",
    "cut_off": "the link that was kept is not there: the end was cut off",
}


class BrokenLink(Struct, frozen=True, kw_only=True):
    n: int
    """Which link; for a gap, the first that is missing; for a record without one, the link after the last."""
    audit_id: int | None
    """The record it seals; None for a gap."""
    why: Why

    def __str__(self) -> str:
        if self.why == "unaccounted":
            return f"audit record {self.audit_id}: {_MEANING[self.why]}"
        record = "" if self.audit_id is None else f" (audit record {self.audit_id})"
        return f"link {self.n}{record}: {_MEANING[self.why]}"


class Verified(Struct, frozen=True, kw_only=True):
    links: int
    """How many good links there are before the first broken one, or in all."""
    last: AuditLink | None
    """The last good one: pass it as `behind` with the links that follow."""
    broken: BrokenLink | None
    """The first broken one; None: there is none."""


def seal(last: AuditLink | None, records: Iterable[AuditRecord]) -> tuple[AuditLink, ...]:
    """The links that seal these records behind `last`, in the order given."""
    links: list[AuditLink] = []
    for record in records:
        last = _link_behind(last, record)
        links.append(last)
    return tuple(links)


def verify(sealed: Iterable[SealedRecord], behind: AuditLink | None = None) -> Verified:
    """Walk a chain, or the part of it that follows `behind`, up to the first link that is broken.

    Whether a record or the hash beside it was changed is shown by the link that follows: where none does, it is taken
    to be the record.
    """
    count, last = 0, behind
    ahead = iter(sealed)
    at = next(ahead, None)
    while at is not None:
        following = next(ahead, None)
        why = _why_broken(last, at, following)
        if why is not None:
            return Verified(links=count, last=last, broken=_broken(last, at.link, why))
        count, last, at = count + 1, at.link, following
    return Verified(links=count, last=last, broken=None)


def canonical_text(record: AuditRecord) -> str:
    """What of a record is sealed."""
    facts = {
        "action": record.action,
        "after": record.after,
        "at": (record.at - _EPOCH) // timedelta(microseconds=1),
        "before": record.before,
        "by": record.by,
        "id": record.id,
        "notes": record.notes,
        "target": record.target,
        "tenant": record.tenant,
    }
    return json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _link_behind(last: AuditLink | None, record: AuditRecord) -> AuditLink:
    n, before = (1, GENESIS) if last is None else (last.n + 1, last.hash)
    return AuditLink(n=n, audit_id=record.id, hash=_hash(before, record))


def _hash(before: str, record: AuditRecord) -> str:
    return sha256(f"{before}\n{canonical_text(record)}".encode()).hexdigest()


def _why_broken(last: AuditLink | None, at: SealedRecord, following: SealedRecord | None) -> Why | None:
    link, record = at.link, at.record
    expected_n = 1 if last is None else last.n + 1
    if link.n != expected_n:
        return "gap" if link.n > expected_n else "order"
    if not _HASH.fullmatch(link.hash):
        return "link_changed"
    if record is None:
        return "record_gone"
    right = _link_behind(last, record)
    if right == link:
        return None
    if right.hash == link.hash:
        return "link_changed"
    # Only a hash that stood there when the next link was made fits the next link: the right one fits, so this one came
    # later.
    if following is not None and following.record is not None and following.link.n == link.n + 1:
        return "link_changed" if following.link.hash == _hash(right.hash, following.record) else "record_changed"
    return "record_changed"


def _broken(last: AuditLink | None, link: AuditLink, why: Why) -> BrokenLink:
    if why == "gap":
        return BrokenLink(n=1 if last is None else last.n + 1, audit_id=None, why=why)
    return BrokenLink(n=link.n, audit_id=link.audit_id, why=why)
