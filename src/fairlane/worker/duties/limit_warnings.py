"""Finds tenants that several processes have brought past a limit that only warns, each with too few jobs to see it.

A process counts where its own jobs could have reached the limit, and for those of others a second later, if it enqueues
again by then. Here every new job counts, whoever enqueued it; one worker at a time.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from fairlane.client.enqueue.quotas import WARN_EVERY_S, warning_of
from fairlane.core.limits import NO_LIMIT, Limit, LimitsInForce
from fairlane.core.ops import (
    ALL_TENANTS,
    AddEvents,
    GetStats,
    LimitHit,
    ListLimits,
    ReadEnqueued,
    ReadEvents,
    TakeDuty,
    only,
)
from fairlane.worker.duties.loop import StepReport
from fairlane.worker.state import WorkerState

EVERY_S = 1.5
LIMITS_S = 5.0
"""Seconds between looks at the limits set at run time."""
NO_LIMITS_S = 30.0
"""The same while no limit warns: nothing else is read then."""
NEWEST = 2000
"""Jobs that one step reads. Where more are enqueued, those who enqueue count often themselves."""
COUNTED = 20
"""Tenants that one step counts, those with the most new jobs first."""
REMEMBERED = 10_000
EVENTS, READ_BACK, BEYOND = 1000, 10_000, 2**62
"""Warnings read at once; events before the newest that are looked through at first; behind every event."""

Line = tuple[str, str]
"""A tenant in a queue."""


class LimitWarnings:
    name = "limit_warnings"

    def __init__(self, state: WorkerState) -> None:
        self._state, self._access = state, state.app.runtime.access
        self._limits, self._limits_at_s = LimitsInForce(()), -math.inf
        self._warns = False
        self._before = self._last = 0
        """The highest numbers of the last two steps: what is behind the first is read again, for who commits late."""
        self._events_read: int | None = None
        self._new: dict[Line, int] = {}
        """Jobs of lines that are still to be counted."""
        self._room: dict[Line, int] = {}
        """How many jobs more a line had room for when it was counted, less those that came since."""
        self._warned_at: dict[Line, datetime] = {}

    async def run_once(self, now: datetime) -> StepReport:
        await self._read_limits()
        if not self._warns:
            return StepReport(next_s=NO_LIMITS_S)
        newest = (await self._access.arun(ReadEnqueued(limit=0))).last
        if not self._new and newest == self._last == self._before:
            return StepReport(next_s=EVERY_S)
        taken = await self._access.arun(TakeDuty(name=self.name, every_s=EVERY_S))
        if not taken.taken:
            return StepReport(next_s=EVERY_S)
        await self._read_jobs(taken.now)
        if hits := await self._count():
            await self._read_warnings()
            hits = [hit for hit in hits if self._may_warn((hit.tenant, hit.queue), taken.now)]
            self._warned_at |= {(hit.tenant, hit.queue): taken.now for hit in hits}
        if hits:
            await self._access.arun(AddEvents(events=tuple(map(warning_of, hits))))
        return StepReport(done=len(hits), next_s=EVERY_S)

    async def _read_limits(self) -> None:
        now_s = self._state.monotonic()
        if now_s - self._limits_at_s < LIMITS_S:
            return
        self._limits_at_s = now_s
        declared, stored = self._state.app.limits.declared, (await self._access.arun(ListLimits())).limits
        self._limits = LimitsInForce(declared, stored)
        self._warns = any(map(_warns, (*declared, *(one.limit for one in stored))))

    async def _read_jobs(self, now: datetime) -> None:
        """Take in how many jobs each line has got since the last step."""
        answer = await self._access.arun(ReadEnqueued(after=self._before, limit=NEWEST))
        is_older = answer.last < self._last  # restored or emptied: it gives these numbers again
        self._before, self._last = (0, 0) if is_older else (self._last, answer.last)
        if len(self._room) + len(self._new) + len(self._warned_at) > REMEMBERED:
            self._room, self._new, self._warned_at = {}, {}, {}
        for line in answer.lines:
            at = line.tenant, line.queue
            if self._limit_of(at) is None or not self._may_warn(at, now):
                continue
            room = self._room.get(at, -1) - line.jobs
            if room >= 0:
                self._room[at] = room
            else:
                self._room.pop(at, None)
                self._new[at] = self._new.get(at, 0) + line.jobs

    async def _count(self) -> list[LimitHit]:
        """Count lines with new jobs; those that are past their limit."""
        hits = []
        for at in sorted(self._new, key=lambda at: -self._new[at])[:COUNTED]:
            del self._new[at]
            if (limit := self._limit_of(at)) is None:
                continue
            stats = await self._access.arun(GetStats(scope=only(at[0]), cap=limit + 1, parts=("queues",)))
            found = sum(one.pending + one.processing + one.failed for one in stats.queues if one.queue == at[1])
            if found <= limit:
                self._room[at] = limit - found
            else:
                hits.append(
                    LimitHit(tenant=at[0], queue=at[1], cause="waiting", limit=limit, found=limit, policy="warn")
                )
        return hits

    def _limit_of(self, at: Line) -> int | None:
        """How many jobs a line may have before somebody is warned."""
        terms = self._limits.terms(*at)
        return terms.waiting if terms.when_full == "warn" else None

    def _may_warn(self, at: Line, now: datetime) -> bool:
        before = self._warned_at.get(at)
        return before is None or now - before >= timedelta(seconds=WARN_EVERY_S)

    async def _read_warnings(self) -> None:
        """Learn of warnings by others: by those who enqueue, and by workers that had this duty before."""
        if self._events_read is None:
            last = (await self._access.arun(ReadEvents(scope=ALL_TENANTS, after=BEYOND, limit=1))).last
            self._events_read = max(last - READ_BACK, 0)
        page = await self._access.arun(
            ReadEvents(scope=ALL_TENANTS, after=self._events_read, kinds=("job_limit_warning",), limit=EVENTS)
        )
        self._events_read = page.last if len(page.events) < EVENTS else page.events[-1].id
        for event in page.events:
            at = str(event.data.get("organization")), str(event.data.get("queue"))
            self._warned_at[at] = max(event.at, self._warned_at.get(at, event.at))


def _warns(limit: Limit) -> bool:
    return limit.kind == "tenant" and limit.waiting not in (None, NO_LIMIT) and limit.when_full in (None, "warn")
