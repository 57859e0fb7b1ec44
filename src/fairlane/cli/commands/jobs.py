"""`fairlane jobs`: list, show, cancel, fail, bury, reset."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from fairlane.cli.acting import act_on_several, of_several, read_job_id
from fairlane.cli.filters import JOB_FILTERS, for_client, merged, read_words
from fairlane.cli.lazy import SuggestingGroup
from fairlane.cli.options import at_store, in_scope, paged, prints
from fairlane.cli.output import Printer
from fairlane.cli.target import At
from fairlane.cli.times import instant_back, span
from fairlane.errors import JobNotFound

if TYPE_CHECKING:
    from fairlane.client.app import Fairlane
    from fairlane.core.ids import JobId
    from fairlane.core.job import Job

ids = click.argument("ids", nargs=-1, required=True, metavar="ID...")


@click.group(cls=SuggestingGroup)
def jobs() -> None:
    """List jobs, look at one, act on it."""


@jobs.command("list")
@click.argument("words", nargs=-1, metavar="[NAME:VALUE]...")
@click.option(
    "--status", multiple=True, help="pending, processing, completed, failed, dead or cancelled; repeat for any of them."
)
@click.option("--queue", help="In this queue.")
@click.option("--type", help="Of this task.")
@click.option("--category", help="Of this category.")
@click.option("--correlation-id", help="Belonging together under this id.")
@click.option("--parent", metavar="ID", help="Enqueued by this job.")
@click.option("--created-by", help="Enqueued by this person or service.")
@click.option("--key", "idempotency_key", help="With this idempotency key.")
@click.option(
    "--since", type=instant_back, metavar="WHEN", help="Enqueued at or after: an instant, or a span such as 1h."
)
@click.option("--until", type=instant_back, metavar="WHEN", help="Enqueued before.")
@paged
@in_scope
@at_store
@prints
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

    Filters are options or words: `fairlane jobs list tenant:acme status:failed,dead type:mail.send`.
    """
    from fairlane.cli.showing import JOB_TITLES, job_row

    filters = merged({**options, "tenant": tenant}, read_words(words, JOB_FILTERS))
    with at.client() as client:
        asked = for_client(filters, client.runtime.clock)
        page, now = client.jobs.list(before=before, limit=limit, **asked), client.runtime.clock.now()
    if out.as_json:
        out.data(page)
        return
    if page.jobs:
        out.table(JOB_TITLES, [job_row(job, now) for job in page.jobs])
    else:
        out.note("no job matches" if filters else "there are no jobs; `fairlane enqueue TYPE name=value` puts one in")
    if page.next is not None:
        out.note(f"there are more: go on with --before {page.next}")


@jobs.command()
@click.argument("id")
@in_scope
@at_store
@prints
def show(id: str, tenant: str | None, at: At, out: Printer) -> None:
    """Show one job with all its attempts."""
    from fairlane.cli.showing import job_facts, show_attempts, show_notes

    target = read_job_id(id)
    with at.client() as client:
        detail = client.jobs.detail(target, tenant=tenant)
    if detail is None:
        raise JobNotFound(target)
    if out.as_json:
        out.data(detail)
        return
    out.facts(job_facts(detail.job))
    show_notes(out, detail)
    show_attempts(out, detail.attempts)


@jobs.command()
@click.argument("job_id", metavar="ID")
@in_scope
@at_store
@prints
def why(job_id: str, tenant: str | None, at: At, out: Printer) -> None:
    """Say why a job waits: paused, held, at a limit, behind others, scheduled, unknown to every worker."""
    target = read_job_id(job_id)
    app = at.application()
    with at.client() as client:
        explanation = client.jobs.why(target, tenant=tenant, rules=None if app is None else app.runtime)
    if out.as_json:
        out.data(explanation)
        return
    job = explanation.waiting.job
    out.line(f"{job.id}  {job.type}  {job.status}")
    for reason in explanation.reasons:
        out.line(f"  {reason}")


@jobs.command()
@of_several(ids)
def cancel(ids: tuple[str, ...], **given: Any) -> None:
    """End waiting jobs as cancelled; ask running ones to stop."""
    _act("cancel", ids, lambda client, job, about: client.jobs.cancel(job, **about), **given)


@jobs.command()
@of_several(
    ids,
    click.option("--reason", required=True, help="What people read as its error."),
    click.option(
        "--retry/--no-retry",
        default=False,
        show_default=True,
        help="Run again if attempts are left, else to the dead letters.",
    ),
    click.option("--delay", type=span, metavar="SPAN", help="With --retry: how long to wait before.  [default: 0s]"),
)
def fail(ids: tuple[str, ...], reason: str, retry: bool, delay: timedelta | None, **given: Any) -> None:
    """Fail unfinished jobs by hand, charging one attempt."""
    if delay is not None and not retry:
        raise click.UsageError("--delay says when to run again: give --retry with it", click.get_current_context())
    again = (delay or timedelta(0)) if retry else None
    _act("fail", ids, lambda client, job, about: client.jobs.fail(job, reason, retry_delay=again, **about), **given)


@jobs.command()
@of_several(ids, click.option("--reason", required=True, help="Why; the reason of the dead letter."))
def bury(ids: tuple[str, ...], reason: str, **given: Any) -> None:
    """Send unfinished jobs to the dead letters now."""
    _act("bury", ids, lambda client, job, about: client.jobs.bury(job, reason, **about), **given)


@jobs.command()
@of_several(ids)
def reset(ids: tuple[str, ...], **given: Any) -> None:
    """Take running jobs from their worker: ready again at once, uncharged. What the old attempt writes no longer counts."""
    _act("reset", ids, lambda client, job, about: client.jobs.reset(job, **about), **given)


def _act(verb: str, ids: tuple[str, ...], act: Callable[[Fairlane, JobId, dict[str, Any]], Job], **given: Any) -> None:
    targets = [read_job_id(text) for text in ids]
    act_on_several(verb, "job", targets, act, name="jobs", say=_said, **given)


def _said(job: Job) -> str:
    return f"{job.id}  {job.type}  {'asked to stop' if job.cancel_requested else job.status}"
