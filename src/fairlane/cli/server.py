"""The HTTP server of `fairlane dashboard`: Uvicorn that ends streams when it stops and drops unfinished requests."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from fairlane.api.request import ARRIVAL_S

GRACE_S = 5


class PromptProtocol(H11Protocol):
    """Closes a connection whose request, head and body, has not arrived in time; Uvicorn itself would wait for ever.

    A route that reads the body answers 408 at `ARRIVAL_S`; the connection is closed a little later in any case.
    """

    arrival_s = ARRIVAL_S + 1.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        self._start_timer()
        super().data_received(data)
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._stop_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.arrival_s, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class ApiServer(uvicorn.Server):
    """Serves one API on a listening socket until it is told to stop."""

    def __init__(self, api: FastAPI, protocol: type[asyncio.Protocol] = PromptProtocol, **options: Any) -> None:
        self._api = api
        config = uvicorn.Config(
            api,
            http=protocol,
            log_level="warning",
            access_log=False,  # An access log would store the secret of every link.
            server_header=False,
            timeout_graceful_shutdown=GRACE_S,
            **options,
        )
        super().__init__(config)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Uvicorn waits for open responses before it tells the API to stop; streams end only when told to.
        self._api.state.fairlane.feed.stop()
        await super().shutdown(sockets)
