"""`create_dashboard(app)`: every page, in the order of the navigation, beside the routes of the HTTP API."""

from __future__ import annotations

from fastapi import FastAPI

from fairlane.api.app import create_api
from fairlane.api.auth.admission import UsersHook
from fairlane.api.problems import handle_problems
from fairlane.api.router import gated_routes
from fairlane.api.sse import POLL_S
from fairlane.client.app import Fairlane
from fairlane.web import assets
from fairlane.web.error_pages import shown
from fairlane.web.page import Pages
from fairlane.web.pages import (
    alerts,
    audit,
    breakers,
    dead_letters,
    jobs,
    limits,
    login,
    overview,
    queues,
    schedules,
    statistics,
    tenants,
    workers,
    workflows,
)

EVERY_PAGE: tuple[Pages, ...] = (
    overview.pages,
    jobs.pages,
    workflows.pages,
    dead_letters.pages,
    queues.pages,
    tenants.pages,
    statistics.pages,
    schedules.pages,
    limits.pages,
    breakers.pages,
    workers.pages,
    alerts.pages,
    audit.pages,
    login.pages,
)
"""In the order of the navigation."""


def create_dashboard(
    app: Fairlane, *, users: UsersHook | None = None, base_path: str = "", event_poll_s: float = POLL_S
) -> FastAPI:
    """The HTTP API and its pages, to mount in your own application: `web.mount("/fairlane", create_dashboard(app))`.

    The arguments are those of `create_api`. Pages call the client's verbs like the API: the same credentials, rights
    and tenants apply.
    """
    base = base_path.rstrip("/")
    api = create_api(app, users=users, base_path=base, event_poll_s=event_poll_s)
    api.state.base_path = base
    api.state.navigation = tuple(pages for pages in EVERY_PAGE if pages.title)
    for routes in (assets.routes, *EVERY_PAGE):
        routes.add_to(api, base)
    gated_routes(api)
    handle_problems(api, shown)
    return api
