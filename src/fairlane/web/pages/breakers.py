"""The page of circuit breakers: which are open and until when; reset or open one."""

from __future__ import annotations

from fairlane.api.fields import Cursor, Name
from fairlane.api.routes.breakers import require_known
from fairlane.client.admin.breakers import BreakerAdmin
from fairlane.web.form import Form
from fairlane.web.page import CurrentPage, Pages, Values, part_at

pages = Pages("breakers", "/breakers", title="Breakers", key="b")

PAGE_SIZE = 50
_ORDER = {"open": 0, "half_open": 1, "closed": 2}


@pages.page("", BreakerAdmin.alist, "breakers.html", all_tenants=True)
async def show_breakers(page: CurrentPage, cursor: Cursor = None) -> Values:
    """Show every breaker that has been used, the open ones first."""
    breakers = sorted(await page.app.breakers.alist(), key=lambda breaker: (_ORDER[breaker.state], breaker.name))
    return {"breakers": part_at(cursor, breakers, PAGE_SIZE)}


@pages.act("/{name}/reset", BreakerAdmin.areset, done="The breaker is closed.", all_tenants=True)
async def reset_breaker(page: CurrentPage, name: Name, form: Form) -> str:
    await require_known(page.app, name)
    await page.app.breakers.areset(name, by=page.by, notes=form.words("notes"))
    return page.url("show_breakers")


@pages.act("/{name}/open", BreakerAdmin.aopen, done="The breaker is open until somebody resets it.", all_tenants=True)
async def open_breaker(page: CurrentPage, name: Name, form: Form) -> str:
    await require_known(page.app, name)
    await page.app.breakers.aopen(name, by=page.by, notes=form.words("notes"))
    return page.url("show_breakers")
