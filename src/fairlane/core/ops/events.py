"""Events: what happened, kept for a while, so that a reader can continue after the last one it saw."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, ClassVar

from msgspec import Struct

from fairlane.core.job import Lease
from fairlane.core.ops.base import Listing, Op, Scope
from fairlane.core.ops.turn import Reclaimed
from fairlane.core.outcome import Cancelled, Completed, Died, Outcome, Retried

WATCHED_FOR_S = 30.0
"""A reader with `watch` counts as watching for this long."""
EVENT_KINDS = (
    "job_completed",
    "job_failed",
    "job_dead",
    "job_cancelled",
    "job_stuck",
    "jobs",
    "process_stopped",
    "job_limit_warning",
    "spooled_job_duplicate",
    "worker_started",
    "worker_stopped",
    "worker_crashed",
    "worker_lost",
    "task_isolated",
    "task_trusted",
    "breaker_opened",
    "breaker_closed",
    "alert_fired",
    "alert_resolved",
    "dlq_alert",
    "watch_started",
    "events_left_out",
)
"""Every kind that this release writes; described in docs/guides/http-api.md."""
_OF_OUTCOMES: dict[type[Outcome], str] = {
    Completed: "job_completed",
    Retried: "job_failed",
    Died: "job_dead",
    Cancelled: "job_cancelled",
}


class EventDraft(Struct, frozen=True, kw_only=True, omit_defaults=True):
    kind: str
    """One of EVENT_KINDS."""
    tenant: str | None = None
    """Whose it is; None: nobody's in particular, for those who see all tenants."""
    data: dict[str, Any] = {}


class Event(Struct, frozen=True, kw_only=True):
    id: int
    """Grows in the order in which events can be seen: a reader that continues after the last id it saw misses none."""
    at: datetime
    kind: str
    tenant: str | None
    data: dict[str, Any]


class EventsAdded(Struct, frozen=True, kw_only=True):
    watched: bool
    """Somebody watches: events that nobody else needs are worth adding."""


class AddEvents(Op[EventsAdded], frozen=True, kw_only=True):
    """Add events. None given: only asks whether anybody watches."""

    repeatable: ClassVar[bool] = False

    events: tuple[EventDraft, ...] = ()


class EventPage(Listing, Struct, frozen=True, kw_only=True):
    shown = ("events", "id", "at", "kind", "tenant", "data")

    events: tuple[Event, ...]
    """By id."""
    last: int
    """The highest id given to any event so far, of whatever scope."""


class ReadEvents(Op[EventPage], frozen=True, kw_only=True):
    """Events behind `after`, at most `limit` (1 to 1,000), of the given kinds if any.

    With one tenant's scope, only that tenant's.
    """

    scope: Scope
    after: int = 0
    kinds: tuple[str, ...] = ()
    limit: int = 200
    watch: bool = False
    """From now on, and for WATCHED_FOR_S, somebody watches."""


def job_event(lease: Lease, outcome: Outcome, ran_s: float) -> EventDraft | None:
    """The event of an ended attempt; None: it ends another time."""
    kind = _OF_OUTCOMES.get(type(outcome))
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
