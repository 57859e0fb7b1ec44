"""The main program of a child: imports the application, then runs the attempts it receives, one at a time.

`python -m fairlane.worker.isolated.child APP MEMORY_MB PARENT LOG_LEVEL`
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import signal
import sys
import threading
from typing import BinaryIO, TypeVar

from fairlane.client.app import Fairlane
from fairlane.client.context import UNKNOWN_WORKER
from fairlane.client.logs import configure_logging, job_on_log_lines
from fairlane.core.job import Lease
from fairlane.core.ops import Op
from fairlane.core.outcome import Outcome
from fairlane.errors import LeaseLost
from fairlane.worker.application import load_application
from fairlane.worker.attempts import AttemptStore
from fairlane.worker.direct_runs import run_directly
from fairlane.worker.isolated.frames import (
    READY,
    ProgressNote,
    read_call,
    read_frame,
    read_reply,
    write_answer,
    write_frame,
    write_note,
    write_question,
)

T = TypeVar("T")

PR_SET_PDEATHSIG = 1


def main() -> int:
    spec, memory_mb, parent, log_level = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    die_with(parent)
    # Frames are written to the original standard output; what the task prints goes to standard error.
    answers, calls = os.fdopen(os.dup(1), "wb"), os.fdopen(os.dup(0), "rb")
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    app = load_application(spec)
    configure_logging(log_level)
    if memory_mb > 0:
        cap = int(memory_mb * 2**20)
        resource.setrlimit(resource.RLIMIT_AS, (cap, cap))
    write_frame(answers, READY)
    sender = FrameSender(answers)
    steps = PipedSteps(app, sender, calls)
    with job_on_log_lines(is_wanted=app.runtime.settings.log_context):
        while (body := read_frame(calls)) is not None:
            # The outcome goes ahead of the hooks that learn of it: one that hangs, or kills this process, changes
            # nothing.
            ran = run_directly(app, read_call(body), sender, steps, before_hooks=sender.send_decided)
            sender.send(write_answer(ran.outcome))
    return 0


class FrameSender:
    """Sends answers and progress to the worker."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._lock = stream, threading.Lock()

    def take(self, lease: Lease, *, progress: float | None = None, line: str | None = None) -> None:
        self.send(write_note(ProgressNote(progress, line)))

    def send_decided(self, outcome: Outcome) -> None:
        self.send(write_answer(outcome, is_last=False))

    def send(self, body: bytes) -> None:
        with self._lock:
            write_frame(self._stream, body)


class PipedSteps(AttemptStore):
    """Asks the worker for what concerns the durable steps of its attempt: the worker has the store."""

    def __init__(self, app: Fairlane, sender: FrameSender, replies: BinaryIO) -> None:
        super().__init__(app, UNKNOWN_WORKER)
        self._sender, self._replies, self._asking = sender, replies, threading.Lock()

    def run(self, op: Op[T], *, on: object | None = None) -> T:
        with self._asking:
            self._sender.send(write_question(op))
            body = read_frame(self._replies)
        if body is None:
            raise LeaseLost  # the worker is gone
        return read_reply(op, body)

    async def arun(self, op: Op[T], *, on: object | None = None) -> T:
        return await asyncio.to_thread(self.run, op)


def die_with(parent: int) -> None:
    """End this process when its parent ends, however that happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(main())
