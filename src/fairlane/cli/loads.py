"""How loaded queues, tenants and lanes are at one moment, and what failed last: read through the client."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from fairlane.client.app import Fairlane
from fairlane.core.ops import QueueStats, StatRow, TenantRecord

RECENT = timedelta(minutes=5)
"""Waits, run times and shares cover this long."""
WINDOW_S = 10.0
"""Rates of a live view cover this long."""
SOONEST_S = 2.0
"""Before that, rates are those of the last minutes."""
WATCH_S = 10.0
"""How often a live view registers as a watcher; the store keeps it three times as long."""
TENANTS = 200
BUSIEST = 20
PAGE = 1_000
BEYOND = 2**62
"""An id greater than every event's: reading after it returns only the last id so far."""


class QueueLoad(Struct, frozen=True, kw_only=True):
    queue: str
    paused: bool
    ready: int
    scheduled: int
    held: int
    running: int
    retrying: int
    oldest_s: float | None
    """How long the earliest due job has waited."""
    per_s: float
    """Jobs completed."""
    failed_per_s: float
    wait_s: float | None
    """Mean of the last five minutes, like `run_s`."""
    run_s: float | None


class TenantLoad(Struct, frozen=True, kw_only=True):
    tenant: str
    paused: bool
    weight: float
    share: float
    """Of the run time of all tenants in the last five minutes."""
    ready: int
    scheduled: int
    held: int
    running: int
    per_s: float
    failed_per_s: float
    wait_s: float | None
    run_s: float | None


class LaneLoad(Struct, frozen=True, kw_only=True):
    worker: str
    lane: str
    slots: int
    used: float
    """The part of its slots' time that jobs took, over the last seconds."""
    jobs: int
    """Held by its worker, all lanes together."""
    memory_mb: float


class RecentFailure(Struct, frozen=True, kw_only=True):
    at: datetime
    age_s: float
    tenant: str
    type: str
    attempt: int
    dead: bool
    error: str


class Loads(Struct, frozen=True, kw_only=True):
    now: datetime
    tenant: str | None
    """None: all of them."""
    ready: int
    scheduled: int
    running: int
    per_s: float
    failed_per_s: float
    dead_letters: int
    """To be reviewed."""
    open_breakers: tuple[str, ...]
    workers: int
    unserved: tuple[str, ...]
    """Queues with ready jobs that no worker serves."""
    queues: tuple[QueueLoad, ...]
    tenants: tuple[TenantLoad, ...]
    lanes: tuple[LaneLoad, ...]
    failures: tuple[RecentFailure, ...]


class Pace(NamedTuple):
    completed: float
    failed: float


class LoadReader:
    """Reads the loads again and again. The first has rates of the last minutes, later ones of the last seconds."""

    def __init__(self, client: Fairlane) -> None:
        self._client = client
        self._last: int | None = None
        self.began_s = self._watched_s = 0.0
        self._sums: deque[tuple[float, str, str, int, int]] = deque()
        """When it was read, queue, tenant, completed and failed."""

    def read(self, tenant: str | None = None, *, live: bool = False) -> Loads:
        """`live` makes workers report their sums every second, for half a minute."""
        client = self._client
        counts = client.statistics.counts(tenant=tenant, rough=True)
        workers = client.workers.list()
        pauses = {(pause.kind, pause.name) for pause in client.pauses.list()}
        of_queues = _by_name(client, "queue", counts.now, tenant)
        of_tenants = _by_name(client, "tenant", counts.now, tenant)
        if live:
            self._follow()
        queue_rates = self._rates("queue", of_queues, tenant)
        tenant_rates = self._rates("tenant", of_tenants, tenant)
        alive = [worker for worker in workers.workers if worker.expires_at > workers.now]
        idle = (QueueStats(queue=name) for name in sorted(set(of_queues) - {queue.queue for queue in counts.queues}))
        served = {queue for worker in alive for queue in worker.queues}
        return Loads(
            now=counts.now,
            tenant=tenant,
            ready=sum(queue.ready for queue in counts.queues),
            scheduled=sum(queue.scheduled for queue in counts.queues),
            running=sum(queue.processing for queue in counts.queues),
            per_s=sum(rate.completed for rate in queue_rates.values()),
            failed_per_s=sum(rate.failed for rate in queue_rates.values()),
            dead_letters=counts.dead_letters.get("pending_review", 0),
            open_breakers=tuple(breaker.name for breaker in client.breakers.list() if breaker.state != "closed"),
            workers=len(alive),
            unserved=tuple(queue.queue for queue in counts.queues if queue.ready and queue.queue not in served),
            queues=tuple(
                QueueLoad(
                    queue=queue.queue,
                    paused=("queue", queue.queue) in pauses,
                    ready=queue.ready,
                    scheduled=queue.scheduled,
                    held=queue.held,
                    running=queue.processing,
                    retrying=queue.failed,
                    oldest_s=_age_s(queue.oldest_due_at, counts.now),
                    **_pace(of_queues.get(queue.queue), queue_rates.get(queue.queue)),
                )
                for queue in (*counts.queues, *idle)
            ),
            tenants=tuple(self._tenants(tenant, of_tenants, tenant_rates)),
            lanes=tuple(
                LaneLoad(
                    worker=worker.name,
                    lane=name.split(".")[1],
                    slots=int(slots),
                    used=worker.figures.get(name.replace(".slots", ".utilisation"), 0.0),
                    jobs=worker.leases,
                    memory_mb=worker.figures.get("memory_mb", 0.0),
                )
                for worker in alive
                for name, slots in worker.figures.items()
                if name.startswith("lane.") and name.endswith(".slots")
            ),
            failures=tuple(
                RecentFailure(
                    at=one.caught.at,
                    age_s=max((counts.now - one.caught.at).total_seconds(), 0.0),
                    tenant=one.caught.tenant,
                    type=one.caught.task,
                    attempt=one.caught.attempt,
                    dead=one.caught.is_final,
                    error=f"{one.caught.type}: {one.caught.error}",
                )
                for one in client.workers.exceptions(tenant=tenant)
            ),
        )

    def _tenants(
        self, tenant: str | None, recent: dict[str, list[StatRow]], rates: dict[str, Pace]
    ) -> Iterator[TenantLoad]:
        """All tenants while they fit a page; of more than that, the first by name and the busiest."""
        records = self._records(tenant, recent)
        ran_us = {name: sum(row.run_us for row in rows) for name, rows in recent.items()}
        total_us = sum(ran_us.values()) or 1
        for record in records:
            yield TenantLoad(
                tenant=record.name,
                paused=record.paused,
                weight=record.weight,
                share=ran_us.get(record.name, 0) / total_us,
                ready=record.ready,
                scheduled=record.scheduled,
                held=record.held,
                running=record.leased,
                **_pace(recent.get(record.name), rates.get(record.name)),
            )

    def _records(self, tenant: str | None, recent: dict[str, list[StatRow]]) -> list[TenantRecord]:
        if tenant is not None:
            return [self._client.tenants.get(tenant)]
        page = self._client.tenants.list(limit=TENANTS)
        known = {record.name for record in page.tenants}
        busy = Counter({name: sum(row.completed for row in rows) for name, rows in recent.items() if name not in known})
        others = [name for name, _ in busy.most_common(BUSIEST)]
        return [*page.tenants, *map(self._client.tenants.get, others)]

    def _follow(self) -> None:
        """Read the sums that workers have reported since the last time."""
        now_s = self._client.runtime.clock.monotonic()
        watch = self._last is None or now_s - self._watched_s >= WATCH_S
        if watch:
            self._watched_s = now_s
        if self._last is None:
            self._last, self.began_s = self._client.events.list(after=BEYOND, limit=1, watch=True).last, now_s
            return
        while True:
            page = self._client.events.list(after=self._last, kinds=("jobs",), limit=PAGE, watch=watch)
            for event in page.events:
                sums = event.data
                failed = sums["failed"] + sums["dead"]
                self._sums.append((now_s, sums["queue"], sums["tenant"], sums["completed"], failed))
            self._last = page.events[-1].id if page.events else self._last
            if len(page.events) < PAGE:
                break
        while self._sums and self._sums[0][0] <= now_s - WINDOW_S:
            self._sums.popleft()

    def _rates(
        self, by: Literal["queue", "tenant"], recent: dict[str, list[StatRow]], tenant: str | None
    ) -> dict[str, Pace]:
        covered_s = self._client.runtime.clock.monotonic() - self.began_s
        if self._last is None or covered_s < SOONEST_S:
            seconds = RECENT.total_seconds()
            return {
                name: Pace(sum(row.completed for row in rows) / seconds, sum(map(_failures, rows)) / seconds)
                for name, rows in recent.items()
            }
        completed: Counter[str] = Counter()
        failed: Counter[str] = Counter()
        for _, queue, whose, good, bad in self._sums:
            if tenant in (None, whose):
                name = queue if by == "queue" else whose
                completed[name] += good
                failed[name] += bad
        over_s = min(covered_s, WINDOW_S)
        return {name: Pace(completed[name] / over_s, failed[name] / over_s) for name in completed}


def _by_name(
    client: Fairlane, by: Literal["queue", "tenant"], now: datetime, tenant: str | None
) -> dict[str, list[StatRow]]:
    found: dict[str, list[StatRow]] = {}
    for row in client.statistics.series(since=now - RECENT, until=now, step_s=60, by=by, tenant=tenant).rows:
        found.setdefault(getattr(row, by), []).append(row)
    return found


def _pace(rows: Sequence[StatRow] | None, rate: Pace | None) -> dict[str, Any]:
    rows = rows or ()
    waits, runs = (sum(sum(getattr(row, name).values()) for row in rows) for name in ("wait_buckets", "run_buckets"))
    return {
        "per_s": 0.0 if rate is None else rate.completed,
        "failed_per_s": 0.0 if rate is None else rate.failed,
        "wait_s": sum(row.wait_us for row in rows) / waits / 1e6 if waits else None,
        "run_s": sum(row.run_us for row in rows) / runs / 1e6 if runs else None,
    }


def _failures(row: StatRow) -> int:
    return row.failed + row.dead


def _age_s(at: datetime | None, now: datetime) -> float | None:
    return None if at is None else max((now - at).total_seconds(), 0.0)
