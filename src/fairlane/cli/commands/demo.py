"""`fairlane demo`: workers, the dashboard and endless traffic of three tenants, until Ctrl-C or for some seconds."""

from __future__ import annotations

import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from fairlane.cli.commands.dashboard import DEFAULT_PORT
from fairlane.cli.commands.tail import SUMS, EventFollower, EventLines, show
from fairlane.cli.demo import CRM, FLOODING, TENANTS, Story, onboard, register
from fairlane.cli.loads import LoadReader
from fairlane.cli.options import prints
from fairlane.cli.output import STYLES, Failed, Printer, plural
from fairlane.cli.panels import PANELS, duration, headline
from fairlane.cli.processes import (
    Interrupts,
    Program,
    Programs,
    embedded_postgres,
    executable,
    free_port,
    lacks_dashboard,
)
from fairlane.cli.target import schema_of
from fairlane.cli.terminal import drawn
from fairlane.client.app import Fairlane
from fairlane.client.settings.model import Settings
from fairlane.client.steps import SystemSleeper
from fairlane.core.ops import Event, StatRow
from fairlane.core.text import one_line
from fairlane.core.workflows import WorkflowId

if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import Console, RenderableType

SECONDS = 20.0
"""How long it runs where nobody could press Ctrl-C."""
TICK_S = 0.1
LOOK_S = 1.0
START_S = 60.0
NO_DASHBOARD = -1
PROCESSES = 2
SHOWN = 12
"""Events on a terminal, at most, and in a small one."""
FEWEST = 4
ROWS = 6
"""Rows of a panel."""
COMMANDS = (
    ("top", "queues, tenants and lanes, live"),
    ("tail --kind failed --kind dead", "what fails, as it happens"),
    ("dead-letters list", "jobs that failed for good"),
    ("dead-letters reprocess {letter}", "run one again: now it succeeds"),
    ("workflows show {workflow}", "jobs that wait for each other, as a tree"),
    ("tenants set acme --weight 3", "a larger share for acme; watch it in top"),
    ("queues pause default", "and resume it"),
)


class TenantNumbers(Struct, frozen=True, kw_only=True):
    tenant: str
    jobs: int
    waiting: int
    completed: int
    dead: int
    cancelled: int
    failed: int
    """Attempts that failed and were retried."""
    wait_s: float | None
    """Mean, from due to start."""


class DemoSummary(Struct, frozen=True, kw_only=True):
    ran_s: float
    database: str
    url: str
    directory: str | None
    """None: it was removed."""
    tenants: tuple[TenantNumbers, ...]
    urgent_wait_s: float | None
    """Of jobs in the queue critical, which has slots of its own."""
    breaker: str
    dead_letters: int
    """To be reviewed."""
    acts: int
    """Of operators, in the audit."""


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 86_400.0),
    metavar="NUMBER",
    help=f"Stop after this long. [default: on a terminal when you press Ctrl-C, elsewhere after {SECONDS:g}]",
)
@click.option("--postgres", is_flag=True, help="Run on a PostgreSQL of its own instead of SQLite.")
@click.option("--dashboard/--no-dashboard", default=True, show_default=True, help="Serve the dashboard.")
@click.option("--port", type=click.IntRange(0, 65_535), help=f"Of the dashboard; {DEFAULT_PORT} if it is free.")
@click.option("--keep", is_flag=True, help="Keep the directory with the database and the logs, and print where it is.")
@prints
def demo(seconds: float | None, postgres: bool, dashboard: bool, port: int | None, keep: bool, out: Printer) -> None:
    """Watch the jobs of three tenants run, fail, retry and die.

    Starts a foreman with two worker processes and the dashboard on a temporary store. One tenant floods the queue and
    starves nobody; urgent jobs have a fast lane; jobs fail and are retried; a breaker opens and closes; a schedule
    fires; jobs of a workflow wait for each other; dead letters wait to be reprocessed. Ends cleanly after Ctrl-C. Every
    number shown is read from the store.
    """
    if seconds is None and (out.console is None or out.as_json):
        seconds = SECONDS
    if keep and postgres:
        raise click.UsageError("--keep needs SQLite: the demo's PostgreSQL ends with it", click.get_current_context())
    note = (lambda text: None) if out.as_json else out.note
    with (
        Interrupts() as interrupts,
        _directory(keep) as directory,
        Programs() as servers,
        Programs() as children,
    ):
        note(f"starting two workers on {'a PostgreSQL' if postgres else 'a SQLite file'} of their own …")
        url = embedded_postgres(servers, directory) if postgres else f"sqlite:///{directory}/demo.db"
        with Fairlane(settings=Settings(url=url, profile="development")) as app:
            since = _prepare(app, directory)
            server = _start(children, directory, note, port if dashboard else NO_DASHBOARD)
            _wait(children, interrupts, partial(_has_workers, app), "the workers did not start")
            tasks = register(app)
            # For the commands that are printed.
            tasks.charge.using(tenant=TENANTS[1]).enqueue(invoice=1)
            workflow = onboard(app, tasks, 1)
            _wait(children, interrupts, lambda: bool(app.dead_letters.list().dead_letters), "no job ran")
            if not out.as_json:
                _introduce(out, app, workflow, server, children, interrupts)
            ran_s = _play(app, Story(app, tasks, directory), children, out, interrupts, seconds)
            note("stopping: running jobs have a second")
            interrupts.ending()
            children.stop(interrupts)
            # The workers have stopped, so these values are final.
            summary = _summed_up(app, since, ran_s=ran_s, directory=str(directory) if keep else None)
        servers.stop(interrupts)
    if out.as_json:
        out.data(summary)
    else:
        _show_summary(summary, out)
    click.get_current_context().exit(interrupts.exit_code)


def _prepare(app: Fairlane, directory: Path) -> datetime:
    """Bring the schema up, write the settings that workers, the dashboard and commands read; the store's time."""
    settings = app.runtime.settings
    schema_of(settings).up()
    lines = f'url = "{settings.url}"\napp = "fairlane.cli.demo:app"\nprofile = "development"\n'
    (directory / "fairlane.toml").write_text(lines, "utf-8")
    return app.statistics.health().now


def _start(children: Programs, directory: Path, note: Callable[[str], None], port: int | None) -> Program | None:
    """Start the foreman and the dashboard; the latter's process, if there is one."""

    def start(name: str, *args: str) -> Program:
        log = directory / f"{args[0]}.log"
        return children.fairlane(name, directory, *args, log=log, keeps_settings=False)

    slots = ("--fast-slots", str(PROCESSES), "--general-slots", str(2 * PROCESSES))
    start("foreman", "worker", "--processes", str(PROCESSES), *slots, "--grace", "1s")
    if port == NO_DASHBOARD:
        return None
    if lacks_dashboard(note):
        return None
    return start("dashboard", "dashboard", "--port", str(free_port(DEFAULT_PORT) if port is None else port))


@contextmanager
def _directory(keep: bool) -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="fairlane-demo-"))
    try:
        yield directory
    finally:
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)


def _has_workers(app: Fairlane) -> bool:
    return len(app.workers.list().workers) >= PROCESSES


def _wait(children: Programs, interrupts: Interrupts, look: Callable[[], bool], what: str) -> None:
    sleeper, tries = SystemSleeper(), int(START_S / TICK_S)
    while not interrupts.heard and not look():
        children.require_alive()
        tries -= 1
        if tries == 0:
            raise Failed(f"{what} within {START_S:g} s")
        sleeper.sleep(TICK_S)


def _introduce(
    out: Printer,
    app: Fairlane,
    workflow: WorkflowId,
    server: Program | None,
    children: Programs,
    interrupts: Interrupts,
) -> None:
    """Print where to look, and commands that work as they stand."""
    if server is not None:
        _wait(children, interrupts, lambda: "/login?link=" in server.last_words(), "the dashboard did not start")
        link = server.last_words().rpartition(" ")[2]
        out.line(f"\n  Open the dashboard (the link logs in once, within ten minutes):\n\n    {link}\n")
    out.line(f"  Or, in another terminal in this directory:\n\n    url={quote(app.runtime.settings.url)}")
    letter = next((letter.id for letter in app.dead_letters.list().dead_letters), 1)
    short_id, command = str(workflow).rpartition("-")[2], executable()
    calls = {words.format(letter=letter, workflow=short_id) + ' --url "$url"': why for words, why in COMMANDS}
    width = max(map(len, calls))
    for words, why in calls.items():
        out.line(f"    {command} {words:<{width}}  # {why}")
    out.line("\n  Ctrl-C ends the demo.\n" if out.console is not None else "")


def _play(
    app: Fairlane,
    story: Story,
    children: Programs,
    out: Printer,
    interrupts: Interrupts,
    seconds: float | None,
) -> float:
    """Enqueue and show, until interrupted or the time is up; how many seconds it took."""
    clock, sleeper = app.runtime.clock, SystemSleeper()
    began_s = looked_s = clock.monotonic()
    follower, elapsed_s = EventFollower(app), 0.0
    with _view(app, out) as view:
        while not interrupts.heard and (seconds is None or elapsed_s < seconds):
            children.require_alive()
            for line in story.play(elapsed_s):
                view.say(line)
            if clock.monotonic() - looked_s >= LOOK_S:
                looked_s = clock.monotonic()
                view.show(follower.read())
            sleeper.sleep(TICK_S)
            elapsed_s = clock.monotonic() - began_s
    return elapsed_s


class LineView:
    """Lines as they happen: what the story says, and events beyond the routine."""

    def __init__(self, app: Fairlane, out: Printer) -> None:
        self._app, self._out, self._lines = app, out, EventLines()

    def say(self, line: str) -> None:
        now = self._app.runtime.clock.now()
        show(self._out, f"{now:%H:%M:%S}", "demo", "", line)

    def show(self, events: tuple[Event, ...]) -> None:
        for event in events:
            if event.kind == SUMS:
                if event.data["completed"]:
                    done = f"{event.data['completed']} × {event.data['type']}"
                    show(self._out, f"{event.at:%H:%M:%S}", "completed", event.tenant or "", done)
            elif event.kind != "job_completed":
                show(self._out, *self._lines.parts(event))


class SilentView:
    """For `--json`."""

    def say(self, line: str) -> None: ...

    def show(self, events: tuple[Event, ...]) -> None: ...


class TableView:
    """Drawn in place: the panels of tenants and lanes, and the latest events beyond the routine."""

    def __init__(self, app: Fairlane, update: Callable[[RenderableType], None], console: Console) -> None:
        self._app, self._update, self._console = app, update, console
        self._reader, self._lines = LoadReader(app), EventLines()
        self._latest: deque[tuple[str, str, str, str]] = deque(maxlen=SHOWN)

    def say(self, line: str) -> None:
        self._latest.append((f"{self._app.runtime.clock.now():%H:%M:%S}", "demo", "", line))

    def show(self, events: tuple[Event, ...]) -> None:
        from rich.console import Group
        from rich.text import Text

        self._latest.extend(self._lines.parts(event) for event in events if event.kind not in (SUMS, "job_completed"))
        loads = self._reader.read(live=True)
        top = Text(no_wrap=True, overflow="ellipsis")
        for words, style in headline(loads):
            top.append(f"  {words}", style)
        body: list[RenderableType] = [top]
        room = self._console.height - 3
        for panel in PANELS[:-1]:  # failures are among the events
            rows = panel.sorted(loads, panel.order)[:ROWS]
            if room - len(rows) - 2 >= FEWEST:
                body += ["", drawn(panel, rows, self._console.width)]
                room -= max(len(rows), 1) + 2
        events_text = Text("\n", no_wrap=True, overflow="ellipsis")
        shown = list(self._latest)[-max(min(room, SHOWN), FEWEST) :]
        for when, *texts in shown:
            what, whose, rest = map(one_line, texts)
            events_text.append(f"  {when}  ", "bright_black").append(f"{what:<16} ", STYLES.get(what, "magenta"))
            events_text.append(f"{whose:<9} {rest}\n")
        self._update(Group(*body, events_text))


@contextmanager
def _view(app: Fairlane, out: Printer) -> Iterator[LineView | SilentView | TableView]:
    console = out.console
    if out.as_json:
        yield SilentView()
    elif console is None:
        yield LineView(app, out)
    else:
        from rich.live import Live

        with Live(console=console, auto_refresh=False) as live:
            yield TableView(app, lambda drawing: live.update(drawing, refresh=True), console)


def _summed_up(app: Fairlane, since: datetime, *, ran_s: float, directory: str | None) -> DemoSummary:
    now = app.statistics.health().now
    rows = app.statistics.minutes(since.replace(second=0, microsecond=0), now).rows
    counts = app.statistics.counts()
    url = app.runtime.settings.url
    return DemoSummary(
        ran_s=round(ran_s, 1),
        database=url.partition(":")[0],
        url=url,
        directory=directory,
        tenants=tuple(_numbers(app, tenant, [row for row in rows if row.tenant == tenant]) for tenant in TENANTS),
        urgent_wait_s=_mean_wait_s([row for row in rows if row.queue == "critical"]),
        breaker=next((breaker.state for breaker in app.breakers.list() if breaker.name == CRM.name), "closed"),
        dead_letters=counts.dead_letters.get("pending_review", 0),
        acts=len(app.audit.list().records),
    )


def _numbers(app: Fairlane, tenant: str, rows: list[StatRow]) -> TenantNumbers:
    counts = app.statistics.counts(tenant=tenant)
    waiting = sum(queue.pending + queue.processing + queue.failed for queue in counts.queues)
    return TenantNumbers(
        tenant=tenant,
        jobs=waiting + counts.completed + counts.dead + counts.cancelled,
        waiting=waiting,
        completed=counts.completed,
        dead=counts.dead,
        cancelled=counts.cancelled,
        failed=sum(row.failed for row in rows),
        wait_s=_mean_wait_s(rows),
    )


def _mean_wait_s(rows: list[StatRow]) -> float | None:
    number = sum(sum(row.wait_buckets.values()) for row in rows)
    return sum(row.wait_us for row in rows) / number / 1e6 if number else None


def _show_summary(summary: DemoSummary, out: Printer) -> None:
    titles = ("tenant", "jobs", "waiting", "completed", "dead", "cancelled", "failed attempts", "wait")
    rows = [
        (*(getattr(row, title.partition(" ")[0]) for title in titles[:-1]), _seconds(row.wait_s))
        for row in summary.tenants
    ]
    out.line("")
    out.table(titles, rows)
    out.line("")
    for line in _sentences(summary):
        out.line(line)


def _sentences(summary: DemoSummary) -> Iterator[str]:
    yield f"{plural(sum(row.jobs for row in summary.tenants), 'job')} in {summary.ran_s:.0f} s on {summary.database}."
    waits = {row.tenant: row.wait_s for row in summary.tenants if row.wait_s is not None}
    others = ", ".join(f"{tenant} {duration(wait_s)}" for tenant, wait_s in waits.items() if tenant != FLOODING)
    if FLOODING in waits and others:
        flood = f"{FLOODING} flooded the queue and waited {duration(waits[FLOODING])} on average"
        yield f"{flood}; behind that flood: {others}."
    if summary.urgent_wait_s is not None:
        yield f"Login codes have a fast lane and waited {duration(summary.urgent_wait_s)}."
    letters, acts = plural(summary.dead_letters, "dead letter"), plural(summary.acts, "act")
    yield f"The breaker {CRM.name} is {summary.breaker.replace('_', ' ')}. {letters} to review, {acts} in the audit."
    if summary.directory is None:
        yield "The demo's directory is removed; --keep keeps it."
    else:
        yield f"Kept: {summary.directory}. For instance: {executable()} jobs list --url {quote(summary.url)}"


def _seconds(wait_s: float | None) -> str:
    return "" if wait_s is None else duration(wait_s)
