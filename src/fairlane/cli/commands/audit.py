"""`fairlane audit`: list and verify the audit records."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from fairlane.cli.options import SuggestingGroup, at_store, in_scope, lists, paged, prints
from fairlane.cli.output import Failed, Printer, count, plural
from fairlane.cli.target import At

if TYPE_CHECKING:
    from fairlane.client.admin.audit import ChainVerified

COLUMNS = ("id", "at", "by", "action", "tenant", "target", "notes")
_LINK = re.compile(r"(\d{1,18}):([0-9a-f]{64})", re.ASCII)
_UNSEALED_CAP = 1_000


def kept_link(text: str) -> tuple[int, str]:
    found = _LINK.fullmatch(text.strip())
    if found is None:
        raise click.BadParameter(f"{text!r}: expected a link as this command prints it, NUMBER:HASH")
    return int(found[1]), found[2]


@click.group(cls=SuggestingGroup)
def audit() -> None:
    """List and verify the audit of operators' acts."""


@audit.command("list")
@click.option("--action", help="Only this act, such as job_cancel.")
@click.option("--target", metavar="job:ID|dead_letter:ID", help="Only acts on this object.")
@paged
@in_scope
@at_store
@lists
def list_records(
    action: str | None, target: str | None, tenant: str | None, limit: int, before: int | None, at: At, out: Printer
) -> None:
    """List operators' acts, newest first."""
    with at.client() as client:
        page = client.audit.list(tenant=tenant, action=action, target=target, before=before, limit=limit)
    empty = "no audit record matches" if action or target or tenant else "there are no audit records"
    out.listing("records", page, COLUMNS, empty=empty, drops=("id", "tenant"))


@audit.command("verify")
@click.option(
    "--kept",
    type=kept_link,
    metavar="NUMBER:HASH",
    help="A link printed earlier and stored where writers of the audit cannot reach it; it must still be in the chain.",
)
@at_store
@prints
def verify_records(kept: tuple[int, str] | None, at: At, out: Printer) -> None:
    """Verify the hash chain of the audit, up to the first record that was tampered with.

    Workers seal new records every few seconds. Exits with 1 if the chain is broken, and if nothing is sealed because no
    worker runs.
    """
    with at.client() as client:
        found = client.audit.verify(kept=kept)
        workers = client.workers.list()
    if out.as_json:
        broken = None if found.broken is None else str(found.broken)
        out.data({"links": found.links, "last": found.last, "broken": broken, "unsealed": found.unsealed})
    else:
        _report(found, out)
    if found.broken is not None:
        raise Failed(f"the audit was tampered with: {found.broken}")
    if not found.links and found.unsealed and not any(one.expires_at > workers.now for one in workers.workers):
        waiting = count(found.unsealed, _UNSEALED_CAP)
        raise Failed(f"nothing is sealed, {waiting} waiting: no worker runs, which would do that; start one")


def _report(found: ChainVerified, out: Printer) -> None:
    if found.broken is None:
        out.line(f"whole: {plural(found.links, 'sealed record')}")
    if found.last is not None:
        out.line(f"last good link: {found.last.n}:{found.last.hash}")
    if found.unsealed:
        out.note(f"{count(found.unsealed, _UNSEALED_CAP)} not sealed yet: a running worker does that")
