"""Sums up ended attempts by type, queue and tenant until they are flushed to the store."""

from __future__ import annotations

from collections import deque
from datetime import datetime
from typing import NamedTuple

from fairlane.core.job import Lease
from fairlane.core.ops import StatRow
from fairlane.core.outcome import Cancelled, Completed, Died, Outcome, Retried

LONG_S = 30.0
"""A fast lane is for jobs shorter than this."""
KEPT_LONG = 100
BUCKETS = 64

Key = tuple[str, str, str]


class LongAttempt(NamedTuple):
    """An attempt that ran longer than LONG_S."""

    seq: int
    attempt: int
    lane: str
    type: str
    ran_s: float


class AttemptSums:
    """The sums of one type, queue and tenant. Buckets by powers of two: a span belongs to the first that is longer."""

    __slots__ = ("cancelled", "completed", "dead", "failed", "run_buckets", "run_s", "wait_buckets", "wait_s")

    def __init__(self) -> None:
        self.completed = self.failed = self.dead = self.cancelled = 0
        self.wait_s = self.run_s = 0.0
        self.wait_buckets = [0] * BUCKETS
        self.run_buckets = [0] * BUCKETS


class AttemptStatistics:
    """Grows with the number of types, queues and tenants, never with the number of jobs."""

    def __init__(self) -> None:
        self._sums: dict[Key, AttemptSums] = {}
        self.long: deque[LongAttempt] = deque(maxlen=KEPT_LONG)
        """Attempts that ended after more than LONG_S, until the fast lane's duty takes them."""
        self.payload_buckets = [0] * BUCKETS
        """Attempts by size of payload since this process began: bucket b holds those under 2**b characters."""

    def add(self, lease: Lease, outcome: Outcome, ran_s: float) -> None:
        """Count an ended attempt. Called for every job: about a microsecond."""
        kind = type(outcome)
        self.payload_buckets[len(lease.payload).bit_length()] += 1
        if kind is not Completed and kind not in _COUNTED:
            return  # snoozed, released or crashed: it ends another time
        key = lease.type, lease.queue, lease.tenant
        sums = self._sums.get(key)
        if sums is None:
            sums = self._sums[key] = AttemptSums()
        if type(outcome) is Completed and not outcome.counts_as_failed:
            sums.completed += 1
        elif kind is Completed or kind is Retried:
            sums.failed += 1
        elif kind is Died:
            sums.dead += 1
        else:
            sums.cancelled += 1
        sums.run_s += ran_s
        sums.run_buckets[int(ran_s * 1000).bit_length()] += 1
        if lease.attempt == 1:
            wait_s = (lease.leased_at - lease.due_at).total_seconds()
            if wait_s > 0:
                sums.wait_s += wait_s
                sums.wait_buckets[int(wait_s * 1000).bit_length()] += 1
            else:
                sums.wait_buckets[0] += 1
        if ran_s > LONG_S:
            self.long.append(LongAttempt(lease.seq, lease.attempt, lease.lane, lease.type, ran_s))

    def take(self, minute: datetime) -> list[StatRow]:
        """Return the sums as rows of one minute and reset them."""
        sums, self._sums = self._sums, {}
        return [
            StatRow(
                minute=minute,
                type=name,
                queue=queue,
                tenant=tenant,
                completed=of.completed,
                failed=of.failed,
                dead=of.dead,
                cancelled=of.cancelled,
                wait_us=round(of.wait_s * 1_000_000),
                run_us=round(of.run_s * 1_000_000),
                wait_buckets=_nonzero(of.wait_buckets),
                run_buckets=_nonzero(of.run_buckets),
            )
            for (name, queue, tenant), of in sums.items()
        ]


def _nonzero(buckets: list[int]) -> dict[int, int]:
    return {bucket: count for bucket, count in enumerate(buckets) if count}


_COUNTED = frozenset({Completed, Retried, Died, Cancelled})
