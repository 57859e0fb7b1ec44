"""The worker's side of the socket to its foreman; ends this process when its leases are no longer safe."""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
from collections.abc import Callable

from fairlane.client.logs import GuardedLogger
from fairlane.core.clock import Clock
from fairlane.core.payload.storable import format_traceback
from fairlane.worker.board import Board
from fairlane.worker.foreman.health import check_s, self_trusted_s
from fairlane.worker.foreman.messages import ExitNotice, ExitReason, FromWorker, Setup, Tick, ToWorker, line, to_worker

log = GuardedLogger("fairlane.worker")

ANNOUNCE_S = 0.2
BROKEN, ORPHANED, UNTRUSTED = 70, 71, 75
"""Exit codes: the engine failed; the foreman has exited; the heartbeat could not be renewed."""


class ForemanLink:
    """Receives messages and checks the heartbeat's age, also while the event loop is blocked by Python code.

    Only code that holds the interpreter lock stops the thread: then the foreman ends this process, or the kernel when
    the foreman dies.
    """

    def __init__(self, sock: socket.socket, board: Board, clock: Clock) -> None:
        self._sock, self.board, self._clock = sock, board, clock
        self._unread = b""
        self._unsent = b""
        self._sending = threading.Lock()
        sock.setblocking(False)

    def setup(self) -> Setup | None:
        """Wait for the first message; None: the foreman has exited."""
        message = self._next(None)
        return message if isinstance(message, Setup) else None

    def send(self, message: FromWorker) -> None:
        """Never waits: what the socket does not accept goes with the next message, and ticks are skipped meanwhile."""
        with self._sending:
            if not (isinstance(message, Tick) and self._unsent):
                self._unsent += line(message)
            try:
                self._unsent = self._unsent[self._sock.send(self._unsent) :]
            except (BlockingIOError, ConnectionError):
                return

    def flush(self, within_s: float) -> None:
        """Wait until everything is sent, at most `within_s`."""
        until_s = self._clock.monotonic() + within_s
        while self._unsent and (left_s := until_s - self._clock.monotonic()) > 0:
            select.select([], [self._sock], [], left_s)
            with self._sending:
                try:
                    self._unsent = self._unsent[self._sock.send(self._unsent) :]
                except BlockingIOError:
                    continue
                except ConnectionError:
                    return

    def announce(self, why: ExitReason) -> None:
        """Say that this process exits by its own decision: without it, what runs here would be taken for its killer."""
        self.send(ExitNotice(why=why))
        self.flush(ANNOUNCE_S)

    def watch(
        self,
        lease_s: float,
        receive: Callable[[ToWorker], object],
        is_busy: Callable[[], bool],
        show_loop: Callable[[], object],
    ) -> None:
        """Start the thread. `receive` and `show_loop` are called in it."""
        trusted_s, every_s = self_trusted_s(lease_s), check_s(lease_s)

        def run() -> None:
            try:
                check()
            except BaseException as error:  # noqa: BLE001 - without this thread nobody would stop what runs here in time
                log.error("the link to the foreman failed\n%s", format_traceback(error))  # noqa: TRY400 - without secrets
                self._fail("broken", BROKEN)

        def check() -> None:
            while True:
                message = self._next(every_s)
                if message is not None:
                    receive(message)
                show_loop()
                renewed_s = self.board.renewed_s
                if renewed_s and self._clock.monotonic() - renewed_s > trusted_s and is_busy():
                    log.error(
                        "no heartbeat for %.1f s: exiting before another worker runs the jobs that run here", trusted_s
                    )
                    self._fail("untrusted", UNTRUSTED)

        threading.Thread(target=run, name="fairlane-foreman-link", daemon=True).start()

    def _fail(self, why: ExitReason, code: int) -> None:
        try:
            self.announce(why)
        finally:
            exit_now(code)

    def _next(self, wait_s: float | None) -> ToWorker | None:
        """The next message; None after `wait_s`. Ends the process when the foreman has exited."""
        while b"\n" not in self._unread:
            readable, _, _ = select.select([self._sock], [], [], wait_s)
            if not readable:
                return None
            try:
                got = self._sock.recv(65536)
            except BlockingIOError:
                continue
            except ConnectionError:
                got = b""
            if not got:
                exit_now(ORPHANED)
            self._unread += got
        message, _, self._unread = self._unread.partition(b"\n")
        return to_worker(message)


def exit_now(code: int) -> None:
    """End the process at once, with everything that runs in it."""
    sys.stderr.flush()
    os._exit(code)
