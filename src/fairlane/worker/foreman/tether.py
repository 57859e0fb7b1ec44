"""The worker's side of the line to its foreman: a thread that hears it, and ends this process when it must not go on."""

from __future__ import annotations

import logging
import os
import select
import socket
import sys
import threading
from collections.abc import Callable

from fairlane.core.clock import Clock
from fairlane.worker.board import Board
from fairlane.worker.foreman.health import self_trusted_s
from fairlane.worker.foreman.messages import FromWorker, Setup, Tick, ToWorker, line, to_worker

log = logging.getLogger("fairlane.worker")

LOOK_S = 0.5
ORPHANED, UNTRUSTED = 71, 75
"""Exit codes: the foreman is gone; the heartbeat could not be kept."""


class Tether:
    """Hears the foreman and watches over trust, also while the loop is busy.

    The loop may be blocked by Python code that never waits; a thread still runs then. Only code that holds the interpreter lock
    stops it: that is the foreman's to end, and the kernel's should the foreman die.
    """

    def __init__(self, sock: socket.socket, board: Board, clock: Clock) -> None:
        self._sock, self.board, self._clock = sock, board, clock
        self._unread = b""
        self._unsent = b""
        self._sending = threading.Lock()
        sock.setblocking(False)

    def setup(self) -> Setup | None:
        """Wait for the first message; None: the foreman went away."""
        message = self._next(None)
        return message if isinstance(message, Setup) else None

    def send(self, message: FromWorker) -> None:
        """Never waits: what the socket does not take goes out with the next message, and ticks are left out meanwhile."""
        with self._sending:
            if not (isinstance(message, Tick) and self._unsent):
                self._unsent += line(message)
            try:
                self._unsent = self._unsent[self._sock.send(self._unsent) :]
            except (BlockingIOError, ConnectionError):
                return

    def flush(self, within_s: float) -> None:
        """Wait until all is sent, but not long: for the last words."""
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

    def hold(self, lease_s: float, heard: Callable[[ToWorker], object], is_busy: Callable[[], bool]) -> None:
        """Start the thread. `heard` is called in it."""
        trusted_s = self_trusted_s(lease_s)

        def watch() -> None:
            while True:
                message = self._next(LOOK_S)
                if message is not None:
                    heard(message)
                renewed_s = self.board.renewed_s
                if renewed_s and self._clock.monotonic() - renewed_s > trusted_s and is_busy():
                    log.error("no heartbeat for %.1f s: ending before somebody else runs what runs here", trusted_s)
                    end(UNTRUSTED)

        threading.Thread(target=watch, name="fairlane-tether", daemon=True).start()

    def _next(self, wait_s: float | None) -> ToWorker | None:
        """The next message; None after `wait_s`. Does not return once the foreman is gone."""
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
                end(ORPHANED)
            self._unread += got
        message, _, self._unread = self._unread.partition(b"\n")
        return to_worker(message)


def end(code: int) -> None:
    """Leave at once: whatever runs here has lost the right to."""
    sys.stderr.flush()
    os._exit(code)
