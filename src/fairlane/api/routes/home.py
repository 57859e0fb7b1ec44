"""Where a browser arrives after logging in: who one is ctx, and what there is to look at."""

from __future__ import annotations

from html import escape
from typing import NamedTuple

from starlette.responses import HTMLResponse

from fairlane.api.auth.caller import Caller
from fairlane.api.auth.rights import Right, missing_role
from fairlane.api.request import Context
from fairlane.api.router import Routes

routes = Routes("session", "")


class Place(NamedTuple):
    title: str
    path: str
    right: Right = Right.READ
    for_all_tenants: bool = False


PLACES = (
    Place("Jobs", "api/jobs/"),
    Place("Queues", "api/jobs/queues/"),
    Place("Dead letters", "api/jobs/admin/dlq/", Right.MANAGE),
    Place("Dead letters, put together by what went wrong", "api/jobs/admin/dlq/groups/", Right.MANAGE),
    Place("Schedules", "api/jobs/schedules/"),
    Place("Alerts", "api/jobs/alerts/", for_all_tenants=True),
    Place("Workers", "api/jobs/workers/", for_all_tenants=True),
    Place("Statistics", "api/jobs/statistics/"),
    Place("Audit", "api/jobs/audit/"),
    Place("Tokens", "api/jobs/tokens/", Right.TOKENS, for_all_tenants=True),
    Place("Who you are", "api/jobs/me/"),
    Place("The API described, as OpenAPI", "api/openapi.json"),
)
"""Their rights are those their routes declare. (tests/api/test_home.py)"""

_PAGE = """<!doctype html>
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


@routes.get("/", Right.READ, response_class=HTMLResponse)
async def show_home(ctx: Context) -> HTMLResponse:
    """Show who you are and where to go from ctx."""
    caller = ctx.caller
    places = "\n".join(f'<li><a href="{place.path}">{escape(place.title)}</a></li>' for place in open_to(caller))
    tenant = "All tenants' jobs are yours to see." if caller.tenant is None else f"You see those of {caller.tenant}."
    return HTMLResponse(
        _PAGE.format(
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
        if missing_role(caller.roles, place.right) is None and not (place.for_all_tenants and caller.tenant is not None)
    ]
