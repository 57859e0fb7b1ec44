"""A command in a real pseudo-terminal: what it shows, and keys that are typed into it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Self

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[=>]")
HOME = "\x1b[H"
PATIENCE_S = 40.0


def _take_terminal() -> None:
    """As a shell starts a program; tests that run in the background ignore ^C, and whoever they start would, too."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """Use it as a block: the process is gone behind it."""

    def __init__(self, *command: str, cwd: Path, columns: int = 100, lines: int = 40, **env: str) -> None:
        self._ours, theirs = pty.openpty()
        self._winsize(theirs, columns, lines)
        unset = {"NO_COLOR", "CI", "COLUMNS", "LINES", "FAIRLANE_URL", "FAIRLANE_APP"}
        kept = {name: value for name, value in os.environ.items() if name not in unset}
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", *command],
            cwd=cwd,
            env={**kept, "TERM": "xterm-256color", **env},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=_take_terminal,  # noqa: PLW1509 - so that ^C is a signal
        )
        os.close(theirs)
        self.raw = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)

    @property
    def text(self) -> str:
        """Everything it wrote, without escape sequences."""
        return ESCAPES.sub("", self.raw)

    @property
    def frame(self) -> str:
        """What a full-screen program drew last, and whole: it has begun to draw again since."""
        drawn = self.raw.split(HOME)
        return ESCAPES.sub("", drawn[-2]) if len(drawn) > 1 else ""

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        self._winsize(self._ours, columns, lines)
        os.killpg(self.process.pid, signal.SIGWINCH)

    def shows(self, *parts: str, lacks: str | None = None) -> str:
        """The frame that shows all of these parts, once there is one."""
        until_s = time.monotonic() + PATIENCE_S
        while not (all(part in self.frame for part in parts) and (lacks is None or lacks not in self.frame)):
            assert time.monotonic() < until_s, f"{parts} never showed:\n{self.frame}"
            assert self._reads(0.2) or self.process.poll() is None, f"it has ended:\n{self.text[-3000:]}"
        return self.frame

    def wrote(self, part: str) -> str:
        """Everything written, once the part is in it."""
        until_s = time.monotonic() + PATIENCE_S
        while part not in self.text:
            assert time.monotonic() < until_s, f"{part!r} was never written:\n{self.text[-3000:]}"
            assert self._reads(0.2) or self.process.poll() is None, f"it has ended:\n{self.text[-3000:]}"
        return self.text

    def reads_within(self, seconds: float, part: str, times: int = 1) -> bool:
        """Reads for this long, or until the part is written so often; whether it is."""
        until_s = time.monotonic() + seconds
        while self.text.count(part) < times and time.monotonic() < until_s:
            self._reads(0.1)
        return self.text.count(part) >= times

    def ended(self) -> int:
        """Its exit code, once it has ended and everything is read."""
        until_s = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < until_s, f"it never ended:\n{self.text[-3000:]}"
            self._reads(0.2)
        while self._reads(0.0):
            pass
        return self.process.returncode

    def _reads(self, within_s: float) -> bool:
        if not select.select([self._ours], [], [], within_s)[0]:
            return False
        try:
            got = os.read(self._ours, 65536)
        except OSError:  # how Linux reports that the other side is closed
            return False
        self.raw += got.decode(errors="replace")
        return bool(got)

    @staticmethod
    def _winsize(file: int, columns: int, lines: int) -> None:
        fcntl.ioctl(file, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
