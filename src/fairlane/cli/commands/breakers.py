"""`fairlane breakers`: list, reset, open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fairlane.cli.options import SuggestingGroup, acts, at_store, lists, prints
from fairlane.cli.output import NOT_FOUND, Column, Failed, Printer, Style
from fairlane.cli.target import At
from fairlane.errors import nearest

if TYPE_CHECKING:
    from fairlane.core.breaker import BreakerRecord

COLUMNS: tuple[Column, ...] = (
    *("name", "state", "failures"),
    ("tries again", lambda breaker: (breaker.retry_at or "when reset") if breaker.state == "open" else None),
    "last_failure_at",
)

name = click.argument("name")


@click.group(cls=SuggestingGroup)
def breakers() -> None:
    """List, open and reset circuit breakers."""


@breakers.command("list")
@at_store
@lists
def list_breakers(at: At, out: Printer) -> None:
    """List breakers by name: closed, open, or half open while trial calls run."""
    with at.client() as client:
        found, now = client.breakers.list(), client.runtime.clock.now()
    empty = "no breaker has been used yet; @app.task(breaker=…) or app.breakers.guard(…) creates one"
    out.listing("breakers", found, COLUMNS, empty=empty, style=Style(now))


@breakers.command()
@name
@acts
@at_store
@prints
def reset(name: str, by: str, notes: str | None, at: At, out: Printer) -> None:
    """Close a breaker; postponed jobs run at their scheduled time."""
    with at.client() as client:
        known = [breaker.name for breaker in client.breakers.list()]
        if name not in known:
            raise Failed(f'no breaker named "{name}" has been used, so it is closed.{nearest(name, known)}', NOT_FOUND)
        breaker = client.breakers.reset(name, by=by, notes=notes)
    _report(breaker, out)


@breakers.command("open")
@name
@acts
@at_store
@prints
def open_breaker(name: str, by: str, notes: str | None, at: At, out: Printer) -> None:
    """Open a breaker until somebody resets it: jobs that use it are postponed."""
    with at.client() as client:
        known = [breaker.name for breaker in client.breakers.list()]
        breaker = client.breakers.open(name, by=by, notes=notes)
    if name not in known:
        out.note(f'no breaker named "{name}" had been used before.{nearest(name, known)}')
    _report(breaker, out)


def _report(breaker: BreakerRecord, out: Printer) -> None:
    out.answer(breaker, f"{breaker.name}  {breaker.state}")
