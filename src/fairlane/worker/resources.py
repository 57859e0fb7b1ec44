"""Resources shared by the jobs of one worker: opened when first asked for, closed when the engine ends."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from typing import Any

from fairlane.client.resources import AsyncResource, Resource, SyncResource, worker_scope
from fairlane.core.payload.storable import format_traceback
from fairlane.errors import InvalidOption

log = logging.getLogger("fairlane.worker")


class WorkerScope:
    """The resources of one worker process, shared by its jobs. Each async one is opened and closed by one task of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._token = worker_scope.set(self)
        self._around = contextvars.copy_context()
        """No job's: what a shared resource inherits must not be that of the job that asked first."""
        self._lock = threading.RLock()
        self._values: dict[Resource[Any], Any] = {}
        self._open: list[tuple[Resource[Any], Any]] = []

    def get(self, resource: SyncResource[Any]) -> Any:
        with self._lock:
            if resource not in self._values:
                manager = resource.open()
                self._values[resource] = self._around.copy().run(manager.__enter__)
                self._open.append((resource, manager))
            return self._values[resource]

    async def aget(self, resource: AsyncResource[Any]) -> Any:
        if asyncio.get_running_loop() is not self._loop:
            raise InvalidOption(f"resource {resource.name}", "asked for on another event loop", "the worker's own loop")
        if resource not in self._values:
            self._values[resource] = _Keeper(resource, self._around.copy())
            self._open.append((resource, self._values[resource]))
        keeper: _Keeper = self._values[resource]
        try:
            # Shielded: a job that is stopped while it waits must not take the resource from the others.
            return await asyncio.shield(keeper.value)
        except Exception:
            if self._values.get(resource) is keeper and keeper.has_failed():
                del self._values[resource]
                self._open.remove((resource, keeper))
            raise

    async def close(self) -> None:
        """Close everything, newest first; what a closing raises is logged."""
        worker_scope.reset(self._token)
        while self._open:
            resource, opened = self._open.pop()
            try:
                if isinstance(opened, _Keeper):
                    await opened.close()
                else:
                    opened.__exit__(None, None, None)
            except Exception as error:  # noqa: BLE001 - what a closing raises ends nothing else
                # Not log.exception: a traceback of Python's own making would show secrets that ours leaves out.
                log.error("resource %s could not be closed\n%s", resource.name, format_traceback(error))  # noqa: TRY400
        self._values.clear()


class _Keeper:
    """One task that opens an async resource, holds it, and closes it: libraries with cancel scopes demand the same task for both."""

    def __init__(self, resource: AsyncResource[Any], context: contextvars.Context) -> None:
        loop = asyncio.get_running_loop()
        self.value: asyncio.Future[Any] = loop.create_future()
        self._closing = asyncio.Event()
        self._task = loop.create_task(self._keep(resource), name=f"resource {resource.name}", context=context)

    async def _keep(self, resource: AsyncResource[Any]) -> None:
        try:
            async with resource.open() as value:
                self.value.set_result(value)
                await self._closing.wait()
        except BaseException as error:
            if self.value.done():
                raise
            self.value.set_exception(
                error if isinstance(error, Exception) else RuntimeError(f"opening ended: {error!r}")
            )
            self.value.exception()  # Seen: everybody who asked may have left by now.

    def has_failed(self) -> bool:
        return self.value.done() and (self.value.cancelled() or self.value.exception() is not None)

    async def close(self) -> None:
        self._closing.set()
        await self._task
