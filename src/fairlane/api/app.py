"""The API itself: every route, gated, in one FastAPI application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI
from starlette.middleware import Middleware

from fairlane.api.access.admission import Door
from fairlane.api.access.caller import UsersHook
from fairlane.api.description import describe
from fairlane.api.every_route import EVERY_ROUTE
from fairlane.api.feed import POLL_S, EventFeed
from fairlane.api.problems import handle_problems
from fairlane.api.routing import gated_routes
from fairlane.api.visit import House
from fairlane.api.wrapping import AllowedMethods, CarefulHeaders, EndingSlash, HeadAsGet
from fairlane.client.app import Fairlane


def create_api(
    app: Fairlane, *, users: UsersHook | None = None, base_path: str = "", event_poll_s: float = POLL_S
) -> FastAPI:
    """An API for one application, to be mounted in yours: `web.mount("/fairlane", create_api(app))`.

    `users` lets in people your own application knows: it looks at the request and gives a `Person`, or None. Every path begins with
    `base_path`. The store stays open when the API stops: it belongs to the application.
    """
    house = House(app, Door(app, users), EventFeed(app, poll_s=event_poll_s))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        house.feed.stop()

    api = FastAPI(
        title="Fairlane",
        version=version("fairlane"),
        description="Background jobs: look at them, act on them, review what failed.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        middleware=[Middleware(part) for part in (EndingSlash, HeadAsGet, AllowedMethods, CarefulHeaders)],
    )
    api.state.house = house
    handle_problems(api)
    for routes in EVERY_ROUTE:
        routes.add_to(api, base_path.rstrip("/"))
    gated_routes(api)
    describe(api)
    return api
