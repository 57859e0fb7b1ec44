"""Routes for sessions: log in by a one-time link, the caller's identity, and log out. The pages are in `web/`."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from fairlane.api.auth import sessions
from fairlane.api.auth.admission import Caller, caller_of
from fairlane.api.fields import many, shape
from fairlane.api.problems import Problem
from fairlane.api.request import Context, State, actor_of
from fairlane.api.router import Routes, answered
from fairlane.client.admin.tokens import hash_of
from fairlane.client.context import all_tenants
from fairlane.client.rights import Right, holding, may

routes = Routes("session", "")
api_routes = Routes("session", "/api/jobs/")

Link = Annotated[str, Query(max_length=200, description="The secret of a one-time link.", examples=["fl_…"])]

ME = shape(
    "Me",
    Caller,
    without=("credential_id", "hash"),
    rights=many(
        str, "What the roles grant: `contents` are payloads, results, error texts, logs and notes of live jobs."
    ),
)


@routes.post(
    "/login", Right.OPEN, responses={303: {"description": "logged in: redirects to the overview"}, 403: {}, 401: {}}
)
async def log_in(request: Request, state: State, link: Link) -> Response:
    """Exchange a one-time link for a session.

    Browsers are redirected to the overview; programs that accept JSON get their identity. Scripts and other sites
    cannot read the cookie. A session that the browser had until then ends.
    """
    sessions.forget_link(request)
    if sessions.is_from_another_site(request):
        raise Problem(403, "cross_site", "this was requested by a page of another site; nothing was changed")
    opened = await state.app.tokens.aredeem_link(link)
    if opened is None:
        state.authenticator.count_failure(request)
        raise Problem(401, "link_used_up", "this link was used already, has expired or is not known; ask for a new one")
    caller = caller_of(opened.credential, hash_of(opened.secret))
    await _end_session_before(request, state, actor_of(caller))
    response: Response
    if "application/json" in request.headers.get("accept", ""):
        response = answered(_me(caller), ME)
    else:
        response = RedirectResponse("./", status_code=303)
    sessions.set_cookie(request, response, opened.secret)
    return response


@routes.post(
    "/logout",
    Right.KNOWN,
    status_code=204,
    responses={303: {"description": "logged out: redirects to the log-in page"}},
)
async def log_out(request: Request, ctx: Context) -> Response:
    """End this session everywhere. Browsers are redirected to the log-in page."""
    if ctx.caller.by == "session" and ctx.caller.credential_id is not None:
        with all_tenants(), holding(None):  # Whatever its tenant and roles, a session may end itself.
            await ctx.app.tokens.arevoke(ctx.caller.credential_id, by=ctx.by)
    is_browser = "text/html" in request.headers.get("accept", "")
    response = RedirectResponse("login", 303) if is_browser else Response(status_code=204)
    sessions.forget_cookie(request, response)
    return response


@api_routes.get("me/", Right.KNOWN, answer=ME)
async def show_me(ctx: Context) -> object:
    """Show the caller's identity and rights."""
    return _me(ctx.caller)


async def _end_session_before(request: Request, state: State, by: str) -> None:
    """The cookie is replaced: nobody could log that session out any more."""
    secret = sessions.secret_in(request)
    with all_tenants(), holding(None):
        before = None if secret is None else await state.app.tokens.afind("session", secret)
        if before is not None:
            await state.app.tokens.arevoke(before.id, by=by, notes="logged in again")


def _me(caller: Caller) -> object:
    return {**asdict(caller), "rights": [right.value for right in Right if may(caller.roles, right)]}
