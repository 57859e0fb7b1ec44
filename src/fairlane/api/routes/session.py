"""Routes for people: log in by a one-time link, the home page, the caller's identity, and log out."""

from __future__ import annotations

from html import escape
from typing import Annotated, NamedTuple
from urllib.parse import quote

from fastapi import Query
from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from fairlane.api.auth import sessions
from fairlane.api.auth.admission import Caller, caller_of
from fairlane.api.fields import many, shape
from fairlane.api.problems import Problem
from fairlane.api.request import Context, State
from fairlane.api.router import Routes, answered
from fairlane.client.admin.tokens import hash_of
from fairlane.client.context import all_tenants
from fairlane.client.rights import Right, holding, may

routes = Routes("session", "")
api_routes = Routes("session", "/api/jobs/")

Link = Annotated[str, Query(max_length=200, description="The secret of a one-time link.", examples=["fl_…"])]

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Log in to Fairlane</title></head>
<body><h1>Log in to Fairlane</h1>
<p>This link works once.</p>
<form method="post" action="?link={link}"><button>Log in</button></form>
</body></html>
"""

_LEFT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Logged out of Fairlane</title></head>
<body><h1>Logged out of Fairlane</h1>
<p>This session has ended. Log in again with a new link.</p>
</body></html>
"""


ME = shape(
    "Me",
    Caller,
    without=("credential_id", "hash"),
    rights=many(
        str, "What the roles grant: `contents` are payloads, results, error texts, logs and notes of live jobs."
    ),
)


@routes.get("/login", Right.OPEN, response_class=HTMLResponse)
async def ask_to_log_in(link: Link) -> HTMLResponse:
    """Show the page of a one-time link.

    Opening the page does not use up the link: mail scanners and previews follow links but press no button.
    """
    return HTMLResponse(_PAGE.format(link=escape(quote(link, safe=""), quote=True)))


@routes.post(
    "/login", Right.OPEN, responses={303: {"description": "logged in: redirects to the home page"}, 403: {}, 401: {}}
)
async def log_in(request: Request, state: State, link: Link) -> Response:
    """Exchange a one-time link for a session.

    Browsers are redirected to the home page; programs that accept JSON get their identity. Scripts and other sites
    cannot read the cookie.
    """
    if sessions.is_from_another_site(request):
        raise Problem(403, "cross_site", "this was requested by a page of another site; nothing was changed")
    opened = await state.app.tokens.aredeem_link(link)
    if opened is None:
        state.authenticator.count_failure(request)
        raise Problem(401, "link_used_up", "this link was used already, has expired or is not known; ask for a new one")
    response: Response
    if "application/json" in request.headers.get("accept", ""):
        response = answered(_me(caller_of(opened.credential, hash_of(opened.secret))), ME)
    else:
        response = RedirectResponse("./", status_code=303)
    sessions.set_cookie(request, response, opened.secret)
    return response


@routes.post(
    "/logout",
    Right.KNOWN,
    status_code=204,
    responses={200: {"description": "logged out, as a page", "content": {"text/html": {"schema": {"type": "string"}}}}},
)
async def log_out(request: Request, ctx: Context) -> Response:
    """End this session everywhere. Browsers get a page that says so."""
    if ctx.caller.by == "session" and ctx.caller.credential_id is not None:
        with all_tenants(), holding(None):  # Whatever its tenant and roles, a session may end itself.
            await ctx.app.tokens.arevoke(ctx.caller.credential_id, by=ctx.by)
    is_browser = "text/html" in request.headers.get("accept", "")
    response = HTMLResponse(_LEFT) if is_browser else Response(status_code=204)
    sessions.forget_cookie(request, response)
    return response


@api_routes.get("me/", Right.KNOWN, answer=ME)
async def show_me(ctx: Context) -> object:
    """Show the caller's identity and rights."""
    return _me(ctx.caller)


def _me(caller: Caller) -> object:
    return {**asdict(caller), "rights": [right.value for right in Right if may(caller.roles, right)]}


class Place(NamedTuple):
    title: str
    path: str
    right: Right = Right.READ
    for_all_tenants: bool = False


PLACES = (
    Place("Jobs", "api/jobs/"),
    Place("Queues", "api/jobs/queues/"),
    Place("Dead letters", "api/jobs/admin/dlq/", Right.MANAGE),
    Place("Dead letters, grouped by error", "api/jobs/admin/dlq/groups/", Right.MANAGE),
    Place("Schedules", "api/jobs/schedules/"),
    Place("Alerts", "api/jobs/alerts/", for_all_tenants=True),
    Place("Workers", "api/jobs/workers/", for_all_tenants=True),
    Place("Statistics", "api/jobs/statistics/"),
    Place("Audit", "api/jobs/audit/"),
    Place("Tokens", "api/jobs/tokens/", Right.TOKENS, for_all_tenants=True),
    Place("Who you are", "api/jobs/me/", Right.KNOWN),
    Place("The API description, as OpenAPI", "api/openapi.json"),
)
"""Each link needs the right that its route declares. (tests/api/test_home.py)"""

_HOME_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Fairlane</title></head>
<body><h1>Fairlane</h1>
<p>You are <b>{name}</b>: {roles}. {tenant}</p>
<ul>
{places}
</ul>{leave}
</body></html>
"""
_LEAVE = """
<form method="post" action="logout"><button>Log out</button></form>"""


@routes.get("/", Right.KNOWN, response_class=HTMLResponse)
async def show_home(ctx: Context) -> HTMLResponse:
    """Show the home page: the caller's identity and links."""
    caller = ctx.caller
    places = "\n".join(f'<li><a href="{place.path}">{escape(place.title)}</a></li>' for place in open_to(caller))
    tenant = "You see the jobs of all tenants." if caller.tenant is None else f"You see the jobs of {caller.tenant}."
    return HTMLResponse(
        _HOME_PAGE.format(
            name=escape(caller.name),
            roles=escape(", ".join(caller.roles)),
            tenant=escape(tenant),
            places=places,
            leave=_LEAVE if caller.by == "session" else "",
        )
    )


def open_to(caller: Caller) -> list[Place]:
    return [
        place
        for place in PLACES
        if may(caller.roles, place.right) and not (place.for_all_tenants and caller.tenant is not None)
    ]
