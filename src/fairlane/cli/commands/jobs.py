"""`fairlane jobs`: list, show, why, cancel, retry, fail, bury, reset, free-place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from fairlane.cli.options import (
    Bulk,
    SuggestingGroup,
    act_on_matching,
    act_on_several,
    acts,
    at_store,
    in_scope,
    instant_back,
    lists,
    of_several,
    paged,
    prints,
    queue_option,
    read_span,
    type_option,
)
from fairlane.cli.output import Column, Printer, Style, facts_of, indented, instant, span
from fairlane.cli.target import At
from fairlane.core.job import FINAL
from fairlane.core.text import one_line
from fairlane.core.tracebacks import folded
from fairlane.errors import JobNotFound

if TYPE_CHECKING:
    from fairlane.client.admin.bulk_acts import ManyActs
    from fairlane.client.admin.jobs import JobVerb
    from fairlane.client.app import Fairlane
    from fairlane.core.clock import Clock
    from fairlane.core.job import Attempt, Job
    from fairlane.core.ops import JobDetail


def _status(job: Job) -> str:
    return f"{job.status}, asked to stop" if job.cancel_requested else job.status


def _took(attempt: Attempt) -> str:
    return "" if attempt.started_at is None else f"{(attempt.ended_at - attempt.started_at).total_seconds():.3f}s"


COLUMNS: tuple[Column, ...] = (
    *(("number", "seq"), "id", "type", ("status", _status), "tenant", "queue"),
    ("priority", lambda job: job.priority_label or job.priority),
    ("attempts", lambda job: f"{job.attempts}/{job.max_attempts}"),
    *("enqueued_at", ("due", lambda job: None if job.status in (*FINAL, "processing") else job.run_at)),
)
ATTEMPT_COLUMNS: tuple[Column, ...] = (
    *("attempt", "outcome", "started_at", "ended_at", ("took", _took), "worker", "expires_at"),
    *("error_type", "error_message"),
)
STEP_COLUMNS: tuple[Column, ...] = (
    ("step", lambda step: step.n),
    *(
        "kind",
        "name",
        "key",
        "attempt",
        "at",
        ("took", lambda step: None if step.ran_s is None else f"{step.ran_s:.3f}s"),
        "result",
        "until",
        "signal",
    ),
)
DROPS = ("id", "due", "priority", "queue", "attempts", "enqueued")
"""Columns that a narrow terminal leaves out, this one first."""
APART = frozenset({"seq", "attempt", "payload", "result", "error_class", "error_type", "last_error", "last_error_at"})
"""Fields of a job that its facts leave out or show at the end."""
JOB_FILTERS = (
    *("status", "queue", "type", "tenant", "category", "correlation_id", "parent", "created_by", "idempotency_key"),
    *("since", "until"),
)

ids = click.argument("targets", nargs=-1, metavar="[ID|NAME:VALUE]...")


@click.group(cls=SuggestingGroup)
def jobs() -> None:
    """List and show jobs, and act on them."""


@jobs.command("list")
@click.argument("words", nargs=-1, metavar="[NAME:VALUE]...")
@click.option(
    "--status", multiple=True, help="pending, processing, completed, failed, dead or cancelled; may be repeated."
)
@queue_option(help="In this queue.")
@type_option(help="Of this task.")
@click.option("--category", help="Of this category.")
@click.option("--correlation-id", help="With this correlation id.")
@click.option("--parent", metavar="ID", help="Enqueued by this job.")
@click.option("--created-by", help="Enqueued by this person or service.")
@click.option("--idempotency-key", help="With this idempotency key.")
@click.option(
    "--since", type=instant_back, metavar="WHEN", help="Enqueued at or after: an instant, or a span such as 1h."
)
@click.option("--until", type=instant_back, metavar="WHEN", help="Enqueued before.")
@paged
@in_scope
@at_store
@lists
def list_jobs(
    words: tuple[str, ...],
    tenant: str | None,
    limit: int,
    before: int | None,
    at: At,
    out: Printer,
    **options: Any,
) -> None:
    """List jobs, newest first.

    Filters are options or words, `name:value`; quote values with spaces:
    `fairlane jobs list tenant:acme status:failed,dead type:mail.send`.
    """
    from fairlane.client.admin.filters import filter_words

    filters = _merged({**options, "tenant": tenant}, filter_words(words, JOB_FILTERS))
    with at.client() as client:
        if "parent" in filters:
            filters["parent"] = client.jobs.id_of(str(filters["parent"]), tenant=tenant)
        asked = _for_client(filters, client.runtime.clock)
        page, now = client.jobs.list(before=before, limit=limit, **asked), client.runtime.clock.now()
    empty = "no job matches" if filters else "there are no jobs; `fairlane enqueue TYPE name=value` enqueues one"
    out.listing("jobs", page, COLUMNS, empty=empty, style=Style(now), drops=DROPS)


@jobs.command()
@click.argument("id")
@in_scope
@at_store
@lists
def show(id: str, tenant: str | None, at: At, out: Printer) -> None:
    """Show one job with all its attempts."""
    with at.client() as client:
        target = client.jobs.id_of(id, tenant=tenant)
        detail = client.jobs.detail(target, tenant=tenant)
    if detail is None:
        raise JobNotFound(target)
    if out.as_json:
        out.data(detail)
        return
    out.facts(job_facts(detail.job))
    _show_notes(out, detail)
    _show_steps(out, detail)
    show_attempts(out, detail.attempts)


@jobs.command()
@click.argument("id")
@in_scope
@at_store
@prints
def why(id: str, tenant: str | None, at: At, out: Printer) -> None:
    """Explain why a job waits, strongest reason first: paused, held, at a limit, behind others, scheduled, …"""
    app = at.application()
    with at.client() as client:
        target = client.jobs.id_of(id, tenant=tenant)
        explanation = client.jobs.why(target, tenant=tenant, rules=None if app is None else app.runtime)
    if out.as_json:
        out.data(explanation)
        return
    job = explanation.waiting.job
    out.line(f"{job.id}  {job.type}  {job.status}")
    for reason in explanation.reasons:
        out.line(f"  {one_line(reason.says)}" + (f" → {reason.helps}" if reason.helps else ""))


@jobs.command()
@of_several(ids)
def cancel(**given: Any) -> None:
    """Cancel waiting jobs; ask running ones to stop.

    Jobs are given by id, or by filters as in `fairlane jobs list`: all that match, after their number was shown.
    """
    _act("cancel", **given)


@jobs.command()
@of_several(ids)
def retry(**given: Any) -> None:
    """Run dead jobs again, each as a new job.

    A repeated call returns that job unless it is dead, cancelled or removed.
    """
    _act("retry", **given)


@jobs.command()
@of_several(
    ids,
    click.option("--reason", required=True, help="The error message to record."),
    click.option(
        "--retry/--no-retry",
        default=False,
        show_default=True,
        help="Retry if attempts are left; else the job becomes dead.",
    ),
    click.option(
        "--delay",
        type=read_span,
        metavar="SPAN",
        help="With --retry: how long to wait before the retry.  [default: 0s]",
    ),
)
def fail(retry: bool, delay: timedelta | None, **given: Any) -> None:
    """Fail unfinished jobs by hand, counting one attempt."""
    if delay is not None and not retry:
        raise click.UsageError("--delay needs --retry", click.get_current_context())
    _act("fail", retry_delay=(delay or timedelta(0)) if retry else None, **given)


@jobs.command()
@of_several(ids, click.option("--reason", required=True, help="The reason, shown in the dead letter."))
def bury(**given: Any) -> None:
    """Send unfinished jobs to the dead letters now."""
    _act("bury", **given)


@jobs.command()
@of_several(
    ids,
    click.option(
        "--running-longer-than", type=read_span, metavar="SPAN", help="All that have run for longer, instead of ids."
    ),
)
def reset(
    targets: tuple[str, ...],
    running_longer_than: timedelta | None,
    every: bool,
    yes: bool,
    dry_run: bool,
    at: At,
    out: Printer,
    **about: Any,
) -> None:
    """Take running jobs from their worker: they become ready at once and no attempt is counted.

    Writes of the old attempt are ignored.
    """
    if running_longer_than is not None and (targets or every):
        raise click.UsageError("give ids, filters or --running-longer-than, one of them", click.get_current_context())
    if running_longer_than is None:
        _act("reset", targets, every, yes, dry_run, at, out, **about)
        return
    act_on_several(
        Bulk("reset", "job", "jobs", job_line),
        lambda client, **options: client.jobs.reset_many(running_longer_than=running_longer_than, **options, **about),
        question=f"Reset every job that has run for longer than {span(running_longer_than)}?",
        yes=yes,
        dry_run=dry_run,
        at=at,
        out=out,
    )


@jobs.command("free-place")
@click.argument("id")
@acts
@in_scope
@at_store
@prints
def free_place(id: str, tenant: str | None, at: At, out: Printer, **about: Any) -> None:
    """Give up the place that a job has at its key, as of one that hangs: the next one starts beside it."""
    with at.client() as client:
        job = client.jobs.free_place(client.jobs.id_of(id, tenant=tenant), tenant=tenant, **about)
    out.answer(job, f"{job_line(job)}: its place at {job.key} is free")


def _act(
    verb: JobVerb,
    targets: tuple[str, ...],
    every: bool,
    yes: bool,
    dry_run: bool,
    at: At,
    out: Printer,
    **about: Any,
) -> None:
    """Act on jobs given by id, or on all that match filters written as words."""
    words = [target for target in targets if ":" in target]
    if (words and len(words) < len(targets)) or bool(targets) == every:
        raise click.UsageError("give ids, filters or --all, one of them", click.get_current_context())
    if targets and not words:
        act_on_several(
            Bulk(verb, "job", "jobs", job_line),
            lambda client, **options: client.jobs.act_on_many(
                verb, [client.jobs.id_of(text, tenant=about["tenant"]) for text in targets], **options, **about
            ),
            number=len(targets),
            yes=yes,
            dry_run=dry_run,
            at=at,
            out=out,
        )
        return
    from fairlane.client.admin.filters import filter_words, job_filter

    filters = filter_words(words, JOB_FILTERS)
    if "tenant" in filters:
        about["tenant"] = filters.pop("tenant")

    def act(client: Fairlane, **options: Any) -> ManyActs[Job]:
        where = job_filter(_for_client(filters, client.runtime.clock))
        return client.jobs.act_on_many(verb, where=where, all=every, **options, **about)

    act_on_matching(Bulk(verb, "job", "jobs", job_line), act, yes=yes, dry_run=dry_run, at=at, out=out)


def _merged(options: Mapping[str, Any], words: Mapping[str, Any]) -> dict[str, Any]:
    """Combine options and words; each filter comes from one of them, and both override the environment."""
    given = {name: value for name, value in options.items() if value not in (None, ())}
    context = click.get_current_context()
    for name in given:
        if name in words and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{name} is given twice: as an option and as a word", context)
    return {**given, **words}


def _for_client(filters: Mapping[str, Any], clock: Clock) -> dict[str, Any]:
    """Convert the filters to the client's arguments; spans are relative to now."""
    asked = dict(filters)
    for name, argument in (("since", "enqueued_from"), ("until", "enqueued_before")):
        at: str | datetime | timedelta | None = asked.pop(name, None)
        if isinstance(at, str):
            at = instant_back(at)
        if at is not None:
            asked[argument] = clock.now() + at if isinstance(at, timedelta) else at
    return asked


def job_line(job: Job) -> str:
    return f"{job.id}  {job.type}  {_status(job)}"


def job_facts(job: Job) -> Iterator[tuple[str, object]]:
    yield "number", job.seq
    for name, value in facts_of(job, without=APART):
        yield name, f"{value} ({job.priority_label})" if name == "priority" and job.priority_label else value
    if job.last_error is not None:
        yield "last error", f"{job.error_type} ({job.error_class}): {job.last_error}"
    yield "payload", indented(job.payload)
    yield "result", None if job.result is None else indented(job.result)


def _show_notes(out: Printer, detail: JobDetail) -> None:
    """Progress and log lines of its attempts."""
    from fairlane.core.ops import LOG_LINES

    if detail.progress is not None and detail.job.status != "completed":
        out.facts([("progress", f"{detail.progress:.0%}")])
    if len(detail.log) >= LOG_LINES:
        out.note(f"the newest {LOG_LINES} lines of its log; older ones are not kept")
    for line in detail.log:
        out.line(f"{instant(line.at)}  attempt {line.attempt}  {one_line(line.message)}")


def _show_steps(out: Printer, detail: JobDetail) -> None:
    """Its durable steps, and the signal it waits for."""
    if detail.steps:
        out.line("")
        out.records(STEP_COLUMNS, detail.steps, drops=("signal", "until", "attempt"))
    if (wait := detail.waits_for) is not None:
        key = f" {wait.key}" if wait.key else ""
        out.line(f"\nwaits for the signal {wait.name}{key} until {instant(wait.until)}, in step {wait.n}")


def show_attempts(out: Printer, attempts: Sequence[Attempt]) -> None:
    """The attempts, and the traceback of the newest that has one."""
    if attempts:
        out.line("")
        out.records(ATTEMPT_COLUMNS, attempts, drops=("expires", "worker", "ended", "error type"))
    for attempt in reversed(attempts):
        if attempt.traceback is not None:
            out.line(f"\nattempt {attempt.attempt}:\n{folded(attempt.traceback)}")
            return
