"""Collects the events of this process and writes them to the store's event stream.

Always written: jobs that failed, died or were cancelled, breakers that opened or closed, workers that started or
stopped. Jobs that completed are written only while somebody watches the stream (`watch_started` says from when on), and
with them sums by queue, type and tenant. An attempt's event is written once the store has settled it, in the order of
settlement. Of failures, cancellations and completions at most SINGLE are written in one flush; what is left out, or
could not be written in time, is counted in an event of its own, `events_left_out`. Jobs never wait for events.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Any

from fairlane.client.logs import GuardedLogger
from fairlane.client.store_access import StoreAccess
from fairlane.core.ids import LeaseKey, WorkerId
from fairlane.core.job import Lease
from fairlane.core.ops import AddEvents, EventDraft
from fairlane.core.ops.events import job_event
from fairlane.core.outcome import Died, Outcome
from fairlane.errors import FairlaneError

log = GuardedLogger("fairlane.worker")

SINGLE = 50
"""Failures, cancellations and completions in one flush; dead jobs are not counted."""
KEPT = 1000
"""Unwritten events; beyond that the oldest are left out."""
GROUPS = 500
"""Sums in one flush, and tenants whose left out events are counted apart."""
FINISH_S = 2.0

SOON_S = 0.1

_Sums = dict[tuple[str, str, str], dict[str, int]]
_LeftOut = dict[str | None, Counter[str]]


class EventBuffer:
    """The unwritten events of one worker process."""

    def __init__(self, store: StoreAccess, worker: WorkerId, lanes: dict[str, int]) -> None:
        self._store, self._worker, self._lanes = store, worker, lanes
        self.is_watched = False
        """Whether somebody watches the stream, as the store last answered."""
        self._unsettled: dict[LeaseKey, EventDraft] = {}
        """Of ended attempts that the store has not settled yet."""
        self._unwritten: deque[EventDraft] = deque()
        self._singles = 0
        self._sums: _Sums = {}
        self._left_out: _LeftOut = {}
        """By tenant and kind."""
        self._news, self._writing = asyncio.Event(), asyncio.Lock()

    def add(self, kind: str, tenant: str | None = None, **data: Any) -> None:
        """Add an event that is written whether or not anybody watches."""
        self._append(EventDraft(kind=kind, tenant=tenant, data={**data, "worker": str(self._worker)}))

    def extend(self, events: Iterable[EventDraft]) -> None:
        for event in events:
            self._append(event)

    @property
    def has_unwritten(self) -> bool:
        return bool(self._unwritten or self._sums or self._left_out)

    def worker_started(self) -> None:
        self.add("worker_started", lanes=self._lanes)

    def attempt_ended(self, lease: Lease, outcome: Outcome, ran_s: float) -> None:
        """Add the outcome of an attempt. Not called for successes while nobody watches."""
        event = job_event(lease, outcome, ran_s)
        if event is not None:
            self._unsettled[lease.key] = event

    def unstorable(self, died: Died) -> None:
        """The store refused what an attempt left behind: its job is dead instead."""
        event = self._unsettled.get(died.key)
        if event is not None:
            data = {**event.data, "error_type": died.failure.error_type, "error_class": died.failure.error_class}
            self._unsettled[died.key] = EventDraft(kind="job_dead", tenant=event.tenant, data=data)

    def settled(self, outcomes: Iterable[Outcome], refused: Iterable[LeaseKey] = ()) -> None:
        """The store has settled these attempts, but for the refused ones, of which nothing is told."""
        if not self._unsettled:
            return
        not_ours = set(refused)
        for outcome in outcomes:
            event = self._unsettled.pop(outcome.key, None)
            if event is None or outcome.key in not_ours:
                continue
            if self.is_watched:
                self._sum(event)
            if event.kind == "job_dead":
                self._append(event)
            elif self._singles < SINGLE:
                self._singles += 1
                self._append(event)
            else:
                self._leave_out(event.tenant, event.kind)
            if event.kind != "job_completed":
                self._news.set()

    async def run(self) -> None:
        """Write failures soon, so that they stand before the attempts that follow them in other workers."""
        while True:
            await self._news.wait()
            await asyncio.sleep(SOON_S)
            self._news.clear()
            try:
                await self.flush()
            except FairlaneError:
                await asyncio.sleep(FINISH_S)  # they are kept, and the duty that writes events reports it

    async def flush(self) -> int:
        """Write the events; how many."""
        async with self._writing:
            was_watched = self.is_watched
            unwritten, self._unwritten, self._singles = self._unwritten, deque(), 0
            sums, self._sums = self._sums, {}
            left_out, self._left_out = self._left_out, {}
            events = (*unwritten, *self._notes(left_out), *_summed(sums))
            try:
                self.is_watched = (await self._store.arun(AddEvents(events=events))).watched
            except FairlaneError:
                self._keep(unwritten, sums, left_out)
                raise
            except BaseException:  # interrupted: nobody knows whether they were written, and each is written once
                for event in unwritten:
                    self._leave_out(event.tenant, event.kind)
                raise
            if self.is_watched and not was_watched:
                self.add("watch_started")
        return len(events)

    async def finish(self) -> None:
        """Write the last events of a stopping worker, if the store can be reached."""
        self.add("worker_stopped", lanes=self._lanes)
        try:
            async with asyncio.timeout(FINISH_S):
                await self.flush()
        except (FairlaneError, TimeoutError) as error:
            log.warning("the last events of this worker are lost: %s", error)

    def _append(self, event: EventDraft) -> None:
        if len(self._unwritten) >= KEPT:
            oldest = self._unwritten.popleft()
            self._leave_out(oldest.tenant, oldest.kind)
        self._unwritten.append(event)

    def _leave_out(self, tenant: str | None, kind: str, number: int = 1) -> None:
        if tenant not in self._left_out and len(self._left_out) >= GROUPS:
            tenant = None
        self._left_out.setdefault(tenant, Counter())[kind] += number

    def _sum(self, event: EventDraft) -> None:
        key = event.data["queue"], event.data["type"], event.tenant or ""
        sums = self._sums.get(key)
        if sums is None:
            if len(self._sums) >= GROUPS:
                self._leave_out(event.tenant, "jobs")
                return
            sums = self._sums[key] = dict.fromkeys(("completed", "failed", "dead", "cancelled"), 0)
        sums[event.kind.removeprefix("job_")] += 1

    def _keep(self, unwritten: Iterable[EventDraft], sums: _Sums, left_out: _LeftOut) -> None:
        """Put back what could not be written, before what came since."""
        newer, self._unwritten = self._unwritten, deque()
        self.extend((*unwritten, *newer))
        for key, counts in sums.items():
            kept = self._sums.setdefault(key, dict.fromkeys(counts, 0))
            for name, number in counts.items():
                kept[name] += number
        for tenant, kinds in left_out.items():
            for kind, number in kinds.items():
                self._leave_out(tenant, kind, number)

    def _notes(self, left_out: _LeftOut) -> Iterator[EventDraft]:
        for tenant, kinds in left_out.items():
            data = {"events": kinds.total(), "kinds": dict(kinds), "worker": str(self._worker)}
            yield EventDraft(kind="events_left_out", tenant=tenant, data=data)


def _summed(sums: _Sums) -> Iterator[EventDraft]:
    for (queue, name, tenant), counts in sums.items():
        yield EventDraft(kind="jobs", tenant=tenant, data={"queue": queue, "type": name, "tenant": tenant, **counts})
