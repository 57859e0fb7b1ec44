"""Starts racers, sends them off together, and collects what each one saw."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

from fairlane.testing.conformance.scene import Scene

ROOT = Path(__file__).parents[2]


class Racers:
    """Processes that go from race to race; there are as many as the largest race took."""

    def __init__(self) -> None:
        self._racers: list[socket.socket] = []
        self._streams: list[IO[str]] = []
        self._forks: subprocess.Popen[bytes] | None = None

    def ready(self, kind: str, address: str, count: int) -> list[IO[str]]:
        """So many of them, each with the store open."""
        if self._forks is None:
            self._ask, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
            self._forks = _started(theirs)
            theirs.close()
        for number in range(len(self._racers), count):
            ours, theirs = socket.socketpair()
            socket.send_fds(self._ask, [str(number).encode()], [theirs.fileno()])
            theirs.close()
            self._racers.append(ours)
            self._streams.append(ours.makefile("rw"))
        racers = self._streams[:count]
        assert together(racers, {"open": [kind, address]}) == ["ready"] * count
        return racers

    def close(self) -> None:
        if self._forks is None:
            return
        for racer, stream in zip(self._racers, self._streams, strict=True):
            with contextlib.suppress(OSError):  # it has ended already
                racer.shutdown(socket.SHUT_WR)
                stream.read()
            stream.close()
            racer.close()
        self._ask.close()
        self._forks.wait()
        self._forks = None
        self._racers.clear()
        self._streams.clear()

    def end(self) -> None:
        """Leave nothing behind that might still be in the middle of a story."""
        if self._forks is not None:
            os.killpg(self._forks.pid, signal.SIGKILL)
        self.close()


class Track:
    """So many processes, each with the same store open, waiting for the next story."""

    scene: Scene

    def __init__(self, racers: Racers, kind: str, address: str, count: int) -> None:
        self.kind, self.address, self.count = kind, address, count
        self._racers = racers

    @property
    def is_long(self) -> bool:
        return self.count > 8

    def race(self, story: str, **params: Any) -> list[Any]:
        """Let all racers live the same story at once; returns what each of them tells."""
        racers = self._racers.ready(self.kind, self.address, self.count)
        try:
            return together(racers, {"story": story, "params": params})
        except BaseException:
            self._racers.end()
            raise


def together(racers: list[IO[str]], call: dict[str, Any]) -> list[Any]:
    for racer in racers:
        racer.write(json.dumps(call) + "\n")
    for racer in racers:
        racer.flush()
    return [_heard(racer) for racer in racers]


def _started(asks: socket.socket) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.races.racer"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=asks,
        start_new_session=True,
    )


def _heard(racer: IO[str]) -> Any:
    line = racer.readline()
    assert line, "a racer has ended; its traceback is above"
    return json.loads(line)
