"""Keeps two copies of the SQLite library off one file in one process: POSIX locks would not hold between them."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Protocol
from weakref import WeakSet

from fairlane.errors import SqliteLibraryMismatch
from fairlane.stores.sqlite.driver import Library

FileId = tuple[int, int]
"""Device and inode: one file under two names is still one file."""


class Holder(Protocol):
    """Whoever has a file open; one that is gone without closing holds nothing."""

    library: Library


class OpenFiles:
    """Who has which file open, in this process."""

    def __init__(self) -> None:
        self.forget()

    def enter(self, place: Path, holder: Holder) -> FileId:
        """Note that `holder` opens the file; refused while a holder of the other library has it open."""
        status = os.stat(place)
        file_id = (status.st_dev, status.st_ino)
        with self._lock:
            holders = self._open.setdefault(file_id, WeakSet())
            theirs = next((other.library for other in holders if other.library != holder.library), None)
            if theirs is not None:
                raise SqliteLibraryMismatch(theirs, holder.library)
            holders.add(holder)
        return file_id

    def leave(self, file_id: FileId, holder: Holder) -> None:
        with self._lock:
            self._open[file_id].discard(holder)

    def forget(self) -> None:
        """A forked child begins with nothing open, and must not inherit a lock another thread held."""
        self._lock = threading.Lock()
        self._open: dict[FileId, WeakSet[Holder]] = {}


open_files = OpenFiles()
os.register_at_fork(after_in_child=open_files.forget)
