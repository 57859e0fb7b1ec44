"""The audit trail: append-only, written in the transaction of the act it records, sealed by a chain of hashes."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec

from fairlane.core import audit_chain
from fairlane.core.ops import (
    AuditChain,
    AuditLink,
    AuditPage,
    AuditRecord,
    AuditSealed,
    AuditToSeal,
    PageAudit,
    ReadAuditChain,
    ReadUnsealed,
    SealAudit,
    SealedRecord,
)
from fairlane.stores.sqlite.rows import Condition, RowReader, bounded, equal, joined
from fairlane.stores.sqlite.transaction import Transaction, as_list, change, reading

_record = RowReader(AuditRecord)
_OF_A = ", ".join(f"a.{name}" for name in _record.names)
MAX_LINKS = 1_000
COUNTED_TO = 1_000
_LAST = "select n, audit_id, hash from fairlane_audit_seal order by n desc limit 1"
_UNSEALED = f"""
select {_OF_A} from fairlane_audit_unsealed u
  cross join fairlane_audit a on a.id = u.id
order by u.id limit ?
"""  # noqa: S608
_CHAIN = f"""
select s.n, s.audit_id, s.hash, {_OF_A}
from fairlane_audit_seal s left join fairlane_audit a on a.id = s.audit_id
where s.n > ? order by s.n limit ?
"""  # noqa: S608
_UNACCOUNTED = """
select min(a.id) from fairlane_audit a
where not exists (select 1 from fairlane_audit_seal s where s.audit_id = a.id)
  and not exists (select 1 from fairlane_audit_unsealed u where u.id = a.id)
"""
_RECORDS = f"select {_record.columns} from fairlane_audit where id in (select value from json_each(?))"  # noqa: S608
_SEALED_ALREADY = """
select 1 from json_each(?) c cross join fairlane_audit_seal s on s.audit_id = c.value limit 1
"""


class ByPerson(Protocol):
    @property
    def by(self) -> str: ...

    @property
    def notes(self) -> str | None: ...


class Signed(NamedTuple):
    """Who did what no operation of a person says."""

    by: str
    notes: str | None = None


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
        "insert into fairlane_audit (at, by, action, tenant, target, notes, before, after) "
        "values (?, ?, ?, ?, ?, ?, ?, ?)",
        (tx.now, act.by, action, tenant, target, act.notes, _json(before), _json(after)),
    )


@reading
def page_audit(tx: Transaction, op: PageAudit) -> AuditPage:
    limit = bounded(op.limit)
    conditions = equal(("tenant", op.scope.tenant), ("action", op.action), ("target", op.target))
    if op.before is not None:
        conditions.append(Condition("id < ?", (op.before,)))
    where, params = joined(conditions)
    sql = f"select {_record.columns} from fairlane_audit where {where} order by id desc limit ?"  # noqa: S608
    rows = tx.db.execute(sql, (*params, limit + 1))
    records = tuple(map(_record, rows[:limit]))
    return AuditPage(records=records, next=records[-1].id if len(rows) > limit else None)


@reading
def read_unsealed(tx: Transaction, op: ReadUnsealed) -> AuditToSeal:
    rows = tx.db.execute(_UNSEALED, (max(op.limit, 0),))
    return AuditToSeal(last=_last(tx), records=tuple(map(_record, rows)))


@change
def seal(tx: Transaction, op: SealAudit) -> AuditSealed:
    sealed = as_list([link.audit_id for link in op.links])
    records = {record.id: record for record in map(_record, tx.db.execute(_RECORDS, (sealed,)))}
    if any(link.audit_id not in records for link in op.links):
        return AuditSealed(sealed=False)
    right = audit_chain.seal(_last(tx), [records[link.audit_id] for link in op.links])
    if op.links != right or len(records) < len(right) or tx.db.execute(_SEALED_ALREADY, (sealed,)):
        return AuditSealed(sealed=False)
    rows = [(link.n, link.audit_id, link.hash) for link in op.links]
    tx.db.executemany("insert into fairlane_audit_seal values (?, ?, ?)", rows)
    return AuditSealed(sealed=True)


@reading
def read_chain(tx: Transaction, op: ReadAuditChain) -> AuditChain:
    rows = tx.db.execute(_CHAIN, (op.after, max(1, min(op.limit, MAX_LINKS))))
    [(unsealed,)] = tx.db.execute("select count(*) from (select 1 from fairlane_audit_unsealed limit ?)", (COUNTED_TO,))
    sealed = tuple(
        SealedRecord(
            link=AuditLink(n=n, audit_id=audit_id, hash=text),
            record=None if record[0] is None else _record(record),
        )
        for n, audit_id, text, *record in rows
    )
    unaccounted = tx.db.execute(_UNACCOUNTED)[0][0] if op.also_unaccounted else None
    return AuditChain(sealed=sealed, unsealed=unsealed, unaccounted=unaccounted)


def _last(tx: Transaction) -> AuditLink | None:
    rows = tx.db.execute(_LAST)
    return AuditLink(n=rows[0][0], audit_id=rows[0][1], hash=rows[0][2]) if rows else None


def _json(facts: dict[str, object] | None) -> str | None:
    return None if facts is None else msgspec.json.encode(facts).decode()
