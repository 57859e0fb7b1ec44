"""`fairlane queues`: list, pause, resume and drain queues."""

from __future__ import annotations

import click

from fairlane.cli.commands.pauses import pausing_commands
from fairlane.cli.options import SuggestingGroup, at_store, in_scope, prints
from fairlane.cli.output import Printer, count, span
from fairlane.cli.target import At

TITLES = ("queue", "pending", "ready", "scheduled", "processing", "failed", "oldest waits")


@click.group(cls=SuggestingGroup, default="list")
def queues() -> None:
    """Count jobs by queue and status; pause, resume or drain one."""


@queues.command("list")
@in_scope
@at_store
@prints
def list_queues(tenant: str | None, at: At, out: Printer) -> None:
    """Count jobs by queue and status.

    Pending: ready, scheduled or snoozed. Failed: waiting for a retry. Scheduled: all jobs that wait for a time.
    """
    from fairlane.core.ops import COUNT_CAP

    with at.client() as client:
        stats = client.statistics.counts(tenant=tenant)
    if out.as_json:
        out.data(stats)
        return
    if stats.queues:
        rows = []
        for queue in stats.queues:
            numbers = (queue.pending, queue.ready, queue.scheduled, queue.processing, queue.failed)
            waits = "" if queue.oldest_due_at is None else span(stats.now - queue.oldest_due_at)
            rows.append((queue.queue, *(count(number, COUNT_CAP) for number in numbers), waits))
        out.table(TITLES, rows)
        out.line("")
    else:
        out.note("no unfinished jobs")
    out.facts(
        [
            ("completed", count(stats.completed, COUNT_CAP)),
            ("dead", count(stats.dead, COUNT_CAP)),
            ("cancelled", count(stats.cancelled, COUNT_CAP)),
            ("dead letters", ", ".join(f"{number} {status}" for status, number in stats.dead_letters.items())),
        ]
    )


pausing_commands(queues, "queue", lambda client: client.queues)
