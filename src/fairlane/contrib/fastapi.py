"""FastAPI: a lifespan that opens and closes the store, the tenant of what a request enqueues, 429 where it is full.

web = FastAPI(lifespan=lifespan(app), dependencies=[Depends(tenant_of(organization))])
web.add_exception_handler(QueueFull, busy)
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from fairlane import Fairlane, TenantLimitReached, tenant
from fairlane.extras import needed_for

with needed_for("fairlane.contrib.fastapi", "fastapi"):
    from fastapi import Depends, FastAPI, Request
    from fastapi.responses import JSONResponse

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[Any]]


def lifespan(
    app: Fairlane, *, around: Lifespan | None = None, worker: bool = False, slots: int | None = None
) -> Lifespan:
    """A lifespan for `FastAPI(lifespan=…)`: the store answers before the first request, and is closed after the last.

    `around` is a lifespan of your own, entered first. With `worker` the process also runs jobs, `slots` at once: for
    development and small sites; elsewhere `fairlane worker` runs them in processes of their own.
    """

    @asynccontextmanager
    async def run(web: FastAPI) -> AsyncIterator[Any]:
        async with AsyncExitStack() as stack:
            state = await stack.enter_async_context(around(web)) if around is not None else None
            web.state.jobs = await stack.enter_async_context(app)
            await app.asnapshot()  # whatever is wrong with the store is wrong at start
            if worker:
                await stack.enter_async_context(app.running(slots=slots))
            yield state

    return run


def jobs_of(request: Request) -> Fairlane:
    """A dependency: the `Fairlane` that the lifespan opened, for code that imports none: `Depends(jobs_of)`."""
    app: Fairlane = request.app.state.jobs
    return app


def tenant_of(find: Callable[..., Any]) -> Callable[..., AsyncIterator[str]]:
    """A dependency: jobs enqueued by the request belong to the tenant that the dependency `find` returns.

    Async, whatever `find` is: a plain one would set the tenant of a thread that the endpoint never sees.
    """

    async def bound(name: Any = Depends(find)) -> AsyncIterator[str]:  # noqa: B008 - how FastAPI reads dependencies
        with tenant(name) as checked:
            yield checked

    return bound


async def busy(request: Request, error: Exception) -> JSONResponse:
    """A handler for `QueueFull`: 429 with `Retry-After`; 413 for a payload above what its tenant may send.

    It is for the site's customers: nothing of tenants, figures and the operator's remedies, which the error's text has.
    """
    if isinstance(error, TenantLimitReached) and error.cause == "payload_bytes":
        return JSONResponse({"detail": "This is too large. Nothing was done."}, 413)
    wait_s = max(math.ceil(getattr(error, "retry_after_s", 1.0)), 1)
    said = f"Too much is waiting already. Nothing was done; try again in {wait_s} s."
    return JSONResponse({"detail": said}, 429, {"Retry-After": str(wait_s)})
