"""The child: imports the application, then runs the attempts it is sent, one at a time. `python -m fairlane.worker.isolated.child APP`."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import threading
from typing import BinaryIO

from fairlane.core.job import Lease
from fairlane.worker.application import load_application
from fairlane.worker.isolated.frames import read_frame, write_frame
from fairlane.worker.isolated.messages import READY, Said, read_call, write_answer, write_said
from fairlane.worker.runner import run_here

PR_SET_PDEATHSIG = 1


def main() -> int:
    spec, memory_mb, parent = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    die_with(parent)
    # Frames go over what was standard output; whatever the task prints goes to standard error with everybody else's.
    answers, calls = os.fdopen(os.dup(1), "wb"), os.fdopen(os.dup(0), "rb")
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    app = load_application(spec)
    if memory_mb > 0:
        cap = int(memory_mb * 2**20)
        resource.setrlimit(resource.RLIMIT_AS, (cap, cap))
    write_frame(answers, READY)
    voice = Voice(answers)
    while (body := read_frame(calls)) is not None:
        voice.say(write_answer(run_here(app, read_call(body), voice)))
    return 0


class Voice:
    """Sends what attempts say to the worker, which writes it down."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._lock = stream, threading.Lock()

    def take(self, lease: Lease, *, progress: float | None = None, line: str | None = None) -> None:
        self.say(write_said(Said(progress, line)))

    def say(self, body: bytes) -> None:
        with self._lock:
            write_frame(self._stream, body)


def die_with(parent: int) -> None:
    """Never outlive the worker that started us, however it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(main())
