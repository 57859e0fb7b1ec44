"""A TCP proxy that fails on command: cuts after so many bytes, goes silent, resets.

    client ──▶ sent ──▶ server          Plan(cut_sent=12)             the server sees 12 bytes, then the end
    client ◀── received ◀── server      Plan(cut_received=3, how="reset")  the client sees 3 bytes, then a reset

Counts are exact and begin anew with each connection, so a test can cut a protocol at every offset.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self

Cut = Literal["close", "reset", "silent"]
"""close   an orderly end, to both sides
reset   an RST, to both sides
silent  both stay connected and never hear of each other again
"""

CHUNK = 65_536


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What happens to a connection: the cut comes once so many bytes were delivered in one direction, none after it.

    0 cuts at the first byte of that direction, before it is delivered.
    """

    cut_sent: int | None = None
    cut_received: int | None = None
    how: Cut = "close"


PASS = Plan()
BLACKHOLE = Plan(cut_sent=0, cut_received=0, how="silent")
RESET = Plan(cut_sent=0, how="reset")


class Proxy:
    """Listens on a port of 127.0.0.1 and passes connections on to another port, as `plan` says.

    A new `plan` counts for connections opened after it; `cut_all` strikes the open ones. With `tls` clients speak TLS
    to it, and it does not to the server.
    """

    def __init__(self, target_port: int, plan: Plan = PASS, tls: ssl.SSLContext | None = None) -> None:
        self.plan = plan
        self._tls = tls
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._links: list[_Link] = []
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._thread = threading.Thread(target=self._serve, name=f"proxy-{self.port}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    @property
    def connections(self) -> int:
        """How many were opened so far."""
        return len(self._links)

    @property
    def sent(self) -> list[int]:
        """Bytes delivered to the server, by connection in the order they were opened."""
        return [link.sent for link in list(self._links)]

    @property
    def received(self) -> list[int]:
        """Bytes delivered to the client, by connection in the order they were opened."""
        return [link.received for link in list(self._links)]

    def cut_all(self, how: Cut = "reset") -> None:
        """Strike every open connection; returns when it is done."""

        async def strike() -> None:
            for link in self._links:
                link.cut(how)

        asyncio.run_coroutine_threadsafe(strike(), self._loop).result()

    def cut_later(self, *, how: Cut, sent: int | None = None, received: int | None = None) -> None:
        """Cut every open connection once so many more bytes were delivered."""

        async def plan() -> None:
            for link in self._links:
                cut_sent = None if sent is None else link.sent + sent
                cut_received = None if received is None else link.received + received
                link.plan = Plan(cut_sent=cut_sent, cut_received=cut_received, how=how)

        asyncio.run_coroutine_threadsafe(plan(), self._loop).result()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        async with await asyncio.start_server(self._accept, sock=self._listener, ssl=self._tls) as server:
            await self._stopped.wait()
            server.close()
            for link in self._links:
                link.cut("close")
            await asyncio.gather(*(link.ended.wait() for link in self._links))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            target_reader, target_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            _reset(writer)
            return
        link = _Link(self.plan, writer, target_writer)
        self._links.append(link)
        await link.pass_on(reader, target_reader)


@dataclass
class _Link:
    plan: Plan
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    sent: int = 0
    received: int = 0
    silent: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def pass_on(self, from_client: asyncio.StreamReader, from_server: asyncio.StreamReader) -> None:
        for end in self._ends():
            # A drain then means "handed to the system": nothing due before a cut is left in a buffer of ours. Not 0 where
            # TLS is spoken: asyncio takes its empty buffer for a full one there, and a drain waits for the client to speak.
            end.transport.set_write_buffer_limits(high=1 if end.get_extra_info("sslcontext") else 0)
        try:
            await asyncio.gather(
                _pump(from_client, self._send),
                _pump(from_server, self._receive),
            )
        finally:
            self.cut("close")
            for end in self._ends():
                with contextlib.suppress(OSError):
                    await end.wait_closed()
            self.ended.set()

    def cut(self, how: Cut) -> None:
        if how == "silent":
            self.silent = True
            return
        for end in self._ends():
            _reset(end) if how == "reset" else end.close()

    async def _send(self, data: bytes) -> None:
        self.sent += await self._deliver(self.server, data, self.sent, self.plan.cut_sent)

    async def _receive(self, data: bytes) -> None:
        self.received += await self._deliver(self.client, data, self.received, self.plan.cut_received)

    async def _deliver(self, end: asyncio.StreamWriter, data: bytes, before: int, cut_after: int | None) -> int:
        if self.silent:
            return 0
        if not data:
            if end.can_write_eof():
                end.write_eof()
            return 0
        due = data if cut_after is None else data[: cut_after - before]
        end.write(due)
        await end.drain()
        if cut_after is not None and before + len(due) >= cut_after:
            self.cut(self.plan.how)
        return len(due)

    def _ends(self) -> Iterable[asyncio.StreamWriter]:
        return (self.client, self.server)


async def _pump(source: asyncio.StreamReader, deliver: Callable[[bytes], Awaitable[None]]) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(CHUNK):
            await deliver(data)
        await deliver(b"")


def _reset(end: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        # Linger of 0 seconds: closing sends an RST.
        end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.transport.abort()
