"""The page of limits: what may wait, run at once or start in a span; and the keys at which most jobs wait."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, get_args

from msgspec import Struct

from fairlane.api.fields import Cursor
from fairlane.api.routes.limits import concerns
from fairlane.client.admin.job_keys import allowed, doing_now
from fairlane.client.admin.limits import LimitAdmin
from fairlane.core.ids import EVERY_TENANT
from fairlane.core.limits import LIMIT_KINDS, NO_LIMIT, FullPolicy, Limit
from fairlane.web.form import Form, SubmittedForm
from fairlane.web.page import CurrentPage, Page, Pages, Values, part_at

pages = Pages("limits", "/limits", title="Limits", key="l")

PAGE_SIZE = 50
KEYS_SHOWN = 20
_OPTIONS = {"queue": "queue", "tenant": "tenant", "type": "task", "named": "name", "key": "key"}
_AT_FULL = {"warn": "more are taken in with a warning", "reject": "more are refused", "hold": "more are held back"}


class LimitRow(Struct, frozen=True, kw_only=True):
    limit: Limit
    set_by: str | None = None
    """None: settings or code declare it."""
    set_at: datetime | None = None
    paused_until: datetime | None = None

    @property
    def about(self) -> str:
        whose = "every tenant" if self.limit.name == EVERY_TENANT else self.limit.name
        return f"{whose} in queue {self.limit.queue}" if self.limit.queue else whose

    @property
    def words(self) -> str:
        """What is allowed, as people say it."""
        limit, parts = self.limit, []
        for figure, unit in ((limit.running, "running at once"), (limit.waiting, "unfinished in a queue")):
            if figure is not None:
                parts.append(f"any number {unit}" if figure == NO_LIMIT else f"{figure:,} {unit}")
        if limit.when_full is not None:
            parts.append(_AT_FULL[limit.when_full])
        for rate, doing in ((limit.rate, "started"), (limit.enqueue_rate, "enqueued")):
            if rate is not None:
                parts.append(f"{rate} {doing}")
        if limit.payload_bytes is not None:
            size = "of any size" if limit.payload_bytes == NO_LIMIT else f"up to {limit.payload_bytes:,} bytes"
            parts.append(f"payloads {size}")
        if limit.types:
            parts.append(f"shared by {', '.join(limit.types)}")
        return ", ".join(parts) or "nothing but the pause"


@pages.page("", LimitAdmin.alist, "limits.html")
async def show_limits(page: CurrentPage, cursor: Cursor = None) -> Values:
    """Show limits set at run time, those of settings and code, and the busiest keys with who has their places."""
    tenant = page.tenant
    keys = await page.app.limits.akeys(tenant=tenant, limit=KEYS_SHOWN)
    limits = await read_limits(page, lambda limit: tenant is None or concerns(limit, tenant))
    return {
        "limits": part_at(cursor, limits, PAGE_SIZE),
        "keys": [(use, allowed(use), [(one, doing_now(one, page.now)) for one in use.holders]) for use in keys],
        "kinds": LIMIT_KINDS,
        "policies": ("", *get_args(FullPolicy)),
    }


async def read_limits(page: Page, is_shown: Callable[[Limit], bool]) -> list[LimitRow]:
    """Those that people have set first: they override what the code declares for the same thing."""
    tenant = page.tenant if page.is_bound else None
    stored = [
        LimitRow(limit=one.limit, set_by=one.by, set_at=one.at, paused_until=one.paused_until)
        for one in await page.app.limits.alist()
    ]
    declared = [LimitRow(limit=limit) for limit in page.app.limits.declared]
    return [
        row for row in (*stored, *declared) if is_shown(row.limit) and (tenant is None or concerns(row.limit, tenant))
    ]


@pages.act("", LimitAdmin.aset, done="The limit is in force.", all_tenants=True)
async def set_limit(page: CurrentPage, form: Form) -> str:
    about = _about(form)
    figures: Any = {
        "running": form.whole("running"),
        "rate": form.text("rate"),
        "waiting": form.whole("waiting"),
        "when_full": form.text("when_full"),
        "enqueue_rate": form.text("enqueue_rate"),
        "payload_bytes": form.whole("payload_bytes"),
        "types": tuple((form.text("types") or "").replace(",", " ").split()),
    }
    await page.app.limits.aset(**about, **figures, by=page.by, notes=form.words("notes"))
    return _back(page, form)


@pages.act("/clear", LimitAdmin.aclear, done="The limit is cleared.", all_tenants=True)
async def clear_limit(page: CurrentPage, form: Form) -> str:
    await page.app.limits.aclear(**_about(form), by=page.by, notes=form.words("notes"))
    return _back(page, form)


def _about(form: SubmittedForm) -> Any:
    """The target of a limit, as the client's arguments."""
    kind = form.one_of("kind", LIMIT_KINDS)
    queue = {} if form.text("queue") is None else {"queue": form.text("queue")}
    return {**queue, _OPTIONS[kind]: form.required("name")}


def _back(page: Page, form: SubmittedForm) -> str:
    """Where the form was."""
    kind, name = form.required("kind"), form.required("name")
    if form.text("from") == "queue" and kind == "queue":
        return page.url("show_queue", name=name)
    if form.text("from") == "tenant" and kind == "tenant" and name != EVERY_TENANT:
        return page.url("show_tenant", name=name)
    return page.url("show_limits")
