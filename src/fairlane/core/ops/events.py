"""Events: what happened, kept for a while, so that a reader can continue after the last one it saw."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from msgspec import Struct

from fairlane.core.ops.base import Listing, Op, Scope

WATCHED_FOR_S = 30.0
"""A reader with `watch` counts as watching for this long."""
EVENT_KINDS = (
    "job_completed",
    "job_failed",
    "job_dead",
    "job_cancelled",
    "job_stuck",
    "process_stopped",
    "jobs",
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
