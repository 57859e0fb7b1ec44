"""Every route there is, in the order in which they are matched."""

from __future__ import annotations

from fairlane.api.routes import (
    alerts,
    audit,
    breakers,
    dead_letters,
    dead_letters_many,
    enqueueing,
    events,
    health,
    home,
    job_acts,
    jobs,
    limits,
    metrics,
    pauses,
    queues,
    schedules,
    session,
    statistics,
    tenants,
    tokens,
    workers,
)
from fairlane.api.routing import Routes

EVERY_ROUTE: tuple[Routes, ...] = (
    health.routes,
    home.routes,
    session.routes,
    session.api_routes,
    enqueueing.routes,
    jobs.routes,
    jobs.admin_routes,
    job_acts.routes,
    dead_letters_many.routes,  # before `{id}/`, which would take "groups" for one
    dead_letters.routes,
    queues.routes,
    queues.admin_routes,
    metrics.routes,
    metrics.tenant_routes,  # before `{name}/`, for a name may hold slashes
    tenants.routes,
    pauses.routes,
    limits.routes,
    breakers.routes,
    schedules.routes,
    workers.routes,
    audit.routes,
    events.routes,
    alerts.routes,
    statistics.routes,
    tokens.routes,
)
