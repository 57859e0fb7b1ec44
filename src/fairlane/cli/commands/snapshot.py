"""`fairlane snapshot`: counts the jobs in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fairlane.cli.options import at_store, prints
from fairlane.cli.output import Printer
from fairlane.cli.target import At, spool_depth
from fairlane.errors import StoreUnavailable

if TYPE_CHECKING:
    from fairlane.client.app import Fairlane, Snapshot


@click.command()
@at_store
@prints
def snapshot(at: At, out: Printer) -> None:
    """Count the jobs in the store.

    Covers all tenants. `depth` counts waiting jobs: ready plus scheduled; `spooled` those that wait on this machine
    until the store can be reached. While it cannot, the counts are unknown and the command exits with 69.
    """
    away: StoreUnavailable | None = None
    with at.client() as client:
        try:
            numbers = client.snapshot()
        except StoreUnavailable as error:
            away, numbers = error, unreachable(client)
        depth = spool_depth(at.settings())
    if depth is not None and depth.oldest_at is not None:
        age_s = (client.runtime.clock.now() - depth.oldest_at).total_seconds()
        numbers |= {"spooled": depth.jobs, "spool_age_s": round(age_s, 3)}
    if out.as_json:
        out.data(dict(numbers))
    else:
        out.facts((name, _word(value)) for name, value in numbers.items())
    if away is not None:
        raise away


def unreachable(client: Fairlane) -> Snapshot:
    """What can be said without the store."""
    return {
        "depth": None,
        "ready": None,
        "scheduled": None,
        "shutdown": False,
        "redis_active": False,
        "store": client.runtime.access.name,
        "reachable": False,
        "spooled": 0,
        "spool_age_s": 0.0,
    }


def _word(value: object) -> object:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
