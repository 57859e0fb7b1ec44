"""The pages of queues and lanes: depth, age, waiting and running times, limits, who serves them; pause and resume."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from fairlane.api.fields import Name
from fairlane.client.admin.queues import QueueAdmin, QueueState
from fairlane.core.ops import Pause, WorkerRecord, Workers
from fairlane.core.statistics import lane_use
from fairlane.web.form import Form
from fairlane.web.page import CurrentPage, Page, Pages, Values
from fairlane.web.pages.limits import LimitRow, read_limits
from fairlane.web.pages.statistics import NameFigures, charts_of, read_figures, read_series
from fairlane.web.time_range import RANGES, ChosenRange

pages = Pages("queues", "/queues", title="Queues", key="q")

MOST_NAMES = 10
"""Tasks and tenants on the page of a queue."""


class LaneUse(Struct, frozen=True, kw_only=True):
    name: str
    used: float
    slots: float


class QueueRow(Struct, frozen=True, kw_only=True):
    """One queue as the pages show it."""

    state: QueueState
    word: Literal["refusing", "paused", "no worker", "busy", "idle"]
    figures: NameFigures | None
    """Of the chosen span; None: no attempt ended in it."""
    workers: tuple[str, ...]
    """Names of those that serve it."""
    limits: tuple[LimitRow, ...]
    pause: Pause | None
    """None also for those who are bound to a tenant: it names people."""


@pages.page("", QueueAdmin.alist, "queues.html")
async def show_queues(page: CurrentPage, range: ChosenRange) -> Values:
    """Show every queue with unfinished jobs, a pause, recent attempts or a worker, and the lanes of the workers."""
    workers = await _workers(page)
    return {
        "queues": await _rows(page, range, workers),
        "lanes": [] if workers is None else lanes_of(workers),
        "is_house": workers is not None,
        "range": range,
        "ranges": RANGES,
    }


@pages.page("/{name}", QueueAdmin.alist, "queue.html")
async def show_queue(page: CurrentPage, name: Name, range: ChosenRange) -> Values:
    """Show one queue, also one without jobs."""
    workers = await _workers(page)
    rows = {row.state.queue: row for row in await _rows(page, range, workers, name)}
    series = await read_series(page, range, queue=name)
    return {
        "queue": rows[name],
        "is_house": workers is not None,
        "charts": charts_of(series),
        "tenants": (await read_figures(page, range, "tenant", queue=name))[:MOST_NAMES],
        "tasks": (await read_figures(page, range, "type", queue=name))[:MOST_NAMES],
        "range": range,
        "ranges": RANGES,
    }


@pages.act("/{name}/pause", QueueAdmin.apause, done="The queue is paused.", all_tenants=True)
async def pause_queue(page: CurrentPage, name: Name, form: Form) -> str:
    refuse = form.text("refuse") is not None
    await page.app.queues.apause(name, refuse=refuse, by=page.by, notes=form.words("notes"))
    return page.url("show_queue", name=name)


@pages.act("/{name}/resume", QueueAdmin.aresume, done="The queue is resumed.", all_tenants=True)
async def resume_queue(page: CurrentPage, name: Name, form: Form) -> str:
    await page.app.queues.aresume(name, by=page.by, notes=form.words("notes"))
    return page.url("show_queue", name=name)


async def _workers(page: Page) -> Workers | None:
    """None: the page is about one tenant, and workers serve them all."""
    return None if page.tenant is not None else await page.app.workers.alist()


async def _rows(page: Page, range: ChosenRange, workers: Workers | None, name: str | None = None) -> list[QueueRow]:
    figures = {one.name: one for one in await read_figures(page, range, "queue", queue=name)}
    states = {
        state.queue: state
        for state in await page.app.queues.alist(tenant=page.tenant, rough=True)
        if name in (None, state.queue)
    }
    live = [] if workers is None else _live(workers)
    names = {name} if name else {*states, *figures, *(queue for worker in live for queue in worker.queues)}
    limits, pauses = list[LimitRow](), dict[str, Pause]()
    if not page.is_bound:
        limits = await read_limits(page, lambda limit: limit.kind == "queue")
        pauses = {pause.name: pause for pause in await page.app.pauses.alist() if pause.kind == "queue"}
    lonely = unserved(states.values(), workers)
    rows = []
    for queue in sorted(names):
        state, pause = states.get(queue, QueueState(queue=queue, paused=queue in pauses)), pauses.get(queue)
        word: Literal["refusing", "paused", "no worker", "busy", "idle"] = "busy" if state.ready else "idle"
        if state.paused:
            word = "refusing" if pause is not None and pause.refuse else "paused"
        elif queue in lonely:
            word = "no worker"
        rows.append(
            QueueRow(
                state=state,
                word=word,
                figures=figures.get(queue),
                workers=tuple(worker.name for worker in live if queue in (worker.queues or (queue,))),
                limits=tuple(row for row in limits if row.limit.name == queue),
                pause=pause,
            )
        )
    return rows


def unserved(queues: Iterable[QueueState], workers: Workers | None) -> set[str]:
    """Queues whose jobs are due and that no live worker serves, although they are not paused."""
    if workers is None:
        return set()
    live = _live(workers)
    if any(not worker.queues for worker in live):
        return set()
    served = {queue for worker in live for queue in worker.queues}
    return {queue.queue for queue in queues if queue.ready and not queue.paused and queue.queue not in served}


def lanes_of(workers: Workers) -> list[LaneUse]:
    return [LaneUse(name=name, used=used, slots=slots) for name, (used, slots) in sorted(lane_use(workers).items())]


def _live(workers: Workers) -> list[WorkerRecord]:
    return [worker for worker in workers.workers if worker.expires_at > workers.now]
