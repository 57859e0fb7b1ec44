"""`fairlane audit`: who did what."""

from __future__ import annotations

import click

from fairlane.cli.lazy import SuggestingGroup
from fairlane.cli.opening import At
from fairlane.cli.options import at_store, in_scope, paged, prints
from fairlane.cli.printing import Printer
from fairlane.cli.words import instant, shortened

TITLES = ("id", "at", "by", "action", "tenant", "target", "notes")


@click.group(cls=SuggestingGroup)
def audit() -> None:
    """See who did what."""


@audit.command("list")
@click.option("--action", help="Only this act, such as job_cancel.")
@click.option("--target", metavar="job:ID|dead_letter:ID", help="Only what was done to this.")
@paged
@in_scope
@at_store
@prints
def list_records(
    action: str | None, target: str | None, tenant: str | None, limit: int, before: int | None, at: At, out: Printer
) -> None:
    """List what people did, newest first."""
    with at.client() as client:
        page = client.audit(tenant=tenant, action=action, target=target, before=before, limit=limit)
    if out.as_json:
        out.data(page)
        return
    if page.records:
        rows = [
            (r.id, instant(r.at), r.by, r.action, r.tenant, r.target, shortened(r.notes or "")) for r in page.records
        ]
        out.table(TITLES, rows)
    else:
        out.note("no audit record matches" if action or target or tenant else "nobody has acted by hand yet")
    if page.next is not None:
        out.note(f"there are more: go on with --before {page.next}")
