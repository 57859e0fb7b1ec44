"""`memory://`: the SQLite store in this process's memory, for tests and for work that may end with the process.

Each store has a database of its own: one connection under one lock. Nothing waits for a file, so asynchronous calls
need no thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar, cast

from msgspec import structs

from fairlane.core.clock import Clock
from fairlane.core.ids import WorkerId
from fairlane.core.ops import Health, Op, Renew
from fairlane.errors import StoreClosed, UnsupportedConnection
from fairlane.stores.base import Capability
from fairlane.stores.instants import from_us
from fairlane.stores.sqlite.connection import fork_locks, load, transact
from fairlane.stores.sqlite.driver import Driver, Library
from fairlane.stores.sqlite.migrator import current_state, migrate
from fairlane.stores.sqlite.store import DatabaseStore
from fairlane.stores.sqlite.transaction import Transaction

T = TypeVar("T")

NOT_DURABLE = "jobs live in this process alone and end with it: use sqlite:/// or postgresql:// to keep them"


class MemoryDatabase:
    """One connection that reads and writes, for one caller at a time. A forked child goes on with a copy."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.sqlite_version = load(library)[1]
        self._lock = threading.RLock()
        self.locks = (self._lock,)
        self._connection: Driver | None = _originals.copy(library)
        fork_locks.add(self)

    def change(self, work: Callable[[Driver], T]) -> T:
        """Run `work` in one transaction; a failure leaves nothing."""
        with self._lock:
            return transact(self._opened(), work)

    def read(self, work: Callable[[Driver], T]) -> T:
        with self._lock:
            return work(self._opened())

    def close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _opened(self) -> Driver:
        if self._connection is None:
            raise StoreClosed("memory")
        return self._connection


class _Originals:
    """A database with the schema for each library, made once and copied: 0.03 ms instead of 3.5."""

    def __init__(self) -> None:
        self.locks = (threading.RLock(),)
        self._by_library: dict[Library, Driver] = {}

    def copy(self, library: Library) -> Driver:
        with self.locks[0]:
            if library not in self._by_library:
                original = _connect(library)
                transact(original, migrate)
                self._by_library[library] = original
            copy = _connect(library)
            self._by_library[library].copy_to(copy)
        return copy


_originals = _Originals()
fork_locks.add(_originals)


def _connect(library: Library) -> Driver:
    db = load(library)[0](":memory:")
    db.execute("pragma foreign_keys = off")
    db.execute("pragma temp_store = memory")
    return db


class MemoryListener:
    """Waits until a change in this process wakes its worker. A wake-up that came before the wait is not lost."""

    address: str | None = None

    def __init__(self, worker: WorkerId, on_close: Callable[[MemoryListener], None]) -> None:
        self.worker, self._on_close = worker, on_close
        self._changed = threading.Condition()
        self._woken = self._closed = False
        self._sleepers: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def wake(self) -> None:
        with self._changed:
            self._woken = True
            self._rouse()

    def wait(self, timeout_s: float) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._woken or self._closed, timeout_s)
            return self._consume()

    async def await_(self, timeout_s: float) -> bool:
        sleeper = (asyncio.get_running_loop(), asyncio.Event())
        with self._changed:
            if self._woken or self._closed:
                return self._consume()
            self._sleepers.add(sleeper)
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(sleeper[1].wait(), timeout_s)
        finally:
            with self._changed:
                self._sleepers.discard(sleeper)
        with self._changed:
            return self._consume()

    def prove(self) -> None:
        self.wake()

    def close(self) -> None:
        """End every wait on it."""
        with self._changed:
            self._closed = True
            self._rouse()
        self._on_close(self)

    def _rouse(self) -> None:
        self._changed.notify_all()
        for loop, event in self._sleepers:
            with suppress(RuntimeError):  # its loop is closed: nobody waits there any more
                loop.call_soon_threadsafe(event.set)

    def _consume(self) -> bool:
        woken, self._woken = self._woken and not self._closed, False
        return woken


class MemoryStore(DatabaseStore):
    """Keeps jobs in this process's memory. Safe to use from many threads."""

    name = "memory"
    capabilities: frozenset[Capability] = frozenset()

    def __init__(self, clock: Clock | None = None, *, library: Library = "apsw") -> None:
        self._memory = MemoryDatabase(library)
        self._listeners: list[MemoryListener] = []
        self._listeners_lock = threading.Lock()
        super().__init__(self._memory, clock)

    def run(self, op: Op[T], *, on: object | None = None) -> T:
        # Workers are woken by their id, whether they have registered a listener by now or not.
        known = structs.replace(op, wake_address=op.worker.hex) if isinstance(op, Renew) else op
        return super().run(cast("Op[T]", known), on=on)

    async def arun(self, op: Op[T], *, on: object | None = None) -> T:
        """The same: no operation here waits for anything but another one."""
        return self.run(op, on=on)

    def listener(self, worker: WorkerId) -> MemoryListener:
        with self._listeners_lock:
            if self._closed:
                raise StoreClosed(self.name)
            listener = MemoryListener(worker, self._forget)
            self._listeners.append(listener)
        return listener

    def migrator(self) -> None:
        """None: its schema comes and goes with the process."""

    def close(self) -> None:
        """End every wait, forget every job; later operations raise `StoreClosed`."""
        with self._listeners_lock:
            self._closed = True
            listeners = list(self._listeners)
        for listener in listeners:
            listener.close()
        self._memory.close()

    async def aclose(self) -> None:
        self.close()

    def _forget(self, listener: MemoryListener) -> None:
        with self._listeners_lock, suppress(ValueError):
            self._listeners.remove(listener)

    def _wake(self, addresses: Iterable[str]) -> None:
        """Wake everybody who is named: nobody here looks at a file to find what a wake-up missed."""
        named = set(addresses)
        with self._listeners_lock:
            listeners = [listener for listener in self._listeners if listener.worker.hex in named]
        for listener in listeners:
            listener.wake()

    def _borrow(self, op: Op[T], on: object) -> T:
        raise UnsupportedConnection(on, "none: its jobs are in this process, not in a database")

    def _check(self, tx: Transaction) -> Health:
        return Health(
            now=from_us(tx.now),
            store=self.name,
            server=f"SQLite {self._memory.sqlite_version} ({tx.db.library})",
            schema_version=current_state(tx.db).expanded,
            durable=False,
            degraded=(NOT_DURABLE,),
        )
