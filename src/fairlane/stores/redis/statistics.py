"""Counts by queue and status, which the scripts keep, and figures by the minute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from typing import Any

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
from fairlane.stores.redis.states import joined
from fairlane.stores.redis.steps import Script, Steps, Work, document, handles, pack

_AT_ONCE = 500
_ALL = 2**62
_SUMS = ("enqueued", "completed", "failed", "dead", "cancelled", "wait_us", "run_us")
_ENDED = ("completed", "dead", "cancelled")
_STATUSES = ("unfinished", "failed", *_ENDED)
_PLACES = ("ready", "scheduled", "failed", "held", "prefetched", "processing")

_read_row = msgspec.json.Decoder(StatRow).decode


@handles
def get_stats(work: Work, op: GetStats) -> Steps[Stats]:
    cap, tenant = max(op.cap, 0), op.scope.tenant
    [fields] = yield from work.read(("HGETALL", "counts" if tenant is None else f"count:{tenant}"), watch=False)
    found = {name.decode(): int(number) for name, number in zip(fields[::2], fields[1::2], strict=True)}
    counts = {name: number for name, number in found.items() if number}
    ended = dict.fromkeys(_ENDED, 0)
    if "ended" in op.parts and tenant is None:
        numbers = yield from work.read(*(("ZCARD", f"status:{status}") for status in _ENDED), watch=False)
        ended = dict(zip(_ENDED, numbers, strict=True))
    elif "ended" in op.parts:
        ended = {status: counts.get(status, 0) for status in _ENDED}
    queues: list[QueueStats] = []
    if "queues" in op.parts:
        queues = yield from _queues(work, op, counts)
    letters: dict[str, int] = {}
    if "dead_letters" in op.parts:
        letters = yield from _letters(work, op, cap)
    return Stats(
        now=from_us(work.now),
        queues=tuple(queues),
        **{status: min(number, cap) for status, number in ended.items()},
        dead_letters=letters,
        pending_types=_of(counts, "pending") if "types" in op.parts else {},
    )


@handles
def add_stats(work: Work, op: AddStats) -> Steps[StatsAdded]:
    worker = f"worker:{op.worker.hex}"
    is_known, last = yield from work.read(("EXISTS", worker), ("HGET", worker, "stats_batch"))
    if not is_known or op.batch <= int(last or 0):
        return StatsAdded(added=False)
    work.do("HSET", worker, "stats_batch", op.batch)
    yield from _add_figures(work, op.rows)
    yield from work.commit()
    return StatsAdded(added=True)


@handles
def read_stats(work: Work, op: ReadStats) -> Steps[StatPage]:
    limit = _ALL if op.step_s is not None else max(op.limit, 0)
    rows: list[StatRow] = []
    since, until = to_us(op.since), to_us(op.until)
    while len(rows) < limit:
        span = ("ZRANGEBYSCORE", "minutes", since, f"({until}", "LIMIT", 0, _AT_ONCE)
        [minutes] = yield from work.read(span, watch=False)
        lists = yield from work.read(*(("HVALS", f"stats:{minute.decode()}") for minute in minutes), watch=False)
        for documents in lists:
            found = [row for row in map(_read_row, documents) if _matches(row, op)]
            rows += sorted(found, key=lambda row: (row.type, row.queue, row.tenant))
        if len(minutes) < _AT_ONCE:
            break
        since = int(minutes[-1]) + 1
    if op.step_s is not None:
        return StatPage(rows=tuple(summed(rows, op.since, op.step_s, op.by))[: max(op.limit, 0)])
    return StatPage(rows=tuple(rows[:limit]))


@handles
def roll_up(work: Work, op: RollUpEnqueued) -> Steps[RolledUp]:
    limit = max(op.limit, 0)
    [rolled_up] = yield from work.read(("HGET", "meta", "rolled_up"))
    first = last = int(rolled_up or 0)
    settled, jobs = before(work.now, op.settled_s), 0
    enqueued: Counter[tuple[int, str, str, str]] = Counter()
    while jobs < limit:
        call = (str(work.now), last, min(_AT_ONCE, limit - jobs), str(settled))
        seen_to, found, counted = yield Script("statistics", call)
        for minute, job_type, queue, tenant, number in counted:
            enqueued[int(minute), job_type.decode(), queue.decode(), tenant.decode()] += number
        jobs += found
        if seen_to == last:
            break
        last = seen_to
    if last > first:
        work.do("HSET", "meta", "rolled_up", last)
        rows = [
            StatRow(minute=from_us(minute), type=job_type, queue=queue, tenant=tenant, enqueued=number)
            for (minute, job_type, queue, tenant), number in enqueued.items()
        ]
        yield from _add_figures(work, rows)
        yield from work.commit()
    return RolledUp(jobs=jobs)


@handles
def read_enqueued(work: Work, op: ReadEnqueued) -> Steps[EnqueuedLines]:
    newest = yield from work.read(*(("ZREVRANGE", f"status:{status}", 0, 0) for status in _STATUSES), watch=False)
    last = max((int(seq) for seqs in newest for seq in seqs), default=0)
    after, jobs = max(op.after, last - max(op.limit, 0)), Counter[tuple[str, str]]()
    while after < last:
        call = (str(work.now), after, min(_AT_ONCE, last - after), str(_ALL))
        seen_to, _, counted = yield Script("statistics", call)
        for _, _, queue, tenant, number in counted:
            jobs[tenant.decode(), queue.decode()] += number
        if seen_to == after:
            break
        after = seen_to
    lines = [EnqueuedLine(tenant=tenant, queue=queue, jobs=jobs[tenant, queue]) for tenant, queue in sorted(jobs)]
    return EnqueuedLines(lines=tuple(lines), last=last)


def forget_minutes(work: Work, before_us: int, limit: int) -> Generator[Script, Any, bool]:
    """Remove the figures of the oldest minutes before then; returns whether others are left. The caller commits."""
    old = ("ZRANGEBYSCORE", "minutes", "-inf", f"({before_us}", "LIMIT", 0, limit + 1)
    [minutes] = yield from work.read(old)
    for minute in minutes[:limit]:
        work.do("UNLINK", f"stats:{minute.decode()}")
        work.do("ZREM", "minutes", minute.decode())
    return len(minutes) > limit


def _of(counts: dict[str, int], kind: str) -> dict[str, int]:
    """What follows `kind:` in the names of counts, sorted."""
    prefix = f"{kind}:"
    return {name.removeprefix(prefix): counts[name] for name in sorted(counts) if name.startswith(prefix)}


def _queues(work: Work, op: GetStats, counts: dict[str, int]) -> Generator[Script, Any, list[QueueStats]]:
    cap = max(op.cap, 0)
    places = {place: _of(counts, place) for place in _PLACES}
    names = sorted({queue for found in places.values() for queue in found})
    queues: list[QueueStats] = []
    for name in names:
        ready, scheduled, failed, held, prefetched, processing = (places[place].get(name, 0) for place in _PLACES)
        oldest = yield from _oldest_due(work, name, op.scope.tenant)
        queues.append(
            QueueStats(
                queue=name,
                pending=min(ready + held + scheduled + prefetched, cap),
                ready=min(ready, cap),
                scheduled=min(failed + scheduled, cap),
                processing=min(processing, cap),
                failed=min(failed, cap),
                oldest_due_at=maybe_from_us(oldest),
                held=min(held, cap),
            )
        )
    return queues


def _oldest_due(work: Work, queue: str, tenant: str | None) -> Generator[Script, Any, int | None]:
    """The earliest due time among the ready: the least of the heads of all lines, rank by rank."""
    [bands] = yield from work.read(("ZRANGE", f"bands:{queue}", 0, -1), watch=False)
    oldest: list[int] = []
    for band in (one.decode() for one in bands):
        names, last = [tenant or ""], "-"
        while names:
            if tenant is None:
                page = ("ZRANGEBYLEX", f"tenants:{band}:{queue}", last, "+", "LIMIT", 0, _AT_ONCE)
                [found] = yield from work.read(page, watch=False)
                names = [one.decode() for one in found]
            if names:
                due = yield Script("oldest", (pack([(queue, int(band), name) for name in names]),))
                oldest += [] if due is None else [int(due)]
                last = f"({names[-1]}"
            if tenant is not None:
                break
    return min(oldest, default=None)


def _letters(work: Work, op: GetStats, cap: int) -> Generator[Script, Any, dict[str, int]]:
    found: dict[str, int] = {}
    for status in DEAD_LETTER_STATUSES:
        if op.scope.tenant is None:
            [number] = yield from work.read(("ZCARD", f"letters:{status}"), watch=False)
        else:
            number = yield from _letters_of(work, op.scope.tenant, status, cap, cap if op.rough else _ALL)
        if min(number, cap):
            found[status] = min(number, cap)
    return found


def _letters_of(work: Work, tenant: str, status: str, cap: int, newest: int) -> Generator[Script, Any, int]:
    """A tenant's among the newest of a status, counted up to `cap`."""
    number = seen = 0
    while number < cap and seen < newest:
        most = min(_AT_ONCE, newest - seen)
        [seqs] = yield from work.read(("ZREVRANGE", f"letters:{status}", seen, seen + most - 1), watch=False)
        if not seqs:
            break
        [scores] = yield from work.read(("ZMSCORE", f"of:{tenant}", *(seq.decode() for seq in seqs)), watch=False)
        number += sum(score is not None for score in scores)
        seen += len(seqs)
    return number


def _add_figures(work: Work, rows: Sequence[StatRow]) -> Generator[Script, Any, None]:
    """Add each row to what its minute has already."""
    places = [(to_us(row.minute), joined(row.type, joined(row.queue, row.tenant))) for row in rows]
    kept = yield from work.read(*(("HGET", f"stats:{minute}", name) for minute, name in places))
    totals: dict[tuple[int, str], StatRow] = {
        place: _read_row(one) for place, one in zip(places, kept, strict=True) if one is not None
    }
    for place, row in zip(places, rows, strict=True):
        totals[place] = _together(totals[place], row) if place in totals else row
    for (minute, name), total in totals.items():
        work.do("HSET", f"stats:{minute}", name, document(total))
        work.do("ZADD", "minutes", minute, str(minute))


def _matches(row: StatRow, op: ReadStats) -> bool:
    return op.type in (None, row.type) and op.queue in (None, row.queue) and op.tenant in (None, row.tenant)


def _together(one: StatRow, other: StatRow) -> StatRow:
    sums = {name: getattr(one, name) + getattr(other, name) for name in _SUMS}
    wait, run = Counter(one.wait_buckets), Counter(one.run_buckets)
    wait.update(other.wait_buckets)
    run.update(other.run_buckets)
    return msgspec.structs.replace(one, **sums, wait_buckets=dict(wait), run_buckets=dict(run))
