"""Workers seen from outside: gone ones, the list, and what running attempts say of themselves."""

from __future__ import annotations

from uuid import UUID

import msgspec

from fairlane.core.ids import WorkerId
from fairlane.core.ops import (
    LOG_LINES,
    Lapse,
    ListWorkers,
    LogLine,
    Note,
    Noted,
    ReclaimResult,
    WorkerRecord,
    Workers,
)
from fairlane.stores.sqlite.instants import from_us
from fairlane.stores.sqlite.reclaiming import reclaim_all_of
from fairlane.stores.sqlite.settling import start
from fairlane.stores.sqlite.transaction import Transaction

_LIST = """
select w.id, w.name, w.registered_at, w.renewed_at, w.expires_at, w.queues, w.types, w.waiting, w.figures,
  (select count(*) from fairlane_lease l where l.worker = w.id)
from fairlane_worker w order by w.registered_at, w.id
"""
_HOLDS = "select 1 from fairlane_lease where seq = ? and attempt = ? and worker = ?"
_NOTE = """
insert into fairlane_note (seq, progress, log) values (?1, ?2, ?3)
on conflict (seq) do update set progress = coalesce(?2, progress), log = ?3
"""
_names = msgspec.json.Decoder(tuple[str, ...]).decode
_figures = msgspec.json.Decoder(dict[str, float]).decode
_lines = msgspec.json.Decoder(list[LogLine]).decode


def lapse(tx: Transaction, op: Lapse) -> ReclaimResult:
    if not tx.db.execute("select 1 from fairlane_worker where id = ?", (op.worker.bytes,)):
        return ReclaimResult()
    if op.starts:
        start(tx, op.worker, op.starts)
    return ReclaimResult(reclaimed=tuple(reclaim_all_of(tx, op.worker.bytes)))


def list_workers(tx: Transaction, op: ListWorkers) -> Workers:
    workers = tuple(
        WorkerRecord(
            id=WorkerId(UUID(bytes=raw)),
            name=name,
            registered_at=from_us(registered_at),
            renewed_at=from_us(renewed_at),
            expires_at=from_us(expires_at),
            queues=_names(queues),
            types=_names(types),
            waiting=bool(waiting),
            leases=leases,
            figures=_figures(figures),
        )
        for raw, name, registered_at, renewed_at, expires_at, queues, types, waiting, figures, leases in tx.db.execute(_LIST)
    )
    return Workers(now=from_us(tx.now), workers=workers)


def note(tx: Transaction, op: Note) -> Noted:
    if not tx.db.execute(_HOLDS, (op.seq, op.attempt, op.worker.bytes)):
        return Noted(accepted=False)
    _, lines = read_note(tx, op.seq)
    new = [LogLine(at=from_us(tx.now), attempt=op.attempt, message=message) for message in op.log]
    kept = [*lines, *new][-LOG_LINES:]
    tx.db.execute(_NOTE, (op.seq, op.progress, msgspec.json.encode(kept).decode()))
    return Noted(accepted=True)


def read_note(tx: Transaction, seq: int) -> tuple[float | None, tuple[LogLine, ...]]:
    rows = tx.db.execute("select progress, log from fairlane_note where seq = ?", (seq,))
    return (rows[0][0], tuple(_lines(rows[0][1]))) if rows else (None, ())
