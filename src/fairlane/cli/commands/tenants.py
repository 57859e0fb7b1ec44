"""`fairlane tenants`: list, show, set, pause, resume and drain tenants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fairlane.cli.commands.limits import COLUMNS as LIMIT_COLUMNS
from fairlane.cli.commands.pauses import pausing_commands
from fairlane.cli.options import SuggestingGroup, acts, at_store, lists, prints
from fairlane.cli.output import Column, Printer, Style, facts_of
from fairlane.cli.target import At
from fairlane.core.ops import MAX_PAGE, TENANT_COUNT_CAP, TenantRecord
from fairlane.errors import nearest

if TYPE_CHECKING:
    from fairlane.client.app import Fairlane

COLUMNS: tuple[Column, ...] = (
    *("name", "weight", "tier", "ready", "scheduled", "held", "leased", "paused"),
    ("limits", lambda record: len(record.limits) or None),
)

name = click.argument("name")


@click.group(cls=SuggestingGroup)
def tenants() -> None:
    """List and show tenants, set their share, pause, resume or drain one."""


@tenants.command("list")
@click.option("--tier", help="Only this tier.")
@click.option("--after", default="", metavar="NAME", help="Continue after this name.")
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True, help="Rows to show.")
@at_store
@lists
def list_tenants(tier: str | None, after: str, limit: int, at: At, out: Printer) -> None:
    """List tenants by name, with their waiting and running jobs."""
    with at.client() as client:
        page = client.tenants.list(after=after, tier=tier, limit=limit)
    empty = "no tenant is known yet: workers register tenants of new jobs, `fairlane tenants set` registers one"
    if tier is not None or after:
        empty = "no such tenant is known"
    out.listing("tenants", page, COLUMNS, empty=empty, style=Style(cap=TENANT_COUNT_CAP), turn="--after")


@tenants.command()
@name
@at_store
@lists
def show(name: str, at: At, out: Printer) -> None:
    """Show one tenant: weight, tier, limits, waiting and running jobs."""
    with at.client() as client:
        record = client.tenants.get(name)
        unknown = None if record.paused else _unknown(client, name)
    if unknown is not None:
        out.note(f"{unknown} These are the defaults")
    _say(record, out)


@tenants.command("set")
@name
@click.option("--weight", type=float, help="Its share relative to other tenants; 1 unless set.")
@click.option("--tier", help="A label of your own, such as a price plan.")
@acts
@at_store
@prints
def set_tenant(
    name: str, weight: float | None, tier: str | None, by: str, notes: str | None, at: At, out: Printer
) -> None:
    """Set a tenant's weight or tier; workers apply it within seconds. For limits: `fairlane limits set --tenant`."""
    if weight is None and tier is None:
        raise click.UsageError("give --weight or --tier", click.get_current_context())
    with at.client() as client:
        record = client.tenants.set(name, weight=weight, tier=tier, by=by, notes=notes)
    _say(record, out)


def _unknown(client: Fairlane, name: str) -> str | None:
    """A note with the nearest name, for a tenant that has had no job and no setting; it may be new, or mistyped."""
    record = client.tenants.get(name)
    if record.seen_at or record.limits or record.ready or record.scheduled or record.held or record.leased:
        return None
    pages = (client.tenants.list(after=after, limit=MAX_PAGE).tenants for after in ("", name[:2]))
    known = {tenant.name for page in pages for tenant in page if tenant.name != record.name}
    return f'tenant "{name}" has had no job and no setting yet.{nearest(name, known)}'


pausing_commands(
    tenants,
    "tenant",
    lambda client: client.tenants,
    shown=lambda client, name: client.tenants.get(name),
    doubt=_unknown,
)


def _say(record: TenantRecord, out: Printer) -> None:
    if out.as_json:
        out.data(record)
        return
    out.facts(facts_of(record, without=("limits",), style=Style(cap=TENANT_COUNT_CAP)))
    if record.limits:
        out.line("")
        out.records(LIMIT_COLUMNS, record.limits)
