"""The audit trail: append-only, written in the transaction of the act it records."""

from __future__ import annotations

from typing import Protocol

import msgspec

from fairlane.stores.sqlite.transaction import Transaction


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


def _json(facts: dict[str, object] | None) -> str | None:
    return None if facts is None else msgspec.json.encode(facts).decode()
