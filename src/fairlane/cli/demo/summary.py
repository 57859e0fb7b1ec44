"""The numbers at the end, all read from the store."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from fairlane.cli.demo.story import TENANTS
from fairlane.cli.demo.watching import all_jobs
from fairlane.cli.printing import Printer
from fairlane.cli.words import plural
from fairlane.client.app import Fairlane
from fairlane.core.job import STATUSES, Job

NEXT = ("queues", "jobs list status:completed", "dlq list", "audit list", "doctor")


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
    """Attempts that ended, whatever way."""
    mean_wait_s: float | None
    """Of the jobs completed at their first attempt: from enqueue to start."""


class Summary(Struct, frozen=True, kw_only=True):
    ran_s: float
    url: str | None
    """None: the file was removed."""
    tenants: tuple[TenantNumbers, ...]
    dead_letters: dict[str, int]
    acts: int


def summarise(app: Fairlane, *, ran_s: float, url: str | None) -> Summary:
    jobs = all_jobs(app)
    return Summary(
        ran_s=round(ran_s, 1),
        url=url,
        tenants=tuple(_numbers(app, tenant, [job for job in jobs if job.tenant == tenant]) for tenant in TENANTS),
        dead_letters=app.stats().dead_letters,
        acts=len(app.audit().records),
    )


def show(summary: Summary, out: Printer) -> None:
    if out.as_json:
        out.data(summary)
        return
    # Nothing is processing any more: the shift has given back what it held.
    ended = [status for status in STATUSES if status != "processing"]
    rows = [
        (
            numbers.tenant,
            numbers.enqueued,
            *(getattr(numbers, status) for status in ended),
            "" if numbers.mean_wait_s is None else f"{numbers.mean_wait_s:.2f}s",
        )
        for numbers in summary.tenants
    ]
    out.line("")
    out.table(("tenant", "enqueued", *ended, "mean wait"), rows)
    for line in sentences(summary):
        out.line(line)


def sentences(summary: Summary) -> Iterator[str]:
    enqueued = sum(numbers.enqueued for numbers in summary.tenants)
    waiting = summary.dead_letters.get("pending_review", 0)
    yield f"{enqueued} jobs in {summary.ran_s:.1f} s; {plural(waiting, 'dead letter')} waiting for a person."
    first, *others = summary.tenants
    waits = [f"{numbers.tenant} {numbers.mean_wait_s:.2f} s" for numbers in others if numbers.mean_wait_s is not None]
    if waits and first.mean_wait_s is not None:
        flood = f"{first.tenant} came first with {first.enqueued} jobs and waited {first.mean_wait_s:.2f} s on average"
        yield f"{flood}; behind that flood: {', '.join(waits)}."
    yield ""
    if summary.url is None:
        yield "The database is gone. `fairlane demo --keep` leaves it there, to be looked at with:"
    else:
        yield "The database is still there. Look around:"
    address = "URL" if summary.url is None else summary.url
    yield from (f"  fairlane {command} --url {address}" for command in NEXT)


def _numbers(app: Fairlane, tenant: str, jobs: list[Job]) -> TenantNumbers:
    counts = {status: sum(job.status == status for job in jobs) for status in STATUSES}
    straight = [job for job in jobs if job.status == "completed" and job.attempt == 1 and job.started_at is not None]
    waits = [(job.started_at - job.enqueued_at).total_seconds() for job in straight if job.started_at is not None]
    details = [detail for job in jobs if (detail := app.detail(job)) is not None]
    return TenantNumbers(
        tenant=tenant,
        enqueued=len(jobs),
        attempts=sum(len(detail.attempts) for detail in details),
        mean_wait_s=round(sum(waits) / len(waits), 2) if waits else None,
        **counts,
    )
