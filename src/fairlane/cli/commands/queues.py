"""`fairlane queues`: list, pause, resume and drain queues."""

from __future__ import annotations

import click

from fairlane.cli.commands.pauses import pausing_commands
from fairlane.cli.options import SuggestingGroup, at_store, in_scope, lists
from fairlane.cli.output import Printer, Style, facts_of
from fairlane.cli.target import At

COLUMNS = ("queue", "pending", "ready", "scheduled", "processing", "failed", "oldest_due_at", "paused")


@click.group(cls=SuggestingGroup, default="list")
def queues() -> None:
    """Count jobs by queue and status; pause, resume or drain one."""


@queues.command("list")
@in_scope
@at_store
@lists
def list_queues(tenant: str | None, at: At, out: Printer) -> None:
    """Count jobs by queue and status; paused queues are named.

    Pending: ready, scheduled or snoozed. Failed: waiting for a retry. Scheduled: all jobs that wait for a time.
    """
    from msgspec.structs import replace

    from fairlane.core.ops import COUNT_CAP

    with at.client() as client:
        counts, queues = client.statistics.counts(tenant=tenant), client.queues.list(tenant=tenant)
    stats = replace(counts, queues=queues)
    if out.as_json:
        out.data(stats)
        return
    if stats.queues:
        out.records(COLUMNS, stats.queues, Style(stats.now, COUNT_CAP))
        out.line("")
    else:
        out.note("no unfinished jobs")
    out.facts(facts_of(stats, without=("now", "queues"), style=Style(cap=COUNT_CAP)))


pausing_commands(queues, "queue", lambda client: client.queues)
