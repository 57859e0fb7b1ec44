"""Keeps two copies of the SQLite library off one file in one process: POSIX locks would not hold between them."""

from __future__ import annotations

import os
import threading
from collections import Counter
from pathlib import Path

from fairlane.errors import SqliteLibraryMismatch
from fairlane.stores.sqlite.driver import Library

FileId = tuple[int, int]
"""Device and inode: one file under two names is still one file."""


class OpenFiles:
    """Which library has which file open, in this process."""

    def __init__(self) -> None:
        self.forget()

    def enter(self, place: Path, library: Library) -> FileId:
        """Say that a store of this library opens the file; refused while one of the other library has it open."""
        status = os.stat(place)
        file_id = (status.st_dev, status.st_ino)
        with self._lock:
            counts = self._open.setdefault(file_id, Counter())
            theirs = next((name for name, count in counts.items() if count and name != library), None)
            if theirs is not None:
                raise SqliteLibraryMismatch(theirs, library)
            counts[library] += 1
        return file_id

    def leave(self, file_id: FileId, library: Library) -> None:
        with self._lock:
            counts = self._open[file_id]
            counts[library] -= 1
            if not counts.total():
                del self._open[file_id]

    def forget(self) -> None:
        """A forked child begins with nothing open, and must not inherit a lock another thread held."""
        self._lock = threading.Lock()
        self._open: dict[FileId, Counter[Library]] = {}


open_files = OpenFiles()
os.register_at_fork(after_in_child=open_files.forget)
