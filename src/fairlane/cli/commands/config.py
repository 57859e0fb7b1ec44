"""`fairlane config`: shows each setting and its source."""

from __future__ import annotations

from typing import Any

import click

from fairlane.cli.options import at_store, prints
from fairlane.cli.output import Printer, shortened
from fairlane.cli.target import At

WIDEST = 60
"""Longer values, such as tables of queues, are cut to this length; `--json` shows them whole."""


@click.command()
@click.option("--changed", is_flag=True, help="Leave the defaults out.")
@at_store
@prints
def config(changed: bool, at: At, out: Printer) -> None:
    """Show each setting and where it came from, without passwords.

    A later source wins: fairlane.toml or [tool.fairlane], FAIRLANE_* variables, arguments of Fairlane(…), --url.
    """
    shown = [entry for entry in at.settings().shown() if not changed or entry[2] != "default"]
    if out.as_json:
        out.data({"settings": [{"name": name, "value": value, "source": source} for name, value, source in shown]})
        return
    if shown:
        rows = [(name, shortened(_as_text(value), WIDEST), source) for name, value, source in shown]
        out.table(("setting", "value", "from"), rows)
    else:
        out.note("every setting has its default")


def _as_text(value: Any) -> str:
    import msgspec

    if value is None or isinstance(value, (str, int, float)):
        return str(value).lower() if isinstance(value, bool) else "none" if value is None else str(value)
    return msgspec.json.encode(value).decode()
