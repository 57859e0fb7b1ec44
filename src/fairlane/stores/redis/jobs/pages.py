"""Pages of jobs, newest first, read from whichever index is shortest, a bounded number at a time."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any
from uuid import UUID

from fairlane.core.ids import Seq
from fairlane.core.job import STATUSES, Job, Status
from fairlane.core.ops import MAX_PAGE, JobFilter, JobPage, PageJobs, Scope
from fairlane.stores.instants import to_us
from fairlane.stores.redis.jobs.records import KeptJob, job_of, read_jobs
from fairlane.stores.redis.steps import Script, Steps, Work, handles

_INDEX: dict[Status, str] = {status: f"status:{status}" for status in STATUSES}
_INDEX["pending"] = _INDEX["processing"] = "status:unfinished"


@handles
def page_jobs(work: Work, op: PageJobs) -> Steps[JobPage]:
    limit = max(1, min(op.limit, MAX_PAGE))
    where = op.where
    statuses = list(
        dict.fromkeys(where.statuses or (("processing",) if where.started_before is not None else STATUSES))
    )
    keys = yield from shortest(work, op.scope, where, list(dict.fromkeys(_INDEX[status] for status in statuses)))
    if statuses == ["processing"]:
        keys = yield from _leases(work)
    found: list[Job] = []
    before: int | None = op.before
    while len(found) <= limit:
        seqs = yield from newest(work, keys, before, MAX_PAGE)
        kept = yield from read_jobs(work, seqs, watch=False)
        found += [
            job_of(one)
            for one in kept
            if one is not None and one.state.status in statuses and is_in(one, op.scope) and _matches(one, where)
        ]
        if len(seqs) < MAX_PAGE:
            break
        before = seqs[-1]
    page = found[:limit]
    return JobPage(jobs=tuple(page), next=page[-1].seq if len(found) > limit else None)


def shortest(work: Work, scope: Scope, where: Any, keys: list[str]) -> Generator[Script, Any, list[str]]:
    """Of the indexes that hold all jobs asked for, the one with the fewest; `keys`: those of their status."""
    correlation, parent = where.correlation_id, getattr(where, "parent_id", None)
    if correlation is not None and own_id(correlation) is None:
        return [f"correlated:{correlation}"]
    if parent is not None:
        return [f"children:{parent.hex}"]
    if scope.tenant is None:
        return keys
    mine = f"of:{scope.tenant}"
    numbers = yield from work.read(*(("ZCARD", key) for key in (mine, *keys)), watch=False)
    return [mine] if numbers[0] < sum(numbers[1:]) else keys


def _leases(work: Work) -> Generator[Script, Any, list[str]]:
    """The leases of all workers: few, whatever else waits."""
    [workers] = yield from work.read(("ZRANGE", "workers", 0, -1), watch=False)
    return [f"leases:{worker.decode()}" for worker in workers]


def newest(work: Work, keys: list[str], before: int | None, most: int) -> Generator[Script, Any, list[Seq]]:
    """The highest numbers of several indexes below `before`, in order."""
    top = "+inf" if before is None else f"({before}"
    lists = yield from work.read(
        *(
            # A worker's leases are sorted by their deadlines, and few.
            ("ZRANGE", key, 0, -1)
            if key.startswith("leases:")
            else ("ZREVRANGEBYSCORE", key, top, "-inf", "LIMIT", 0, most)
            for key in keys
        ),
        watch=False,
    )
    found = {Seq(int(seq)) for seqs in lists for seq in seqs}
    return sorted((seq for seq in found if before is None or seq < before), reverse=True)[:most]


def is_in(kept: KeptJob, scope: Scope) -> bool:
    return scope.admits(kept.body.tenant)


def _matches(kept: KeptJob, where: JobFilter) -> bool:
    body, state = kept.body, kept.state
    wanted = (
        (where.queue, body.queue),
        (where.type, body.type),
        (where.category, body.category),
        (None if where.parent_id is None else where.parent_id.hex, body.parent_id),
        (where.created_by, body.created_by),
        (where.correlation_id, given_or_own_id(kept, body.correlation_id)),
        (where.idempotency_key, given_or_own_id(kept, body.idempotency_key)),
    )
    if any(asked is not None and asked != found for asked, found in wanted):
        return False
    if where.enqueued_from is not None and body.enqueued < to_us(where.enqueued_from):
        return False
    if where.enqueued_before is not None and body.enqueued >= to_us(where.enqueued_before):
        return False
    if where.started_before is None:
        return True
    return state.place == "leased" and state.started is not None and state.started < to_us(where.started_before)


def given_or_own_id(kept: KeptJob, given: str | None) -> str:
    """A job without the value shows its own id there."""
    return str(kept.body.id) if given is None else given


def own_id(text: str) -> UUID | None:
    """The id that a text may be, written as a job shows it."""
    try:
        found = UUID(text)
    except ValueError:
        return None
    return found if str(found) == text else None
