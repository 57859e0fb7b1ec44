"""Counts by queue and status."""

from __future__ import annotations

import sys
from datetime import datetime
from heapq import nlargest

from fairlane.core.job import DEAD_LETTER_STATUSES
from fairlane.core.ops import GetStats, QueueStats, Scope, Stats
from fairlane.stores.memory.facts import Facts, FinalPlace


class _Counts:
    def __init__(self) -> None:
        self.ready = self.scheduled = self.held = self.failed = self.processing = self.prefetched = 0
        self.oldest_due_at: datetime | None = None


def get_stats(facts: Facts, op: GetStats, now: datetime) -> Stats:
    queues = _count_unfinished(facts, op.scope) if "queues" in op.parts else {}
    cap = sys.maxsize if op.rough else op.cap
    return Stats(
        now=now,
        queues=tuple(_queue_stats(queue, queues[queue], cap) for queue in sorted(queues)),
        completed=_ended(facts, op, "completed"),
        dead=_ended(facts, op, "dead"),
        cancelled=_ended(facts, op, "cancelled"),
        dead_letters=_letters(facts, op) if "dead_letters" in op.parts else {},
    )


def _letters(facts: Facts, op: GetStats) -> dict[str, int]:
    found = dict.fromkeys(DEAD_LETTER_STATUSES, 0)
    if op.rough and op.scope.tenant is not None:
        for status in found:
            of_all = (seq for seq, row in facts.letters.items() if row.letter and row.letter.status == status)
            newest = nlargest(op.cap, of_all)
            found[status] = sum(op.scope.admits(facts.letters[seq].spec.tenant) for seq in newest)
    else:
        for row in facts.letters.values():
            if row.letter and op.scope.admits(row.spec.tenant):
                found[row.letter.status] += 1
    return {status: min(count, op.cap) for status, count in found.items() if count}


def _ended(facts: Facts, op: GetStats, asked: FinalPlace) -> int:
    if "ended" not in op.parts:
        return 0
    count = sum(some for (tenant, place), some in facts.ended.items() if place == asked and op.scope.admits(tenant))
    return min(count, op.cap)


def _count_unfinished(facts: Facts, scope: Scope) -> dict[str, _Counts]:
    queues: dict[str, _Counts] = {}
    for (queue, _, tenant), line in facts.ready.lines.items():
        oldest = line.oldest_due_at()
        if oldest is None or not scope.admits(tenant):
            continue
        counts = queues.setdefault(queue, _Counts())
        counts.ready += len(line)
        if counts.oldest_due_at is None or oldest < counts.oldest_due_at:
            counts.oldest_due_at = oldest
    for row in facts.scheduled.rows.values():
        if scope.admits(row.spec.tenant):
            counts = queues.setdefault(row.spec.queue, _Counts())
            counts.scheduled += 1
            counts.failed += row.awaits_retry
    for (queue, tenant), held in facts.held.lines.items():
        if scope.admits(tenant):
            queues.setdefault(queue, _Counts()).held += len(held)
    for worker in facts.workers.values():
        for row in worker.leases.values():
            if scope.admits(row.spec.tenant) and row.lease is not None:
                counts = queues.setdefault(row.spec.queue, _Counts())
                started = row.lease.started_at is not None
                counts.processing += started
                counts.prefetched += not started
    return queues


def _queue_stats(queue: str, counts: _Counts, cap: int) -> QueueStats:
    return QueueStats(
        queue=queue,
        pending=min(counts.ready + counts.held + counts.scheduled - counts.failed + counts.prefetched, cap),
        ready=min(counts.ready, cap),
        scheduled=min(counts.scheduled, cap),
        processing=min(counts.processing, cap),
        failed=min(counts.failed, cap),
        oldest_due_at=counts.oldest_due_at,
        held=min(counts.held, cap),
    )
