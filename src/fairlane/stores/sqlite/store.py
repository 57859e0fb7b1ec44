"""The SQLite store: one file, many processes, every change one immediate transaction.

It sends nothing again by itself: a change that fails has left nothing.
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar, cast

from fairlane.core import ops
from fairlane.core.chance import Chance, SystemChance
from fairlane.core.clock import Clock, SystemClock
from fairlane.core.ids import WorkerId
from fairlane.core.ops import Op
from fairlane.errors import InvalidOption, SchemaOutOfDate, StoreClosed, StoreUnavailable
from fairlane.stores import SqliteLibrary
from fairlane.stores.base import Capability
from fairlane.stores.instants import to_us
from fairlane.stores.sqlite import (  # noqa: F401 - their handlers are registered as they are imported
    alerts,
    audit,
    borrowed,
    breakers,
    credentials,
    dead_letters,
    durable_steps,
    enqueue,
    events,
    health,
    held,
    listener,
    pauses,
    reclaim,
    retention,
    schedules,
    signals,
    statistics,
    tenants,
    turn,
    workers,
)
from fairlane.stores.sqlite.connection import Database, StoreThread
from fairlane.stores.sqlite.driver import Driver
from fairlane.stores.sqlite.job_keys import records as key_records  # noqa: F401
from fairlane.stores.sqlite.jobs import acts, records, why  # noqa: F401
from fairlane.stores.sqlite.limits import rates, stored  # noqa: F401
from fairlane.stores.sqlite.limits.in_force import LimitCache
from fairlane.stores.sqlite.location import located
from fairlane.stores.sqlite.migrator import SqliteMigrator
from fairlane.stores.sqlite.transaction import HANDLERS, StoreClock, Transaction, is_change
from fairlane.stores.sqlite.workflows import (
    acts as workflow_acts,  # noqa: F401
    enqueue as workflow_enqueue,  # noqa: F401
    gates,
    records as workflow_records,  # noqa: F401
)

T = TypeVar("T")


class Connections(Protocol):
    """The connections to one database: a file, or one in memory."""

    def change(self, work: Callable[[Driver], T]) -> T: ...

    def read(self, work: Callable[[Driver], T]) -> T: ...


class DatabaseStore(ABC):
    """Runs every operation on one SQLite database, wherever that is."""

    name: str
    capabilities: frozenset[Capability]

    def __init__(self, connections: Connections, clock: Clock | None) -> None:
        self._connections = connections
        self._clock = StoreClock(clock or SystemClock())
        self._limit_cache = LimitCache()
        self._closed = False

    def run(self, op: Op[T], *, on: object | None = None) -> T:
        if self._closed:
            raise StoreClosed(self.name)
        if type(op) not in HANDLERS and type(op) is not ops.Check:
            raise InvalidOption("op", op, "an operation of fairlane.core.ops")
        if on is not None:
            return self._borrow(op, on)
        if not is_change(op):
            return cast("T", self._connections.read(lambda db: self._handle(db, op, writing=False)[0]))
        answer, wakes = self._connections.change(lambda db: self._handle(db, op, writing=True))
        if wakes:
            self._wake(wakes)
        return cast("T", answer)

    def _handle(self, db: Driver, op: Op[Any], *, writing: bool, on_loan: bool = False) -> tuple[object, list[str]]:
        now = self._clock.now_us(db, writing=writing) if op.now is None else to_us(op.now)
        tx = Transaction(db, now, limit_cache=None if on_loan else self._limit_cache)
        if isinstance(op, ops.Check):
            return self._check(tx), []
        answer = HANDLERS[type(op)](tx, op)
        if tx.ended:
            gates.end_nodes(tx)
        if tx.freed or tx.gave_back or tx.left_key:
            listener.wake_for_ready(tx)
        return answer, tx.wakes

    @abstractmethod
    def _borrow(self, op: Op[T], on: object) -> T: ...

    @abstractmethod
    def _wake(self, addresses: Iterable[str]) -> None: ...

    @abstractmethod
    def _check(self, tx: Transaction) -> ops.Health: ...


class SqliteStore(DatabaseStore):
    """Keeps jobs in a SQLite file, readable by its owner alone if the store made it.

    `library` is "apsw", "stdlib" for applications that open the file through sqlite3, or "auto", which is the one of
    the two that the application uses; one file is never used through both in one process. `on` is a connection of the
    caller's that the first operation comes with. A change waits up to `busy_timeout_s` for other writers, then raises
    StoreUnavailable.
    """

    name = "sqlite"
    capabilities = frozenset({Capability.DURABLE, Capability.SHARED, Capability.BORROWS})

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        library: SqliteLibrary = "apsw",
        busy_timeout_s: float = 10.0,
        allow_network_filesystem: bool = False,
        clock: Clock | None = None,
        chance: Chance | None = None,
        on: object | None = None,
    ) -> None:
        place = located(path, allow_network_filesystem=allow_network_filesystem)
        chosen = borrowed.chosen_library(library, on)
        if on is not None:
            borrowed.check_connection(on, chosen, place)
        self._db = Database(place, chosen, busy_timeout_s, chance or SystemChance(), self._forget_read)
        self._thread = StoreThread()
        super().__init__(self._db, clock)
        if on is not None:
            return  # the file is left to the caller, who may hold it locked, until an operation comes without it
        # A schema that does not fit is reported by the first operation: until then a migrator can be asked for. So is
        # a file that cannot be used now, as a server that is away.
        try:
            self._db.make_ready()
        except (SchemaOutOfDate, StoreUnavailable):
            pass
        except BaseException:
            self._db.close()
            raise

    async def arun(self, op: Op[T], *, on: object | None = None) -> T:
        """The same in a thread of the store's own. On a borrowed connection it runs right here, where its owner is."""
        if self._closed:
            raise StoreClosed(self.name)
        if on is not None:
            return self.run(op, on=on)
        return await self._thread.submit(lambda: self.run(op))

    def listener(self, worker: WorkerId) -> listener.SqliteListener:
        return listener.SqliteListener(self._db.place, worker, self._db.data_version, self._thread)

    def migrator(self) -> SqliteMigrator:
        return SqliteMigrator(self._db.change_any_schema)

    def close(self) -> None:
        self._closed = True
        self._thread.end()
        self._db.close()

    async def aclose(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.close)

    def _borrow(self, op: Op[T], on: object) -> T:
        # The wake-ups are dropped: they would come before the caller's commit, and find nothing.
        def work(db: Driver) -> T:
            return cast("T", self._handle(db, op, writing=False, on_loan=True)[0])

        return borrowed.borrow(on, self._db.library, self._db.place, work, is_ready=self._db.is_ready)

    def _wake(self, addresses: Iterable[str]) -> None:
        listener.wake(addresses)

    def _forget_read(self) -> None:
        """What was read from the file before may not hold in the one that replaced it."""
        self._limit_cache = LimitCache()

    def _check(self, tx: Transaction) -> ops.Health:
        return health.health(tx, self._db.sqlite_version, wants_wal=self._db.journal_mode == "wal")
