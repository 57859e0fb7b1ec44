"""`fairlane dead-letters`: list, groups, show, reprocess, discard, resolve, acknowledge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fairlane.cli.commands.jobs import job_facts, show_attempts
from fairlane.cli.options import (
    Bulk,
    SuggestingGroup,
    act_on_matching,
    act_on_several,
    at_store,
    in_scope,
    lists,
    of_several,
    paged,
    queue_option,
    type_option,
)
from fairlane.cli.output import Printer, Style, count, facts_of
from fairlane.cli.target import At
from fairlane.core.job import DeadLetter, Job
from fairlane.errors import DeadLetterNotFound, JobNotFound

if TYPE_CHECKING:
    from fairlane.client.admin.bulk_acts import ManyActs
    from fairlane.client.admin.dead_letters import DeadLetterVerb
    from fairlane.client.app import Fairlane

F = TypeVar("F", bound=Callable[..., Any])

COLUMNS = ("id", "status", "job.tenant", "job.type", "died_at", "acknowledged_by", "error_type", "reason")
DROPS = ("acknowledged by", "error type", "status", "tenant")
"""Columns that a narrow terminal leaves out, this one first."""
GROUP_COLUMNS = ("fingerprint", "type", "count", "tenants", "first_at", "last_at", "error_type", "reason")

ids = click.argument("ids", nargs=-1, metavar="[ID]...")


@click.group("dead-letters", cls=SuggestingGroup)
def dead_letters() -> None:
    """Review dead letters (dlq): jobs that failed and are not retried."""


def _filters(command: F) -> F:
    """The options that filter dead letters."""
    for option in reversed(
        (
            click.option("--status", help="pending_review, retried, resolved or discarded."),
            click.option(
                "--acknowledged/--unacknowledged", default=None, help="Acknowledged by somebody, or by nobody."
            ),
            queue_option(help="From this queue."),
            type_option(help="Of this task."),
            click.option("--category", help="Of this category."),
            click.option("--error-class", help="transient, retryable, non_retryable or rate_limited."),
            click.option("--error-type", help="Of this exception."),
            click.option("--fingerprint", help="With this fingerprint."),
            click.option("--correlation-id", help="With this correlation id."),
        )
    ):
        command = option(command)
    return command


@dead_letters.command("list")
@_filters
@paged
@in_scope
@at_store
@lists
def list_dead_letters(tenant: str | None, limit: int, before: int | None, at: At, out: Printer, **filters: Any) -> None:
    """List dead letters, newest first."""
    from fairlane.core.ops import COUNT_CAP

    given = {name: value for name, value in filters.items() if value is not None}
    with at.client() as client:
        page = client.dead_letters.list(tenant=tenant, before=before, limit=limit, **given)
        now = client.runtime.clock.now()
    empty = "no dead letter matches" if given or tenant else "there are no dead letters"
    out.listing("dead_letters", page, COLUMNS, empty=empty, style=Style(now), drops=DROPS)
    if page.dead_letters and not out.as_json:
        out.note(f"{count(page.total, COUNT_CAP)} in total; `fairlane dead-letters show ID` shows one in full")


@dead_letters.command()
@click.argument("id")
@in_scope
@at_store
@lists
def show(id: str, tenant: str | None, at: At, out: Printer) -> None:
    """Show one dead letter, given by its id or its job's, with the job and all its attempts."""
    with at.client() as client:
        letter = _letter_id(client, id, tenant)
        detail = client.dead_letters.get(letter, tenant=tenant)
    if detail is None:
        raise DeadLetterNotFound(letter)
    if out.as_json:
        out.data(detail)
        return
    out.facts(_facts(detail.dead_letter))
    out.line("")
    out.facts(job_facts(detail.dead_letter.job))
    show_attempts(out, detail.attempts)


@dead_letters.command()
@_filters
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True, help="Rows to show.")
@in_scope
@at_store
@lists
def groups(tenant: str | None, limit: int, at: At, out: Printer, **filters: Any) -> None:
    """Group dead letters with the same fingerprint, largest group first.

    Covers those pending review unless --status is given.
    """
    with at.client() as client:
        found = client.dead_letters.groups(tenant=tenant, limit=limit, **filters)
        now = client.runtime.clock.now()
    drops = ("first", "error type", "tenants")
    out.listing("groups", found, GROUP_COLUMNS, empty="no dead letter matches", style=Style(now), drops=drops)


@dead_letters.command()
@of_several(ids, _filters)
def reprocess(**given: Any) -> None:
    """Create a new job from each. A repeated call returns that job unless it is dead, cancelled or removed."""
    _act("reprocess", name="jobs", **given)


@dead_letters.command()
@of_several(ids, _filters)
def discard(**given: Any) -> None:
    """Close dead letters as discarded: no retry is worthwhile."""
    _act("discard", **given)


@dead_letters.command()
@of_several(ids, _filters)
def resolve(**given: Any) -> None:
    """Close dead letters as resolved."""
    _act("resolve", **given)


@dead_letters.command()
@of_several(ids, _filters)
def acknowledge(**given: Any) -> None:
    """Record who is responsible for dead letters; later calls do not replace the first name."""
    _act("acknowledge", **given)


def _act(
    verb: DeadLetterVerb,
    ids: tuple[str, ...],
    every: bool,
    yes: bool,
    dry_run: bool,
    by: str,
    notes: str | None,
    tenant: str | None,
    at: At,
    out: Printer,
    name: str = "dead_letters",
    **options: Any,
) -> None:
    """Act on dead letters given by id, or on all that match; those that wait for review, unless --status is given."""

    def line(done: DeadLetter | Job) -> str:
        if isinstance(done, Job):
            return f"{done.id}  {done.type}  {done.status}"
        who = f", acknowledged by {done.acknowledged_by}" if verb == "acknowledge" else ""
        return f"{done.id}  {done.job.type}  {done.status}{who}"

    filters = {name: value for name, value in options.items() if value is not None}
    if bool(ids) + bool(filters) + every != 1:
        raise click.UsageError("give ids, filters or --all, one of them", click.get_current_context())
    about: dict[str, Any] = {"by": by, "notes": notes, "tenant": tenant}
    bulk = Bulk(verb, "dead letter", name, line)
    if ids:

        def act(client: Fairlane, **how: Any) -> ManyActs[DeadLetter | Job]:
            letters = [_letter_id(client, text, tenant) for text in ids]
            return client.dead_letters.act_on_many(verb, letters, **how, **about)

        act_on_several(bulk, act, number=len(ids), yes=yes, dry_run=dry_run, at=at, out=out)
        return
    from fairlane.client.admin.filters import dead_letter_filter

    where = dead_letter_filter({"status": "pending_review", **filters})
    behind = 0

    def act_on_page(client: Fairlane, **how: Any) -> ManyActs[DeadLetter | Job]:
        nonlocal behind
        acts = client.dead_letters.act_on_many(verb, where=where, behind=behind, **how, **about)
        behind += 0 if how["dry_run"] else acts.matched
        return acts

    act_on_matching(
        bulk,
        act_on_page,
        yes=yes,
        dry_run=dry_run,
        at=at,
        out=out,
    )


def _letter_id(client: Fairlane, text: str, tenant: str | None) -> int:
    """The dead letter's id, which is its job's number: given as such, or by the job's id or a part of it."""
    if text.isdecimal() and len(text) < 12:
        return int(text)
    target = client.jobs.id_of(text, tenant=tenant)
    job = client.jobs.get(target, tenant=tenant)
    if job is None:
        raise JobNotFound(target)
    return job.seq


def _facts(letter: DeadLetter) -> Iterator[tuple[str, object]]:
    yield "dead letter", letter.id
    yield from facts_of(letter, without=("id", "job"))
