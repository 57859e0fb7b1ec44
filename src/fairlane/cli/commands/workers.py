"""`fairlane workers`: lists the registered workers."""

from __future__ import annotations

import click

from fairlane.cli.options import SuggestingGroup, at_store, prints
from fairlane.cli.output import Printer, shortened, span
from fairlane.cli.target import At

TITLES = ("id", "name", "state", "jobs", "up", "heard of", "queues", "figures")


@click.group(cls=SuggestingGroup)
def workers() -> None:
    """List the registered workers."""


@workers.command("list")
@at_store
@prints
def list_workers(at: At, out: Printer) -> None:
    """List workers, oldest first: jobs held, last heartbeat, reported figures."""
    with at.client() as client:
        found = client.workers.list()
    if out.as_json:
        out.data(found)
        return
    if not found.workers:
        out.note("no worker is registered; `fairlane worker` starts one")
        return
    rows = []
    for worker in found.workers:
        state = (
            "gone" if worker.expires_at <= found.now else "idle" if worker.waiting and not worker.leases else "at work"
        )
        figures = ", ".join(f"{name} {value:g}" for name, value in sorted(worker.figures.items()))
        rows.append(
            (
                worker.id,
                worker.name,
                state,
                worker.leases,
                span(found.now - worker.registered_at),
                f"{span(found.now - worker.renewed_at)} ago",
                shortened(", ".join(worker.queues)),
                shortened(figures, 80),
            )
        )
    out.table(TITLES, rows)
