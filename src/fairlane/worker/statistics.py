"""What the attempts of this process came to, added up by minute, type, queue and tenant until it is flushed to the store.

What a worker says of itself with its heartbeat: its memory, how busy its lanes are, what its duties tell.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from fairlane.core.clock import Clock
from fairlane.core.job import Lease
from fairlane.core.ops import StatRow
from fairlane.core.outcome import Cancelled, Completed, Died, Outcome, Retried
from fairlane.worker.foreman.process import own_memory_mb

if TYPE_CHECKING:
    from fairlane.stores.base import Migrator
    from fairlane.worker.engine import Engine

LONG_S = 30.0
"""A fast lane is for jobs shorter than this."""
KEPT_LONG = 100
BUCKETS = 64

Key = tuple[str, str, str]


class Long(NamedTuple):
    """An attempt that ran longer than LONG_S."""

    seq: int
    attempt: int
    lane: str
    type: str
    ran_s: float


class Sums:
    """The figures of one type, queue and tenant. Buckets by powers of two: a span falls under the first that is longer."""

    __slots__ = ("cancelled", "completed", "dead", "failed", "run_buckets", "run_s", "wait_buckets", "wait_s")

    def __init__(self) -> None:
        self.completed = self.failed = self.dead = self.cancelled = 0
        self.wait_s = self.run_s = 0.0
        self.wait_buckets = [0] * BUCKETS
        self.run_buckets = [0] * BUCKETS


class Statistics:
    """Sums only: what it holds grows with the number of types, queues and tenants, never with the number of jobs."""

    def __init__(self) -> None:
        self._sums: dict[Key, Sums] = {}
        self.long: deque[Long] = deque(maxlen=KEPT_LONG)
        """Attempts that ended after more than LONG_S, until somebody looks."""
        self.payload_buckets = [0] * BUCKETS
        """Attempts by size of payload since this process began: bucket b holds those under 2**b characters."""

    def add(self, lease: Lease, outcome: Outcome, ran_s: float) -> None:
        """Count an ended attempt. On the way of every job: about a microsecond."""
        kind = type(outcome)
        self.payload_buckets[len(lease.payload).bit_length()] += 1
        if kind is not Completed and kind not in _COUNTED:
            return  # snoozed, given back or crashed: it ends another time
        key = lease.type, lease.queue, lease.tenant
        sums = self._sums.get(key)
        if sums is None:
            sums = self._sums[key] = Sums()
        if kind is Completed:
            sums.completed += 1
        elif kind is Retried:
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
            self.long.append(Long(lease.seq, lease.attempt, lease.lane, lease.type, ran_s))

    def take(self, minute: datetime) -> list[StatRow]:
        """The sums so far as rows of one minute; begins anew."""
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
                wait_buckets=_held(of.wait_buckets),
                run_buckets=_held(of.run_buckets),
            )
            for (name, queue, tenant), of in sums.items()
        ]


def _held(buckets: list[int]) -> dict[int, int]:
    return {bucket: count for bucket, count in enumerate(buckets) if count}


_COUNTED = frozenset({Completed, Retried, Died, Cancelled})


FIGURES_S = 5.0
"""Utilisation is measured over this long."""


class Figures:
    """Measured on the engine's own loop, for its lanes count on while they are read; `latest` may be read from any thread."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine, self._clock = engine, clock
        self.latest: dict[str, float] = {}
        self._schema = _schema_needed(engine.desk.app.runtime.store.migrator())
        self._measured_s: float | None = None

    def measure_if_old(self) -> None:
        if self._measured_s is None or self._clock.monotonic() - self._measured_s >= FIGURES_S:
            self.measure()

    def measure(self) -> None:
        desk, now_s = self._engine.desk, self._clock.monotonic()
        running_s: dict[str, float] = {}
        for slot in desk.slots:
            if slot.lease is not None:
                lane = slot.lease.lane
                running_s[lane] = running_s.get(lane, 0.0) + now_s - slot.began_s
        figures = {"memory_mb": round(own_memory_mb(), 1), "started": float(desk.started), "ended": float(desk.ended)}
        for state in desk.lanes:
            name = state.lane.name
            figures[f"lane.{name}.slots"] = float(state.lane.slots)
            figures[f"lane.{name}.utilisation"] = round(state.utilisation(now_s, running_s.get(name, 0.0)), 3)
        self.latest, self._measured_s = figures | self._schema | self._engine.duties.figures(), now_s


def _schema_needed(migrator: Migrator | None) -> dict[str, float]:
    """What `fairlane migrate contract` asks live workers for."""
    if migrator is None:
        return {}
    needed = migrator.needed
    return {"schema.version": float(needed.expanded), "schema.functions": float(needed.functions)}
