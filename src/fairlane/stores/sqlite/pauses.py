"""Pauses: what no claim takes until it is lifted."""

from __future__ import annotations

from typing import NamedTuple

from fairlane.core.ops import ListPauses, Pause, PauseClaims, Pauses, ResumeClaims
from fairlane.stores.sqlite.audit import write_audit
from fairlane.stores.sqlite.listener import wake_for_ready
from fairlane.stores.sqlite.rows import RowReader
from fairlane.stores.sqlite.transaction import Transaction, change, reading

_pause = RowReader(Pause)
_KNOWN = "select 1 from fairlane_pause where kind = ? and name = ?"


class Paused(NamedTuple):
    """The names a claim has to leave alone."""

    queues: frozenset[str]
    types: frozenset[str]
    tenants: frozenset[str]


NOTHING_PAUSED = Paused(frozenset(), frozenset(), frozenset())


def paused(tx: Transaction) -> Paused:
    rows = tx.db.execute("select kind, name from fairlane_pause")
    if not rows:
        return NOTHING_PAUSED
    return Paused(*(frozenset(name for kind, name in rows if kind == wanted) for wanted in ("queue", "type", "tenant")))


@change
def pause(tx: Transaction, op: PauseClaims) -> Pauses:
    changed = not tx.db.execute(_KNOWN, (op.kind, op.name))
    if changed:
        row = (op.kind, op.name, op.by, tx.now, op.notes)
        tx.db.execute("insert into fairlane_pause values (?, ?, ?, ?, ?)", row)
        _audit(tx, op, "pause", paused_before=False)
    return _all(tx, changed=changed)


@change
def resume(tx: Transaction, op: ResumeClaims) -> Pauses:
    changed = bool(tx.db.execute(_KNOWN, (op.kind, op.name)))
    if changed:
        tx.db.execute("delete from fairlane_pause where kind = ? and name = ?", (op.kind, op.name))
        _audit(tx, op, "resume", paused_before=True)
        wake_for_ready(tx)
    return _all(tx, changed=changed)


@reading
def list_pauses(tx: Transaction, op: ListPauses) -> Pauses:
    return _all(tx, changed=False)


def _all(tx: Transaction, *, changed: bool) -> Pauses:
    return Pauses(pauses=all_pauses(tx), changed=changed)


def all_pauses(tx: Transaction) -> tuple[Pause, ...]:
    """By kind, then name."""
    rows = tx.db.execute(f"select {_pause.columns} from fairlane_pause order by kind, name")  # noqa: S608
    return tuple(map(_pause, rows))


def _audit(tx: Transaction, op: PauseClaims | ResumeClaims, action: str, *, paused_before: bool) -> None:
    tenant = op.name if op.kind == "tenant" else None
    before, after = {"paused": paused_before}, {"paused": not paused_before}
    write_audit(tx, op, action, tenant, f"{op.kind}:{op.name}", dict(before), dict(after))
