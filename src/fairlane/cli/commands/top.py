"""`fairlane top`: queues, tenants, lanes and failures, live in a terminal."""

from __future__ import annotations

import sys
from datetime import timedelta

import click

from fairlane.cli.options import at_store, in_scope, prints, read_span
from fairlane.cli.output import Printer
from fairlane.cli.target import At

SOONEST = timedelta(seconds=0.2)


def interval(text: str) -> timedelta:
    found = read_span(text)
    if found < SOONEST:
        raise click.BadParameter(f"{text!r}: expected 200ms or longer")
    return found


@click.command()
@click.option(
    "-i", "--interval", type=interval, metavar="SPAN", default="2s", show_default=True, help="Between two readings."
)
@click.option("--once", is_flag=True, help="Print the panels once and exit; so it does without a terminal.")
@in_scope
@at_store
@prints
def top(interval: timedelta, once: bool, tenant: str | None, at: At, out: Printer) -> None:
    """Watch queues, tenants, lanes and failures, live.

    Keys: q quits, Tab and arrows choose a panel and scroll, s sorts, t shows one tenant, p pauses, ? shows all keys.
    Rates are those of the last ten seconds; waits, run times and shares of the last five minutes. `--once` and
    `--json` print one reading, with rates of the last five minutes.
    """
    from fairlane.cli.loads import LoadReader
    from fairlane.cli.panels import headline, tables

    with at.client() as client:
        reader = LoadReader(client)
        if out.console is not None and sys.stdin.isatty() and not once and not out.as_json:
            from fairlane.cli.terminal import TopScreen, follow

            store = client.runtime.settings.url.partition(":")[0]
            follow(TopScreen(store, tenant), reader, out.console, interval.total_seconds())
            return
        loads = reader.read(tenant)
    if out.as_json:
        out.data(loads)
        return
    out.line("  ".join(words for words, _ in headline(loads)))
    for panel, rows in tables(loads):
        out.line("")
        if rows:
            out.table([column.title for column in panel.columns], rows)
        else:
            out.line(f"{panel.name}: {panel.empty}")
