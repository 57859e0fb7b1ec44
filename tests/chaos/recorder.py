"""Records what runs, outside of every store: a line for each beginning and end of an attempt, in one file of all processes.

Locks of the system know who runs. A process holds one byte of a file for each job that it runs, and one for each place
under a limit; they are free again the moment it is gone, however it went. An attempt that finds its job's byte or all
places of its limit taken has met another one that runs, and says so in its line.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fairlane import current_job

PLACES = {"type": 3, "named": 2, "tenant": 2, "key": 2, "order": 1}
"""How many jobs may run at once under each limit, by its kind."""
LIMITED_TYPE, LIMITED_TENANT = "chaos.limited", "small"
SHARING_TYPES = ("chaos.sharing", "chaos.sharing_too")
KEYED_TYPES = {"chaos.keyed": "key", "chaos.ordered": "order"}
"""By task: the limit that its key is."""
_FIRST_PLACE = {kind: 100 * number for number, kind in enumerate(PLACES, 1)}
_FIRST_JOB = 1 << 20


class Record(NamedTuple):
    """One line: `began`, `ended` (it succeeded), `left` (it raised), `met` (another attempt of its job ran), or `over`
    (its limit was full)."""

    event: str
    job: str
    attempt: int
    pid: int
    at_s: float
    """By the monotonic clock, which all processes share."""
    tenant: str
    type: str
    limit: str
    """The kind of the limit it is under, `-` for none."""
    place: int = 0
    """The place it has under that limit, from 1: the lowest that was free."""


class Records:
    """Reads the file while others write it."""

    def __init__(self, path: Path) -> None:
        self._path, self._read_bytes = path, 0
        self.all: list[Record] = []

    def read(self) -> list[Record]:
        """What was written since the last call, in the order it was written."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._read_bytes)
            lines = file.read().rpartition(b"\n")[0].decode().splitlines(keepends=False)
        self._read_bytes += sum(len(line) + 1 for line in lines)
        fields = [line.split() for line in lines]
        new = [Record(f[0], f[1], int(f[2]), int(f[3]), float(f[4]), *f[5:8], int(f[8])) for f in fields]
        self.all += new
        return new


class Locks:
    """Bytes of a file, each held by at most one attempt of one process."""

    def __init__(self, path: str) -> None:
        # The system's locks exclude other processes only, and go when the file is closed: it stays open.
        self._file = os.open(path, os.O_RDWR | os.O_CREAT)
        self._own: set[int] = set()
        self._guard = threading.Lock()

    def take(self, byte: int) -> bool:
        with self._guard:
            if byte in self._own:
                return False
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
            except OSError:
                return False
            self._own.add(byte)
            return True

    def release(self, byte: int) -> None:
        with self._guard:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, byte)
            self._own.discard(byte)


@cache
def _locks() -> Locks:
    return Locks(os.environ["YARD_DIARY"] + ".locks")


@contextmanager
def recorded() -> Iterator[None]:
    """Record the running attempt, from here to the end of the block or of its process."""
    job, limit = current_job(), _limit_kind()
    wanted = [("met", range(byte := _FIRST_JOB + job.id.int % (1 << 60), byte + 1))]
    if limit is not None:
        wanted.append(("over", range(first := _FIRST_PLACE[limit], first + PLACES[limit])))
    taken, nth = [], 0
    for event, places in wanted:
        byte = next((place for place in places if _locks().take(place)), None)
        if byte is None:
            _write(event, limit)
            continue
        taken.append(byte)
        if event == "over":
            nth = 1 + byte - places.start
    _write("began", limit, nth)
    event = "left"
    try:
        yield
        event = "ended"
    finally:
        _write(event, limit)
        for byte in taken:
            _locks().release(byte)


def _limit_kind() -> str | None:
    job = current_job()
    if job.type == LIMITED_TYPE:
        return "type"
    if job.type in SHARING_TYPES:
        return "named"
    if job.type in KEYED_TYPES:
        return KEYED_TYPES[job.type]
    return "tenant" if job.tenant == LIMITED_TENANT else None


def _write(event: str, limit: str | None, place: int = 0) -> None:
    job = current_job()
    what = f"{event} {job.id} {job.attempt} {os.getpid()} {time.monotonic()}"
    line = f"{what} {job.tenant} {job.type} {limit or '-'} {place}\n"
    # One write of an appending file is one line, whoever else writes.
    file = os.open(os.environ["YARD_DIARY"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())
    os.close(file)
