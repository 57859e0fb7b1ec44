"""Plays the story: enqueue, work, look, until everything has ended or the time is up."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from fairlane.cli.demo import summary
from fairlane.cli.demo.screen import screen_for
from fairlane.cli.demo.shift import Shift
from fairlane.cli.demo.story import scenes
from fairlane.cli.demo.tasks import register
from fairlane.cli.demo.watching import Watcher
from fairlane.cli.printing import Printer
from fairlane.client.app import Fairlane
from fairlane.client.settings import Settings
from fairlane.client.waiting import Pause, SystemPause
from fairlane.core.clock import Clock
from fairlane.core.job import FINAL

TICK_S = 0.1


def run_demo(
    out: Printer, *, seconds: float, keep: bool, clock: Clock | None = None, pause: Pause | None = None
) -> summary.Summary:
    """Run it, show it, and return what the store holds at the end. Interrupted, it ends in order."""
    directory = Path(tempfile.mkdtemp(prefix="fairlane-demo-"))
    url = f"sqlite:///{directory}/demo.db"
    try:
        # Settings of its own: the demonstration is the same in every directory.
        with Fairlane(settings=Settings(url=url), clock=clock, pause=pause) as app:
            ran_s = _play(app, out, seconds, pause or SystemPause())
            told = summary.summarise(app, ran_s=ran_s, url=url if keep else None)
    finally:
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)
    summary.show(told, out)
    return told


def _play(app: Fairlane, out: Printer, seconds: float, pause: Pause) -> float:
    shift, watcher = Shift(app), Watcher(app)
    coming = list(scenes(app, register(app)))
    began_s = app.clock.monotonic()
    elapsed_s = 0.0
    with screen_for(out) as screen:
        try:
            while elapsed_s < seconds:
                said = []
                while coming and coming[0].at_s <= elapsed_s:
                    said += [line for line in [coming.pop(0).play()] if line is not None]
                shift.step()
                look = watcher.look()
                screen.show(elapsed_s, look, said)
                if not coming and all(job.status in FINAL for job in look.jobs):
                    break
                pause.sleep(TICK_S)
                elapsed_s = app.clock.monotonic() - began_s
        except KeyboardInterrupt:
            out.note("interrupted: giving back what runs")
        shift.end()
        screen.show(app.clock.monotonic() - began_s, watcher.look(), [])
    return app.clock.monotonic() - began_s
