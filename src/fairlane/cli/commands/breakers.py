"""`fairlane breakers`: list, reset, open."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from fairlane.cli.options import SuggestingGroup, acts, at_store, prints
from fairlane.cli.output import NOT_FOUND, Failed, Printer, span
from fairlane.cli.target import At
from fairlane.errors import nearest

if TYPE_CHECKING:
    from fairlane.core.breaker import BreakerRecord

TITLES = ("name", "state", "failures", "tries again", "last failure")

name = click.argument("name")


@click.group(cls=SuggestingGroup)
def breakers() -> None:
    """List, open and reset circuit breakers."""


@breakers.command("list")
@at_store
@prints
def list_breakers(at: At, out: Printer) -> None:
    """List breakers by name: closed, open, or half open while trial calls run."""
    with at.client() as client:
        found, now = client.breakers.list(), client.runtime.clock.now()
    if out.as_json:
        out.data({"breakers": found})
    elif found:
        out.table(TITLES, [_row(breaker, now) for breaker in found])
    else:
        out.note("no breaker has been used yet; @app.task(breaker=…) or app.breakers.guard(…) creates one")


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
    if out.as_json:
        out.data(breaker)
    else:
        out.line(f"{breaker.name}  {breaker.state.replace('_', ' ')}")


def _row(breaker: BreakerRecord, now: datetime) -> tuple[object, ...]:
    again = ""
    if breaker.state == "open":
        again = "when reset" if breaker.retry_at is None else f"in {span(breaker.retry_at - now)}"
    last = "" if breaker.last_failure_at is None else f"{span(now - breaker.last_failure_at)} ago"
    return breaker.name, breaker.state.replace("_", " "), breaker.failures, again, last
