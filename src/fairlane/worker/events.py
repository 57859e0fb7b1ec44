"""Collects the events of this process and writes them to the store's event stream.

Always written: jobs that died, breakers that opened or closed, workers that started or stopped. Other outcomes are
written only while somebody watches the stream: sums by queue, type and tenant, and a few jobs by id. Events that
cannot be written in time are dropped; jobs never wait for them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any

from fairlane.client.logs import GuardedLogger
from fairlane.client.store_access import StoreAccess
from fairlane.core.ids import WorkerId
from fairlane.core.job import Lease
from fairlane.core.ops import AddEvents, EventDraft
from fairlane.core.ops.turn import Reclaimed
from fairlane.core.outcome import Cancelled, Completed, Died, Outcome, Retried
from fairlane.errors import FairlaneError

log = GuardedLogger("fairlane.worker")

SINGLE = 50
"""Events about single jobs in one flush, while somebody watches."""
KEPT = 1000
"""Unwritten events; beyond that the oldest are dropped."""
GROUPS = 500
"""Sums in one flush."""
FINISH_S = 2.0

_NAMES: dict[type[Outcome], tuple[str, str]] = {
    Completed: ("job_completed", "completed"),
    Retried: ("job_failed", "failed"),
    Died: ("job_dead", "dead"),
    Cancelled: ("job_cancelled", "cancelled"),
}


class EventBuffer:
    """The unwritten events of one worker process."""

    def __init__(self, store: StoreAccess, worker: WorkerId, lanes: dict[str, int]) -> None:
        self._store, self._worker, self._lanes = store, worker, lanes
        self.is_watched = False
        """Whether somebody watches the stream, as the store last answered."""
        self._unwritten: deque[EventDraft] = deque(maxlen=KEPT)
        self._singles: list[EventDraft] = []
        self._sums: dict[tuple[str, str, str], dict[str, int]] = {}

    def add(self, kind: str, tenant: str | None = None, **data: Any) -> None:
        """Add an event that is written whether or not anybody watches."""
        self._unwritten.append(EventDraft(kind=kind, tenant=tenant, data={**data, "worker": str(self._worker)}))

    def extend(self, events: Iterable[EventDraft]) -> None:
        self._unwritten.extend(events)

    @property
    def has_unwritten(self) -> bool:
        return bool(self._unwritten or self._singles or self._sums)

    def worker_started(self) -> None:
        self.add("worker_started", lanes=self._lanes)

    def attempt_ended(self, lease: Lease, outcome: Outcome, ran_s: float) -> None:
        """Add the outcome of an attempt. Not called for successes while nobody watches."""
        named = _NAMES.get(type(outcome))
        if named is None:
            return
        kind, count = named
        if isinstance(outcome, Died):
            self._unwritten.append(_job_event(kind, lease, outcome, ran_s))
        if not self.is_watched:
            return
        key = lease.queue, lease.type, lease.tenant
        sums = self._sums.get(key)
        if sums is None:
            if len(self._sums) >= GROUPS:
                return
            sums = self._sums[key] = dict.fromkeys(("completed", "failed", "dead", "cancelled"), 0)
        sums[count] += 1
        if len(self._singles) < SINGLE and not isinstance(outcome, Died):
            self._singles.append(_job_event(kind, lease, outcome, ran_s))

    async def flush(self) -> int:
        """Write the events; how many."""
        events = self._take()
        try:
            self.is_watched = (await self._store.arun(AddEvents(events=events))).watched
        except FairlaneError:
            self._unwritten.extendleft(reversed([event for event in events if event.kind not in _ONLY_WATCHED]))
            raise
        return len(events)

    async def finish(self) -> None:
        """Write the last events of a stopping worker, if the store can be reached."""
        self.add("worker_stopped", lanes=self._lanes)
        try:
            async with asyncio.timeout(FINISH_S):
                await self.flush()
        except (FairlaneError, TimeoutError) as error:
            log.warning("the last events of this worker are lost: %s", error)

    def _take(self) -> tuple[EventDraft, ...]:
        sums = [
            EventDraft(kind="jobs", tenant=tenant, data={"queue": queue, "type": name, "tenant": tenant, **counts})
            for (queue, name, tenant), counts in self._sums.items()
        ]
        events = (*self._unwritten, *self._singles, *sums)
        self._unwritten.clear()
        self._singles, self._sums = [], {}
        return events


_ONLY_WATCHED = frozenset({"jobs", "job_completed", "job_failed", "job_cancelled"})


def _job_event(kind: str, lease: Lease, outcome: Outcome, ran_s: float) -> EventDraft:
    data: dict[str, Any] = {
        "id": str(lease.id),
        "type": lease.type,
        "queue": lease.queue,
        "attempt": lease.attempt,
        "ran_s": round(ran_s, 6),
    }
    if isinstance(outcome, (Retried, Died)):
        data["error_type"] = outcome.failure.error_type
        data["error_class"] = outcome.failure.error_class
    return EventDraft(kind=kind, tenant=lease.tenant, data=data)


def loss_events(reclaimed: Iterable[Reclaimed]) -> tuple[EventDraft, ...]:
    """Events about reclaimed leases: one for each lost worker, and one for each job past twice its timeout."""
    workers: dict[str, int] = {}
    events: list[EventDraft] = []
    for lease in reclaimed:
        if lease.cause == "worker_gone":
            workers[str(lease.worker)] = workers.get(str(lease.worker), 0) + 1
        elif lease.cause == "deadline_passed" and lease.became == "dead":
            data = {"id": str(lease.id), "attempt": lease.attempt, "worker": str(lease.worker)}
            events.append(EventDraft(kind="job_stuck", data=data))
    events += [
        EventDraft(kind="worker_lost", data={"worker": worker, "jobs": jobs}) for worker, jobs in workers.items()
    ]
    return tuple(events)
