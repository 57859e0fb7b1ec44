"""What workers say: of themselves, of a running attempt, and in figures by the minute."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from fairlane.core.ops import (
    LOG_LINES,
    AddStats,
    ListWorkers,
    LogLine,
    Note,
    Noted,
    ReadStats,
    StatPage,
    StatRow,
    StatsAdded,
    WorkerRecord,
    Workers,
)
from fairlane.core.statistics import summed
from fairlane.stores.memory.facts import Facts, Said, Worker
from fairlane.stores.memory.moving import as_utc

_SUMS = ("enqueued", "completed", "failed", "dead", "cancelled", "wait_us", "run_us")


def list_workers(facts: Facts, op: ListWorkers, now: datetime) -> Workers:
    found = sorted(facts.workers.values(), key=lambda worker: (worker.registered_at, worker.id))
    return Workers(now=now, workers=tuple(map(_record_of, found)))


def _record_of(worker: Worker) -> WorkerRecord:
    said = worker.said
    return WorkerRecord(
        id=worker.id,
        name=said.name,
        registered_at=worker.registered_at,
        renewed_at=worker.renewed_at,
        expires_at=worker.expires_at,
        queues=said.queues,
        types=said.types,
        waiting=worker.waiting,
        leases=len(worker.leases),
        figures=dict(said.figures),
    )


def note(facts: Facts, op: Note, now: datetime) -> Noted:
    holder = facts.workers.get(op.worker)
    row = None if holder is None else holder.leases.get(op.seq)
    if row is None or row.lease is None or row.lease.attempt != op.attempt:
        return Noted(accepted=False)
    said = facts.notes.setdefault(op.seq, Said())
    if op.progress is not None:
        said.progress = op.progress
    lines = (LogLine(at=now, attempt=op.attempt, message=message) for message in op.log[-LOG_LINES:])
    said.log = (*said.log, *lines)[-LOG_LINES:]
    return Noted(accepted=True)


def add_stats(facts: Facts, op: AddStats, now: datetime) -> StatsAdded:
    rows = [replace(row, minute=as_utc("minute", row.minute)) for row in op.rows]
    worker = facts.workers.get(op.worker)
    if worker is None or op.batch <= worker.last_batch:
        return StatsAdded(added=False)
    worker.last_batch = op.batch
    for row in rows:
        add_figures(facts, row)
    return StatsAdded(added=True)


def add_figures(facts: Facts, row: StatRow) -> None:
    """Add a row, its minute in UTC, to what is known of that minute."""
    key = row.minute, row.type, row.queue, row.tenant
    facts.stats[key] = _sum(facts.stats.get(key), row)


def read_stats(facts: Facts, op: ReadStats, now: datetime) -> StatPage:
    since, until = as_utc("since", op.since), as_utc("until", op.until)
    asked = sorted(
        key
        for key in facts.stats
        if since <= key[0] < until
        and op.type in (None, key[1])
        and op.queue in (None, key[2])
        and op.tenant in (None, key[3])
    )
    if op.step_s is not None:
        rows = summed((facts.stats[key] for key in asked), since, op.step_s, op.by)
        return StatPage(rows=tuple(rows[: max(op.limit, 0)]))
    return StatPage(rows=tuple(_sum(None, facts.stats[key]) for key in asked[: max(op.limit, 0)]))


def _sum(there: StatRow | None, more: StatRow) -> StatRow:
    """Both rows as one; never a dictionary of either, so that nobody else can change it."""
    if there is None:
        return replace(more, wait_buckets=dict(more.wait_buckets), run_buckets=dict(more.run_buckets))
    return replace(
        there,
        **{name: getattr(there, name) + getattr(more, name) for name in _SUMS},
        wait_buckets=_add(there.wait_buckets, more.wait_buckets),
        run_buckets=_add(there.run_buckets, more.run_buckets),
    )


def _add(there: dict[int, int], more: dict[int, int]) -> dict[int, int]:
    return there | {bucket: there.get(bucket, 0) + count for bucket, count in more.items()}
