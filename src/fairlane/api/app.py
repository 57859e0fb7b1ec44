"""`create_api(app)`: every route, in the order in which they are matched, in one FastAPI application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.middleware import Middleware

from fairlane import __version__
from fairlane.api.auth.admission import Authenticator, UsersHook
from fairlane.api.middleware import AllowedMethods, CarefulHeaders, EndingSlash, HeadAsGet, OneLength
from fairlane.api.openapi import describe
from fairlane.api.problems import handle_problems
from fairlane.api.request import ApiState
from fairlane.api.router import Routes, gated_routes
from fairlane.api.routes import (
    alerts,
    audit,
    breakers,
    claims,
    dead_letters,
    enqueue,
    events,
    health,
    jobs,
    limits,
    pauses,
    queues,
    schedules,
    session,
    signals,
    statistics,
    tenants,
    tokens,
    workers,
    workflows,
)
from fairlane.api.sse import POLL_S, EventFeed
from fairlane.client.app import Fairlane

# `health` with the metrics precedes `tenants`, whose `{name}/` also matches names with slashes.
RESOURCES = (
    *(
        health,
        session,
        enqueue,
        jobs,
        claims,
        dead_letters,
        queues,
        tenants,
        pauses,
        limits,
        breakers,
        schedules,
    ),
    *(workers, workflows, audit, events, signals, alerts, statistics, tokens),
)
EVERY_ROUTE = tuple(
    routes for resource in RESOURCES for routes in vars(resource).values() if isinstance(routes, Routes)
)
"""In the order in which they are matched."""


def create_api(
    app: Fairlane, *, users: UsersHook | None = None, base_path: str = "", event_poll_s: float = POLL_S
) -> FastAPI:
    """An API for one application, to mount in your own web application: `web.mount("/fairlane", create_api(app))`.

    `users` authenticates users of your own application: it receives the request and returns a `Person`, or None. Every
    path begins with `base_path`. The store stays open when the API stops: it belongs to the application.
    """
    state = ApiState(app, Authenticator(app, users), EventFeed(app, poll_s=event_poll_s))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        state.feed.stop()

    api = FastAPI(
        title="Fairlane",
        version=__version__,
        description="Background jobs: list them, act on them, review failures.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        middleware=[Middleware(part) for part in (CarefulHeaders, OneLength, EndingSlash, HeadAsGet, AllowedMethods)],
    )
    api.state.fairlane = state
    handle_problems(api)
    for routes in EVERY_ROUTE:
        routes.add_to(api, base_path.rstrip("/"))
    gated_routes(api)
    describe(api)
    return api
