"""The teller: what happens in this process, told as events to those who watch.

Always told are jobs that died, breakers that opened or closed, and workers that came or left. How other jobs ended is told only while
somebody watches: sums for each queue, type and tenant, and a few jobs by name. What is not told in time is dropped, never the work.

What was taken from workers, told as events: workers that were lost, and jobs that ran past twice their timeout.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from typing import Any

from fairlane.client.store_access import StoreAccess
from fairlane.core.ids import WorkerId
from fairlane.core.job import Lease
from fairlane.core.ops import AddEvents, EventDraft
from fairlane.core.ops.turn import Reclaimed
from fairlane.core.outcome import Cancelled, Completed, Died, Outcome, Retried
from fairlane.errors import FairlaneError

log = logging.getLogger("fairlane.worker")

SINGLE = 50
"""Jobs told of by name each time, while somebody watches."""
KEPT = 1000
"""Events not told yet; beyond that the oldest go."""
GROUPS = 500
"""Sums for each time."""
FINISH_S = 2.0

_NAMES: dict[type[Outcome], tuple[str, str]] = {
    Completed: ("job_completed", "completed"),
    Retried: ("job_failed", "failed"),
    Died: ("job_dead", "dead"),
    Cancelled: ("job_cancelled", "cancelled"),
}


class Teller:
    def __init__(self, store: StoreAccess, worker: WorkerId, lanes: dict[str, int]) -> None:
        self._store, self._worker, self._lanes = store, worker, lanes
        self.is_watched = False
        """As the store last said."""
        self._untold: deque[EventDraft] = deque(maxlen=KEPT)
        self._singles: list[EventDraft] = []
        self._sums: dict[tuple[str, str, str], dict[str, int]] = {}

    def tell(self, kind: str, tenant: str | None = None, **data: Any) -> None:
        """What is told whether or not anybody watches."""
        self._untold.append(EventDraft(kind=kind, tenant=tenant, data={**data, "worker": str(self._worker)}))

    def tell_all(self, events: Iterable[EventDraft]) -> None:
        self._untold.extend(events)

    @property
    def has_untold(self) -> bool:
        return bool(self._untold or self._singles or self._sums)

    def came(self) -> None:
        self.tell("worker_started", lanes=self._lanes)

    def ended(self, lease: Lease, outcome: Outcome, ran_s: float) -> None:
        """An attempt ended. Costs nothing for one that went well while nobody watches."""
        named = _NAMES.get(type(outcome))
        if named is None:
            return
        kind, count = named
        if isinstance(outcome, Died):
            self._untold.append(_of_job(kind, lease, outcome, ran_s))
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
            self._singles.append(_of_job(kind, lease, outcome, ran_s))

    async def flush(self) -> int:
        """Tell what is untold; how many events that were."""
        events = self._gathered()
        try:
            self.is_watched = (await self._store.arun(AddEvents(events=events))).watched
        except FairlaneError:
            self._untold.extendleft(reversed([event for event in events if event.kind not in _ONLY_WATCHED]))
            raise
        return len(events)

    async def finish(self) -> None:
        """This worker leaves: tell what is left, if the store can be reached."""
        self.tell("worker_stopped", lanes=self._lanes)
        try:
            async with asyncio.timeout(FINISH_S):
                await self.flush()
        except (FairlaneError, TimeoutError) as error:
            log.warning("the last events of this worker are lost: %s", error)

    def _gathered(self) -> tuple[EventDraft, ...]:
        sums = [
            EventDraft(kind="jobs", tenant=tenant, data={"queue": queue, "type": name, "tenant": tenant, **counts})
            for (queue, name, tenant), counts in self._sums.items()
        ]
        events = (*self._untold, *self._singles, *sums)
        self._untold.clear()
        self._singles, self._sums = [], {}
        return events


_ONLY_WATCHED = frozenset({"jobs", "job_completed", "job_failed", "job_cancelled"})


def _of_job(kind: str, lease: Lease, outcome: Outcome, ran_s: float) -> EventDraft:
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


def losses(reclaimed: Iterable[Reclaimed]) -> tuple[EventDraft, ...]:
    """One event for each worker that was lost, and for each job that was stuck."""
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
