"""Pausing, resuming and draining one thing: the same act, whichever command it is asked with."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fairlane.cli.output import Printer
from fairlane.cli.target import At
from fairlane.cli.times import span

if TYPE_CHECKING:
    from fairlane.client.admin.pauses import PausingVerbs
    from fairlane.client.app import Fairlane

F = TypeVar("F", bound=Callable[..., Any])

Thing = dict[str, str]
"""`queue`, `type` or `tenant`, and its name."""


def gives_up(command: F) -> F:
    return click.option("--timeout", type=span, metavar="SPAN", help="Give up after so long.  [default: never]")(
        command
    )


def pause_one(client: Fairlane, thing: Thing, by: str, notes: str | None) -> str:
    group, name = _group(client, thing)
    group.pause(name, by=by, notes=notes)
    return "is paused"


def resume_one(client: Fairlane, thing: Thing, by: str, notes: str | None) -> str:
    group, name = _group(client, thing)
    was_paused = any({pause.kind: pause.name} == thing for pause in client.pauses.list())
    group.resume(name, by=by, notes=notes)
    return "is resumed" if was_paused else "was not paused"


def draining(timeout: timedelta | None) -> Callable[[Fairlane, Thing, str, str | None], str]:
    def drain_one(client: Fairlane, thing: Thing, by: str, notes: str | None) -> str:
        group, name = _group(client, thing)
        group.drain(name, timeout=timeout, by=by, notes=notes)
        return "is drained and stays paused"

    return drain_one


def _group(client: Fairlane, thing: Thing) -> tuple[PausingVerbs, str]:
    [(kind, name)] = thing.items()
    groups: dict[str, PausingVerbs] = {"queue": client.queues, "type": client.tasks, "tenant": client.tenants}
    return groups[kind], name


def act_on_one(
    act: Callable[[Fairlane, Thing, str, str | None], str],
    thing: Thing,
    *,
    show: Callable[[Fairlane], object],
    by: str,
    notes: str | None,
    at: At,
    out: Printer,
) -> None:
    """Do it and say so; `show`: what is printed as JSON."""
    [(kind, name)] = thing.items()
    what = f'{"task" if kind == "type" else kind} "{name}"'
    with at.client() as client:
        said = act(client, thing, by, notes)
        if out.as_json:
            out.data(show(client))
        else:
            out.line(f"{what} {said}")
