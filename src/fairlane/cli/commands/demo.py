"""`fairlane demo`: starts a foreman, enqueues jobs and shows them until every job has ended or the time is up."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import click

from fairlane.cli.demo import summary
from fairlane.cli.demo.crew import Crew, Interrupts
from fairlane.cli.demo.events import DemoEvent, EventLog, look_at
from fairlane.cli.demo.screen import screen_for
from fairlane.cli.demo.story import DIGEST_FOR, declare_missed, scenes
from fairlane.cli.demo.tasks import Tasks, register
from fairlane.cli.options import prints
from fairlane.cli.output import Printer
from fairlane.client.app import Fairlane
from fairlane.client.settings.model import Settings
from fairlane.client.steps import SystemSleeper
from fairlane.core.job import FINAL


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 600.0),
    metavar="NUMBER",
    default=10.0,
    show_default=True,
    help="Stop this many seconds after the workers are ready, even if jobs remain.",
)
@click.option(
    "--keep", is_flag=True, help="Keep the directory with the database and the workers' log, and print where it is."
)
@prints
def demo(seconds: float, keep: bool, out: Printer) -> None:
    """Watch jobs of three tenants run, fail, retry and die.

    Starts a foreman with two worker processes on a temporary SQLite file and shows lanes, a flood, a breaker and a
    schedule. Ends by itself, or cleanly after Ctrl-C. Every number shown is read back from the store.
    """
    click.get_current_context().exit(run_demo(out, seconds=seconds, keep=keep))


TICK_S = 0.15


def run_demo(out: Printer, *, seconds: float, keep: bool) -> int:
    """Run the demo, print its summary and return the exit code. An interrupt stops it cleanly."""
    with Interrupts() as interrupts:
        directory = Path(tempfile.mkdtemp(prefix="fairlane-demo-"))
        try:
            # Uses its own settings, so configuration in the current directory has no effect.
            url = f"sqlite:///{directory}/demo.db"
            with Fairlane(settings=Settings(url=url, profile="development")) as app:
                tasks = register(app, digest_for=DIGEST_FOR)
                declare_missed(app)
                with Crew(directory, url, SystemSleeper()) as crew:
                    if not out.as_json:
                        out.note("starting a foreman with two workers on a SQLite file of its own")
                    crew.wait_until_ready(app, interrupts)
                    ran_s = play(app, tasks, crew, out, seconds, interrupts)
                # The workers have stopped, so these values are final.
                summed_up = summary.summarise(app, ran_s=ran_s, directory=str(directory) if keep else None)
        finally:
            if not keep:
                shutil.rmtree(directory, ignore_errors=True)
        summary.show(summed_up, out)
        return interrupts.exit_code


def play(app: Fairlane, tasks: Tasks, crew: Crew, out: Printer, seconds: float, interrupts: Interrupts) -> float:
    """Play the scenes, stop the foreman, and return how many seconds the scenes took."""
    log, pause, coming = EventLog(app), SystemSleeper(), scenes(app, tasks)
    began_s = app.runtime.clock.monotonic()
    elapsed_s = 0.0
    with screen_for(out, seconds) as screen:
        while elapsed_s < seconds and not interrupts.heard:
            due = [scene for scene in coming if scene.at_s <= elapsed_s and scene.is_time()]
            said = [scene.play() for scene in due]
            coming = [scene for scene in coming if scene not in due]
            look = look_at(app)
            happened: list[DemoEvent | str] = [*log.seen(look, elapsed_s), *(line for line in said if line is not None)]
            screen.show(elapsed_s, look, happened)
            if not coming and all(job.status in FINAL for job in look.jobs):
                break
            crew.require_alive()
            pause.sleep(TICK_S)
            elapsed_s = app.runtime.clock.monotonic() - began_s
        ran_s = elapsed_s
        why = "interrupted: the foreman is asked to stop" if interrupts.heard else "the foreman is asked to stop"
        screen.show(elapsed_s, look_at(app), [why])
        interrupts.ending()
        crew.stop(interrupts)
        elapsed_s = app.runtime.clock.monotonic() - began_s
        look = look_at(app)
        last: list[DemoEvent | str] = [*log.seen(look, elapsed_s), *log.rest(), "the foreman has left"]
        screen.show(elapsed_s, look, last)
    return ran_s
