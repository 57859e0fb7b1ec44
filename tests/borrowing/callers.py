"""Applications of every kind, each with a connection, a table of orders and a transaction around them."""

from __future__ import annotations

import inspect
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import apsw
import asyncpg
import psycopg
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

MAKE_ORDERS = "create table if not exists orders (number integer primary key)"


class Caller:
    """One application in the middle of its work: `conn` is what it hands to Fairlane."""

    def __init__(
        self,
        conn: Any,
        execute: Callable[[str], Any],
        *,
        begin: Callable[[], Any] = lambda: None,
        commit: Callable[[], Any],
        rollback: Callable[[], Any],
    ) -> None:
        self.conn = conn
        self._execute, self._begin, self._commit, self._rollback = execute, begin, commit, rollback

    async def begin(self) -> None:
        await _done(self._begin())

    async def execute(self, sql: str) -> None:
        await _done(self._execute(sql))

    async def order(self, number: int) -> None:
        await self.execute(f"insert into orders (number) values ({number})")

    async def commit(self) -> None:
        await _done(self._commit())

    async def rollback(self) -> None:
        await _done(self._rollback())


async def _done(result: Any) -> None:
    if inspect.isawaitable(result):
        await result


class Kind(NamedTuple):
    name: str
    store: str
    """Which kind of store it works with, as `tests.support.stores` names them."""
    is_async: bool
    open: Callable[[str], Any]
    """An async context manager around a `Caller`, given the address of the database."""

    def __str__(self) -> str:
        return self.name


@asynccontextmanager
async def _psycopg(dsn: str) -> AsyncIterator[Caller]:
    conn = psycopg.connect(dsn)
    try:
        yield Caller(conn, conn.execute, commit=conn.commit, rollback=conn.rollback)
    finally:
        conn.close()


@asynccontextmanager
async def _async_psycopg(dsn: str) -> AsyncIterator[Caller]:
    conn = await psycopg.AsyncConnection.connect(dsn)
    try:
        yield Caller(conn, conn.execute, commit=conn.commit, rollback=conn.rollback)
    finally:
        await conn.close()


@asynccontextmanager
async def _asyncpg(dsn: str) -> AsyncIterator[Caller]:
    conn = await asyncpg.connect(dsn)
    try:
        yield _on_asyncpg(conn)
    finally:
        await conn.close()


@asynccontextmanager
async def _asyncpg_pool(dsn: str) -> AsyncIterator[Caller]:
    async with asyncpg.create_pool(dsn, min_size=1, max_size=1) as pool, pool.acquire() as conn:
        yield _on_asyncpg(conn)


def _on_asyncpg(conn: Any) -> Caller:
    transactions: list[Any] = []

    async def begin() -> None:
        transactions.append(conn.transaction())
        await transactions[-1].start()

    return Caller(
        conn,
        conn.execute,
        begin=begin,
        commit=lambda: transactions.pop().commit(),
        rollback=lambda: transactions.pop().rollback(),
    )


def _sqlalchemy(scheme: str, *, session: bool) -> Callable[[str], Any]:
    @asynccontextmanager
    async def opened(address: str) -> AsyncIterator[Caller]:
        engine = sqlalchemy.create_engine(_url(scheme, address), poolclass=sqlalchemy.NullPool)
        held: Any = Session(engine) if session else engine.connect()
        with held:
            execute: Callable[[str], Any] = lambda sql: held.execute(sqlalchemy.text(sql))  # noqa: E731
            yield Caller(held, execute, commit=held.commit, rollback=held.rollback)
        engine.dispose()

    return opened


def _async_sqlalchemy(scheme: str, *, session: bool) -> Callable[[str], Any]:
    @asynccontextmanager
    async def opened(address: str) -> AsyncIterator[Caller]:
        engine = create_async_engine(_url(scheme, address), poolclass=sqlalchemy.NullPool)
        held: Any = AsyncSession(engine) if session else engine.connect()
        async with held:

            def execute(sql: str) -> Awaitable[Any]:
                return held.execute(sqlalchemy.text(sql))

            yield Caller(held, execute, commit=held.commit, rollback=held.rollback)
        await engine.dispose()

    return opened


def _url(scheme: str, address: str) -> str:
    return f"{scheme}:///{address}" if scheme == "sqlite" else address.replace("postgresql:", f"{scheme}:", 1)


@asynccontextmanager
async def _sqlite3(path: str) -> AsyncIterator[Caller]:
    conn = sqlite3.connect(path)
    try:
        yield Caller(conn, conn.execute, commit=conn.commit, rollback=conn.rollback)
    finally:
        conn.close()


@asynccontextmanager
async def _sqlite3_by_hand(path: str) -> AsyncIterator[Caller]:
    conn = sqlite3.connect(path, isolation_level=None)
    try:
        yield _by_statements(conn)
    finally:
        conn.close()


@asynccontextmanager
async def _apsw(path: str) -> AsyncIterator[Caller]:
    conn = apsw.Connection(path)
    try:
        yield _by_statements(conn)
    finally:
        conn.close()


def _by_statements(conn: Any) -> Caller:
    return Caller(
        conn,
        conn.execute,
        begin=lambda: conn.execute("begin"),
        commit=lambda: conn.execute("commit"),
        rollback=lambda: conn.execute("rollback"),
    )


POSTGRES = [
    Kind("psycopg", "postgres", False, _psycopg),
    Kind("psycopg async", "postgres", True, _async_psycopg),
    Kind("asyncpg", "postgres", True, _asyncpg),
    Kind("asyncpg pool", "postgres", True, _asyncpg_pool),
    Kind("SQLAlchemy Connection", "postgres", False, _sqlalchemy("postgresql+psycopg", session=False)),
    Kind("SQLAlchemy Session", "postgres", False, _sqlalchemy("postgresql+psycopg", session=True)),
    Kind(
        "SQLAlchemy AsyncConnection, psycopg", "postgres", True, _async_sqlalchemy("postgresql+psycopg", session=False)
    ),
    Kind("SQLAlchemy AsyncSession, psycopg", "postgres", True, _async_sqlalchemy("postgresql+psycopg", session=True)),
    Kind(
        "SQLAlchemy AsyncConnection, asyncpg", "postgres", True, _async_sqlalchemy("postgresql+asyncpg", session=False)
    ),
    Kind("SQLAlchemy AsyncSession, asyncpg", "postgres", True, _async_sqlalchemy("postgresql+asyncpg", session=True)),
]
SQLITE = [
    Kind("sqlite3", "sqlite-stdlib", False, _sqlite3),
    Kind("sqlite3 in autocommit", "sqlite-stdlib", False, _sqlite3_by_hand),
    Kind("SQLAlchemy Connection, sqlite3", "sqlite-stdlib", False, _sqlalchemy("sqlite", session=False)),
    Kind("SQLAlchemy Session, sqlite3", "sqlite-stdlib", False, _sqlalchemy("sqlite", session=True)),
    Kind("apsw", "sqlite-apsw", False, _apsw),
]
EVERY = [*POSTGRES, *SQLITE]
EVERY_WAY = [(kind, colour) for kind in EVERY for colour in (("async",) if kind.is_async else ("sync", "async"))]
"""Blocking connections are taken by `enqueue` and by `aenqueue`, asynchronous ones by `aenqueue` alone."""
