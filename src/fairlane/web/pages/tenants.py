"""The pages of tenants: each one's share of slot time against its weight, what waits and runs, limits and pauses."""

from __future__ import annotations

from asyncio import gather
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from fastapi import Query
from msgspec import Struct

from fairlane.api.fields import TenantName
from fairlane.client.admin.tenants import TenantAdmin
from fairlane.core.limits import LimitKey, LimitsInForce
from fairlane.core.ops import TENANT_COUNT_CAP, StatRow, TenantRecord
from fairlane.web.form import Form
from fairlane.web.page import CurrentPage, Page, Pages, Values
from fairlane.web.pages.limits import read_limits
from fairlane.web.pages.statistics import NameFigures, charts_of, figures_of, read_figures, read_series
from fairlane.web.time_range import RANGES, ChosenRange, TimeRange

pages = Pages("tenants", "/tenants", title="Tenants", key="t")

MOST_SHARES = 15
"""The busiest tenants, whose shares are compared."""
PAGE_SIZE = 25
MOST_QUEUES = 10
BELOW = 0.8
"""A tenant that has jobs ready and used less than this part of its share waits for others."""

TenantState = Literal["paused", "throttled", "busy", "idle"]


class TenantRow(Struct, frozen=True, kw_only=True):
    record: TenantRecord
    state: TenantState


class Share(Struct, frozen=True, kw_only=True):
    """What one of the busiest tenants used of the slot time that they used together."""

    row: TenantRow
    figures: NameFigures
    used_s: float
    used: float
    fair: float
    """The part that its weight gives it among them."""
    is_below: bool


@pages.page("", TenantAdmin.alist, "tenants.html")
async def show_tenants(
    page: CurrentPage, range: ChosenRange, after: Annotated[TenantName | None, Query()] = None
) -> Values:
    """Show how the busiest tenants share slot time, and tenants by name."""
    shares, rest = list[Share](), 0
    if page.tenant is None:
        found, limits, used = await gather(
            page.app.tenants.alist(after=after or "", limit=PAGE_SIZE), _limits(page), _used(page, range)
        )
        records, following = found.tenants, found.next
        shares, rest = await _shares(page, used, records, limits)
    else:
        limits, record = await gather(_limits(page), page.app.tenants.aget(page.tenant))
        records, following = (record,), None
    return {
        "tenants": [TenantRow(record=record, state=_state(record, limits, page.now)) for record in records],
        "shares": shares,
        "rest": rest,
        "after": after,
        "next": following,
        "cap": TENANT_COUNT_CAP,
        "range": range,
        "ranges": RANGES,
    }


@pages.page("/one", TenantAdmin.aget, "tenant.html", of_one_tenant=True)
async def show_tenant(page: CurrentPage, range: ChosenRange, name: Annotated[TenantName, Query()]) -> Values:
    """Show one tenant, also one that has never had a job."""
    record = await page.app.tenants.aget(name)
    limits = await _limits(page)
    shares, _ = ([], 0) if page.is_bound else await _shares(page, await _used(page, range), (record,), limits)
    waiting = (await page.app.jobs.alist(tenant=name, status="pending", limit=1)).jobs
    return {
        "tenant": record,
        "state": _state(record, limits, page.now),
        "share": next((share for share in shares if share.row.record.name == name), None),
        "pause": next((one for one in await page.app.pauses.alist() if (one.kind, one.name) == ("tenant", name)), None),
        "waiting": waiting[0] if waiting else None,
        "reasons": (await page.app.jobs.awhy(waiting[0], tenant=name)).reasons if waiting else (),
        "charts": charts_of(await read_series(page, range, tenant=name)),
        "queues": (await read_figures(page, range, "queue", tenant=name))[:MOST_QUEUES],
        "limits": await read_limits(page, lambda limit: limit.kind == "tenant" and limit.name in (name, "*")),
        "cap": TENANT_COUNT_CAP,
        "range": range,
        "ranges": RANGES,
    }


@pages.act("/set", TenantAdmin.aset, done="Workers apply it within seconds.", all_tenants=True)
async def set_tenant(page: CurrentPage, form: Form) -> str:
    name = form.required("name")
    await page.app.tenants.aset(
        name, weight=form.number("weight"), tier=form.text("tier"), by=page.by, notes=form.words("notes")
    )
    return page.url("show_tenant", name=name)


@pages.act("/pause", TenantAdmin.apause, done="The tenant is paused.")
async def pause_tenant(page: CurrentPage, form: Form) -> str:
    name, refuse = form.required("name"), form.text("refuse") is not None
    await page.app.tenants.apause(name, refuse=refuse, by=page.by, notes=form.words("notes"))
    return page.url("show_tenant", name=name)


@pages.act("/resume", TenantAdmin.aresume, done="The tenant is resumed.")
async def resume_tenant(page: CurrentPage, form: Form) -> str:
    name = form.required("name")
    await page.app.tenants.aresume(name, by=page.by, notes=form.words("notes"))
    return page.url("show_tenant", name=name)


async def _used(page: Page, range: TimeRange) -> list[StatRow]:
    """What each tenant used in a span, the busiest first."""
    found = await page.app.statistics.aseries(since=range.since, until=range.until, step_s=range.span_s, by="tenant")
    return sorted((row for row in found.rows if row.run_us), key=lambda row: (-row.run_us, row.tenant))


async def _shares(
    page: Page, used: Sequence[StatRow], known: Sequence[TenantRecord], limits: LimitsInForce
) -> tuple[list[Share], int]:
    """The shares of the busiest tenants, the largest first, and how many tenants there were besides."""
    records = {record.name: record for record in known}
    busiest = [figures_of(row.tenant, row) for row in used[:MOST_SHARES]]
    unknown = [one.name for one in busiest if one.name not in records]
    records |= zip(unknown, await gather(*map(page.app.tenants.aget, unknown)), strict=True)
    whole = sum(one.row.run_us for one in busiest)
    weights = sum(records[one.name].weight for one in busiest)
    shares = []
    for one in busiest:
        record, part = records[one.name], one.row.run_us / whole
        row = TenantRow(record=record, state=_state(record, limits, page.now))
        fair = record.weight / weights
        shares.append(
            Share(
                row=row,
                figures=one,
                used_s=one.row.run_us / 1e6,
                used=part,
                fair=fair,
                is_below=row.state == "busy" and record.ready > 0 and part < BELOW * fair,
            )
        )
    return shares, len(used) - len(busiest)


async def _limits(page: Page) -> LimitsInForce:
    return LimitsInForce(page.app.limits.declared, await page.app.limits.alist())


def _state(record: TenantRecord, limits: LimitsInForce, now: datetime) -> TenantState:
    if record.paused:
        return "paused"
    key = LimitKey("tenant", record.name)
    most, until = limits.running(key), limits.paused_until(key)
    is_full = most is not None and record.leased >= most and record.ready > 0
    if record.held or is_full or (until is not None and until > now):
        return "throttled"
    return "busy" if record.ready or record.leased else "idle"
