"""`fairlane dlq`: review dead letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from fairlane.cli.acting import act_on_several, of_several
from fairlane.cli.lazy import SuggestingGroup
from fairlane.cli.options import at_store, in_scope, paged, prints
from fairlane.cli.output import Printer, count
from fairlane.cli.target import At
from fairlane.errors import DeadLetterNotFound

if TYPE_CHECKING:
    from fairlane.client.app import Fairlane
    from fairlane.core.job import DeadLetter, Job

ids = click.argument("ids", nargs=-1, required=True, type=click.IntRange(1, 2**63 - 1), metavar="ID...")


@click.group(cls=SuggestingGroup)
def dlq() -> None:
    """Review dead letters: jobs that failed for the last time."""


@dlq.command("list")
@click.option("--status", help="pending_review, retried, resolved or discarded.")
@click.option("--acknowledged/--unacknowledged", default=None, help="Somebody looks after it, or nobody.")
@click.option("--queue", help="From this queue.")
@click.option("--type", help="Of this task.")
@click.option("--error-class", help="transient, retryable, non_retryable or rate_limited.")
@click.option("--error-type", help="Of this exception.")
@click.option("--fingerprint", help="Alike: with this fingerprint.")
@click.option("--correlation-id", help="Belonging together under this id.")
@paged
@in_scope
@at_store
@prints
def list_dead_letters(tenant: str | None, limit: int, before: int | None, at: At, out: Printer, **filters: Any) -> None:
    """List dead letters, newest first."""
    from fairlane.cli.showing import DEAD_LETTER_TITLES, dead_letter_row
    from fairlane.core.ops import COUNT_CAP

    given = {name: value for name, value in filters.items() if value is not None}
    with at.client() as client:
        page = client.dead_letters.list(tenant=tenant, before=before, limit=limit, **given)
        now = client.runtime.clock.now()
    if out.as_json:
        out.data(page)
        return
    if page.dead_letters:
        out.table(DEAD_LETTER_TITLES, [dead_letter_row(letter, now) for letter in page.dead_letters])
        out.note(f"{count(page.total, COUNT_CAP)} in all; `fairlane dlq show ID` tells more")
    else:
        out.note("no dead letter matches" if given or tenant else "there are no dead letters")
    if page.next is not None:
        out.note(f"there are more: go on with --before {page.next}")


@dlq.command()
@click.argument("id", type=click.IntRange(1, 2**63 - 1))
@in_scope
@at_store
@prints
def show(id: int, tenant: str | None, at: At, out: Printer) -> None:
    """Show one dead letter, its job and all its attempts."""
    from fairlane.cli.showing import dead_letter_facts, job_facts, show_attempts

    with at.client() as client:
        detail = client.dead_letters.get(id, tenant=tenant)
    if detail is None:
        raise DeadLetterNotFound(id)
    if out.as_json:
        out.data(detail)
        return
    out.facts(dead_letter_facts(detail.dead_letter))
    out.line("")
    out.facts(job_facts(detail.dead_letter.job))
    show_attempts(out, detail.attempts)


@dlq.command()
@of_several(ids)
def reprocess(ids: tuple[int, ...], **given: Any) -> None:
    """Make a new job of a dead one. While that job lives, it is the answer to a second call."""

    def said(job: Job) -> str:
        return f"{job.id}  {job.type}  {job.status}"

    act_on_several(
        "reprocess",
        "dead letter",
        ids,
        lambda client, letter, about: client.dead_letters.reprocess(letter, **about).job,
        name="jobs",
        say=said,
        **given,
    )


@dlq.command()
@of_several(ids)
def discard(ids: tuple[int, ...], **given: Any) -> None:
    """Close dead letters as not worth another try."""
    _act("discard", ids, lambda client, letter, about: client.dead_letters.discard(letter, **about), **given)


@dlq.command()
@of_several(ids)
def resolve(ids: tuple[int, ...], **given: Any) -> None:
    """Close dead letters as dealt with."""
    _act("resolve", ids, lambda client, letter, about: client.dead_letters.resolve(letter, **about), **given)


@dlq.command("ack")
@of_several(ids)
def acknowledge(ids: tuple[int, ...], **given: Any) -> None:
    """Say that you look after dead letters; the first name stays."""
    _act("acknowledge", ids, lambda client, letter, about: client.dead_letters.acknowledge(letter, **about), **given)


def _act(
    verb: str, ids: tuple[int, ...], act: Callable[[Fairlane, int, dict[str, Any]], DeadLetter], **given: Any
) -> None:
    def said(letter: DeadLetter) -> str:
        name = f", acknowledged by {letter.acknowledged_by}" if verb == "acknowledge" else ""
        return f"{letter.id}  {letter.job.type}  {letter.status}{name}"

    act_on_several(verb, "dead letter", ids, act, name="dead_letters", say=said, **given)
