"""The figures workers keep, by minute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from fairlane.core.ops import AddStats, ReadStats, StatPage, StatRow, StatsAdded
from fairlane.core.summing import summed
from fairlane.stores.sqlite.instants import to_us
from fairlane.stores.sqlite.transaction import Transaction

_decode = msgspec.json.Decoder(StatRow).decode
_BATCH = "select stats_batch from fairlane_worker where id = ?"
_FIND = "select figures from fairlane_stat where minute = ? and type = ? and queue = ? and tenant = ?"
_ALL = 2**62
_SUMS = ("enqueued", "completed", "failed", "dead", "cancelled", "wait_us", "run_us")


def add_stats(tx: Transaction, op: AddStats) -> StatsAdded:
    last = tx.db.execute(_BATCH, (op.worker.bytes,))
    if not last or op.batch <= last[0][0]:
        return StatsAdded(added=False)
    tx.db.execute("update fairlane_worker set stats_batch = ? where id = ?", (op.batch, op.worker.bytes))
    add_figures(tx, op.rows)
    return StatsAdded(added=True)


def add_figures(tx: Transaction, rows: Sequence[StatRow]) -> None:
    """Add each row to what its minute has already."""
    for row in rows:
        place = (to_us(row.minute), row.type, row.queue, row.tenant)
        known = tx.db.execute(_FIND, place)
        total = _together(_decode(known[0][0]), row) if known else row
        tx.db.execute(
            "insert or replace into fairlane_stat values (?, ?, ?, ?, ?)", (*place, msgspec.json.encode(total).decode())
        )


def read_stats(tx: Transaction, op: ReadStats) -> StatPage:
    if op.step_s is not None:
        every = read_stats(tx, msgspec.structs.replace(op, step_s=None, limit=_ALL)).rows
        return StatPage(rows=tuple(summed(every, op.since, op.step_s, op.by))[: max(op.limit, 0)])
    given = [("type = ?", op.type), ("queue = ?", op.queue), ("tenant = ?", op.tenant)]
    where = "".join(f" and {condition}" for condition, value in given if value is not None)
    rows = tx.db.execute(
        f"select figures from fairlane_stat where minute >= ? and minute < ?{where} "  # noqa: S608
        "order by minute, type, queue, tenant limit ?",
        (to_us(op.since), to_us(op.until), *(value for _, value in given if value is not None), max(op.limit, 0)),
    )
    return StatPage(rows=tuple(_decode(text) for (text,) in rows))


def _together(one: StatRow, other: StatRow) -> StatRow:
    sums = {name: getattr(one, name) + getattr(other, name) for name in _SUMS}
    wait, run = Counter(one.wait_buckets), Counter(one.run_buckets)
    wait.update(other.wait_buckets)
    run.update(other.run_buckets)
    return msgspec.structs.replace(one, **sums, wait_buckets=dict(wait), run_buckets=dict(run))
