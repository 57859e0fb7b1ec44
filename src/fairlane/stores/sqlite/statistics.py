"""Counts by queue and status, each read no further than its cap, and figures by the minute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec

from fairlane.core.job import DEAD_LETTER_STATUSES
from fairlane.core.ops import (
    AddStats,
    EnqueuedLine,
    EnqueuedLines,
    GetStats,
    QueueStats,
    ReadEnqueued,
    ReadStats,
    RolledUp,
    RollUpEnqueued,
    StatPage,
    StatRow,
    Stats,
    StatsAdded,
)
from fairlane.core.statistics import summed
from fairlane.stores.instants import before, from_us, maybe_from_us, to_us
from fairlane.stores.sqlite.transaction import Transaction, change, reading

# `cross join`: from the facts to their jobs; left to itself SQLite may go through all jobs looking for few leases.
_JOB = "cross join fairlane_job j on j.seq = f.seq"
_NEXT_READY_QUEUE = "select min(queue) from fairlane_ready where queue > ?"
_NEXT_SCHEDULED_QUEUE = "select min(queue) from fairlane_scheduled where queue > ?"
_NEXT_HELD_QUEUE = "select min(queue) from fairlane_held where queue > ?"
_NEXT_QUEUE_AT_KEYS = "select min(queue) from fairlane_job_key where state = 'held' and queue > ?"
_LEASED_QUEUES = "select distinct j.queue from fairlane_lease f cross join fairlane_job j on j.seq = f.seq"
# From line to line by the index, one column at a time; a scan of a million ready jobs took 54 ms.
_NEXT_BAND = "select min(band) from fairlane_ready where queue = ? and band > ?"
_NEXT_TENANT = "select min(tenant) from fairlane_ready where queue = ? and band = ? and tenant > ?"
_NEXT_RANK = "select min(rank) from fairlane_ready where queue = ? and band = ? and tenant = ? and rank > ?"
_HEAD = "select min(due_at) from fairlane_ready where queue = ? and band = ? and tenant = ? and rank = ?"
_NEWEST_LETTERS = "(select seq from fairlane_dead_letter where status = ? order by seq desc limit ?)"
_ROUGHLY = 10
"""How many times `cap` a rough number is counted to."""
_LEAST_TYPED = 1_000
"""Rows of a place that are read for types whatever the cap."""
_READY_TYPES = "select type, count(*) from (select type from fairlane_ready where {} limit ?) group by type"
_OTHER_PENDING = (
    f"from fairlane_scheduled f {_JOB} where f.failed = 0",
    f"from fairlane_held f {_JOB} where true",
    f"from fairlane_job_key f {_JOB} where f.state = 'held'",
    f"from fairlane_lease f {_JOB} where f.started_at is null",
)
V = TypeVar("V")


class StatusCounter:
    """Counts the rows of a fact table that belong to the scope."""

    def __init__(self, tx: Transaction, tenant: str | None, cap: int) -> None:
        self._tx, self._tenant, self._cap = tx, tenant, max(cap, 0)

    def count(self, table: str, where: str, *params: object) -> int:
        """Rows of a table that has no tenant of its own."""
        if self._tenant is not None:
            where, params = f"{where} and j.tenant = ?", (*params, self._tenant)
        return self._count(f"{table} f {_JOB if 'j.' in where else ''}", where, params)

    def count_newest_letters(self, status: str) -> int:
        """Those that are among the newest of their status, no matter whose."""
        sql = f"select count(*) from {_NEWEST_LETTERS} f {_JOB} where j.tenant = ?"  # noqa: S608
        return int(self._tx.db.execute(sql, (status, self._cap, self._tenant))[0][0])

    def count_waiting(self, table: str, where: str, *params: object) -> int:
        """Rows of a table that has one, by an index."""
        if self._tenant is not None:
            where, params = f"{where} and f.tenant = ?", (*params, self._tenant)
        return self._count(f"{table} f", where, params)

    def count_ready(self, queue: str) -> int:
        if self._tenant is None:
            return self.count_waiting("ready", "f.queue = ?", queue)
        # The index leads to a tenant by its band.
        bands = self._each(_NEXT_BAND, -1, queue)
        return sum(self.count_waiting("ready", "f.queue = ? and f.band = ?", queue, band) for band in bands)

    def queues(self) -> list[str]:
        """Queues with unfinished jobs of anybody, by name."""
        names = {*self._each(_NEXT_READY_QUEUE, ""), *self._each(_NEXT_SCHEDULED_QUEUE, "")}
        names |= {*self._each(_NEXT_HELD_QUEUE, ""), *self._each(_NEXT_QUEUE_AT_KEYS, "")}
        names |= {name for (name,) in self._tx.db.execute(_LEASED_QUEUES)}
        return sorted(names)

    def bands(self) -> Iterator[tuple[str, int]]:
        """Every queue and band with ready jobs of anybody."""
        for queue in self._each(_NEXT_READY_QUEUE, ""):
            for band in self._each(_NEXT_BAND, -1, queue):
                yield queue, band

    def oldest_due_at(self, queue: str) -> int | None:
        """The earliest due time among the ready: the least of the heads of all lines."""
        heads: list[int] = []
        for band in self._each(_NEXT_BAND, -1, queue):
            tenants = self._each(_NEXT_TENANT, "", queue, band) if self._tenant is None else (self._tenant,)
            for tenant in tenants:
                for rank in self._each(_NEXT_RANK, -1, queue, band, tenant):
                    heads += self._tx.db.execute(_HEAD, (queue, band, tenant, rank))[0]
        return min(heads, default=None)

    def _each(self, next_value: str, last: V, *within: object) -> Iterator[V]:
        """The different values of a column, each found by a seek behind the one before."""
        while (value := self._tx.db.execute(next_value, (*within, last))[0][0]) is not None:
            last = value
            yield last

    def _count(self, rows: str, where: str, params: tuple[object, ...]) -> int:
        sql = f"select count(*) from (select 1 from fairlane_{rows} where {where} limit ?)"  # noqa: S608
        return int(self._tx.db.execute(sql, (*params, self._cap))[0][0])


@reading
def get_stats(tx: Transaction, op: GetStats) -> Stats:
    counter = StatusCounter(tx, op.scope.tenant, op.cap)
    queues = _queues(tx, op) if "queues" in op.parts else ()
    completed = dead = cancelled = 0
    if "ended" in op.parts:
        completed = counter.count("done", "f.status = 'completed'")
        dead = counter.count("done", "f.status = 'dead' and f.status <> 'completed'")
        cancelled = counter.count("done", "f.status = 'cancelled' and f.status <> 'completed'")
    letters = _letters(counter, op) if "dead_letters" in op.parts else {}
    return Stats(
        now=from_us(tx.now),
        queues=queues,
        completed=completed,
        dead=dead,
        cancelled=cancelled,
        dead_letters=letters,
        pending_types=_pending_types(tx, op) if "types" in op.parts else {},
    )


def _pending_types(tx: Transaction, op: GetStats) -> dict[str, int]:
    """Counts up to a bound in each place, and in each line of a tenant's ready jobs."""
    most = max(_ROUGHLY * op.cap if op.rough else op.cap, _LEAST_TYPED)
    tenant = op.scope.tenant
    counter, found = StatusCounter(tx, tenant, most), Counter[str]()
    if tenant is None:
        found.update(dict(tx.db.execute(_READY_TYPES.format("true"), (most,))))
    else:
        for queue, band in counter.bands():
            line = _READY_TYPES.format("queue = ? and band = ? and tenant = ?")
            found.update(dict(tx.db.execute(line, (queue, band, tenant, most))))
    for rows in _OTHER_PENDING:
        where, params = ("true", ()) if tenant is None else ("j.tenant = ?", (tenant,))
        sql = f"select type, count(*) from (select j.type {rows} and {where} limit ?) group by type"  # noqa: S608
        found.update(dict(tx.db.execute(sql, (*params, most))))
    return dict(sorted(found.items()))


def _letters(counter: StatusCounter, op: GetStats) -> dict[str, int]:
    if op.rough and op.scope.tenant is not None:
        found = {status: counter.count_newest_letters(status) for status in DEAD_LETTER_STATUSES}
    else:
        found = {status: counter.count("dead_letter", "f.status = ?", status) for status in DEAD_LETTER_STATUSES}
    return {status: number for status, number in found.items() if number}


def _queues(tx: Transaction, op: GetStats) -> tuple[QueueStats, ...]:
    """Numbers over a cap are counted on where an estimate is asked for: SQLite has no samples."""
    most = _ROUGHLY * op.cap if op.rough else op.cap
    counter = StatusCounter(
        tx, op.scope.tenant, max(most, 1)
    )  # at least 1: a queue that has some is listed whatever the cap
    found = (_queue(counter, name, most) for name in counter.queues())
    return tuple(queue for queue in found if queue is not None)


def _queue(counter: StatusCounter, name: str, cap: int) -> QueueStats | None:
    """None: the tenant has nothing there."""
    ready = counter.count_ready(name)
    failed = counter.count_waiting("scheduled", "f.queue = ? and f.failed = 1", name)
    first_or_snoozed = counter.count_waiting("scheduled", "f.queue = ? and f.failed = 0", name)
    held = counter.count_waiting("held", "f.queue = ?", name)
    held += counter.count_waiting("job_key", "f.state = 'held' and f.queue = ?", name)
    prefetched = counter.count("lease", "j.queue = ? and f.started_at is null", name)
    processing = counter.count("lease", "j.queue = ? and f.started_at is not null", name)
    if not (ready or failed or first_or_snoozed or held or prefetched or processing):
        return None
    return QueueStats(
        queue=name,
        pending=min(ready + held + first_or_snoozed + prefetched, cap),
        ready=min(ready, cap),
        scheduled=min(failed + first_or_snoozed, cap),
        processing=min(processing, cap),
        failed=min(failed, cap),
        oldest_due_at=maybe_from_us(counter.oldest_due_at(name)),
        held=min(held, cap),
    )


_decode = msgspec.json.Decoder(StatRow).decode
_BATCH = "select stats_batch from fairlane_worker where id = ?"
_FIND = "select figures from fairlane_stat where minute = ? and type = ? and queue = ? and tenant = ?"
_ALL = 2**62
_SUMS = ("enqueued", "completed", "failed", "dead", "cancelled", "wait_us", "run_us")


@change
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


@reading
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


MINUTE_US = 60_000_000
_ROLLED_UP = "select value from fairlane_meta where name = 'rolled_up_seq'"
_ENQUEUED = """
select seq, enqueued_at, type, queue, tenant from fairlane_job where seq > ? order by seq limit ?
"""


@change
def roll_up(tx: Transaction, op: RollUpEnqueued) -> RolledUp:
    known = tx.db.execute(_ROLLED_UP)
    settled = before(tx.now, op.settled_s)
    counts: Counter[tuple[int, str, str, str]] = Counter()
    jobs = last = 0
    for seq, enqueued_at, job_type, queue, tenant in tx.db.execute(
        _ENQUEUED, (known[0][0] if known else 0, max(op.limit, 0))
    ):
        if enqueued_at > settled:
            break
        counts[enqueued_at // MINUTE_US * MINUTE_US, job_type, queue, tenant] += 1
        jobs, last = jobs + 1, seq
    if jobs:
        add_figures(
            tx,
            [
                StatRow(minute=from_us(minute), type=job_type, queue=queue, tenant=tenant, enqueued=count)
                for (minute, job_type, queue, tenant), count in counts.items()
            ],
        )
        tx.db.execute("insert or replace into fairlane_meta values ('rolled_up_seq', ?)", (last,))
    return RolledUp(jobs=jobs)


# `not indexed`: by seq; left to itself SQLite reads all jobs by an index that has tenants in order.
_LINES = """
select tenant, queue, count(*) from fairlane_job not indexed where seq > ? group by tenant, queue order by tenant, queue
"""


@reading
def read_enqueued(tx: Transaction, op: ReadEnqueued) -> EnqueuedLines:
    last = tx.db.execute("select coalesce(max(seq), 0) from fairlane_job")[0][0]
    rows = tx.db.execute(_LINES, (max(op.after, last - max(op.limit, 0)),))
    return EnqueuedLines(
        lines=tuple([EnqueuedLine(tenant=tenant, queue=queue, jobs=jobs) for tenant, queue, jobs in rows]), last=last
    )
