"""The board: memory a worker shares with its foreman, where every slot shows the attempt it runs.

Written at each start and end of an attempt, for a fraction of a microsecond, so that a foreman knows what was running whatever
has become of the worker: ended by a signal in the middle of a call, or holding the interpreter lock for minutes.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from collections.abc import Iterator

from msgspec import Struct

from fairlane.core.ids import Seq

_HEAD = struct.Struct("@d")
_LINE = struct.Struct("@qddq")
"""seq, began, timeout, attempt. The attempt is written last and taken away first: 0 means that nothing runs here."""
_ATTEMPT = struct.Struct("@q")
_ATTEMPT_AT = _LINE.size - _ATTEMPT.size


class Running(Struct, frozen=True, kw_only=True):
    """An attempt as its slot shows it. `began_s` is monotonic time, which processes of one machine share."""

    seq: Seq
    attempt: int
    began_s: float
    timeout_s: float


class Line:
    """One slot's place on the board."""

    __slots__ = ("_at", "_memory")

    def __init__(self, memory: mmap.mmap, at: int) -> None:
        self._memory, self._at = memory, at

    def begin(self, seq: Seq, attempt: int, began_s: float, timeout_s: float) -> None:
        _LINE.pack_into(self._memory, self._at, seq, began_s, timeout_s, attempt)

    def end(self) -> None:
        _ATTEMPT.pack_into(self._memory, self._at + _ATTEMPT_AT, 0)


class Board:
    """Made by the foreman, written by the worker, read by the foreman also after the worker's death."""

    def __init__(self, fd: int) -> None:
        """Takes the file over: it is closed, the memory stays."""
        size = os.fstat(fd).st_size
        self._memory = mmap.mmap(fd, size)
        self._lines = (size - _HEAD.size) // _LINE.size
        os.close(fd)

    @property
    def renewed_s(self) -> float:
        """When the worker's heartbeat was last renewed, as its foreman knows; 0 before the first time."""
        (at_s,) = _HEAD.unpack_from(self._memory, 0)
        return float(at_s)

    @renewed_s.setter
    def renewed_s(self, at_s: float) -> None:
        _HEAD.pack_into(self._memory, 0, at_s)

    def line(self, number: int) -> Line:
        if not 0 <= number < self._lines:
            raise IndexError(f"the board has {self._lines} lines, there is none for slot {number}")
        return Line(self._memory, _HEAD.size + number * _LINE.size)

    def running(self) -> tuple[Running, ...]:
        return tuple(self._read())

    def _read(self) -> Iterator[Running]:
        for seq, began_s, timeout_s, attempt in _LINE.iter_unpack(bytes(self._memory)[_HEAD.size :]):
            if attempt:
                yield Running(seq=Seq(seq), attempt=attempt, began_s=began_s, timeout_s=timeout_s)


def board_file(slots: int) -> int:
    """A file without a name that holds a board for so many slots; the caller owns the descriptor."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("fairlane-board")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, _HEAD.size + slots * _LINE.size)
    return fd
