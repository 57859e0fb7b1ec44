"""Jobs and signals on a test's own connection (`conn=`): there as long as the test's transaction keeps them.

The jobs of a test are in memory, its transaction is in a database. So each call on a connection leaves a mark in
that transaction, which the database keeps, or forgets with a rollback, also one to a savepoint. PostgreSQL: a setting
of the session, which is transactional. SQLite: a row in a temporary table. Nothing else is written.
"""

from __future__ import annotations

import itertools
import sqlite3
import sys
from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from fairlane.core.ids import JobId
from fairlane.errors import FairlaneError, UnsupportedConnection

ACCEPTED = "in tests a connection of psycopg, asyncpg, sqlite3, apsw or aiosqlite, or SQLAlchemy's or Django's over one"
_numbers = itertools.count(1)

T = TypeVar("T")


class TransactionUnknown(FairlaneError, AssertionError):
    """Nobody can say any more whether a job was committed."""


class _Query(NamedTuple):
    sql: str


Queries = Generator[_Query, Any, T]
"""Written once for connections of both colours: yields statements, is sent the first value of each answer."""


class DriverConnection:
    """A driver's own connection, whatever wrapped it."""

    def __init__(self, raw: Any, core: Any = None) -> None:
        self.raw, self.core = raw, core
        """`core`: SQLAlchemy's connection around it."""
        self.module = type(raw).__module__.partition(".")[0]
        self.is_sqlite = isinstance(raw, sqlite3.Connection) or self.module in ("apsw", "aiosqlite")
        self.is_async = self.module in ("asyncpg", "aiosqlite") or type(raw).__name__ == "AsyncConnection"

    @property
    def is_closed(self) -> bool:
        raw = self.raw
        if self.module == "asyncpg":
            return bool(raw.is_closed())
        if self.module == "aiosqlite":
            return not raw._running
        if self.is_sqlite:
            try:
                raw.total_changes() if self.module == "apsw" else raw.total_changes
            except Exception:  # noqa: BLE001 - of either library: it is closed
                return True
            return False
        return bool(raw.closed)

    @property
    def is_elsewhere(self) -> bool:
        """Only the thread that opened it may ask it."""
        if isinstance(self.raw, sqlite3.Connection):
            try:
                self.raw.cursor()
            except sqlite3.ProgrammingError:
                return True
        return False

    @property
    def is_idle(self) -> bool:
        """No transaction is open: what it has is committed."""
        raw = self.raw
        if self.module == "asyncpg":
            return not raw.is_in_transaction()
        if self.is_sqlite:
            return not raw.in_transaction
        return int(raw.info.transaction_status) == 0

    @property
    def is_failed(self) -> bool:
        """Its transaction was aborted and answers nothing until it is rolled back."""
        return self.module in ("psycopg", "psycopg2") and int(self.raw.info.transaction_status) == 3

    def run(self, queries: Queries[T]) -> T:
        answer: Any = None
        try:
            while True:
                answer = self._ask(queries.send(answer).sql)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def arun(self, queries: Queries[T]) -> T:
        if not self.is_async:
            return self.run(queries)
        answer: Any = None
        try:
            while True:
                answer = await self._aask(queries.send(answer).sql)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def _ask(self, sql: str) -> Any:
        if self.is_sqlite:
            cursor = self.raw.cursor()
            if self.module == "sqlite3":
                cursor.row_factory = None
            row = next(iter(cursor.execute(sql)), None)
            return None if row is None else row[0]
        was_idle = self.is_idle
        with self.raw.cursor(**_plain_rows(self.module)) as cursor:
            cursor.execute(sql)
            [value] = cursor.fetchone()
        if was_idle and sql.startswith("select current_setting") and not self.raw.autocommit:
            self.raw.rollback()  # the look itself began a transaction
        return value

    async def _aask(self, sql: str) -> Any:
        if self.module == "asyncpg":
            return await self.raw.fetchval(sql)
        if self.module == "aiosqlite":
            async with self.raw.execute(sql) as cursor:
                row = await cursor.fetchone()
            return None if row is None else row[0]
        was_idle = self.is_idle
        async with self.raw.cursor(**_plain_rows(self.module)) as cursor:
            await cursor.execute(sql)
            [value] = await cursor.fetchone()
        if was_idle and sql.startswith("select current_setting") and not self.raw.autocommit:
            await self.raw.rollback()
        return value


def _plain_rows(module: str) -> dict[str, Any]:
    if module != "psycopg":
        return {}
    from psycopg.rows import tuple_row

    return {"row_factory": tuple_row}


class TransactionMark:
    """One enqueue or signal in a test's transaction, with what it created."""

    def __init__(self, connection: DriverConnection) -> None:
        self.connection, self.number = connection, next(_numbers)
        self.jobs: tuple[JobId, ...] = ()
        self.signals: tuple[UUID, ...] = ()
        self.is_kept: bool | None = None
        """None: its transaction is open, or was not looked at since it ended."""
        if connection.core is not None:
            self._watch_end()
        elif connection.module == "psycopg" and not connection.is_async:
            self._watch_close()

    @property
    def is_unknown(self) -> bool:
        """Its connection was closed, and nobody has seen how the transaction ended."""
        return self.is_kept is None and self.connection.is_closed

    def write(self) -> Queries[None]:
        if self.connection.is_sqlite:
            yield _Query("create temp table if not exists fairlane_testing (number integer)")
            yield _Query(f"insert into fairlane_testing values ({self.number})")  # noqa: S608
        else:
            yield _Query(f"select set_config('fairlane_testing.n{self.number}', 'yes', false)")

    def read(self) -> Queries[bool]:
        if self.connection.is_sqlite:
            if not (yield _Query("select 1 from temp.sqlite_master where name = 'fairlane_testing'")):
                return False
            return bool((yield _Query(f"select 1 from temp.fairlane_testing where number = {self.number}")))  # noqa: S608
        return bool((yield _Query(f"select current_setting('fairlane_testing.n{self.number}', true)")) == "yes")

    def look(self) -> bool:
        """Whether the transaction still has it."""
        return self._found(self.connection.run(self.read())) if self._is_open() else bool(self.is_kept)

    async def alook(self) -> bool:
        return self._found(await self.connection.arun(self.read())) if self._is_open() else bool(self.is_kept)

    def _is_open(self) -> bool:
        if self.is_unknown:
            raise TransactionUnknown(
                "a job was enqueued with conn=, and its connection was closed before anybody looked: whether it was "
                "committed cannot be told. Ask for enqueued jobs while the connection is open, or close it later"
            )
        return self.is_kept is None

    def _found(self, is_there: bool) -> bool:
        if not is_there or self.connection.is_idle:
            self.is_kept = is_there
        return is_there

    def _watch_end(self) -> None:
        """SQLAlchemy's pool may close a connection as its transaction ends: look before."""
        from sqlalchemy import event

        def commits(core: Any) -> None:
            if self.is_kept is None:
                queries, answer = self.read(), None
                try:
                    while True:
                        answer = core.exec_driver_sql(queries.send(answer).sql).scalar()
                except StopIteration as end:
                    self.is_kept = end.value

        def rolls_back(core: Any) -> None:
            if self.is_kept is None:
                self.is_kept = False

        event.listen(self.connection.core, "commit", commits)
        event.listen(self.connection.core, "rollback", rolls_back)

    def _watch_close(self) -> None:
        """`with psycopg.connect(…)` commits and closes in one go: look in between."""
        raw = self.connection.raw
        close = raw.close

        def look_and_close() -> None:
            if self.is_kept is None and not raw.closed:
                self.is_kept = self.connection.is_idle and self.connection.run(self.read())
            close()

        raw.close = look_and_close


def connection_of(on: Any) -> DriverConnection:
    """The driver's connection behind what a test gave as `conn=`."""
    if "sqlalchemy" in sys.modules:
        from sqlalchemy.engine import Connection as Core
        from sqlalchemy.orm import Session, scoped_session

        if isinstance(on, (Session, scoped_session)):
            on = on.connection()
        if isinstance(on, Core):
            on.exec_driver_sql("select 1")  # SQLAlchemy ends only what it knows was begun
            return _driver_connection(on.connection.driver_connection, on)
    return _driver_connection(on)


async def aconnection_of(on: Any) -> DriverConnection:
    if "sqlalchemy.ext.asyncio" in sys.modules:
        from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session

        if isinstance(on, (AsyncSession, async_scoped_session)):
            on = await on.connection()
        if isinstance(on, AsyncConnection):
            await on.exec_driver_sql("select 1")
            return _driver_connection((await on.get_raw_connection()).driver_connection, on.sync_connection)
    return connection_of(on)


def _driver_connection(on: Any, core: Any = None) -> DriverConnection:
    proxied = getattr(on, "_con", None)  # from a pool of asyncpg
    found = DriverConnection(proxied if type(on).__name__ == "PoolConnectionProxy" else on, core)
    if not found.is_sqlite and found.module not in ("psycopg", "psycopg2", "asyncpg"):
        raise UnsupportedConnection(on, ACCEPTED)
    if not found.is_sqlite and not hasattr(found.raw, "info") and found.module != "asyncpg":
        raise UnsupportedConnection(on, ACCEPTED)
    return found
