"""Keeps connections to a server between calls: for threads and several event loops at once, on both sides of a fork.

The pools of psycopg and redis-py serve threads or one event loop, and do not outlive a fork.
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Generic, Protocol, TypeVar

from fairlane.errors import StoreClosed, StoreUnavailable
from fairlane.stores.retries import BUSY

C = TypeVar("C")
A = TypeVar("A")


class Connector(Protocol[C, A]):
    """Opens, tries and ends connections to one server: `C` for threads, `A` for event loops."""

    store: str

    def connect(self) -> C: ...

    async def aconnect(self) -> A: ...

    def answers(self, conn: C) -> bool:
        """Whether the server is still at the other end; closes the connection if not."""
        ...

    async def aanswers(self, conn: A) -> bool: ...

    def end(self, conn: C) -> None: ...

    async def aend(self, conn: A) -> None: ...

    def hang_up(self, conn: A, loop: asyncio.AbstractEventLoop) -> None:
        """End an idle one without awaiting: its loop may be closed, or run in another thread."""
        ...


class ConnectionPool(Generic[C, A]):
    """Idle connections of one process, at most `size` in use at once."""

    def __init__(self, connector: Connector[C, A], size: int, wait_s: float) -> None:
        self._connector, self._size, self._wait_s = connector, size, wait_s
        self._renew()

    def _renew(self) -> None:
        self._pid = os.getpid()
        self._idle: list[C] = []
        self._slots = threading.BoundedSemaphore(self._size)
        self._loops: dict[asyncio.AbstractEventLoop, tuple[list[A], asyncio.Semaphore]] = {}
        self.closed = False

    def _leave_parents(self) -> None:
        if self._pid != os.getpid():
            # After a fork the sockets are the parent's: forget them unclosed, closing would end the parent's sessions.
            self._inherited = (self._idle, self._loops)
            self._renew()

    def _check(self) -> None:
        self._leave_parents()
        if self.closed:
            raise StoreClosed(self._connector.store)

    def _all_busy(self) -> StoreUnavailable:
        why = f"all {self._size} connections were in use for {self._wait_s:g} s; raise `max_connections`"
        return StoreUnavailable(self._connector.store, why, BUSY)

    def take(self, *, proven: bool = False) -> C:
        """An idle connection, or a new one. A `proven` one has just answered, or is new."""
        self._check()
        if not self._slots.acquire(timeout=self._wait_s):
            raise self._all_busy()
        try:
            while self._idle:
                conn = self._idle.pop()
                if not proven or self._connector.answers(conn):
                    return conn
            return self._connector.connect()
        except BaseException:
            self._slots.release()
            raise

    def give(self, conn: C, *, broken: bool) -> None:
        if self.closed or broken:
            self._connector.end(conn)
        else:
            self._idle.append(conn)
        self._slots.release()

    async def atake(self, *, proven: bool = False) -> A:
        self._check()
        idle, slots = self._here()
        try:
            if slots.locked():
                async with asyncio.timeout(self._wait_s):
                    await slots.acquire()
            else:
                await slots.acquire()  # does not suspend: what is sent goes out before anything else runs here
        except TimeoutError:
            raise self._all_busy() from None
        try:
            while idle:
                conn = idle.pop()
                if not proven or await self._connector.aanswers(conn):
                    return conn
            return await self._connector.aconnect()
        except BaseException:
            slots.release()
            raise

    async def agive(self, conn: A, *, broken: bool) -> None:
        idle, slots = self._here()
        if self.closed or broken:
            await self._connector.aend(conn)
        else:
            idle.append(conn)
        slots.release()

    def forget_idle(self) -> None:
        """Close the idle ones: one connection broke, and what broke it seldom broke it alone."""
        while self._idle:
            self._connector.end(self._idle.pop())

    async def aforget_idle(self) -> None:
        idle, _ = self._here()
        while idle:
            await self._connector.aend(idle.pop())

    def _here(self) -> tuple[list[A], asyncio.Semaphore]:
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is None:
            self._leave_ended_loops()
            found = self._loops[loop] = ([], asyncio.Semaphore(self._size))
        return found

    def _leave_ended_loops(self) -> None:
        for loop in [known for known in self._loops if known.is_closed()]:
            self._hang_up(self._loops.pop(loop)[0], loop)

    def close(self) -> None:
        """Close every idle connection, those of event loops too; one in use closes when it is given back."""
        self._leave_parents()
        self.closed = True
        self.forget_idle()
        for loop, (idle, _) in self._loops.items():
            self._hang_up(idle, loop)

    def _hang_up(self, idle: list[A], loop: asyncio.AbstractEventLoop) -> None:
        while idle:
            self._connector.hang_up(idle.pop(), loop)
