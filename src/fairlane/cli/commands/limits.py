"""`fairlane limits`: list, set and clear limits; list the keys at which jobs wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click

from fairlane.cli.options import SuggestingGroup, acts, at_store, lists, prints
from fairlane.cli.output import Column, Printer
from fairlane.cli.target import At
from fairlane.core.ids import EVERY_TENANT
from fairlane.core.limits import NO_LIMIT, Limit

COLUMNS: tuple[Column, ...] = (
    ("of", lambda row: "task" if row.limit.kind == "type" else row.limit.kind),
    ("name", lambda row: "every tenant" if row.limit.name == EVERY_TENANT else row.limit.name),
    ("in queue", "limit.queue"),
    ("running", lambda row: _number(row.limit.running)),
    "limit.rate",
    ("waiting", lambda row: _number(row.limit.waiting)),
    *("limit.when_full", "limit.enqueue_rate"),
    ("payload bytes", lambda row: _number(row.limit.payload_bytes)),
    *("paused_until", ("set by", "by")),
)


KEY_COLUMNS: tuple[Column, ...] = (
    *("tenant", "key", ("running", lambda use: "no limit" if use.running is None else use.running), "rate"),
    ("ordered", lambda use: "ordered" if use.ordered else ""),
    *("in_use", "waiting", ("held by", lambda use: ", ".join(str(holder.seq) for holder in use.holders))),
)


class DeclaredLimit(NamedTuple):
    """A limit of settings and code, in a table beside those set at run time."""

    limit: Limit
    by: str = "code"
    paused_until: None = None


def _number(number: int | None) -> str:
    return "" if number is None else "no limit" if number == NO_LIMIT else str(number)


F = TypeVar("F", bound=Callable[..., Any])


def about(command: F) -> F:
    """The target of a limit: `--queue`, `--tenant` (alone or in a queue), `--type`, `--name` or `--key`."""
    command = click.option("--key", metavar="NAME", help="Each key of this name: customer, of customer:42.")(command)
    command = click.option("--name", help="A named limit, shared by tasks.")(command)
    command = click.option("--type", "task", help="This task.")(command)
    command = click.option("--tenant", help="This tenant, or * for every tenant; with --queue: in that queue.")(command)
    return click.option("--queue", help="This queue.")(command)


@click.group(cls=SuggestingGroup)
def limits() -> None:
    """List and set limits on waiting, running and starting jobs.

    Limits apply to queues, tenants, tasks, names that tasks share, and keys of jobs.
    """


@limits.command("list")
@click.option("--keys", is_flag=True, help="The keys at which jobs wait, those with the most of them first.")
@click.option("--name", help="With --keys: of this name.")
@click.option("--tenant", help="With --keys: of this tenant.")
@at_store
@lists
def list_limits(keys: bool, name: str | None, tenant: str | None, at: At, out: Printer) -> None:
    """List limits set at run time, and those of settings and code; or the keys of jobs."""
    if (name or tenant) and not keys:
        raise click.UsageError("--name and --tenant need --keys", click.get_current_context())
    if keys:
        with at.client() as client:
            found = client.limits.keys(name=name, tenant=tenant)
        out.listing("keys", found, KEY_COLUMNS, empty="no job waits at a key")
        return
    app = at.application()
    with at.client() as client:
        kept = client.limits.list()
        given = (app or client).limits.declared
    if out.as_json:
        out.data({"limits": kept, "code_limits": given})
    elif not kept and not given:
        out.note("no limit is set")
    else:
        out.records(COLUMNS, [*kept, *map(DeclaredLimit, given)])


@limits.command("set")
@about
@click.option("--running", type=int, help="Most running jobs, over all workers; -1: no limit.")
@click.option("--rate", metavar="N/SPAN", help="Most starts in a span: 50/min, 10/s, 100/5min; -1: no limit.")
@click.option("--waiting", type=int, help="With --tenant: most unfinished jobs in one queue; -1: no limit.")
@click.option(
    "--when-full",
    type=click.Choice(["warn", "reject", "hold"]),
    help="With --tenant: what happens at the --waiting limit.",
)
@click.option("--enqueue-rate", metavar="N/SPAN", help="With --tenant: most jobs enqueued in a span.")
@click.option("--payload-bytes", type=int, help="With --tenant: the largest payload.")
@acts
@at_store
@lists
def set_limit(at: At, out: Printer, **given: Any) -> None:
    """Set a limit for all workers, at once. Replaces the limit set before."""
    with at.client() as client:
        kept = client.limits.set(**given)
    out.listing("kept", kept, COLUMNS, empty="no limit is set")


@limits.command()
@about
@acts
@at_store
@prints
def clear(at: At, out: Printer, **given: Any) -> None:
    """Remove a limit set at run time; the limit of settings and code applies again."""
    with at.client() as client:
        was_set = client.limits.clear(**given)
        kept = client.limits.list()
    out.answer({"changed": was_set, "kept": kept}, "the limit is cleared" if was_set else "no such limit was set")
