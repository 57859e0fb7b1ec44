"""What running attempts say of themselves: progress and log lines, kept with the job."""

from __future__ import annotations

import msgspec

from fairlane.core.ops import LOG_LINES, LogLine, Note, Noted
from fairlane.stores.sqlite.instants import from_us
from fairlane.stores.sqlite.transaction import Transaction

_HOLDS = "select 1 from fairlane_lease where seq = ? and attempt = ? and worker = ?"
_NOTE = """
insert into fairlane_note (seq, progress, log) values (?1, ?2, ?3)
on conflict (seq) do update set progress = coalesce(?2, progress), log = ?3
"""
_lines = msgspec.json.Decoder(list[LogLine]).decode


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
