"""`fairlane pause`, `resume`, `drain` and `pauses`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import click

from fairlane.cli.options import acts, at_store, listing, prints
from fairlane.cli.output import Printer, instant, shortened
from fairlane.cli.pausing import act_on_one, draining, gives_up, pause_one, resume_one
from fairlane.cli.target import At

TITLES = ("what", "name", "since", "by", "notes")

F = TypeVar("F", bound=Callable[..., Any])


def of_one_thing(command: F) -> F:
    """`--queue`, `--type` or `--tenant`, exactly one of them."""
    command = click.option("--tenant", help="This tenant's jobs.")(command)
    command = click.option("--type", help="This task's jobs.")(command)
    return click.option("--queue", help="This queue's jobs.")(command)


@click.command()
@of_one_thing
@acts
@at_store
@prints
def pause(**given: Any) -> None:
    """Stop claiming jobs of a queue, a task or a tenant.

    What runs goes on, and so does enqueueing. It lasts until resumed, over restarts too.
    """
    _act(pause_one, **given)


@click.command()
@of_one_thing
@acts
@at_store
@prints
def resume(**given: Any) -> None:
    """Let a queue, a task or a tenant be claimed again."""
    _act(resume_one, **given)


@click.command()
@of_one_thing
@gives_up
@acts
@at_store
@prints
def drain(timeout: timedelta | None, **given: Any) -> None:
    """Pause something and wait until nothing of it runs.

    A queue, a task or a tenant; it stays paused.
    """
    _act(draining(timeout), **given)


@click.command()
@listing
@at_store
@prints
def pauses(at: At, out: Printer) -> None:
    """List what is paused, by whom and why."""
    with at.client() as client:
        found = client.pauses.list()
    if out.as_json:
        out.data({"pauses": found})
    elif found:
        out.table(TITLES, [(p.kind, p.name, instant(p.at), p.by, shortened(p.notes or "")) for p in found])
    else:
        out.note("nothing is paused")


def _act(act: Callable[..., str], *, queue: str | None, type: str | None, tenant: str | None, **given: Any) -> None:
    named = {kind: name for kind, name in (("queue", queue), ("type", type), ("tenant", tenant)) if name is not None}
    if len(named) != 1:
        raise click.UsageError("give one of --queue, --type and --tenant", click.get_current_context())
    act_on_one(act, named, show=lambda client: {"pauses": client.pauses.list()}, **given)
