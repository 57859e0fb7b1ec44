"""Memory that a worker shares with its foreman, in which every slot shows the attempt it runs.

Written at each start and end of an attempt, in a fraction of a microsecond, so that a foreman knows what was running
even after the worker was killed in the middle of a call, or while it holds the interpreter lock for minutes.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from collections.abc import Iterator

from msgspec import Struct

from fairlane.core.ids import OfLease, Seq
from fairlane.core.job import Lease

_HEAD = struct.Struct("@d")
_LINE = struct.Struct("@qqdddq")
"""seq, claim, began, timeout, on the loop, attempt. The attempt is written last and cleared first: 0 means that nothing
runs here."""
_ATTEMPT, _ON_LOOP = struct.Struct("@q"), struct.Struct("@d")
_ATTEMPT_AT = _LINE.size - _ATTEMPT.size
_ON_LOOP_AT = _ATTEMPT_AT - _ON_LOOP.size


class RunningAttempt(OfLease, Struct, frozen=True, kw_only=True):
    """An attempt as its slot shows it. `began_s` is monotonic time, which processes of one machine share."""

    seq: Seq
    attempt: int
    claim_no: int
    began_s: float
    timeout_s: float
    on_loop_s: float = 0.0
    """When it was last seen running on the worker's loop, where all others wait meanwhile."""


class BoardLine:
    """One slot's place on the board."""

    __slots__ = ("_at", "_memory")

    def __init__(self, memory: mmap.mmap, at: int) -> None:
        self._memory, self._at = memory, at

    def begin(self, lease: Lease, began_s: float, timeout_s: float) -> None:
        seq, attempt, claim_no = lease.key
        _LINE.pack_into(self._memory, self._at, seq, claim_no, began_s, timeout_s, 0.0, attempt)

    def on_loop(self, seen_s: float) -> None:
        _ON_LOOP.pack_into(self._memory, self._at + _ON_LOOP_AT, seen_s)

    def end(self) -> None:
        _ATTEMPT.pack_into(self._memory, self._at + _ATTEMPT_AT, 0)


class Board:
    """Created by the foreman, written by the worker, and read by the foreman also after the worker's death."""

    def __init__(self, fd: int) -> None:
        """Maps the file, and owns its descriptor until the lines are known."""
        self._fd: int | None = fd
        self._memory = mmap.mmap(fd, _HEAD.size)
        self._lines = 0

    def reserve(self, slots: int) -> None:
        """Map a line for each slot. The worker knows how many it has; its foreman learns it from the hello."""
        if self._fd is None:
            return
        size = _HEAD.size + slots * _LINE.size
        if os.fstat(self._fd).st_size < size:
            os.ftruncate(self._fd, size)
        self._memory, self._lines = mmap.mmap(self._fd, size), slots
        self.close()

    def close(self) -> None:
        """Close the descriptor; what is mapped stays."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    @property
    def renewed_s(self) -> float:
        """When the foreman last renewed the worker's heartbeat; 0 before the first time."""
        (at_s,) = _HEAD.unpack_from(self._memory, 0)
        return float(at_s)

    @renewed_s.setter
    def renewed_s(self, at_s: float) -> None:
        _HEAD.pack_into(self._memory, 0, at_s)

    def line(self, number: int) -> BoardLine:
        if not 0 <= number < self._lines:
            raise IndexError(f"the board has {self._lines} lines, there is none for slot {number}")
        return BoardLine(self._memory, _HEAD.size + number * _LINE.size)

    def running(self) -> tuple[RunningAttempt, ...]:
        return tuple(self._read())

    def _read(self) -> Iterator[RunningAttempt]:
        for seq, claim_no, began_s, timeout_s, on_loop_s, attempt in _LINE.iter_unpack(self._memory[_HEAD.size :]):
            if attempt:
                yield RunningAttempt(
                    seq=Seq(seq),
                    attempt=attempt,
                    claim_no=claim_no,
                    began_s=began_s,
                    timeout_s=timeout_s,
                    on_loop_s=on_loop_s,
                )


def board_file() -> int:
    """An unnamed file for a board; the caller owns the descriptor."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("fairlane-board")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, _HEAD.size)
    return fd
