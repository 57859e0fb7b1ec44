"""The foreman's process: started, waited for, stopped, and never left behind.

Signals such as Ctrl-C are recorded and checked between steps, so that the demo stops cleanly.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any, Self

from fairlane.cli.output import Failed
from fairlane.client.app import Fairlane
from fairlane.client.steps import Sleeper

HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Records signals while its block lasts. Use it in the main thread."""

    def __init__(self) -> None:
        self._signals: list[int] = []
        self._when_ending = 0
        self._before: dict[signal.Signals, Any] = {}

    @property
    def heard(self) -> bool:
        return bool(self._signals)

    @property
    def heard_again(self) -> bool:
        """Whether an interrupt arrived after the demo began to stop."""
        return len(self._signals) > self._when_ending

    @property
    def exit_code(self) -> int:
        """The exit code a shell expects: 130 for a Ctrl-C; 0: nobody interrupted."""
        return 128 + self._signals[0] if self._signals else 0

    def ending(self) -> None:
        self._when_ending = len(self._signals)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._note) for number in HEARD}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


PROCESSES = 2
GRACE_S = 1.0
APP = "fairlane.cli.demo.shop:app"
START_S = 40.0
LEAVE_S = 15.0
"""Far longer than the grace period: a foreman stops its workers long before."""
LOOK_S = 0.05


class Crew:
    """Leaves no process behind, whichever way its block ends."""

    def __init__(self, directory: Path, url: str, pause: Sleeper, app: str = APP) -> None:
        self._pause = pause
        self.log = directory / "worker.log"
        # Read by the workers, and by commands that run in a kept directory.
        (directory / "fairlane.toml").write_text(f'url = "{url}"\napp = "{app}"\nprofile = "development"\n', "utf-8")
        self._process = self._started(directory, app)

    def _started(self, directory: Path, app: str) -> subprocess.Popen[bytes]:
        with self.log.open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "fairlane.cli.demo.foreman", str(os.getpid()), app],
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,  # The demo handles the terminal's Ctrl-C and stops the foreman itself.
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()  # Its workers end with it.
            self._process.wait()

    def wait_until_ready(self, app: Fairlane, interrupts: Interrupts) -> None:
        """Wait until every worker has registered, or an interrupt arrives."""
        give_up_s = app.runtime.clock.monotonic() + START_S
        while not interrupts.heard and len(app.workers.list().workers) < PROCESSES:
            self.require_alive()
            if app.runtime.clock.monotonic() > give_up_s:
                raise Failed(f"the workers did not start within {START_S:g} s: {self._last_words()}")
            self._pause.sleep(LOOK_S)

    def require_alive(self) -> None:
        if self._process.poll() is not None:
            raise Failed(f"the foreman has ended: {self._last_words()}")

    def stop(self, interrupts: Interrupts) -> None:
        """Stops like SIGTERM: running jobs get the grace, the rest is released. A second interrupt stops at once."""
        sent = 0
        for _ in range(int(LEAVE_S / LOOK_S)):
            if self._process.poll() is not None:
                return
            if sent < (wanted := 1 + interrupts.heard_again):
                sent = wanted
                self._process.send_signal(signal.SIGTERM)
            self._pause.sleep(LOOK_S)

    def _last_words(self) -> str:
        lines = self.log.read_text("utf-8", errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "it said nothing")
