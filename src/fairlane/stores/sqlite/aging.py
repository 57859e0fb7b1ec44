"""Aging: jobs that have been ready for long move up in their line."""

from __future__ import annotations

from collections.abc import Iterator

from fairlane.core.ops import Age, Aged
from fairlane.stores.sqlite.instants import before, span_us
from fairlane.stores.sqlite.transaction import Transaction

_NEXT_BAND = "select min(band) from fairlane_ready where queue = ? and band > ?"
_NEXT_TENANT = "select min(tenant) from fairlane_ready where queue = ? and band = ? and tenant > ?"
_NEXT_RANK = "select min(rank) from fairlane_ready where queue = ? and band = ? and tenant = ? and rank > ?"
# The old ones of one line; those that have moved already and not yet come to their next step are passed over.
_OLD = """
select r.seq, max(j.band + j.rank - (?1 - r.due_at) / ?2, 0) reached
from fairlane_ready r cross join fairlane_job j on j.seq = r.seq
where r.queue = ?3 and r.band = ?4 and r.tenant = ?5 and r.rank = ?6 and r.due_at <= ?7
  and max(j.band + j.rank - (?1 - r.due_at) / ?2, 0) < r.band + r.rank
order by r.due_at, r.seq limit ?8
"""
_MOVE_BAND = "update fairlane_ready set band = ? where seq = ?"
_MOVE_RANK = "update fairlane_ready set rank = ? where seq = ?"


def age(tx: Transaction, op: Age) -> Aged:
    step = span_us(op.every_s)
    moved: list[tuple[int, int, int]] = []
    for band, tenant, rank in _lines(tx, op.queue) if step > 0 else ():
        left = op.limit - len(moved)
        if left <= 0:
            break
        line = (op.queue, band, tenant, rank)
        rows = tx.db.execute(_OLD, (tx.now, step, *line, before(tx.now, op.every_s), left))
        moved += [(reached, seq, rank) for seq, reached in rows]
    tx.db.executemany(_MOVE_BAND, [(reached, seq) for reached, seq, rank in moved if not rank])
    tx.db.executemany(_MOVE_RANK, [(reached, seq) for reached, seq, rank in moved if rank])
    return Aged(count=len(moved))


def _lines(tx: Transaction, queue: str) -> Iterator[tuple[int, str, int]]:
    """Bands, tenants and ranks with ready jobs, in order, each found by a seek behind the one before."""
    band = -1
    while (band := tx.db.execute(_NEXT_BAND, (queue, band))[0][0]) is not None:
        tenant = ""
        while (tenant := tx.db.execute(_NEXT_TENANT, (queue, band, tenant))[0][0]) is not None:
            rank = -1
            while (rank := tx.db.execute(_NEXT_RANK, (queue, band, tenant, rank))[0][0]) is not None:
                if band or rank:
                    yield band, tenant, rank
