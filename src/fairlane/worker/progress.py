"""The noter: writes what running attempts say of themselves, each job's at most once a second, guarded by its lease."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque

from fairlane.core.ids import Seq
from fairlane.core.job import Lease
from fairlane.core.ops import LOG_LINES, Note
from fairlane.errors import StoreError
from fairlane.worker.state import Desk

log = logging.getLogger("fairlane.worker")

NOTE_S = 1.0


class Book:
    """What one attempt has said and nobody has written yet."""

    __slots__ = ("attempt", "lines", "progress", "seq", "writing")

    def __init__(self, lease: Lease) -> None:
        self.seq, self.attempt = lease.seq, lease.attempt
        self.progress: float | None = None
        self.lines: deque[str] = deque(maxlen=LOG_LINES)
        self.writing = asyncio.Lock()
        """One write at a time: lines keep their order."""


class Noter:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.books: dict[tuple[Seq, int], Book] = {}
        self._lock = threading.Lock()
        self._said = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def take(self, lease: Lease, *, progress: float | None = None, line: str | None = None) -> None:
        """From any thread; never waits for the store."""
        key = lease.seq, lease.attempt
        with self._lock:
            book = self.books.get(key)
            if book is None:
                book = self.books[key] = Book(lease)
            if progress is not None:
                book.progress = progress
            if line is not None:
                book.lines.append(line)
        if self._loop is not None and not self._said.is_set():
            self._loop.call_soon_threadsafe(self._said.set)

    async def run(self) -> None:
        """Write what was said, at once and then every NOTE_S at most."""
        self._loop = asyncio.get_running_loop()
        while True:
            await self._said.wait()
            self._said.clear()
            for book in tuple(self.books.values()):
                await self._write(book)
            await asyncio.sleep(NOTE_S)

    async def finish(self, lease: Lease) -> None:
        """Its attempt ended: write the rest while the lease still stands."""
        with self._lock:
            book = self.books.pop((lease.seq, lease.attempt), None)
        if book is not None:
            await self._write(book)

    async def _write(self, book: Book) -> None:
        async with book.writing:
            with self._lock:
                progress, lines = book.progress, tuple(book.lines)
                book.progress = None
                book.lines.clear()
            if progress is None and not lines:
                return
            note = Note(worker=self._desk.worker, seq=book.seq, attempt=book.attempt, progress=progress, log=lines)
            try:
                noted = await self._desk.app.runtime.store.arun(note)
            except StoreError as error:
                log.warning("what job %d said was not written: %s", book.seq, error)
                return
        if not noted.accepted:
            self._lost(book)

    def _lost(self, book: Book) -> None:
        with self._lock:
            self.books.pop((book.seq, book.attempt), None)
        for slot in self._desk.slots:
            if slot.lease is not None and (slot.lease.seq, slot.lease.attempt) == (book.seq, book.attempt):
                slot.stop("lease_lost", self._desk.monotonic())
