"""`fairlane signals`: emits a signal for jobs that wait for it, and lists those that are kept."""

from __future__ import annotations

import click
import msgspec

from fairlane.cli.options import SuggestingGroup, at_store, in_scope, lists, prints
from fairlane.cli.output import Printer, Style
from fairlane.cli.target import At
from fairlane.errors import InvalidOption

COLUMNS = ("name", "key", "tenant", "at", "data", "id")


@click.group(cls=SuggestingGroup, default="list")
def signals() -> None:
    """Emit a signal for jobs that wait for it, and list those that are kept."""


@signals.command("list")
@click.option("--name", help="Only signals of this name.")
@click.option("--key", help="Only signals with this key.")
@click.option("--limit", type=int, default=50, show_default=True, help="How many, the newest first.")
@in_scope
@at_store
@lists
def list_signals(name: str | None, key: str | None, limit: int, tenant: str | None, at: At, out: Printer) -> None:
    """List the newest signals that are kept."""
    with at.client() as client:
        found = client.signals.list(name=name, key=key, tenant=tenant, limit=limit)
        now = client.runtime.clock.now()
    out.listing("signals", found, COLUMNS, empty="no signal is kept", style=Style(now), drops=("id",))


@signals.command()
@click.argument("name")
@click.argument("data", default="null", metavar="[JSON]")
@click.option("--key", help="What it is about: only jobs that wait with this key get it.")
@click.option("--idempotency-key", help="The same call made again is the same signal.")
@click.option("--tenant", envvar="FAIRLANE_TENANT", show_envvar=True, help="The tenant of the jobs that get it.")
@at_store
@prints
def emit(
    name: str, data: str, key: str | None, idempotency_key: str | None, tenant: str | None, at: At, out: Printer
) -> None:
    """Emit a signal: jobs that wait for it go on, and those that come to wait later find it."""
    try:
        value = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise InvalidOption("data", data, f"JSON ({error})") from None
    with at.client() as client:
        emitted = client.signals.emit(name, value, tenant=tenant, key=key, idempotency_key=idempotency_key)
    jobs = "1 job goes on" if emitted.delivered == 1 else f"{emitted.delivered} jobs go on"
    out.answer(emitted, f'signal "{name}" was emitted before' if emitted.repeated else f'signal "{name}": {jobs}')
