"""Ends a server whose test process is gone, however it went.

    python keeper.py <pid> <signal> <directory>

Waits until its standard input closes, which the system does for a process killed with SIGKILL too; then ends the server
and removes its directory. Run as a script, on the standard library alone.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

GRACE_S = 10.0


class Keeper:
    """Watches over one server process for as long as this process lives."""

    def __init__(self, pid: int, directory: Path, signal_number: signal.Signals) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(pid), str(int(signal_number)), str(directory)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def dismiss(self) -> None:
        """The server has ended and its pid may belong to somebody else from now on."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _main(pid: int, signal_number: int, directory: str) -> None:
    while sys.stdin.buffer.read(4096):
        pass
    give_up_at = time.monotonic() + GRACE_S
    try:
        os.kill(pid, signal_number)
        while _is_alive(pid) and time.monotonic() < give_up_at:
            time.sleep(0.05)
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
