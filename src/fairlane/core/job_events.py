"""The events of ended and lost attempts, as workers write them, and claims by hand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fairlane.core.job import Lease
from fairlane.core.ops import EventDraft
from fairlane.core.ops.turn import Reclaimed
from fairlane.core.outcome import Cancelled, Completed, Died, Outcome, Retried

_NAMES: dict[type[Outcome], str] = {
    Completed: "job_completed",
    Retried: "job_failed",
    Died: "job_dead",
    Cancelled: "job_cancelled",
}


def job_event(lease: Lease, outcome: Outcome, ran_s: float) -> EventDraft | None:
    """The event of an ended attempt; None: it ends another time."""
    kind = _NAMES.get(type(outcome))
    if kind is None:
        return None
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
