"""Explains in words why a job waits, from the store's facts about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from fairlane.client.context import in_scope
from fairlane.client.enqueue.options import job_id
from fairlane.client.handle import JobLike
from fairlane.client.rights import visible
from fairlane.client.steps import Steps, ask
from fairlane.core.breaker import BreakerRecord
from fairlane.core.ops import ALL_TENANTS, TENANT_COUNT_CAP, LimitState, ListBreakers, Pause, Waiting, Why
from fairlane.errors import JobNotFound

if TYPE_CHECKING:
    from typing import Any

    from fairlane.client.task import Task
    from fairlane.core.limits import Limit


PUT_OFF = {"NeedsNewerCode": "needs newer code", "MissingPrincipal": "needs a principal"}
"""What a job waits for that was put off, by the error type of its last record."""


class Explanation(Struct, frozen=True, kw_only=True):
    """Why a job waits."""

    waiting: Waiting
    reasons: tuple[str, ...]
    """The reasons, the strongest first; never empty."""
    breaker: BreakerRecord | None = None
    """The breaker of its task, if it is not closed."""


def explain(
    job: JobLike, tenant: str | int | None, limits: tuple[Limit, ...], tasks: Mapping[str, Task[..., Any]]
) -> Steps[Explanation]:
    """Explain why this job waits, by the limits and breakers of the tasks known here."""
    asked = job_id("job", job)
    waiting = yield from ask(Why(scope=in_scope(tenant), id=asked, limits=limits))
    if waiting is None:
        raise JobNotFound(asked)
    waiting = visible(waiting)  # The reasons quote the notes of pauses.
    if in_scope(None) != ALL_TENANTS:
        waiting = replace(waiting, pauses=tuple(_seen_by_a_tenant(pause) for pause in waiting.pauses))
    task = tasks.get(waiting.job.type)
    named = None if task is None else task.definition.breaker
    breaker = None
    if named is not None and waiting.place in ("ready", "scheduled", "held"):
        kept = (yield from ask(ListBreakers())).breakers
        breaker = next((one for one in kept if one.name == named.name and one.state != "closed"), None)
    return Explanation(waiting=waiting, reasons=tuple(_reasons(waiting, breaker)), breaker=breaker)


def _seen_by_a_tenant(pause: Pause) -> Pause:
    """A pause without who made it and why, unless it is the tenant's own."""
    return pause if pause.kind == "tenant" else replace(pause, by="", notes=None)


def _reasons(waiting: Waiting, breaker: BreakerRecord | None) -> Iterator[str]:
    job, now = waiting.job, waiting.now
    if waiting.place in ("completed", "dead", "cancelled"):
        yield f"it does not wait: it is {job.status}"
        return
    if waiting.place == "leased":
        started = job.started_at
        yield (
            "a worker has claimed it and it begins when a slot is free there"
            if started is None
            else f"it is running, for {_span(now, started)}"
        )
        return
    for pause in waiting.pauses:
        kind = "task" if pause.kind == "type" else pause.kind
        by = f" by {pause.by}" if pause.by else ""
        yield f'{kind} "{pause.name}" is paused{by}' + (f": {pause.notes}" if pause.notes else "")
    if waiting.place == "held":
        yield (
            f"its tenant is at its limit of {waiting.waiting_limit} jobs "
            f'in queue "{job.queue}"; it continues when there is room'
            if waiting.waiting_limit is not None
            else "it was held at its tenant's limit, which is lifted: it continues within seconds"
        )
    if job.status == "pending" and job.error_type in PUT_OFF and job.last_error is not None:
        since = "" if job.last_error_at is None else f", for {_span(now, job.last_error_at)}"
        yield f"it {PUT_OFF[job.error_type]} and is put off, uncharged{since}: {job.last_error}"
    if (signal := waiting.waits_for) is not None:
        key = f' with the key "{signal.key}"' if signal.key else ""
        yield f'it waits for the signal "{signal.name}"{key} until {signal.until:%Y-%m-%d %H:%M:%S} UTC'
    elif waiting.place == "scheduled" and job.run_at > now:
        what = "it failed and is tried again" if job.status == "failed" else "it is scheduled"
        yield f"{what} in {_span(job.run_at, now)}"
    for state in waiting.limits:
        yield from _limit_reason(state, now)
    if breaker is not None:
        again = "" if breaker.retry_at is None else f", tried again in {_span(breaker.retry_at, now)}"
        yield f'breaker "{breaker.name}" is {breaker.state.replace("_", " ")}{again}'
    if waiting.workers == 0:
        yield f'no live worker serves queue "{job.queue}"'
    elif waiting.knowing == 0:
        yield f'no live worker knows task "{job.type}"; {waiting.workers} serve its queue'
    if waiting.place == "ready":
        yield _position(waiting)


def _limit_reason(state: LimitState, now: datetime) -> Iterator[str]:
    what = "task" if state.kind == "type" else "limit" if state.kind == "named" else state.kind
    where = f' in queue "{state.queue}"' if state.queue else ""
    if state.running is not None and state.leases >= state.running:
        yield f'{what} "{state.name}"{where} has {state.leases} of {state.running} running'
    if state.rate is not None and state.starts >= state.rate.count:
        again = "" if state.free_at is None else f"; the next one in {_span(state.free_at, now)}"
        yield f'{what} "{state.name}"{where} has used its rate of {state.rate}{again}'
    elif state.free_at is not None and state.free_at > now:
        yield f'{what} "{state.name}"{where} is paused for {_span(state.free_at, now)}'


def _position(waiting: Waiting) -> str:
    parts = [f"{_count(waiting.ahead)} of its tenant before it"]
    if waiting.tenants:
        others = "other tenant takes" if waiting.tenants == 1 else "other tenants take"
        parts.append(f"{_count(waiting.tenants)} {others} turns with it")
    if waiting.more_urgent:
        parts.append(f"{_count(waiting.more_urgent)} more urgent")
    return "it is ready: " + ", ".join(parts)


def _count(number: int) -> str:
    return f"{number}" if number < TENANT_COUNT_CAP else f"{TENANT_COUNT_CAP} or more"


def _span(later: datetime, earlier: datetime) -> str:
    s = abs((later - earlier).total_seconds())
    if s < 60:
        return f"{s:.1f} s"
    return f"{s / 60:.0f} min" if s < 7200 else f"{s / 3600:.1f} h"
