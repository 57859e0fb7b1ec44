"""Jobs, attempts and dead letters as rows and facts for reading."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from fairlane.cli.output import Printer, indented, instant, one_line, shortened, span
from fairlane.core.job import FINAL, Attempt, DeadLetter, Job
from fairlane.core.ops import JobDetail

JOB_TITLES = ("id", "type", "status", "tenant", "queue", "failed", "age", "due")
DEAD_LETTER_TITLES = ("id", "status", "tenant", "type", "died", "acknowledged by", "error", "reason")
ATTEMPT_TITLES = ("attempt", "outcome", "started", "ended", "took", "worker", "error")


def job_row(job: Job, now: datetime) -> tuple[object, ...]:
    status = f"{job.status}, asked to stop" if job.cancel_requested else job.status
    due = "" if job.status in FINAL or job.status == "processing" else f"in {span(job.run_at - now)}"
    due = "now" if due and job.run_at <= now else due
    failed = f"{job.attempts}/{job.max_attempts}"
    return job.id, job.type, status, job.tenant, job.queue, failed, span(now - job.enqueued_at), due


def dead_letter_row(letter: DeadLetter, now: datetime) -> tuple[object, ...]:
    return (
        letter.id,
        letter.status,
        letter.job.tenant,
        letter.job.type,
        f"{span(now - letter.died_at)} ago",
        letter.acknowledged_by,
        letter.error_type,
        shortened(letter.reason),
    )


def job_facts(job: Job) -> Iterator[tuple[str, object]]:
    yield "id", job.id
    yield "type", job.type
    yield "status", job.status
    if job.cancel_requested:
        yield "asked to stop", "yes"
    yield "tenant", job.tenant
    yield "queue", job.queue
    yield "priority", job.priority
    yield "category", job.category
    yield "failed attempts", f"{job.attempts} of {job.max_attempts}"
    if job.crashes:
        yield "crashes", job.crashes
    yield "timeout", None if job.timeout_s is None else f"{job.timeout_s:g}s"
    yield "enqueued", instant(job.enqueued_at)
    yield "due", instant(job.run_at)
    yield "started", instant(job.started_at)
    yield "finished", instant(job.finished_at)
    yield "worker", job.worker
    yield "key", job.idempotency_key
    yield "dedup key", job.dedup_key
    yield "correlation", job.correlation_id
    yield "parent", job.parent_id
    yield "created by", job.created_by
    yield "refs", ", ".join(f"{name}={value}" for name, value in job.refs.items())
    yield "headers", ", ".join(f"{name}={value}" for name, value in job.headers.items())
    if job.last_error is not None:
        yield "last error", f"{job.error_type} ({job.error_class}): {job.last_error}"
    yield "payload", indented(job.payload)
    yield "result", None if job.result is None else indented(job.result)


def dead_letter_facts(letter: DeadLetter) -> Iterator[tuple[str, object]]:
    yield "dead letter", letter.id
    yield "review", letter.status
    yield "died", instant(letter.died_at)
    yield "reason", letter.reason
    yield "error", f"{letter.error_type} ({letter.error_class})"
    yield "fingerprint", letter.fingerprint
    if letter.acknowledged_by is not None:
        yield "acknowledged", f"by {letter.acknowledged_by}, {instant(letter.acknowledged_at)}"
    if letter.closed_by is not None:
        yield "closed", f"by {letter.closed_by}, {instant(letter.closed_at)}"
    yield "notes", letter.resolution_notes
    if letter.reprocess_count:
        yield "reprocessed", f"{letter.reprocess_count} times, last as {letter.reprocessed_as}"


def show_notes(out: Printer, detail: JobDetail) -> None:
    """What its attempts said of themselves."""
    if detail.progress is not None:
        out.facts([("progress", f"{detail.progress:.0%}")])
    for line in detail.log:
        out.line(f"{instant(line.at)}  attempt {line.attempt}  {one_line(line.message)}")


def show_attempts(out: Printer, attempts: Iterable[Attempt]) -> None:
    rows = [attempt_row(attempt) for attempt in attempts]
    if rows:
        out.line("")
        out.table(ATTEMPT_TITLES, rows)


def attempt_row(attempt: Attempt) -> tuple[object, ...]:
    error = f"{attempt.error_type}: {attempt.error_message}" if attempt.error_type else attempt.error_message or ""
    took = "" if attempt.started_at is None else f"{(attempt.ended_at - attempt.started_at).total_seconds():.3f}s"
    started, ended = instant(attempt.started_at), instant(attempt.ended_at)
    return attempt.attempt, attempt.outcome, started, ended, took, attempt.worker, shortened(error, 120)
