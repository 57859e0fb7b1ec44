"""The audit trail: append-only, written in the transaction of the act it records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from fairlane.core.ops import AuditRecord
from fairlane.stores.sqlite.instants import from_us
from fairlane.stores.sqlite.transaction import Transaction

COLUMNS = ("id", "at", "by", "action", "tenant", "target", "notes", "before", "after")
"""What `audit_record` reads a record from."""


class ByPerson(Protocol):
    @property
    def by(self) -> str: ...

    @property
    def notes(self) -> str | None: ...


def write_audit(
    tx: Transaction,
    act: ByPerson,
    action: str,
    tenant: str | None,
    target: str,
    before: dict[str, object] | None,
    after: dict[str, object] | None,
) -> None:
    tx.db.execute(
        "insert into fairlane_audit (at, by, action, tenant, target, notes, before, after) values (?, ?, ?, ?, ?, ?, ?, ?)",
        (tx.now, act.by, action, tenant, target, act.notes, _json(before), _json(after)),
    )


def audit_record(row: Sequence[Any]) -> AuditRecord:
    number, at, by, action, tenant, target, notes, before, after = row
    return AuditRecord(
        id=number,
        at=from_us(at),
        by=by,
        action=action,
        tenant=tenant,
        target=target,
        notes=notes,
        before=None if before is None else msgspec.json.decode(before),
        after=None if after is None else msgspec.json.decode(after),
    )


def _json(facts: dict[str, object] | None) -> str | None:
    return None if facts is None else msgspec.json.encode(facts).decode()
