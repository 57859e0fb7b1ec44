"""Counts by queue and status, each read no further than its cap."""

from __future__ import annotations

from fairlane.core.job import DEAD_LETTER_STATUSES
from fairlane.core.ops import GetStats, QueueStats, Stats
from fairlane.stores.sqlite.instants import from_us, maybe_from_us
from fairlane.stores.sqlite.transaction import Transaction

_JOB = "join fairlane_job j on j.seq = f.seq"
_LEASED_QUEUES = "select distinct j.queue from fairlane_lease f join fairlane_job j on j.seq = f.seq"
# From line to line by the index: a scan of a million ready jobs would take a tenth of a second.
_NEXT_LINE = """
select band, tenant, rank, due_at from fairlane_ready
where queue = ? and (band, tenant, rank) > (?, ?, ?) order by band, tenant, rank, due_at limit 1
"""


class Counter:
    """Counts the rows of a fact table that belong to the scope."""

    def __init__(self, tx: Transaction, tenant: str | None, cap: int) -> None:
        self._tx, self._tenant, self._cap = tx, tenant, max(cap, 0)

    def count(self, table: str, where: str, *params: object) -> int:
        return self._count_to(self._cap, table, where, params)

    def queues(self) -> list[str]:
        """Queues with unfinished jobs, by name."""
        names = {*self._named_in("ready"), *self._named_in("scheduled")}
        names |= {name for (name,) in self._tx.db.execute(_LEASED_QUEUES)}
        return sorted(name for name in names if self._tenant is None or self._has_jobs_in(name))

    def oldest_due_at(self, queue: str) -> int | None:
        """The earliest due time among the ready: the least of the heads of all lines."""
        heads: list[int] = []
        band, tenant, rank = -1, "", -1
        while rows := self._tx.db.execute(_NEXT_LINE, (queue, band, tenant, rank)):
            [(band, tenant, rank, due_at)] = rows
            if self._tenant in (None, tenant):
                heads.append(due_at)
        return min(heads, default=None)

    def _named_in(self, table: str) -> list[str]:
        names: list[str] = []
        sql = f"select min(queue) from fairlane_{table} where queue > ?"  # noqa: S608
        while (name := self._tx.db.execute(sql, (names[-1] if names else "",))[0][0]) is not None:
            names.append(name)
        return names

    def _has_jobs_in(self, queue: str) -> bool:
        return any(self._count_to(1, table, "j.queue = ?", (queue,)) for table in ("ready", "scheduled", "lease"))

    def _count_to(self, cap: int, table: str, where: str, params: tuple[object, ...]) -> int:
        if self._tenant is not None:
            where, params = f"{where} and j.tenant = ?", (*params, self._tenant)
        job = _JOB if "j." in where else ""
        sql = f"select count(*) from (select 1 from fairlane_{table} f {job} where {where} limit ?)"  # noqa: S608
        return int(self._tx.db.execute(sql, (*params, cap))[0][0])


def get_stats(tx: Transaction, op: GetStats) -> Stats:
    counter = Counter(tx, op.scope.tenant, op.cap)
    letters = {status: counter.count("dead_letter", "f.status = ?", status) for status in DEAD_LETTER_STATUSES}
    return Stats(
        now=from_us(tx.now),
        queues=tuple(_queue(counter, name, op.cap) for name in counter.queues()),
        completed=counter.count("done", "f.status = 'completed'"),
        dead=counter.count("done", "f.status = 'dead' and f.status <> 'completed'"),
        cancelled=counter.count("done", "f.status = 'cancelled' and f.status <> 'completed'"),
        dead_letters={status: number for status, number in letters.items() if number},
    )


def _queue(counter: Counter, name: str, cap: int) -> QueueStats:
    ready = counter.count("ready", "f.queue = ?", name)
    failed = counter.count("scheduled", "f.queue = ? and f.failed = 1", name)
    first_or_snoozed = counter.count("scheduled", "f.queue = ? and f.failed = 0", name)
    prefetched = counter.count("lease", "j.queue = ? and f.started_at is null", name)
    return QueueStats(
        queue=name,
        pending=min(ready + first_or_snoozed + prefetched, cap),
        ready=ready,
        scheduled=min(failed + first_or_snoozed, cap),
        processing=counter.count("lease", "j.queue = ? and f.started_at is not null", name),
        failed=failed,
        oldest_due_at=maybe_from_us(counter.oldest_due_at(name)),
    )
