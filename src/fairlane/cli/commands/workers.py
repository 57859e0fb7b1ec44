"""`fairlane workers`: lists the registered workers."""

from __future__ import annotations

import click

from fairlane.cli.options import SuggestingGroup, at_store, prints
from fairlane.cli.output import Printer, Style
from fairlane.cli.target import At
from fairlane.core.ops import WorkerRecord

COLUMNS = ("id", "name", "leases", "registered_at", "renewed_at", "queues", "figures")


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

    def state(worker: WorkerRecord) -> str:
        if worker.expires_at <= found.now:
            return "gone"
        return "idle" if worker.waiting and not worker.leases else "at work"

    columns = (*COLUMNS[:2], ("state", state), *COLUMNS[2:])
    empty = "no worker is registered; `fairlane worker` starts one"
    out.listing("workers", found, columns, empty=empty, style=Style(found.now))
