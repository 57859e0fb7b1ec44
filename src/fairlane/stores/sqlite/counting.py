"""Counts by queue and status, each read no further than its cap."""

from __future__ import annotations

from fairlane.core.job import DEAD_LETTER_STATUSES
from fairlane.core.ops import GetStats, QueueStats, Stats
from fairlane.stores.sqlite.instants import from_us, maybe_from_us
from fairlane.stores.sqlite.transaction import Transaction

_JOB = "join fairlane_job j on j.seq = f.seq"


class Counter:
    """Counts the rows of a fact table that belong to the scope."""

    def __init__(self, tx: Transaction, tenant: str | None, cap: int) -> None:
        self._tx, self._tenant, self._cap = tx, tenant, max(cap, 0)

    def count(self, table: str, where: str, *params: object) -> int:
        matching, params = self._matching(table, where, params)
        [(number,)] = self._tx.db.execute(f"select count(*) from (select 1 {matching} limit ?)", (*params, self._cap))  # noqa: S608
        return int(number)

    def queues(self) -> set[str]:
        """Queues with unfinished jobs."""
        found = set()
        for table, column in (("ready", "f.queue"), ("scheduled", "f.queue"), ("lease", "j.queue")):
            matching, params = self._matching(table, "true", ())
            if table == "lease" and _JOB not in matching:
                matching = matching.replace(" f where", f" f {_JOB} where")
            found |= {name for (name,) in self._tx.db.execute(f"select distinct {column} {matching}", params)}
        return found

    def oldest_due_at(self, queue: str) -> int | None:
        matching, params = self._matching("ready", "f.queue = ?", (queue,))
        at: int | None = self._tx.db.execute(f"select min(f.due_at) {matching}", params)[0][0]
        return at

    def _matching(self, table: str, where: str, params: tuple[object, ...]) -> tuple[str, tuple[object, ...]]:
        if self._tenant is None and "j." not in where:
            return f"from fairlane_{table} f where {where}", params
        if self._tenant is None:
            return f"from fairlane_{table} f {_JOB} where {where}", params
        return f"from fairlane_{table} f {_JOB} where {where} and j.tenant = ?", (*params, self._tenant)


def get_stats(tx: Transaction, op: GetStats) -> Stats:
    counter = Counter(tx, op.scope.tenant, op.cap)
    letters = {status: counter.count("dead_letter", "f.status = ?", status) for status in DEAD_LETTER_STATUSES}
    return Stats(
        now=from_us(tx.now),
        queues=tuple(_queue(counter, name, op.cap) for name in sorted(counter.queues())),
        completed=counter.count("done", "f.status = 'completed'"),
        dead=counter.count("done", "f.status = 'dead'"),
        cancelled=counter.count("done", "f.status = 'cancelled'"),
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
