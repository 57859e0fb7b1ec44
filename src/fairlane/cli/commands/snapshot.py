"""`fairlane snapshot`: counts the jobs in the store."""

from __future__ import annotations

import click

from fairlane.cli.options import at_store, prints
from fairlane.cli.output import Printer
from fairlane.cli.target import At, spool_depth


@click.command()
@at_store
@prints
def snapshot(at: At, out: Printer) -> None:
    """Count the jobs in the store.

    Covers all tenants. `depth` counts waiting jobs: ready plus scheduled; `spooled` those that wait on this machine
    until the store can be reached.
    """
    with at.client() as client:
        numbers = client.snapshot()
        depth = spool_depth(at.settings())
    if depth is not None and depth.oldest_at is not None:
        age_s = (client.runtime.clock.now() - depth.oldest_at).total_seconds()
        numbers |= {"spooled": depth.jobs, "spool_age_s": round(age_s, 3)}
    if out.as_json:
        out.data(dict(numbers))
        return
    out.facts((name, _word(value)) for name, value in numbers.items())


def _word(value: object) -> object:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
