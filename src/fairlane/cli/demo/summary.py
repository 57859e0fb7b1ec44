"""The summary at the end; every number is read from the store."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from textwrap import fill

from msgspec import Struct

from fairlane.cli.demo.events import all_jobs
from fairlane.cli.demo.story import FLOODING, TENANTS
from fairlane.cli.demo.tasks import CODE, CRM, DIGEST
from fairlane.cli.output import Printer, instant, plural
from fairlane.client.app import Fairlane
from fairlane.core.job import STATUSES, Job
from fairlane.core.ops import JobDetail
from fairlane.core.schedules import Schedule

NEXT = (
    "queues",
    "jobs list status:completed",
    "dlq list",
    "breakers list",
    "schedules list",
    "audit list",
    "doctor",
)
ALL = "all"


class TenantNumbers(Struct, frozen=True, kw_only=True):
    tenant: str
    enqueued: int
    pending: int
    processing: int
    completed: int
    failed: int
    dead: int
    cancelled: int
    attempts: int
    """Attempts that ended, in any way."""
    mean_wait_s: float | None
    """Of the jobs completed at their first attempt: from enqueue to start."""


class Summary(Struct, frozen=True, kw_only=True):
    ran_s: float
    directory: str | None
    """None: it was removed."""
    tenants: tuple[TenantNumbers, ...]
    """The last one is all of them together."""
    outcomes: dict[str, int]
    """Attempts by how they ended."""
    workers: dict[str, int]
    """Attempts by the worker that ran them."""
    dead_letters: dict[str, int]
    acts: int
    urgent: int
    """Jobs of the fast lane that completed at once."""
    urgent_wait_s: float | None
    breaker_state: str
    put_off: int
    """How often the breaker kept a job from running."""
    fired: int
    """Jobs made by the schedule."""
    fired_at: str
    """The nominal time of the last of them."""
    next_at: str


def summarise(app: Fairlane, *, ran_s: float, directory: str | None) -> Summary:
    details = [detail for job in all_jobs(app) if (detail := app.jobs.detail(job)) is not None]
    attempts = [attempt for detail in details for attempt in detail.attempts]
    urgent = [detail for detail in details if detail.job.type == CODE]
    [schedule] = app.schedules.list()
    return Summary(
        ran_s=round(ran_s, 1),
        directory=directory,
        tenants=(
            *(numbers(tenant, [detail for detail in details if detail.job.tenant == tenant]) for tenant in TENANTS),
            numbers(ALL, details),
        ),
        outcomes=dict(Counter(attempt.outcome for attempt in attempts).most_common()),
        workers=dict(Counter(str(attempt.worker) for attempt in attempts).most_common()),
        dead_letters=app.statistics.counts().dead_letters,
        acts=len(app.audit.list().records),
        urgent=len(list(_waits(urgent))),
        urgent_wait_s=_mean(_waits(urgent)),
        breaker_state=next((breaker.state for breaker in app.breakers.list() if breaker.name == CRM.name), "closed"),
        put_off=sum(_put_off(detail) for detail in details if detail.job.type == "crm.sync"),
        fired=sum(detail.job.created_by == f"schedule:{DIGEST}" for detail in details),
        **_timetable(schedule),
    )


def _put_off(detail: JobDetail) -> int:
    """Nothing is recorded then, but each lease has had a number."""
    return max((attempt.attempt for attempt in detail.attempts), default=0) - len(detail.attempts)


def numbers(tenant: str, details: list[JobDetail]) -> TenantNumbers:
    counts = Counter(detail.job.status for detail in details)
    return TenantNumbers(
        tenant=tenant,
        enqueued=len(details),
        attempts=sum(len(detail.attempts) for detail in details),
        mean_wait_s=_mean(_waits(details)),
        **{status: counts[status] for status in STATUSES},
    )


def show(summary: Summary, out: Printer) -> None:
    if out.as_json:
        out.data(summary)
        return
    # No job is processing: the foreman has released the jobs of its workers.
    ended = [status for status in STATUSES if status != "processing"]
    rows = [
        (
            row.tenant,
            row.enqueued,
            *(getattr(row, status) for status in ended),
            row.attempts,
            "" if row.mean_wait_s is None else f"{row.mean_wait_s:.2f}s",
        )
        for row in summary.tenants
    ]
    out.line("")
    out.table(("tenant", "jobs", *ended, "attempts", "wait"), rows)
    out.line("")
    width = sys.maxsize if out.console is None else out.console.width
    for line in sentences(summary):
        out.line(line if line.startswith(" ") else fill(line, width))


def sentences(summary: Summary) -> Iterator[str]:
    *tenants, everybody = summary.tenants
    yield f"{plural(everybody.enqueued, 'job')} in {summary.ran_s:.1f} s."
    yield from _attempts(summary)
    yield from _fairness(tenants, summary)
    if summary.put_off:
        state = summary.breaker_state.replace("_", " ")
        times = plural(summary.put_off, "time")
        yield f"The breaker {CRM.name} postponed jobs {times}, counting no attempt; it is {state} now."
    if summary.fired:
        yield (
            f"The schedule {DIGEST} was set up as if no worker had run at {summary.fired_at}: "
            f"made up for by {plural(summary.fired, 'job')}."
        )
    waiting = summary.dead_letters.get("pending_review", 0)
    letters, acts = plural(waiting, "dead letter"), plural(summary.acts, "act")
    yield f"{letters} to review; {acts} by an operator in the audit."
    yield ""
    if summary.directory is None:
        yield "The demo's directory is removed. `fairlane demo --keep` keeps it, to inspect with:"
    else:
        yield "Database, settings and the workers' log are kept. Inspect them, or run another worker:"
        yield f"  cd {summary.directory}"
    yield from (f"  fairlane {command}" for command in NEXT)
    if summary.directory is not None:
        yield "  fairlane worker"


def _attempts(summary: Summary) -> Iterator[str]:
    if not summary.outcomes:
        return
    ways = ", ".join(f"{number} {outcome.replace('_', ' ')}" for outcome, number in summary.outcomes.items())
    shares = " + ".join(str(number) for number in summary.workers.values())
    total, who = plural(sum(summary.outcomes.values()), "attempt"), plural(len(summary.workers), "worker")
    yield f"{total} by {who} ({shares}): {ways}."


def _fairness(tenants: Iterable[TenantNumbers], summary: Summary) -> Iterator[str]:
    waits = {row.tenant: row.mean_wait_s for row in tenants if row.mean_wait_s is not None}
    first = next(row for row in tenants if row.tenant == FLOODING)
    others = [f"{tenant} {wait_s:.2f} s" for tenant, wait_s in waits.items() if tenant != FLOODING]
    if FLOODING in waits and others:
        flood = f"{FLOODING} came first with {first.enqueued} jobs, which waited {waits[FLOODING]:.2f} s on average"
        yield f"{flood}."
        yield f"Behind that flood: {', '.join(others)}."
    if summary.urgent_wait_s is not None:
        codes = plural(summary.urgent, "login code")
        yield f"{codes} had the fast lane for themselves and waited {summary.urgent_wait_s:.2f} s."


def _timetable(schedule: Schedule) -> dict[str, str]:
    return {"fired_at": instant(schedule.last_at), "next_at": instant(schedule.next_at)}


def _waits(details: Iterable[JobDetail]) -> Iterator[float]:
    for job in (detail.job for detail in details):
        if (wait_s := _wait_s(job)) is not None:
            yield wait_s


def _wait_s(job: Job) -> float | None:
    if job.status != "completed" or job.attempt > 1 or job.started_at is None:
        return None
    return (job.started_at - job.enqueued_at).total_seconds()


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return round(sum(found) / len(found), 2) if found else None
