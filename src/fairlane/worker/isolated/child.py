"""The child: imports the application, then runs the attempts it is sent, one at a time. `python -m fairlane.worker.isolated.child APP`."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

from fairlane.worker.application import load_application
from fairlane.worker.attempting import run_here
from fairlane.worker.isolated.frames import read_frame, write_frame
from fairlane.worker.isolated.messages import READY, read_call, write_answer

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
    while (body := read_frame(calls)) is not None:
        write_frame(answers, write_answer(run_here(app, read_call(body))))
    return 0


def die_with(parent: int) -> None:
    """Never outlive the worker that started us, however it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(main())
