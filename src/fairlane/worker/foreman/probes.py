"""Health probes of a foreman, over plain HTTP: `/livez` and `/readyz`.

/livez    the foreman's loop runs; never asks the store, which a restart would not repair
/readyz   every worker is registered, and its loop and store answer; else 503 and the reasons
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

from fairlane.client.logs import GuardedLogger
from fairlane.errors import ConfigError

if TYPE_CHECKING:
    from fairlane.worker.foreman.foreman import Foreman

log = GuardedLogger("fairlane.foreman")

ALIVE_S = 10.0
ANSWER_S = 10.0
"""Beyond its poll time, a worker's store may take this long to answer."""
READ_S = 5.0
LONGEST_REQUEST = 8192
REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


class ProbeServer:
    """Answers probes for one foreman."""

    def __init__(self, foreman: Foreman) -> None:
        self._foreman = foreman
        self.port: int | None = None

    @contextlib.asynccontextmanager
    async def serving(self, host: str, port: int | None) -> AsyncIterator[None]:
        """Answer probes inside the block; without a port, answer none."""
        if port is None:
            yield
            return
        try:
            server = await asyncio.start_server(self._serve, host, port, limit=LONGEST_REQUEST)
        except OSError as error:
            raise ConfigError(
                f"probe_port = {port}: {host}:{port} cannot be listened on ({error.strerror or error}); "
                "choose another, or 0 for any"
            ) from error
        self.port = server.sockets[0].getsockname()[1]
        log.info("probes answer on http://%s:%d/livez and /readyz", host, self.port)
        async with server:
            yield

    def alive(self) -> list[str]:
        """Problems of the foreman itself."""
        age_s = self._foreman.clock.monotonic() - self._foreman.checked_s
        return [f"the foreman's loop has not run for {age_s:.0f} s"] if age_s > ALIVE_S else []

    def ready(self) -> list[str]:
        """Reasons why jobs might not run here now."""
        return ["stopping"] if self._foreman.is_stopping else list(self._unready())

    def _unready(self) -> Iterator[str]:
        now_s, lease_s = self._foreman.clock.monotonic(), self._foreman.config.lease_s
        for number, supervisor in enumerate(self._foreman.supervisors, 1):
            process = supervisor.process
            if process is None:
                yield f"worker {number}: being restarted"
            elif process.store_away is not None:
                yield f"worker {number}: waits for the store"  # why is in the log: everybody may ask here
            elif process.renewed_s is None or process.ticked_s is None or process.hello is None:
                yield f"worker {number}: still starting"
            elif now_s - process.renewed_s > lease_s:
                yield f"worker {number}: the store has not received its heartbeat for {now_s - process.renewed_s:.0f} s"
            elif process.tick.answered_ago_s > process.hello.poll_s + ANSWER_S:
                yield f"worker {number}: the store has not answered it for {process.tick.answered_ago_s:.0f} s"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(READ_S):
                head = await reader.readuntil(b"\r\n\r\n")
                status, text = self._answer(head)
                body = text.encode() + b"\n"
                lines = [
                    f"HTTP/1.1 {status} {REASONS[status]}",
                    "Content-Type: text/plain; charset=utf-8",
                    f"Content-Length: {len(body)}",
                    "Cache-Control: no-store",
                    "Connection: close",
                    "\r\n",
                ]
                writer.write("\r\n".join(lines).encode() + (b"" if head.startswith(b"HEAD ") else body))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the caller disconnected or does not speak HTTP
        finally:
            writer.close()

    def _answer(self, head: bytes) -> tuple[int, str]:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3:
            return 400, "expected an HTTP request"
        method, path = words[0], words[1].partition(b"?")[0]
        probes = {b"/livez": self.alive, b"/readyz": self.ready}
        if path not in probes:
            return 404, "there is /livez and /readyz"
        if method not in {b"GET", b"HEAD"}:
            return 405, "ask with GET"
        wrong = probes[path]()
        return (503, "; ".join(wrong)) if wrong else (200, "ok")
