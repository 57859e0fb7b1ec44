"""A worker process as its foreman sees it: starts it, exchanges messages with it, and ends it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from fairlane.client.logs import GuardedLogger
from fairlane.core.clock import Clock
from fairlane.core.ops import Renewed
from fairlane.core.text import plural
from fairlane.worker.board import Board, RunningAttempt, board_file
from fairlane.worker.foreman.health import Ending, WorkerHealth
from fairlane.worker.foreman.messages import (
    LONGEST_LINE,
    ChildCrash,
    ExitNotice,
    Hello,
    Left,
    Loaded,
    Registered,
    Setup,
    StartRefusal,
    Stop,
    StoreAway,
    Successes,
    Tick,
    ToWorker,
    from_worker,
    line,
)
from fairlane.worker.process_memory import memory_mb


def is_halted(pid: int) -> bool:
    """Whether it is stopped by SIGSTOP, a terminal or a debugger. Always False elsewhere than on Linux."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in {"T", "t"}


def exit_text(code: int | None) -> str:
    """How a process ended, for log messages."""
    if code is None or code >= 0:
        return f"exited with code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


log = GuardedLogger("fairlane.foreman")

KILL_AFTER_S = 2.0

Report = Callable[[ChildCrash | Successes | Loaded], None]


class WorkerProcess:
    """Its `process` runs `python -m fairlane.worker.foreman.main`."""

    def __init__(
        self,
        setup: Setup,
        process: asyncio.subprocess.Process,
        board: Board,
        clock: Clock,
        report: Report,
    ) -> None:
        self.setup, self.worker = setup, setup.worker
        self.process, self.board, self._clock, self._report = process, board, clock, report
        self.started_s = clock.monotonic()
        self.hello: Hello | None = None
        self.store_away: str | None = None
        """It waits for its store before it begins."""
        self.refused: StartRefusal | None = None
        self.notice: ExitNotice | None = None
        self.left: Left | None = None
        self.tick = Tick()
        self.ticked_s: float | None = None
        self._has_ticked = False
        self.renewed_s: float | None = None
        self.has_lapsed = False
        self._at_work_s: float | None = None
        self.stuck: tuple[RunningAttempt, ...] = ()
        """At the last check."""
        self.is_silent = False
        """Its loop was blocked then."""
        self.news = asyncio.Event()
        """Set when it sent its hello, or when its heartbeat has changed."""
        self.ending: Ending | None = None
        """Why the foreman ends it."""
        self.leaving_by_s: float | None = None
        """It was asked to stop, and is killed at this time."""
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, setup: Setup, clock: Clock, report: Report) -> WorkerProcess:
        """Start a new interpreter, not a fork: it shares only the socket and the board with the foreman."""
        ours, theirs = socket.socketpair()
        memory = board_file()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "fairlane.worker.foreman.main",
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
        self = cls(setup, process, Board(memory), clock, report)
        reader, self._writer = await asyncio.open_unix_connection(sock=ours, limit=LONGEST_LINE)
        self._listening = asyncio.create_task(self._listen(reader), name=f"listen-{process.pid}")
        self.send(setup)
        return self

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_registered(self) -> bool:
        return self.renewed_s is not None

    @property
    def is_ready(self) -> bool:
        """It is registered, and its engine runs."""
        return self.is_registered and self._has_ticked

    @property
    def has_worked(self) -> bool:
        """It has run a job, as far as anybody can tell."""
        return self._at_work_s is not None or bool(self.board.running() or self.tick.figures.get("ended"))

    @property
    def lived_s(self) -> float:
        return self._clock.monotonic() - self.started_s

    def send(self, message: ToWorker) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(line(message))

    def stop(self, *, now: bool, patience_s: float) -> None:
        """Ask it to exit; after `patience_s` it is killed."""
        by_s = self._clock.monotonic() + patience_s
        self.leaving_by_s = by_s if self.leaving_by_s is None else min(self.leaving_by_s, by_s)
        self.send(Stop(now=now))

    def renewed(self, sent_s: float, answer: Renewed) -> None:
        """Its heartbeat, sent at `sent_s`, reached the store."""
        is_first = not self.is_registered
        if answer.fresh and not is_first:
            self.has_lapsed = True
        self.renewed_s = self.board.renewed_s = sent_s
        if is_first:
            assert self.hello is not None
            tasks = plural(len(self.hello.types), "task")
            log.info("worker %d is ready: %s, queues %s", self.pid, tasks, ", ".join(self.hello.queues))
            self.ticked_s = self._clock.monotonic()
            self.send(Registered())

    def health(self, now_s: float) -> WorkerHealth:
        is_silent = self.ticked_s is not None and now_s - self.ticked_s > self.setup.config.lease_s
        running = self.board.running()
        if self.has_lapsed and not running and not self.tick.held:
            self.has_lapsed = False  # it ran and held nothing: registered anew, it may claim again
        if running:
            self._at_work_s = now_s
        return WorkerHealth(
            now_s=now_s,
            lease_s=self.setup.config.lease_s,
            started_s=self.started_s,
            waits_for_store=self.store_away is not None,
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
        """Kill it and wait for its exit. With a stuck attempt, SIGTERM first gives the others a moment to end."""
        self.ending = ending
        with contextlib.suppress(ProcessLookupError):
            if ending == "stuck" and self._clock.monotonic() - (self.ticked_s or 0.0) < KILL_AFTER_S:
                self._signal(signal.SIGTERM)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.process.wait(), KILL_AFTER_S)
            self._signal(signal.SIGKILL)
        await self.process.wait()

    def has_exited(self) -> bool:
        """Whether it has ended by itself, although nobody has collected its exit code yet."""
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def _signal(self, number: signal.Signals) -> None:
        # Not by asyncio's Process, which collects an exit code that asyncio then waits for in vain: it logs an
        # "Unknown child process" and reports code 255. (tests/faults/test_worker_deaths.py)
        if self.process.returncode is None:
            os.kill(self.pid, number)

    async def ended(self) -> Ending:
        """After the exit: read its last messages, and return how it ended."""
        if self._listening is not None:
            await asyncio.wait({self._listening}, timeout=1.0)
            self._listening.cancel()
        self.board.close()
        if self._writer is not None:
            self._writer.close()
        if self.ending is not None:
            return self.ending
        if self.refused is not None:
            return "refused"
        if self.notice is not None:
            return self.notice.why
        return "left" if self.left is not None and self.process.returncode == 0 else "crashed"

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            while received := await reader.readline():
                if received.endswith(b"\n"):
                    self._receive(received)

    def _receive(self, received: bytes) -> None:
        match message := from_worker(received):
            case Tick():
                self.ticked_s, self._has_ticked = self._clock.monotonic(), True
                if message.wake_address != self.tick.wake_address:
                    self.news.set()
                self.tick = message
            case Hello():
                self.store_away = None
                self.hello, self.ticked_s = message, self._clock.monotonic()
                self.board.reserve(message.slots)
                self.news.set()
            case StoreAway():
                self.store_away = message.why
            case StartRefusal():
                self.refused = message
            case ExitNotice():
                self.notice = message
            case Left():
                self.left = message
            case ChildCrash() | Successes() | Loaded():
                self._report(message)
