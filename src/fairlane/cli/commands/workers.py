"""`fairlane workers`: lists the registered workers, and what their jobs last raised."""

from __future__ import annotations

from collections.abc import Callable

import click

from fairlane.cli.options import SuggestingGroup, at_store, in_scope, lists
from fairlane.cli.output import Column, Printer, Style, heading
from fairlane.cli.target import At
from fairlane.core.ops import WorkerException, WorkerRecord

COLUMNS = ("id", "name", "leases", "registered_at", "renewed_at", "queues", "figures")


def _caught(field: str) -> Callable[[WorkerException], object]:
    return lambda one: getattr(one.caught, field)


EXCEPTION_COLUMNS: tuple[Column, ...] = (
    *((heading(field), _caught(field)) for field in ("at", "id", "task", "tenant", "attempt", "type", "error")),
    ("dead", lambda one: one.caught.is_final),
    ("worker", lambda one: one.name),
)


@click.group(cls=SuggestingGroup)
def workers() -> None:
    """List the registered workers, and the last exceptions of their jobs."""


@workers.command("list")
@at_store
@lists
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
    drops = ("figures", "id", "registered")
    out.listing("workers", found, columns, empty=empty, style=Style(found.now), drops=drops)


@workers.command()
@in_scope
@at_store
@lists
def exceptions(tenant: str | None, at: At, out: Printer) -> None:
    """List the newest exceptions of jobs, 20 of each registered worker.

    Those of an ended worker are with the attempts of its jobs: `fairlane jobs show`.
    """
    with at.client() as client:
        found, now = client.workers.exceptions(tenant=tenant), client.runtime.clock.now()
    empty, drops = "no worker has reported an exception", ("worker", "attempt", "dead", "type")
    out.listing("exceptions", found, EXCEPTION_COLUMNS, empty=empty, style=Style(now), drops=drops)
