"""`fairlane schedules`: cron lines and intervals, described in words and with their next times."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from fairlane.cli.options import SuggestingGroup, acts, at_store, instant_ahead, lists, prints, read_span
from fairlane.cli.output import Column, Printer, Style, facts_of, indented, instant
from fairlane.cli.target import At

if TYPE_CHECKING:
    from datetime import datetime

    from fairlane.core.schedules import Schedule, Timetable


COLUMNS: tuple[Column, ...] = (
    *("spec.name", "spec.type", ("when", "words")),
    ("next", lambda schedule: None if schedule.paused_at is not None else schedule.next_at),
    *("last_at", "state", "source"),
)

name = click.argument("name")
runs = click.option(
    "--next",
    "runs",
    type=click.IntRange(1, 100),
    default=5,
    show_default=True,
    help="How many of its next times to show.",
)


@click.group(cls=SuggestingGroup)
def schedules() -> None:
    """List, show, add, pause, run and remove schedules."""


@schedules.command("list")
@at_store
@lists
def list_schedules(at: At, out: Printer) -> None:
    """List schedules by name, each described in words."""
    with at.client() as client:
        found, now = client.schedules.list(), client.runtime.clock.now()
    empty = "there are no schedules; @app.task(cron=…), every=… or `fairlane schedules add` creates one"
    out.listing("schedules", found, COLUMNS, empty=empty, style=Style(now), drops=("source", "last", "type"))


@schedules.command()
@name
@runs
@at_store
@prints
def show(name: str, runs: int, at: At, out: Printer) -> None:
    """Show one schedule and its next times."""
    with at.client() as client:
        schedule, now = client.schedules.get(name), client.runtime.clock.now()
    spec, timetable = schedule.spec, schedule.timetable
    times = () if timetable is None or schedule.next_at is None else timetable.next_runs(runs, now)
    if out.as_json:
        out.data({"schedule": schedule, "words": schedule.words, "next_runs": times})
        return
    out.facts(
        [
            *facts_of(spec, without=("payload",)),
            ("when", schedule.words),
            ("state", schedule.state),
            *facts_of(schedule, without=("spec", "next_at")),
            ("payload", indented(spec.payload)),
            ("next", "\n".join(_local(at, timetable) for at in times)),
        ]
    )


@schedules.command()
@click.argument("cron")
@click.option("--tz", default="UTC", show_default=True, help="Time zone, as in Europe/Prague.")
@runs
@prints
def explain(cron: str, tz: str, runs: int, out: Printer) -> None:
    """Describe a cron line, or an interval as in "@every 10s", in words, with its next times."""
    from fairlane.core.clock import SystemClock
    from fairlane.core.schedules import timetable_named

    line = timetable_named(cron, tz)
    times = line.next_runs(runs, SystemClock().now())
    if out.as_json:
        out.data({"cron": line.expression, "timezone": line.timezone, "words": line.explain(), "next_runs": times})
        return
    out.line(line.explain())
    for at in times:
        out.line(_local(at, line))


@schedules.command()
@name
@click.argument("type")
@click.argument("pairs", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--cron", help='Five fields, as in "0 9 * * MON-FRI", or @hourly, @daily, …')
@click.option("--every", type=read_span, metavar="SPAN", help="Instead of --cron, an interval: 10s, 5m, 1h30m.")
@click.option("--tz", help="Time zone, as in Europe/Prague.  [default: UTC]")
@click.option("--catch-up", help="Of several firings missed: none, latest or all.  [default: latest]")
@click.option("--catch-up-limit", type=int, help="With all: at most this many, the newest.  [default: 10]")
@click.option("--overlap", help="While its last job is unfinished: allow, skip or queue.  [default: allow]")
@click.option("--jitter", type=read_span, metavar="SPAN", help="Begin its jobs up to this much later: 5s, 2m.")
@click.option("--starts-at", type=instant_ahead, metavar="WHEN", help='Not before: 2030-01-01T09:00Z, or "in 5m".')
@click.option("--ends-at", type=instant_ahead, metavar="WHEN", help='Not after: 2030-01-01T09:00Z, or "in 30d".')
@click.option("--payload", metavar="JSON|-", help="The payload as one JSON object; - reads it from stdin.")
@click.option("--tenant", envvar="FAIRLANE_TENANT", show_envvar=True, help="The tenant of its jobs.")
@click.option("--queue", help="Queue, instead of the task's own.")
@click.option("--priority", help="A label such as high, or a number: smaller first.")
@click.option("--raw", is_flag=True, help="Do not look the type up in the application.")
@acts
@at_store
@prints
def add(
    name: str,
    type: str,
    pairs: tuple[str, ...],
    payload: str | None,
    tenant: str | None,
    queue: str | None,
    priority: str | None,
    raw: bool,
    at: At,
    out: Printer,
    by: str,
    notes: str | None,
    **timetable: Any,
) -> None:
    """Add a schedule, or change one that was added before."""
    from fairlane.cli.commands.enqueue import read_payload, read_priority

    application = None if raw else at.application()
    given = {option: value for option, value in timetable.items() if value is not None}
    with at.client(creates="for_application") as client:
        for bound in ("starts_at", "ends_at"):
            if isinstance(given.get(bound), timedelta):
                given[bound] += client.runtime.clock.now()
        rules = None if application is None else application.runtime
        arguments = read_payload(type, pairs, payload, (rules or client.runtime).settings.limits)
        using: Any = {"tenant": tenant, "queue": queue, "priority": read_priority(priority)}
        call = client.tasks.call(type, arguments, rules=rules, **using)
        schedule = client.schedules.add(name, call, by=by, notes=notes, **given)
    _report(out, schedule)


@schedules.command()
@name
@acts
@at_store
@prints
def pause(name: str, at: At, out: Printer, **about: Any) -> None:
    """Stop a schedule from firing until it is resumed."""
    with at.client() as client:
        _report(out, client.schedules.pause(name, **about))


@schedules.command()
@name
@acts
@at_store
@prints
def resume(name: str, at: At, out: Printer, **about: Any) -> None:
    """Resume a paused schedule, from its next time on."""
    with at.client() as client:
        _report(out, client.schedules.resume(name, **about))


@schedules.command("run")
@name
@acts
@at_store
@prints
def run_now(name: str, at: At, out: Printer, **about: Any) -> None:
    """Enqueue a schedule's job now, in addition to its timetable."""
    with at.client() as client:
        handle = client.schedules.run(name, **about)
        out.answer({"id": handle.id, "job": handle.job()}, str(handle.id))


@schedules.command()
@name
@acts
@at_store
@prints
def remove(name: str, at: At, out: Printer, **about: Any) -> None:
    """Remove a schedule; its jobs stay."""
    with at.client() as client:
        schedule = client.schedules.remove(name, **about)
    _report(out, schedule, "removed")
    if schedule.source == "code":
        out.note(
            "code declares it, so it comes back when a worker starts; `fairlane schedules pause` outlasts restarts"
        )


def _local(at: datetime, timetable: Timetable | None) -> str:
    if timetable is None or timetable.timezone == "UTC":
        return instant(at)
    return f"{instant(at)}  {at.astimezone(timetable.zone):%a %Y-%m-%d %H:%M} in {timetable.timezone}"


def _report(out: Printer, schedule: Schedule, state: str | None = None) -> None:
    due = "" if state or schedule.paused_at is not None else f", next {instant(schedule.next_at)}"
    text = f"{schedule.spec.name}  {schedule.words}  {state or schedule.state}{due}"
    out.answer({"schedule": schedule}, text)
