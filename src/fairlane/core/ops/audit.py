"""The audit: who did what, and the chain of hashes that seals it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct

from fairlane.core.ops.base import Listing, Op, Scope


class AuditRecord(Struct, frozen=True, kw_only=True):
    id: int
    at: datetime
    by: str
    action: str
    tenant: str | None
    target: str
    """`job:<uuid>` or `dead_letter:<id>`."""
    notes: str | None
    before: dict[str, Any] | None
    """Like `after` JSON values; an instant is text in UTC with six digits of microseconds:
    "2026-03-01T12:00:00.000000Z".
    """
    after: dict[str, Any] | None


class AuditPage(Listing, Struct, frozen=True, kw_only=True):
    shown = ("records", "id", "at", "by", "action", "tenant", "target", "notes")

    records: tuple[AuditRecord, ...]
    next: int | None


class PageAudit(Op[AuditPage], frozen=True, kw_only=True):
    """Audit records, newest first."""

    scope: Scope
    action: str | None = None
    target: str | None = None
    before: int | None = None
    limit: int = 50


class AuditLink(Struct, frozen=True, kw_only=True):
    """One link of the chain: the record it seals, and the hash over that record and the link before."""

    n: int
    """1, 2, 3, … in the order of sealing; records of acts that committed late come late."""
    audit_id: int
    hash: str


class AuditToSeal(Struct, frozen=True, kw_only=True):
    last: AuditLink | None
    records: tuple[AuditRecord, ...]
    """Committed and not sealed, by id."""


class ReadUnsealed(Op[AuditToSeal], frozen=True, kw_only=True):
    limit: int = 500


class AuditSealed(Struct, frozen=True, kw_only=True):
    sealed: bool
    """False: somebody else was faster, or a link is wrong; nothing was written."""


class SealAudit(Op[AuditSealed], frozen=True, kw_only=True):
    """Add links behind the last one.

    Refused where the first does not follow it, the others do not follow each other, a hash is not the one that seals
    its record there, or a record is sealed already. Acts never wait for this.
    """

    links: tuple[AuditLink, ...]


class SealedRecord(Struct, frozen=True, kw_only=True):
    link: AuditLink
    record: AuditRecord | None
    """None: it is gone."""


class AuditChain(Struct, frozen=True, kw_only=True):
    sealed: tuple[SealedRecord, ...]
    """By `n`."""
    unsealed: int
    """Records not sealed yet, counted up to 1,000."""
    unaccounted: int | None = None
    """The first record that is neither sealed nor waiting for it, where that was asked."""


class ReadAuditChain(Op[AuditChain], frozen=True, kw_only=True):
    """Links with n above `after`, at most `limit` (1 to 1,000), each with its record as it is now.

    `also_unaccounted` looks through all records for one that no act can have left: not sealed, and not waiting for it.
    """

    after: int = 0
    limit: int = 500
    also_unaccounted: bool = False
