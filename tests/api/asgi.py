"""A stream read from the API as a server would: httpx's own transport waits for the end, which never comes."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

from fastapi import FastAPI


class Stream:
    """One request; its answer is read piece by piece, as slowly as the test likes."""

    def __init__(self, api: FastAPI, path: str, query: dict[str, Any] | None = None, **headers: str) -> None:
        self._api = api
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "https",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": urlencode(query or {}, doseq=True).encode(),
            "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
            "client": ("198.51.100.7", 4711),
            "server": ("jobs.example", 443),
        }
        # One place: whoever sends waits until the test has read, as with a connection whose buffers are full.
        self._sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue(maxsize=1)
        self._gone = asyncio.Event()
        self.status = 0

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._api(self._scope, self._receive, self._sent.put))  # type: ignore[arg-type]
        self.status = (await self._message())["status"]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._gone.set()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def text(self) -> str:
        """The next piece."""
        return str((await self._message())["body"].decode())

    async def until(self, wanted: str) -> str:
        """Everything up to the piece that holds `wanted`."""
        read = ""
        while wanted not in read:
            read += await self.text()
        return read

    async def rest(self) -> str:
        """Everything there is up to the end, which is near."""
        read, more = "", True
        async with asyncio.timeout(10):
            while more:
                message = await self._message()
                read, more = read + message["body"].decode(), message["more_body"]
            await self._task
        return read

    async def _message(self) -> dict[str, Any]:
        return await asyncio.wait_for(self._sent.get(), 10)

    async def _receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}
