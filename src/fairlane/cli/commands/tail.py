"""`fairlane tail`: follow the events of the store."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from fairlane.cli.options import at_store, in_scope, queue_option, type_option
from fairlane.cli.output import STYLES, Printer, encoded, plural, shortened
from fairlane.cli.target import At
from fairlane.core.text import one_line
from fairlane.errors import StoreError, nearest

if TYPE_CHECKING:
    from fairlane.client.app import Fairlane
    from fairlane.core.ops import Event

POLL_S = 0.5
WATCH_S = 10.0
PAGE = 1_000
BEYOND = 2**62
"""An id greater than every event's: reading after it returns only the last id so far."""
SUMS = "jobs"
"""Sums over jobs, of which only some have an event of their own."""
_ENDS = ("completed", "failed", "dead", "cancelled")


def read_kind(text: str) -> str:
    """A kind of event by its whole name: `failed` is `job_failed`."""
    from fairlane.core.ops import EVENT_KINDS

    for name in (text, f"job_{text}"):
        if name in EVENT_KINDS:
            return name
    raise click.BadParameter(f"{text!r}: expected one of {', '.join(EVENT_KINDS)}.{nearest(text, EVENT_KINDS)}")


@click.command()
@queue_option(help="Of this queue.")
@type_option(help="Of this task.")
@click.option(
    "--kind",
    type=read_kind,
    metavar="TEXT",
    multiple=True,
    help="Of this kind: job_failed or failed, breaker_opened, worker_lost, …; may be repeated.",
)
@click.option(
    "-n",
    "--last",
    type=click.IntRange(0, PAGE),
    default=10,
    show_default=True,
    help="Begin with this many old ones.",
)
@click.option("--no-follow", is_flag=True, help="Print these and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each event.")
@in_scope
@at_store
def tail(
    queue: str | None,
    type: str | None,
    kind: tuple[str, ...],
    last: int,
    no_follow: bool,
    as_json: bool,
    tenant: str | None,
    at: At,
) -> None:
    """Follow events: jobs that end or fail, breakers, workers, alerts.

    While somebody follows, workers also report jobs that succeed: up to 50 a second each by name, the rest as a
    number. Ctrl-C ends it. After an outage of the store it continues where it was.
    """

    def wanted(event: Event) -> bool:
        return (not kind or event.kind in kind) and all(
            value is None or event.data.get(field) == value for field, value in (("queue", queue), ("type", type))
        )

    out, lines = Printer(), EventLines()

    def print_one(event: Event) -> None:
        if as_json:
            if wanted(event):
                click.echo(encoded(event, indented=False))
        elif event.kind != SUMS:
            lines.count(event)
            if wanted(event):
                show(out, *lines.parts(event))
        elif not kind and wanted(event):
            for left_out in lines.left_out(event):
                show(out, *left_out)

    try:
        with at.client() as client:
            follower = EventFollower(client, tenant, back=PAGE, watch=not no_follow)
            old = [event for event in follower.read() if wanted(event) and (as_json or event.kind != SUMS)]
            for event in old[len(old) - min(last, len(old)) :]:
                print_one(event)
            if not no_follow:
                for event in followed(follower, out.note):
                    print_one(event)
    except KeyboardInterrupt:
        return


class EventFollower:
    """Reads events that were not read yet; while it does, workers also report jobs that succeed."""

    def __init__(self, client: Fairlane, tenant: str | None = None, *, back: int = 0, watch: bool = True) -> None:
        """Begins `back` events before the next one."""
        self._client, self._tenant, self._watch = client, tenant, watch
        newest = client.events.list(after=BEYOND, tenant=tenant, limit=1, watch=watch).last
        self._after, self._watched_s = max(newest - back, 0), client.runtime.clock.monotonic()

    def read(self) -> tuple[Event, ...]:
        """At most a page; as many as that: there are more."""
        now_s = self._client.runtime.clock.monotonic()
        watch = self._watch and now_s - self._watched_s >= WATCH_S
        found = self._client.events.list(after=self._after, tenant=self._tenant, limit=PAGE, watch=watch).events
        self._watched_s = now_s if watch else self._watched_s
        self._after = found[-1].id if found else self._after
        return found


def followed(follower: EventFollower, note: Callable[[str], None]) -> Iterator[Event]:
    """All events that follow; an outage is noted and survived."""
    from fairlane.client.steps import SystemSleeper

    sleeper, is_away = SystemSleeper(), False
    while True:
        try:
            found = follower.read()
        except StoreError as error:
            if not is_away:
                note(f"fairlane: {one_line(str(error))}; waiting for it to return")
            is_away = True
            sleeper.sleep(POLL_S)
            continue
        if is_away:
            note("fairlane: the store has returned")
        is_away = False
        yield from found
        if len(found) < PAGE:
            sys.stdout.flush()
            sleeper.sleep(POLL_S)


class EventLines:
    """Events as lines for people, and how many jobs had no event of their own."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, str, str | None, str]] = Counter()
        """Events of single jobs since the last sum over their queue, type and tenant."""

    def count(self, event: Event) -> None:
        end = event.kind.removeprefix("job_")
        if end in _ENDS:
            self._seen[event.data.get("queue", ""), event.data.get("type", ""), event.tenant, end] += 1

    def left_out(self, event: Event) -> Iterator[tuple[str, str, str, str]]:
        """Lines for the jobs of a sum that had no event of their own."""
        queue, name = event.data["queue"], event.data["type"]
        for end in _ENDS:
            more = event.data[end] - self._seen.pop((queue, name, event.tenant, end), 0)
            if more > 0:
                yield f"{event.at:%H:%M:%S}", end, event.tenant or "", f"{name}: {plural(more, 'more job')}"

    def parts(self, event: Event) -> tuple[str, str, str, str]:
        """When, what, whose, and the rest."""
        data = dict(event.data)
        what = event.kind.removeprefix("job_").replace("_", " ")
        if event.kind.startswith("job_") and "id" in data:
            return f"{event.at:%H:%M:%S}", what, event.tenant or "", _job(data)
        rest = ", ".join(f"{name}={value}" for name, value in data.items() if value is not None)
        return f"{event.at:%H:%M:%S}", what, event.tenant or "", shortened(rest, 160)


def _job(data: dict[str, Any]) -> str:
    words = [data.get("type"), f"attempt {data['attempt']}" if data.get("attempt", 1) > 1 else None]
    words += [f"after {data['ran_s']:.3f}s" if "ran_s" in data else None, data.get("error_type"), data["id"]]
    return "  ".join(str(word) for word in words if word)


def show(out: Printer, when: str, what: str, whose: str, rest: str) -> None:
    what, whose, rest = (one_line(text) for text in (what, whose, rest))
    if out.console is None:
        click.echo(f"{when}  {what:<16} {whose:<12} {rest}".rstrip())
        return
    from rich.text import Text

    line = Text.assemble((f"{when}  ", "bright_black"), (f"{what:<16} ", STYLES.get(what, "magenta")), f"{whose:<12} ")
    out.console.print(line.append(rest), soft_wrap=True)
