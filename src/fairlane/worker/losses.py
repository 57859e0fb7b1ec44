"""What was taken from workers, told as events: workers that were lost, and jobs that ran past twice their timeout."""

from __future__ import annotations

from collections.abc import Iterable

from fairlane.core.ops import EventDraft
from fairlane.core.ops.turn import Reclaimed


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
