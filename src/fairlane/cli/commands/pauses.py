"""`fairlane pause`, `resume`, `drain` and `pauses`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fairlane.cli.opening import At
from fairlane.cli.options import acts, at_store, listing, prints
from fairlane.cli.printing import Printer
from fairlane.cli.times import span
from fairlane.cli.words import instant, shortened

if TYPE_CHECKING:
    from fairlane.core.ops import Pause

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
def pause(at: At, out: Printer, by: str, notes: str | None, **thing: str | None) -> None:
    """Stop claiming jobs of a queue, a task or a tenant.

    What runs goes on, and so does enqueueing. It lasts until resumed, over restarts too.
    """
    what = _checked(thing)
    with at.client() as client:
        pauses = client.pause(**thing, by=by, notes=notes)
    _say(f"{what} is paused", pauses, out)


@click.command()
@of_one_thing
@acts
@at_store
@prints
def resume(at: At, out: Printer, by: str, notes: str | None, **thing: str | None) -> None:
    """Let a queue, a task or a tenant be claimed again."""
    what = _checked(thing)
    with at.client() as client:
        was_paused = any({pause.kind: pause.name} == _given(thing) for pause in client.pauses())
        pauses = client.resume(**thing, by=by, notes=notes)
    _say(f"{what} is resumed" if was_paused else f"{what} was not paused", pauses, out)


@click.command()
@of_one_thing
@click.option("--timeout", type=span, metavar="SPAN", help="Give up after so long.  [default: never]")
@acts
@at_store
@prints
def drain(at: At, out: Printer, timeout: timedelta | None, by: str, notes: str | None, **thing: str | None) -> None:
    """Pause something and wait until nothing of it runs.

    A queue, a task or a tenant; it stays paused.
    """
    what = _checked(thing)
    with at.client() as client:
        client.drain(**thing, timeout=timeout, by=by, notes=notes)
        pauses = client.pauses()
    _say(f"{what} is drained and stays paused", pauses, out)


@click.command()
@listing
@at_store
@prints
def pauses(at: At, out: Printer) -> None:
    """List what is paused, by whom and why."""
    with at.client() as client:
        found = client.pauses()
    if out.as_json:
        out.data({"pauses": found})
    elif found:
        out.table(TITLES, [(p.kind, p.name, instant(p.at), p.by, shortened(p.notes or "")) for p in found])
    else:
        out.note("nothing is paused")


def _given(thing: dict[str, str | None]) -> dict[str, str]:
    return {kind: name for kind, name in thing.items() if name is not None}


def _checked(thing: dict[str, str | None]) -> str:
    from fairlane.client.pausing import target

    if len(_given(thing)) != 1:
        raise click.UsageError("give one of --queue, --type and --tenant", click.get_current_context())
    return str(target(**_given(thing)))


def _say(text: str, pauses: tuple[Pause, ...], out: Printer) -> None:
    if out.as_json:
        out.data({"pauses": pauses})
    else:
        out.line(text)
