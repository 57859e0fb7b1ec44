"""`fairlane alerts`: list and silence alerts."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from fairlane.cli.options import SuggestingGroup, acts, at_store, lists, prints, read_span
from fairlane.cli.output import Printer, Style, instant, shortened
from fairlane.cli.target import At

if TYPE_CHECKING:
    from fairlane.core.ops import Alerts

COLUMNS = ("rule", "about", "state", "severity", "value", "since")


@click.group(cls=SuggestingGroup)
def alerts() -> None:
    """List alerts, and silence a rule for a while."""


@alerts.command("list")
@click.option("--all", "also_resolved", is_flag=True, help="Include resolved alerts.")
@at_store
@lists
def list_alerts(also_resolved: bool, at: At, out: Printer) -> None:
    """List firing and pending alerts, and silenced rules."""
    with at.client() as client:
        found, now = client.alerts.list(), client.runtime.clock.now()
    if out.as_json:
        out.data(found)
        return
    shown = [alert for alert in found.alerts if also_resolved or alert.state != "resolved"]
    if shown:
        out.records(COLUMNS, shown, Style(now))
    else:
        out.note("no alert is firing")
    _show_silences(found, out)


@alerts.command("silence")
@click.argument("rule")
@click.option(
    "--for",
    "length",
    type=read_span,
    metavar="SPAN",
    default="1h",
    show_default=True,
    help="How long; 0 ends the silence.",
)
@acts
@at_store
@prints
def silence(rule: str, length: timedelta, by: str, notes: str | None, at: At, out: Printer) -> None:
    """Send no messages about RULE's alerts for a while; the alerts are still recorded."""
    with at.client() as client:
        found = client.alerts.silence(rule, length, by=by, notes=notes)
    until = next((silence.until for silence in found.silences if silence.rule == rule), None)
    out.answer(found, f"{rule} is silenced until {instant(until)}" if until else f"{rule} is not silenced")


def _show_silences(found: Alerts, out: Printer) -> None:
    for one in found.silences:
        why = f": {shortened(one.notes)}" if one.notes else ""
        out.note(f"{one.rule} is silenced until {instant(one.until)} by {one.by}{why}")
