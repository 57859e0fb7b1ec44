"""The connections of one process to one file: a writer and a reader, how transactions begin, wait and end, and forks.

Asynchronous callers share one thread. A file is never open through two copies of the SQLite library in one process:
POSIX locks do not hold between them.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar
from weakref import WeakSet

from fairlane.core.chance import Chance
from fairlane.errors import ConfigError, SqliteLibraryMismatch, StoreClosed, StoreUnavailable
from fairlane.stores.migrations import require
from fairlane.stores.sqlite.driver import Driver, Library, Locked, Unusable
from fairlane.stores.sqlite.journal import (
    as_numbers,
    is_wal_safe,
    keep_rollback_journal,
    keeps_rollback_journal,
    set_journal,
)
from fairlane.stores.sqlite.location import create_if_missing
from fairlane.stores.sqlite.migrator import MIGRATIONS, current_state, migrate

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


class ForkLocks:
    """Holds locks while the process forks: a child must not copy a database, or SQLite itself, half way through an
    operation of another thread."""

    def __init__(self) -> None:
        self._owners: WeakSet[LockOwner] = WeakSet()
        # One fork at a time: another would add to what is held, and nobody would release it.
        self._fork_lock = threading.RLock()
        self._held: list[threading.RLock] = []

    def add(self, owner: LockOwner) -> None:
        self._owners.add(owner)

    def acquire(self) -> None:
        self._fork_lock.acquire()
        self._held.extend(lock for owner in list(self._owners) for lock in owner.locks)
        for lock in self._held:
            lock.acquire()

    def release(self) -> None:
        while self._held:
            self._held.pop().release()
        self._fork_lock.release()


class LockOwner(Protocol):
    @property
    def locks(self) -> tuple[threading.RLock, ...]:
        """In the order in which they are taken."""
        ...


fork_locks = ForkLocks()
os.register_at_fork(before=fork_locks.acquire, after_in_parent=fork_locks.release, after_in_child=fork_locks.release)


T = TypeVar("T")

TRY_MS = 10
PAUSE_S = 0.005
"""SQLite's own waiting is not fair: who has waited longest sleeps longest, and with 16 writers starved for 10 s. So
SQLite waits only shortly, and the store tries again after random pauses, until its own time limit."""

OLDEST_LIBRARY = (3, 38)
"""The first that knows the operator `->>`."""


def load(library: Library) -> tuple[Callable[[str], Driver], str]:
    """How to open a connection, and the version of the SQLite that comes with it. Refuses one that is too old."""
    opener, version = _loaded(library)
    if as_numbers(version) < OLDEST_LIBRARY:
        oldest = ".".join(map(str, OLDEST_LIBRARY))
        remedy = "upgrade the package apsw" if library == "apsw" else 'set sqlite_library = "apsw", or upgrade SQLite'
        raise ConfigError(f"sqlite_library = {library!r} has SQLite {version}: expected {oldest} or newer; {remedy}")
    return opener, version


def _loaded(library: Library) -> tuple[Callable[[str], Driver], str]:
    if library == "apsw":
        from fairlane.stores.sqlite import apsw_driver

        return apsw_driver.ApswDriver.open, apsw_driver.library_version()
    if library == "stdlib":
        from fairlane.stores.sqlite import stdlib_driver

        return stdlib_driver.StdlibDriver.open, stdlib_driver.library_version()
    raise ConfigError(f'sqlite_library = {library!r}: expected "apsw" or "stdlib"')


def _commit(db: Driver) -> None:
    db.execute("commit")


def transact(db: Driver, work: Callable[[Driver], T], *, commit: Callable[[Driver], object] = _commit) -> T:
    """Run `work` in one write transaction; a failure leaves nothing."""
    # Immediate: a deferred transaction that has read fails at its first write if another one committed since,
    # at once and whatever the busy timeout.
    db.execute("begin immediate")
    try:
        answer = work(db)
        commit(db)
    except BaseException:
        # SQLite ends the transaction itself after some errors (full disk, I/O).
        if db.in_transaction():
            db.execute("rollback")
        raise
    return answer


REMOVED = "the file {place} is gone: put it back, or restart this process to begin with an empty one"
LOST = "the file {place} was removed or replaced while this was written, and it is lost: do it again"
MIXED = (
    "the file {place} was replaced, but {place}-wal still belongs to the one before and would be written into it: stop "
    "every process that uses the file, remove {place}-wal and {place}-shm, put the file there once more and start again"
)
REPLACED = (
    "the file {place} was replaced by another while it was open: nothing was done, the next call uses the new one"
)


class Database:
    """Opened when first needed; in a forked child opened anew.

    Nothing is acknowledged into a file that was removed or replaced: a missing file is refused, and never made again;
    another file in its place is opened, after one call that was refused and says so, unless the write-ahead log of the
    one before is still there.
    """

    def __init__(
        self,
        place: Path,
        library: Library,
        busy_timeout_s: float,
        chance: Chance,
        when_replaced: Callable[[], None] = lambda: None,
    ) -> None:
        self.place, self.library, self._when_replaced = place, library, when_replaced
        self._wal = Path(f"{place}-wal")
        self._open, self.sqlite_version = load(library)
        self.journal_mode = "wal" if is_wal_safe(self.sqlite_version) else "truncate"
        self._patience_s = busy_timeout_s
        self._chance = chance
        self._closed = False
        self._write_lock, self._read_lock = threading.RLock(), threading.RLock()
        self._writer: Driver | None = None
        self._reader: Driver | None = None
        self._file_id: FileId | None = None
        self._wal_id: FileId | None = None
        self._was_open = self._schema_known = False
        _databases.add(self)
        fork_locks.add(self)

    @property
    def locks(self) -> tuple[threading.RLock, ...]:
        return self._write_lock, self._read_lock

    def change(self, work: Callable[[Driver], T]) -> T:
        """Run `work` in one write transaction. Waits for other writers, within limits; a failure leaves nothing."""
        return self._call(lambda: self._write(work, self._ready_writer))

    def change_any_schema(self, work: Callable[[Driver], T]) -> T:
        """The same for migrations, which must not ask for the schema they are about to make, and for the spool."""
        return self._call(lambda: self._write(work, self._open_writer))

    def read(self, work: Callable[[Driver], T]) -> T:
        """Run `work` on one unchanging view of the file."""
        return self._call(lambda: self._read(work, self._ready_writer))

    def read_any_schema(self, work: Callable[[Driver], T]) -> T:
        """The same for a file whose tables are not Fairlane's."""
        return self._call(lambda: self._read(work, self._open_writer))

    @property
    def is_ready(self) -> bool:
        """The file is open, with a schema this code can run on."""
        return self._schema_known and self._writer is not None and not self._closed and self._is_in_place()

    def make_ready(self) -> None:
        """Open the file and make sure of its schema, without changing anything else."""
        self._insist(self._ready_writer)

    def data_version(self) -> int:
        """A number that differs once another connection has changed the file."""
        [(version,)] = self.read(lambda db: db.execute("pragma data_version"))
        return int(version)

    def close(self) -> None:
        self._closed = True
        with self._write_lock, self._read_lock:
            self._let_go()

    def _call(self, attempt: Callable[[], T]) -> T:
        try:
            return self._insist(attempt)
        except Unusable:
            with self._write_lock, self._read_lock:
                if self._is_in_place():  # else `_open_writer` has to see what has become of it
                    self._let_go()
            raise

    def _let_go(self) -> None:
        writer, reader, file_id = self._writer, self._reader, self._file_id
        self._writer = self._reader = self._file_id = None
        self._schema_known = False
        for connection in (reader, writer):
            if connection is not None:
                connection.close()
        if file_id is not None:
            open_files.leave(file_id, self)

    def _write(self, work: Callable[[Driver], T], connect: Callable[[], Driver]) -> T:
        with self._write_lock:
            # With a rollback journal a commit waits for readers, and keeps new ones out meanwhile: worth insisting.
            answer = transact(connect(), work, commit=lambda db: self._insist(lambda: _commit(db)))
            if not self._is_in_place():
                raise StoreUnavailable("sqlite", LOST.format(place=self.place))
            return answer

    def _read(self, work: Callable[[Driver], T], connect: Callable[[], Driver]) -> T:
        connect()
        with self._read_lock:
            if self._reader is None:
                self._reader = self._connect(query_only=True)
            db = self._reader
            db.execute("begin")
            try:
                return work(db)
            finally:
                if db.in_transaction():
                    db.execute("rollback")

    def _insist(self, attempt: Callable[[], T]) -> T:
        waited_s = 0.0
        while True:
            try:
                return attempt()
            except Locked:
                pause_s = PAUSE_S * self._chance.fraction()
                waited_s += TRY_MS / 1000 + pause_s
                if waited_s >= self._patience_s:
                    raise
                time.sleep(pause_s)

    def _ready_writer(self) -> Driver:
        """The writer, once the file holds a schema this code can run on."""
        if self.is_ready and (writer := self._writer) is not None:
            return writer
        with self._write_lock:
            db = self._open_writer()
            state = current_state(db)
            if state.expanded == 0:
                transact(db, migrate)
            else:
                require(state, MIGRATIONS.needed)
            if self.journal_mode != "wal" and not keeps_rollback_journal(db):
                transact(db, keep_rollback_journal)
            self._schema_known, self._wal_id = True, _file_id(self._wal)
            return db

    def _open_writer(self) -> Driver:
        with self._write_lock:
            if self._closed:
                raise StoreClosed("sqlite")
            if self._was_open and not self.place.exists():
                raise StoreUnavailable("sqlite", REMOVED.format(place=self.place))
            if self._writer is not None and not self._is_in_place():
                if self._wal_id is not None and self._wal_id == _file_id(self._wal):
                    raise StoreUnavailable("sqlite", MIXED.format(place=self.place))
                with self._read_lock:
                    self._let_go()
                self._when_replaced()
                raise StoreUnavailable("sqlite", REPLACED.format(place=self.place))
            if self._writer is None:
                create_if_missing(self.place)
                file_id = open_files.enter(self.place, self)
                try:
                    self._writer = self._connect()
                except BaseException:
                    open_files.leave(file_id, self)
                    raise
                self._file_id, self._was_open = file_id, True
            return self._writer

    def _is_in_place(self) -> bool:
        """False: the file was removed or replaced, and what is written goes nowhere."""
        return self._file_id == _file_id(self.place)

    def _connect(self, *, query_only: bool = False) -> Driver:
        db = self._open(str(self.place))
        try:
            db.execute(f"pragma busy_timeout = {TRY_MS}")
            set_journal(db, self.place, self.sqlite_version)
            db.execute("pragma synchronous = full")
            db.execute("pragma foreign_keys = off")
            db.execute("pragma temp_store = memory")
            if query_only:
                db.execute("pragma query_only = on")
        except BaseException:
            db.close()
            raise
        return db

    def _forget_inherited(self) -> None:
        """In a forked child: let go of the parent's connections without closing them.

        What they believe about locks is true of the parent only, so nothing may be done with them here, not even a
        close; an extra reference keeps the interpreter from it. (tests/unit/test_sqlite_fork.py)
        """
        for connection in (self._writer, self._reader):
            if connection is not None:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        self._write_lock, self._read_lock = threading.RLock(), threading.RLock()
        self._writer = self._reader = self._file_id = None
        self._schema_known = False


_databases: weakref.WeakSet[Database] = weakref.WeakSet()


def _after_fork() -> None:
    for database in list(_databases):
        database._forget_inherited()


os.register_at_fork(after_in_child=_after_fork)


def _file_id(place: Path) -> FileId | None:
    try:
        status = os.stat(place)
    except OSError:
        return None
    return status.st_dev, status.st_ino


EXIT_TRIES, EXIT_PAUSE_S = 1_000, 0.000_1


class StoreThread:
    """Runs one call after another, so that those of one process wait here and not for the file's lock.

    It starts at the first call. It ends before the process forks, as a fork copies no threads and may copy a lock in
    use; the next call starts it again, in parent and child. (tests/unit/test_sqlite_fork.py)
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._system_id: int | None = None
        _threads.add(self)

    def submit(self, work: Callable[[], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        while True:
            pool = self._pool = self._pool or ThreadPoolExecutor(1, "fairlane-sqlite", self._begin)
            try:
                return loop.run_in_executor(pool, work)
            except RuntimeError:
                if self._pool is pool:
                    raise
                # Another thread forks and has just ended this one.

    def end(self) -> None:
        """Wait for the calls at hand, then end."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True)

    def end_before_fork(self) -> None:
        """Ends, and waits until the system has ended the thread: Python 3.12 joins it a moment before and warns."""
        if self._pool is None:
            return
        self.end()
        for _ in range(EXIT_TRIES):
            if not os.path.exists(f"/proc/self/task/{self._system_id}"):
                return
            time.sleep(EXIT_PAUSE_S)

    def _begin(self) -> None:
        self._system_id = threading.get_native_id()

    def forget(self) -> None:
        """In a forked child: the thread is the parent's, begun by a call that came while it forked."""
        self._pool = None


_threads: weakref.WeakSet[StoreThread] = weakref.WeakSet()


def _before_fork() -> None:
    for thread in list(_threads):
        thread.end_before_fork()


def _forget_threads() -> None:
    for thread in list(_threads):
        thread.forget()


# Registered last, so before a fork it comes first: the calls at hand need the locks that are held next.
os.register_at_fork(before=_before_fork, after_in_child=_forget_threads)
