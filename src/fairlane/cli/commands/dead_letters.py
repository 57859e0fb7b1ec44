"""`fairlane dead-letters`: list, groups, show, reprocess, discard, resolve, acknowledge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fairlane.cli.commands.jobs import job_facts, show_attempts
from fairlane.cli.options import (
    SuggestingGroup,
    act_on_several,
    at_store,
    in_scope,
    of_several,
    paged,
    prints,
    queue_option,
    type_option,
)
from fairlane.cli.output import Printer, Style, count, facts_of, plural
from fairlane.cli.target import At
from fairlane.core.job import DeadLetter, Job
from fairlane.errors import DeadLetterNotFound

if TYPE_CHECKING:
    from fairlane.client.admin.dead_letters import DeadLetterVerb

F = TypeVar("F", bound=Callable[..., Any])

COLUMNS = ("id", "status", "job.tenant", "job.type", "died_at", "acknowledged_by", "error_type", "reason")
DROPS = ("acknowledged by", "error type", "status", "tenant")
"""Columns that a narrow terminal leaves out, this one first."""
GROUP_COLUMNS = ("fingerprint", "type", "count", "tenants", "first_at", "last_at", "error_type", "reason")

ids = click.argument("ids", nargs=-1, required=True, type=click.IntRange(1, 2**63 - 1), metavar="ID...")


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
@click.option("--wide", is_flag=True, help="All columns, however narrow the terminal is.")
@paged
@in_scope
@at_store
@prints
def list_dead_letters(
    tenant: str | None, limit: int, before: int | None, wide: bool, at: At, out: Printer, **filters: Any
) -> None:
    """List dead letters, newest first."""
    from fairlane.core.ops import COUNT_CAP

    given = {name: value for name, value in filters.items() if value is not None}
    with at.client() as client:
        page = client.dead_letters.list(tenant=tenant, before=before, limit=limit, **given)
        now = client.runtime.clock.now()
    empty = "no dead letter matches" if given or tenant else "there are no dead letters"
    out.listing("dead_letters", page, COLUMNS, empty=empty, style=Style(now), drops=() if wide else DROPS)
    if page.dead_letters and not out.as_json:
        out.note(f"{count(page.total, COUNT_CAP)} in total; `fairlane dead-letters show ID` shows one in full")


@dead_letters.command()
@click.argument("id", type=click.IntRange(1, 2**63 - 1))
@in_scope
@at_store
@prints
def show(id: int, tenant: str | None, at: At, out: Printer) -> None:
    """Show one dead letter, its job and all its attempts."""
    with at.client() as client:
        detail = client.dead_letters.get(id, tenant=tenant)
    if detail is None:
        raise DeadLetterNotFound(id)
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
@prints
def groups(tenant: str | None, limit: int, at: At, out: Printer, **filters: Any) -> None:
    """Group dead letters with the same fingerprint, largest group first.

    Covers those pending review unless --status is given.
    """
    with at.client() as client:
        found = client.dead_letters.groups(tenant=tenant, limit=limit, **filters)
    out.listing("groups", found, GROUP_COLUMNS, empty="no dead letter matches")


@dead_letters.command()
@of_several(ids)
def reprocess(**given: Any) -> None:
    """Create a new job from each. A repeated call returns that job unless it is dead, cancelled or removed."""
    _act("reprocess", name="jobs", **given)


@dead_letters.command()
@of_several(ids)
def discard(**given: Any) -> None:
    """Close dead letters as discarded: no retry is worthwhile."""
    _act("discard", **given)


@dead_letters.command()
@of_several(ids)
def resolve(**given: Any) -> None:
    """Close dead letters as resolved."""
    _act("resolve", **given)


@dead_letters.command()
@of_several(ids)
def acknowledge(**given: Any) -> None:
    """Record who is responsible for dead letters; later calls do not replace the first name."""
    _act("acknowledge", **given)


def _act(
    verb: DeadLetterVerb,
    ids: tuple[int, ...],
    yes: bool,
    at: At,
    out: Printer,
    name: str = "dead_letters",
    **about: Any,
) -> None:
    def line(done: DeadLetter | Job) -> str:
        if isinstance(done, Job):
            return f"{done.id}  {done.type}  {done.status}"
        who = f", acknowledged by {done.acknowledged_by}" if verb == "acknowledge" else ""
        return f"{done.id}  {done.job.type}  {done.status}{who}"

    act_on_several(
        f"{verb.capitalize()} {plural(len(ids), 'dead letter')}?",
        lambda client, on_each: client.dead_letters.act_on_many(verb, ids, on_each=on_each, **about),
        several=len(ids) > 1,
        name=name,
        line=line,
        yes=yes,
        at=at,
        out=out,
    )


def _facts(letter: DeadLetter) -> Iterator[tuple[str, object]]:
    yield "dead letter", letter.id
    yield from facts_of(letter, without=("id", "job"))
