"""Workers seen from outside: the ones that are gone, and the list of the others."""

from __future__ import annotations

from uuid import UUID

import msgspec

from fairlane.core.ids import WorkerId
from fairlane.core.ops import Lapse, ListWorkers, ReclaimResult, WorkerRecord, Workers
from fairlane.stores.sqlite.instants import from_us
from fairlane.stores.sqlite.reclaim import reclaim_all_of
from fairlane.stores.sqlite.settle import start
from fairlane.stores.sqlite.transaction import Transaction

_LIST = """
select w.id, w.name, w.registered_at, w.renewed_at, w.expires_at, w.queues, w.types, w.waiting, w.figures,
  (select count(*) from fairlane_lease l where l.worker = w.id)
from fairlane_worker w order by w.registered_at, w.id
"""
_names = msgspec.json.Decoder(tuple[str, ...]).decode
_figures = msgspec.json.Decoder(dict[str, float]).decode


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
        for raw, name, registered_at, renewed_at, expires_at, queues, types, waiting, figures, leases in tx.db.execute(
            _LIST
        )
    )
    return Workers(now=from_us(tx.now), workers=workers)
