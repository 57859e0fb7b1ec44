"""One worker process as its foreman has it: started, heard, told to stop, ended.

What the system says of a process: its memory, whether it was halted, and how it ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from pathlib import Path

from fairlane.core.clock import Clock
from fairlane.core.ops import Renewed
from fairlane.worker.board import Board, board_file
from fairlane.worker.foreman.health import Sight
from fairlane.worker.foreman.losses import Ending
from fairlane.worker.foreman.messages import (
    LONGEST_LINE,
    Hello,
    Left,
    Refused,
    Registered,
    Setup,
    Stop,
    Tick,
    ToWorker,
    from_worker,
    line,
)
from fairlane.worker.foreman.tether import UNTRUSTED

_PAGE = os.sysconf("SC_PAGE_SIZE")


def memory_mb(pid: int) -> float | None:
    """Resident memory; None where the system does not say."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return pages * _PAGE / 2**20


def own_memory_mb() -> float:
    """Resident memory of this process, or its peak where the system says no more."""
    resident = memory_mb(os.getpid())
    if resident is not None:
        return resident
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def is_halted(pid: int) -> bool:
    """Stopped by SIGSTOP, a terminal or a debugger. Elsewhere than on Linux: not known, so no."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in {"T", "t"}


def ending(code: int | None) -> str:
    """How a process ended, in words."""
    if code is None or code >= 0:
        return f"exited with code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


log = logging.getLogger("fairlane.foreman")

KILL_AFTER_S = 2.0


class WorkerProcess:
    def __init__(self, setup: Setup, process: asyncio.subprocess.Process, board: Board, clock: Clock) -> None:
        self.setup, self.worker = setup, setup.worker
        self.process, self.board, self._clock = process, board, clock
        self.started_s = clock.monotonic()
        self.hello: Hello | None = None
        self.refused: Refused | None = None
        self.left: Left | None = None
        self.tick = Tick()
        self.ticked_s: float | None = None
        self.renewed_s: float | None = None
        self.has_lapsed = False
        self._at_work_s: float | None = None
        self.news = asyncio.Event()
        """It said hello, or its heartbeat has something new to tell."""
        self.ending: Ending | None = None
        """Why we are ending it."""
        self.leaving_by_s: float | None = None
        """Told to stop, and when its time is up."""
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, setup: Setup, clock: Clock) -> WorkerProcess:
        """A fresh interpreter, not a fork: nothing of ours is shared but the socket and the board."""
        ours, theirs = socket.socketpair()
        memory = board_file(sum(lane.slots for lane in setup.config.lanes))
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "fairlane.worker.foreman.child",
                str(theirs.fileno()),
                str(memory),
                str(os.getpid()),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), memory),
                process_group=0,  # a terminal's Ctrl-C reaches the foreman alone
            )
        except BaseException:
            os.close(memory)
            ours.close()
            raise
        finally:
            theirs.close()
        self = cls(setup, process, Board(memory), clock)
        reader, self._writer = await asyncio.open_unix_connection(sock=ours, limit=LONGEST_LINE)
        self._listening = asyncio.create_task(self._listen(reader), name=f"listen-{process.pid}")
        self.tell(setup)
        return self

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_registered(self) -> bool:
        return self.renewed_s is not None

    @property
    def lived_s(self) -> float:
        return self._clock.monotonic() - self.started_s

    def tell(self, message: ToWorker) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(line(message))

    def stop(self, *, now: bool, patience_s: float) -> None:
        """Tell it to leave; past its patience it is ended."""
        by_s = self._clock.monotonic() + patience_s
        self.leaving_by_s = by_s if self.leaving_by_s is None else min(self.leaving_by_s, by_s)
        self.tell(Stop(now=now))

    def renewed(self, sent_s: float, answer: Renewed) -> None:
        """Its heartbeat reached the store; counted from when it was sent."""
        is_first = not self.is_registered
        if answer.fresh and not is_first:
            self.has_lapsed = True
        self.renewed_s = self.board.renewed_s = sent_s
        if is_first:
            assert self.hello is not None
            log.info(
                "worker %d is ready: %d tasks, queues %s", self.pid, len(self.hello.types), ", ".join(self.hello.queues)
            )
            self.ticked_s = self._clock.monotonic()
            self.tell(Registered())

    def seen(self, now_s: float) -> Sight:
        is_silent = self.ticked_s is not None and now_s - self.ticked_s > self.setup.config.lease_s
        running = self.board.running()
        if self.has_lapsed and not running and not self.tick.held:
            self.has_lapsed = False  # it had nothing to lose: registered anew, it goes on
        if running:
            self._at_work_s = now_s
        return Sight(
            now_s=now_s,
            lease_s=self.setup.config.lease_s,
            started_s=self.started_s,
            ticked_s=self.ticked_s if self.hello is not None else None,
            renewed_s=self.renewed_s,
            running=running,
            at_work_s=self._at_work_s,
            held=self.tick.held,
            has_lapsed=self.has_lapsed,
            is_halted=is_silent and is_halted(self.pid),
        )

    def memory_mb(self) -> float | None:
        return memory_mb(self.pid) or self.tick.figures.get("memory_mb")

    async def end(self, ending: Ending) -> None:
        """SIGKILL; returns when the process is gone. Beside a stuck attempt the others get a moment to end, by SIGTERM."""
        self.ending = ending
        with contextlib.suppress(ProcessLookupError):
            if ending == "stuck" and self._clock.monotonic() - (self.ticked_s or 0.0) < KILL_AFTER_S:
                self.process.send_signal(signal.SIGTERM)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.process.wait(), KILL_AFTER_S)
            self.process.kill()
        await self.process.wait()

    async def ended(self) -> Ending:
        """After the process is gone: hear its last words, and say how it ended."""
        if self._listening is not None:
            await asyncio.wait({self._listening}, timeout=1.0)
            self._listening.cancel()
        if self._writer is not None:
            self._writer.close()
        if self.ending is not None:
            return self.ending
        if self.refused is not None:
            return "refused"
        if self.left is not None and self.process.returncode == 0:
            return "left"
        return "untrusted" if self.process.returncode == UNTRUSTED else "crashed"

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            while words := await reader.readline():
                if words.endswith(b"\n"):
                    self._hear(words)

    def _hear(self, words: bytes) -> None:
        match message := from_worker(words):
            case Tick():
                self.ticked_s = self._clock.monotonic()
                if message.wake_address != self.tick.wake_address:
                    self.news.set()
                self.tick = message
            case Hello():
                self.hello, self.ticked_s = message, self._clock.monotonic()
                self.news.set()
            case Refused():
                self.refused = message
            case Left():
                self.left = message
