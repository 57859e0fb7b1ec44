"""Writes progress and log lines of running attempts to the store, at most once a second for each job."""

from __future__ import annotations

import asyncio
import threading
from collections import deque

from fairlane.client.logs import GuardedLogger
from fairlane.core.ids import LeaseKey
from fairlane.core.job import Lease
from fairlane.core.ops import LOG_LINES, Note
from fairlane.errors import StoreError
from fairlane.worker.state import WorkerState

log = GuardedLogger("fairlane.worker")

WRITE_S = 1.0


class PendingProgress:
    """Progress and log lines of one attempt that are not written yet."""

    __slots__ = ("lease", "lines", "progress", "writing")

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.progress: float | None = None
        self.lines: deque[str] = deque(maxlen=LOG_LINES)
        self.writing = asyncio.Lock()
        """One write at a time: lines keep their order."""


class ProgressWriter:
    """Collects what attempts report and writes it in the background."""

    def __init__(self, state: WorkerState) -> None:
        self._state = state
        self.pending: dict[LeaseKey, PendingProgress] = {}
        self._lock = threading.Lock()
        self._added = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def take(self, lease: Lease, *, progress: float | None = None, line: str | None = None) -> None:
        """Add progress or a line. From any thread; never waits for the store."""
        with self._lock:
            unwritten = self.pending.get(lease.key)
            if unwritten is None:
                unwritten = self.pending[lease.key] = PendingProgress(lease)
            if progress is not None:
                unwritten.progress = progress
            if line is not None:
                unwritten.lines.append(line)
        if self._loop is not None and not self._added.is_set():
            self._loop.call_soon_threadsafe(self._added.set)

    async def run(self) -> None:
        """Write what was added: at once, then at most every WRITE_S seconds."""
        self._loop = asyncio.get_running_loop()
        while True:
            await self._added.wait()
            self._added.clear()
            for unwritten in tuple(self.pending.values()):
                await self._write(unwritten)
            await asyncio.sleep(WRITE_S)

    async def finish(self, lease: Lease) -> None:
        """Write the rest of an attempt that ended, while its lease still stands."""
        with self._lock:
            unwritten = self.pending.pop(lease.key, None)
        if unwritten is not None:
            await self._write(unwritten)

    async def _write(self, unwritten: PendingProgress) -> None:
        async with unwritten.writing:
            with self._lock:
                progress, lines = unwritten.progress, tuple(unwritten.lines)
                unwritten.progress = None
                unwritten.lines.clear()
            if progress is None and not lines:
                return
            lease = unwritten.lease
            note = Note(
                worker=self._state.worker,
                seq=lease.seq,
                attempt=lease.attempt,
                claim_no=lease.claim_no,
                progress=progress,
                log=lines,
            )
            try:
                noted = await self._state.app.runtime.store.arun(note)
            except StoreError as error:
                log.warning("progress of job %d was not written: %s", lease.seq, error)
                return
        if not noted.accepted:
            self._lost(lease.key)

    def _lost(self, key: LeaseKey) -> None:
        with self._lock:
            self.pending.pop(key, None)
        self._state.lease_lost(key)
