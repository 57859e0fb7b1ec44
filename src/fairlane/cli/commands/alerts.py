"""`fairlane alerts`: list, silence."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from fairlane.cli.lazy import SuggestingGroup
from fairlane.cli.options import acts, at_store, prints
from fairlane.cli.output import Printer, instant, shortened
from fairlane.cli.target import At
from fairlane.cli.times import span

if TYPE_CHECKING:
    from fairlane.core.ops import Alerts

TITLES = ("rule", "about", "state", "severity", "value", "since", "silenced until")
LONGEST = timedelta(days=30)


@click.group(cls=SuggestingGroup)
def alerts() -> None:
    """See what is wrong, and silence a rule for a while."""


@alerts.command("list")
@click.option("--all", "also_resolved", is_flag=True, help="Those that are over, too.")
@at_store
@prints
def list_alerts(also_resolved: bool, at: At, out: Printer) -> None:
    """List alerts that are firing or about to, and the rules that are silenced."""
    from fairlane.core.ops import ReadAlerts

    with at.client() as client:
        found = client.runtime.access.run(ReadAlerts())
    if out.as_json:
        out.data(found)
        return
    until = {silence.rule: silence.until for silence in found.silences}
    rows = [
        (a.rule, a.about, a.state, a.severity, f"{a.value:g}", instant(a.since), instant(until.get(a.rule)))
        for a in found.alerts
        if also_resolved or a.state != "resolved"
    ]
    if rows:
        out.table(TITLES, rows)
    else:
        out.note("nothing is wrong, as far as the rules see")
    _say_silences(found, out)


@alerts.command("silence")
@click.argument("rule")
@click.option(
    "--for", "length", type=span, metavar="SPAN", default="1h", show_default=True, help="How long; 0 ends it."
)
@acts
@at_store
@prints
def silence(rule: str, length: timedelta, by: str, notes: str | None, at: At, out: Printer) -> None:
    """Tell nobody of RULE's alerts for a while; what it finds is kept all the same."""
    from fairlane.core.alerts.rules import require_silenceable
    from fairlane.core.names import check_key, check_rule_name
    from fairlane.core.ops import SilenceAlerts

    if length > LONGEST:
        raise click.BadParameter("30 days at most: a rule nobody wants to hear of is better switched off")
    if length:
        require_silenceable(rule, at.settings().alerts.rules_in_force)
    op = SilenceAlerts(rule=check_rule_name(rule), for_s=length.total_seconds(), by=check_key("by", by), notes=notes)
    with at.client() as client:
        found = client.runtime.access.run(op)
    if out.as_json:
        out.data(found)
        return
    until = next((silence.until for silence in found.silences if silence.rule == rule), None)
    out.line(f"{rule} is silenced until {instant(until)}" if until else f"{rule} is not silenced")


def _say_silences(found: Alerts, out: Printer) -> None:
    for one in found.silences:
        why = f": {shortened(one.notes)}" if one.notes else ""
        out.note(f"{one.rule} is silenced until {instant(one.until)} by {one.by}{why}")
