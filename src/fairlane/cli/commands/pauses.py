"""`fairlane pauses`, and the commands `pause`, `resume` and `drain` of queues, tasks and tenants."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import click

from fairlane.cli.options import SuggestingGroup, acts, at_store, lists, names_of, prints, read_span
from fairlane.cli.output import Printer, Style, progress
from fairlane.cli.target import At

if TYPE_CHECKING:
    from fairlane.client.admin.pauses import PausingVerbs
    from fairlane.client.app import Fairlane

COLUMNS = ("kind", "name", "refuse", ("since", "at"), "by", "notes")
refusing = click.option("--refuse", is_flag=True, help="Refuse new jobs, too: whoever enqueues one gets the notes.")


@click.group(cls=SuggestingGroup, default="list")
def pauses() -> None:
    """List what is paused, by whom and why."""


@pauses.command("list")
@at_store
@lists
def list_pauses(at: At, out: Printer) -> None:
    """List what is paused, by whom and why."""
    with at.client() as client:
        found = client.pauses.list()
        now = client.runtime.clock.now()
    out.listing("pauses", found, COLUMNS, empty="nothing is paused", style=Style(now), drops=("refuse",))


def pausing_commands(
    group: click.Group,
    noun: str,
    verbs: Callable[[Fairlane], PausingVerbs],
    shown: Callable[[Fairlane, str], object] = lambda client, _: {"pauses": client.pauses.list()},
    doubt: Callable[[Fairlane, str], str | None] = lambda client, _: None,
) -> None:
    """Add `pause NAME`, `resume NAME` and `drain NAME` to a group.

    `shown` is what they print as JSON; `doubt` is a note for a name that may be mistyped.
    """
    kinds: dict[str, Literal["queues", "types", "tenants"]] = {"queue": "queues", "task": "types", "tenant": "tenants"}
    named = click.argument("name", shell_complete=names_of(kinds[noun]))

    def act(name: str, at: At, out: Printer, doing: Callable[[PausingVerbs], str]) -> None:
        with at.client() as client:
            done = doing(verbs(client))
            if (note := doubt(client, name)) is not None:
                out.note(note)
            out.answer(shown(client, name), f'{noun} "{name}" {done}')

    @group.command(help=f"Stop claiming jobs of a {noun}, until resumed. Running jobs continue, and enqueueing, too.")
    @named
    @refusing
    @acts
    @at_store
    @prints
    def pause(name: str, refuse: bool, at: At, out: Printer, **about: Any) -> None:
        def doing(verbs: PausingVerbs) -> str:
            verbs.pause(name, refuse=refuse, **about)
            return "is paused and refuses new jobs" if refuse else "is paused"

        act(name, at, out, doing)

    @group.command(help=f"Let jobs of a {noun} be claimed again.")
    @named
    @acts
    @at_store
    @prints
    def resume(name: str, at: At, out: Printer, **about: Any) -> None:
        def doing(verbs: PausingVerbs) -> str:
            was_paused = verbs.is_paused(name)
            verbs.resume(name, **about)
            return "is resumed" if was_paused else "was not paused"

        act(name, at, out, doing)

    @group.command(help=f"Pause a {noun} and wait until none of its jobs run; it stays paused.")
    @named
    @click.option("--timeout", type=read_span, metavar="SPAN", help="Give up after this long.  [default: never]")
    @refusing
    @acts
    @at_store
    @prints
    def drain(name: str, timeout: timedelta | None, refuse: bool, at: At, out: Printer, **about: Any) -> None:
        def doing(verbs: PausingVerbs) -> str:
            with progress(f'Draining {noun} "{name}": waiting for its running jobs'):
                verbs.drain(name, timeout=timeout, refuse=refuse, **about)
            return "is drained and stays paused"

        act(name, at, out, doing)
