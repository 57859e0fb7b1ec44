"""Retention: removes what is old enough; and a purge for tests."""

from __future__ import annotations

from typing import Any

from fairlane.core.ops import DropResults, ForgetOld, Forgotten, Purge, Purged, ResultsDropped, Retain, Retained
from fairlane.core.ops.retention import LONG_AGO
from fairlane.stores.instants import EARLIEST_US, from_us, to_us
from fairlane.stores.redis.credentials import forget_ended
from fairlane.stores.redis.events import forget_old
from fairlane.stores.redis.signals import forget_signals
from fairlane.stores.redis.statistics import forget_minutes
from fairlane.stores.redis.steps import Commands, Script, Steps, Work, handles, pack

MINUTES_AT_ONCE = 1_000
_GLOB = str.maketrans({letter: f"\\{letter}" for letter in "*?[]\\^-"})
_NUMBERS = ("seq", "audit", "event", "limits_version", "latest", "format")
"""What is never given twice, also after a purge."""


@handles
def retain(work: Work, op: Retain) -> Steps[Retained]:
    removed, finished_to, examined_to, more_stats = 0, None, None, False
    limit, kept = max(op.limit, 0), {queue: to_us(before) for queue, before in op.by_queue.items()}
    if op.finished_before is not None or kept:
        first = EARLIEST_US if op.finished_from is None else to_us(op.finished_from)
        before = to_us(op.newest(op.finished_before))
        if kept:
            found = ("ZRANGEBYSCORE", f"{work.tag}:finished", first, f"({before}", "WITHSCORES", "LIMIT")
            [cut] = yield Commands(((*found, max(op.examine, 1) - 1, 1),))
            examined_to = int(cut[1]) + 1 if cut else None
        ages = {"before": examined_to or before, "queues": kept, "others": to_us(op.finished_before or LONG_AGO)}
        removed, last = yield from _remove(work, "finished", first, ages, limit)
        finished_to = None if last is None else from_us(last)
    if (op.closed_before is not None or kept) and removed < limit:
        before = to_us(op.newest(op.closed_before))
        ages = {"before": before, "queues": kept, "others": to_us(op.closed_before or LONG_AGO)}
        letters, _ = yield from _remove(work, "closed", EARLIEST_US, ages, limit - removed)
        removed += letters
    if op.stats_before is not None:
        more_stats = yield from forget_minutes(work, to_us(op.stats_before), MINUTES_AT_ONCE)
        yield from work.commit()
    return Retained(
        jobs=removed,
        finished_to=finished_to,
        examined_to=None if examined_to is None else from_us(examined_to),
        more_stats=more_stats,
    )


def _remove(work: Work, index: str, first: int, ages: dict[str, Any], limit: int) -> Steps[tuple[int, int | None]]:
    """How many jobs of an index were removed, and when the last had finished.

    Nodes whose workflow goes on stay, and jobs of queues that keep theirs; one script looks at a bounded number.
    """
    removed, last, call = 0, None, {"index": index, "from": first, "skip": 0, **ages}
    while True:
        count, newest, *following = yield Script("retention", (work.instant(), pack(call | {"limit": limit - removed})))
        removed, last = removed + count, last if newest is None else int(newest)
        if not following or following[0] is None:
            return removed, last
        call["from"], call["skip"] = int(following[0]), following[1]


@handles
def forget(work: Work, op: ForgetOld) -> Steps[Forgotten]:
    limit = max(op.limit, 0)
    events = credentials = 0
    yield from work.read(("HLEN", "meta"), watch=False)  # to know the instant
    if op.events_before is not None:
        events = yield from forget_old(work, to_us(op.events_before), limit)
    if op.credentials_before is not None:
        credentials = yield from forget_ended(work, to_us(op.credentials_before), limit)
    yield from work.commit()
    signals = 0
    if op.signals_before is not None:
        signals = yield from forget_signals(work, to_us(op.signals_before), limit)
    return Forgotten(events=events, credentials=credentials, signals=signals)


@handles
def purge(work: Work, op: Purge) -> Steps[Purged]:
    tag = work.tag
    [jobs] = yield Commands((("HLEN", f"{tag}:id"),))
    [kept] = yield Commands((("HMGET", f"{tag}:meta", *_NUMBERS),))
    cursor: Any = b"0"
    while True:
        [[cursor, keys]] = yield Commands((("SCAN", cursor, "MATCH", f"{tag.translate(_GLOB)}:*", "COUNT", 1000),))
        if keys:
            yield Commands((("UNLINK", *keys),))
        if cursor in (b"0", 0):
            break
    again = {name: value for name, value in zip(_NUMBERS, kept, strict=True) if value is not None}
    if "seq" in again:
        again["rolled_up"] = again["seq"]
    again["limits_version"] = int(again.get("limits_version", 0)) + 1
    yield Commands((("HSET", f"{tag}:meta", *(part for pair in again.items() for part in pair)),))
    return Purged(jobs=jobs)


@handles
def drop_results(work: Work, op: DropResults) -> Steps[ResultsDropped]:
    call = {
        "type": op.type,
        "before": to_us(op.finished_before),
        "at": EARLIEST_US if op.at is None else to_us(op.at),
        "seq": -1 if op.seq is None else op.seq,
        "limit": max(op.limit, 0),
    }
    dropped, examined, at, seq, left_at = yield Script("results", (work.instant(), pack(call)))
    return ResultsDropped(
        dropped=dropped,
        at=op.at if at is None else from_us(int(at)),
        seq=op.seq if seq is None else int(seq),
        more=examined >= max(op.limit, 0),
        left_at=None if left_at is None else from_us(int(left_at)),
    )
