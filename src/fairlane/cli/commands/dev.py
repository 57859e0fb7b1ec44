"""`fairlane dev`: an application's worker and dashboard in one command, with changed code reloaded."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from fairlane.cli.commands.dashboard import DEFAULT_PORT
from fairlane.cli.options import one_application
from fairlane.cli.output import USAGE, Failed
from fairlane.cli.processes import Interrupts, Program, Programs, free_port, lacks_dashboard
from fairlane.client.settings.load import load
from fairlane.client.steps import SystemSleeper
from fairlane.worker.foreman.code_changes import FileWatcher

LOOK_S = 0.5
USUAL = ("jobs", "tasks", "app")
"""Modules that are tried, with the name `app`, if no application is given."""
MOST_DIRECTORIES = 1_000
FOREIGN = frozenset({"node_modules", "site-packages", "__pycache__", "build", "dist"})


@click.command()
@click.argument("application", required=False, metavar="[MODULE:NAME]")
@click.option("--app", metavar="MODULE:NAME", help="The application, like the argument.  [env var: FAIRLANE_APP]")
@click.option("--processes", "-p", type=click.IntRange(1, 64), default=1, show_default=True, help="Worker processes.")
@click.option("--dashboard/--no-dashboard", default=True, show_default=True, help="Serve the dashboard.")
@click.option("--port", type=click.IntRange(0, 65_535), help=f"Of the dashboard; {DEFAULT_PORT} if it is free.")
def dev(application: str | None, app: str | None, processes: int, dashboard: bool, port: int | None) -> None:
    """Run an application's worker and dashboard, and reload changed code.

    For development: brings the schema up to date first, prints a link to log in, and ends everything with one Ctrl-C.
    Without an application it looks for one in fairlane.toml, then for jobs.py, tasks.py or app.py with an `app`.
    """
    reference = one_application(application, app) or load().app or _usual()
    with Interrupts() as interrupts, Programs() as programs:
        is_usable = _migrate(reference)
        worker = programs.fairlane("worker", None, "worker", reference, "--reload", "--processes", str(processes))
        serving: Program | None = None
        if dashboard and is_usable and not lacks_dashboard(lambda text: click.echo(f"fairlane: {text}", err=True)):
            # The port is kept when code is reloaded, so that an open page goes on.
            port = free_port(DEFAULT_PORT) if port is None else port
            serving = programs.fairlane("dashboard", None, "dashboard", reference, "--port", str(port))
        _watch(interrupts, worker, serving)
        code = 0 if interrupts.heard else next((p.code for p in (worker, serving) if p and p.code), 0)
        interrupts.ending()
        programs.stop(interrupts)
    click.get_current_context().exit(interrupts.exit_code or code)


def _usual() -> str:
    found = next((name for name in USUAL if Path(f"{name}.py").exists()), None)
    if found is None:
        raise Failed(
            "no application: give it as module:name, or set FAIRLANE_APP or app in fairlane.toml; `fairlane init` "
            "writes a first one",
            USAGE,
        )
    return f"{found}:app"


def _migrate(reference: str) -> bool:
    """Bring the schema up to date; False: the application cannot be used, which the worker explains."""
    with TemporaryDirectory() as place:
        command = [sys.executable, "-m", "fairlane", "migrate", "up", "--app", reference]
        migrator = Program("migration", command, log=Path(place) / "log")
        code, said = migrator.wait(), migrator.last_words()
    if code not in (0, USAGE):
        raise Failed(said.removeprefix("fairlane: "), code)
    return code == 0


def _watch(interrupts: Interrupts, worker: Program, serving: Program | None) -> None:
    """Until an interrupt, or the worker ends. The worker reloads itself; the dashboard is started again."""
    sleeper, watcher, has_changed = SystemSleeper(), FileWatcher(), False
    while not interrupts.heard and worker.code is None:
        watcher.follow(_sources())
        if serving is not None and watcher.changed():
            has_changed = True
            serving.restart()
        if serving is not None and serving.code is not None and not has_changed:
            return  # It has said why it cannot start.
        sleeper.sleep(LOOK_S)


def _sources() -> Iterator[str]:
    """Python files below the working directory, without environments and packages."""
    for count, (place, directories, files) in enumerate(os.walk(".")):
        directories[:] = [name for name in directories if not name.startswith(".") and name not in FOREIGN]
        if "pyvenv.cfg" in files:
            directories.clear()
            continue
        yield from (os.path.join(place, name) for name in files if name.endswith(".py"))
        if count > MOST_DIRECTORIES:
            return
