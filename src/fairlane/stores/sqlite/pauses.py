"""Pauses: what no claim takes until it is lifted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fairlane.core.job import JobSpec
from fairlane.core.ops import ListPauses, Pause, PauseClaims, Pauses, ResumeClaims
from fairlane.stores.sqlite.audit import write_audit
from fairlane.stores.sqlite.listener import wake_for_ready
from fairlane.stores.sqlite.rows import RowReader
from fairlane.stores.sqlite.transaction import Transaction, change, reading

_pause = RowReader(Pause)
_PAUSES = f"""
select {_pause.columns} from (
  select fairlane_pause.*, r.kind is not null as refuse from fairlane_pause
  left join fairlane_refusal r on r.kind = fairlane_pause.kind and r.name = fairlane_pause.name)
"""  # noqa: S608
_KNOWN = f"{_PAUSES} where kind = ? and name = ?"
# Read with the limits at every enqueue: enqueueing asks for refusals only where there are some.
_COUNT_REFUSALS = """
insert or replace into fairlane_meta select 'limits_refusals', count(*) from fairlane_refusal
"""


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


def refusing_pause(tx: Transaction, jobs: Sequence[JobSpec]) -> Pause | None:
    """The pause that refuses one of these jobs, the first in their order, then by kind."""
    refusing = {(pause.kind, pause.name): pause for pause in all_pauses(tx) if pause.refuse}
    for spec in jobs:
        for place in (("queue", spec.queue), ("tenant", spec.tenant), ("type", spec.type)):
            if place in refusing:
                return refusing[place]
    return None


@change
def pause(tx: Transaction, op: PauseClaims) -> Pauses:
    known = _known(tx, op)
    changed = known is None or (op.refuse and not known.refuse)
    if changed:
        row = (op.kind, op.name, op.by, tx.now, op.notes)
        tx.db.execute("insert or replace into fairlane_pause values (?, ?, ?, ?, ?)", row)
        # Also where it does not refuse: a resume by older code leaves the refusal of an earlier pause.
        tx.db.execute("delete from fairlane_refusal where kind = ? and name = ?", (op.kind, op.name))
        if op.refuse:
            tx.db.execute("insert into fairlane_refusal values (?, ?)", (op.kind, op.name))
        tx.db.execute(_COUNT_REFUSALS)
        _audit(tx, op, "pause", known, _known(tx, op))
    return _all(tx, changed=changed)


@change
def resume(tx: Transaction, op: ResumeClaims) -> Pauses:
    known = _known(tx, op)
    if known is not None:
        for table in ("pause", "refusal"):
            tx.db.execute(f"delete from fairlane_{table} where kind = ? and name = ?", (op.kind, op.name))  # noqa: S608
        tx.db.execute(_COUNT_REFUSALS)
        _audit(tx, op, "resume", known, None)
        wake_for_ready(tx)
    return _all(tx, changed=known is not None)


@reading
def list_pauses(tx: Transaction, op: ListPauses) -> Pauses:
    return _all(tx, changed=False)


def _all(tx: Transaction, *, changed: bool) -> Pauses:
    return Pauses(pauses=all_pauses(tx), changed=changed)


def all_pauses(tx: Transaction) -> tuple[Pause, ...]:
    """By kind, then name."""
    return tuple(map(_pause, tx.db.execute(f"{_PAUSES} order by kind, name")))


def _known(tx: Transaction, op: PauseClaims | ResumeClaims) -> Pause | None:
    rows = tx.db.execute(_KNOWN, (op.kind, op.name))
    return _pause(rows[0]) if rows else None


def _audit(
    tx: Transaction, op: PauseClaims | ResumeClaims, action: str, before: Pause | None, after: Pause | None
) -> None:
    tenant = op.name if op.kind == "tenant" else None
    write_audit(tx, op, action, tenant, f"{op.kind}:{op.name}", _audited(before), _audited(after))


def _audited(pause: Pause | None) -> dict[str, object]:
    if pause is not None and pause.refuse:
        return {"paused": True, "refuse": True}
    return {"paused": pause is not None}
