"""A host of a chaos run: one foreman with its workers, on a line of its own to the store; killed, halted and cut off."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from tests.faults.eventually import eventually
from tests.servers.proxy import BLACKHOLE, PASS, Cut, Proxy
from tests.worker.foreman.crew import ForemanProcess


class Host:
    """`start` starts its foreman; `line` is the proxy before its database, None where the store is a file."""

    def __init__(self, start: Callable[[], ForemanProcess], line: Proxy | None) -> None:
        self._start, self.line = start, line
        self.foreman = start()
        self.is_halted = False
        self.is_cut_off = False
        self.is_down = False
        """Killed, and not to be started again yet."""

    @property
    def is_able(self) -> bool:
        """Whether nothing keeps it from work."""
        return self.foreman.process.poll() is None and not (self.is_halted or self.is_cut_off)

    @property
    def is_whole(self) -> bool:
        return self.is_able and not self.is_down

    def start(self) -> None:
        self.is_down = False
        self.foreman = self._start()

    def kill(self) -> None:
        self.is_down = True
        self.foreman.process.kill()
        self.foreman.process.wait()

    def tree(self) -> list[int]:
        """Every process of it: the foreman, workers, their children."""
        try:
            return [
                self.foreman.pid,
                *(child.pid for child in psutil.Process(self.foreman.pid).children(recursive=True)),
            ]
        except psutil.NoSuchProcess:
            return []

    def cut(self, how: Cut) -> None:
        assert self.line is not None
        self.line.cut_all(how)

    def cut_off(self) -> None:
        assert self.line is not None
        self.is_cut_off, self.line.plan = True, BLACKHOLE
        self.line.cut_all("silent")

    def reconnect(self) -> None:
        assert self.line is not None
        self.is_cut_off, self.line.plan = False, PASS
        self.line.cut_all("reset")


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Signal processes, those that are there."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def halt(pids: Iterable[int]) -> None:
    """Stop processes, and wait until they have stopped."""
    halted = list(pids)
    send(halted, signal.SIGSTOP)
    eventually(lambda: all(_status(pid) in (None, psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE) for pid in halted))


def writer_of(file: Path) -> int | None:
    """The process that writes to a SQLite file now: it has a lock on byte 120 of the file's shared memory."""
    shared = file.with_name(file.name + "-shm").stat()
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.replace("-> ", "").split()
        pid, where, first = fields[4:7]
        if int(where.rpartition(":")[2]) == shared.st_ino and first == "120" and fields[3] == "WRITE":
            return int(pid)
    return None


def _status(pid: int) -> str | None:
    try:
        return psutil.Process(pid).status()
    except psutil.NoSuchProcess:
        return None
