"""`fairlane snapshot`: counts the jobs in the store."""

from __future__ import annotations

import click

from fairlane.cli.options import at_store, prints
from fairlane.cli.output import Printer
from fairlane.cli.target import At


@click.command()
@at_store
@prints
def snapshot(at: At, out: Printer) -> None:
    """Count the jobs in the store.

    Covers all tenants. `depth` counts waiting jobs: ready plus scheduled.
    """
    with at.client() as client:
        numbers = client.snapshot()
    if out.as_json:
        out.data(dict(numbers))
        return
    out.facts((name, _word(value)) for name, value in numbers.items())


def _word(value: object) -> object:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
