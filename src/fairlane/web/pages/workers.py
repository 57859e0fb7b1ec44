"""The page of workers: the processes that run jobs, what each serves and uses, and what their jobs last raised."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct

from fairlane.api.fields import Cursor
from fairlane.client.admin.workers import WorkerAdmin
from fairlane.client.rights import Right
from fairlane.core.ops import WorkerRecord
from fairlane.web.page import CurrentPage, Pages, Values, part_at

pages = Pages("workers", "/workers", title="Workers", key="w")

PAGE_SIZE = 50
MOST_SHOWN = 20
"""Exceptions on the page."""


class WorkerRow(Struct, frozen=True, kw_only=True):
    """One worker as the page shows it."""

    name: str
    state: Literal["working", "waiting", "gone"]
    queues: tuple[str, ...]
    tasks: int
    jobs: int
    lanes: tuple[tuple[str, float, float], ...]
    """Name, slots in use, slots."""
    memory_mb: float | None
    registered_at: datetime
    renewed_at: datetime


@pages.page("", WorkerAdmin.alist, "workers.html", all_tenants=True)
async def show_workers(page: CurrentPage, cursor: Cursor = None) -> Values:
    """Show every registered worker, and the newest exceptions of their jobs."""
    found = await page.app.workers.alist()
    exceptions = await page.app.workers.aexceptions(tenant=page.tenant, limit=MOST_SHOWN)
    return {
        "workers": part_at(cursor, [_row(worker, found.now) for worker in found.workers], PAGE_SIZE),
        "exceptions": exceptions,
        "shows_errors": page.may(Right.MANAGE),
    }


def _row(worker: WorkerRecord, now: datetime) -> WorkerRow:
    figures = worker.figures
    lanes = [name.removeprefix("lane.").removesuffix(".slots") for name in figures if name.endswith(".slots")]
    state: Literal["working", "waiting", "gone"] = "working" if worker.leases else "waiting"
    return WorkerRow(
        name=worker.name,
        state=state if worker.expires_at > now else "gone",
        queues=worker.queues,
        tasks=len(worker.types),
        jobs=worker.leases,
        lanes=tuple(
            (lane, figures.get(f"lane.{lane}.utilisation", 0.0) * figures[f"lane.{lane}.slots"], slots)
            for lane in lanes
            if (slots := figures[f"lane.{lane}.slots"]) > 0
        ),
        memory_mb=figures.get("memory_mb"),
        registered_at=worker.registered_at,
        renewed_at=worker.renewed_at,
    )
