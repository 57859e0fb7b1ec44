"""Resources shared by the jobs of one worker: opened when first requested, closed when the engine ends."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

from fairlane.client.logs import GuardedLogger
from fairlane.client.resources import AsyncResource, Resource, SyncResource, worker_scope
from fairlane.core.payload.storable import format_traceback, type_name
from fairlane.errors import InvalidOption

log = GuardedLogger("fairlane.worker")


class WorkerScope:
    """The shared resources of one worker process. Each async one is opened and closed by a task of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._token = worker_scope.set(self)
        self._around = contextvars.copy_context()
        """The context in which resources open: not that of the job that requested one first."""
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
            raise InvalidOption(f"resource {resource.name}", "requested on another event loop", "the worker's own loop")
        if resource not in self._values:
            self._values[resource] = _ResourceTask(resource, self._around.copy())
            self._open.append((resource, self._values[resource]))
        keeper: _ResourceTask = self._values[resource]
        try:
            # Shielded: a job that is stopped while it waits must not take the resource from the others.
            return await asyncio.shield(keeper.value)
        except Exception:
            if self._values.get(resource) is keeper and keeper.has_failed():
                del self._values[resource]
                self._open.remove((resource, keeper))
            raise

    async def close(self) -> None:
        """Close everything, newest first; errors are logged."""
        worker_scope.reset(self._token)
        while self._open:
            resource, opened = self._open.pop()
            try:
                if isinstance(opened, _ResourceTask):
                    await opened.close()
                else:
                    opened.__exit__(None, None, None)
            except BaseException as error:  # noqa: BLE001 - an error of one resource must not keep the others open
                # Not log.exception: Python's own traceback would show secrets that ours leaves out.
                log.error("resource %s could not be closed\n%s", resource.name, format_traceback(error))  # noqa: TRY400
        self._values.clear()


class _ResourceTask:
    """One task that opens and closes an async resource: libraries with cancel scopes require the same task."""

    def __init__(self, resource: AsyncResource[Any], context: contextvars.Context) -> None:
        loop = asyncio.get_running_loop()
        self.value: asyncio.Future[Any] = loop.create_future()
        self._closing = asyncio.Event()
        self._task = loop.create_task(self._run(resource), name=f"resource {resource.name}", context=context)

    async def _run(self, resource: AsyncResource[Any]) -> None:
        try:
            async with resource.open() as value:
                self.value.set_result(value)
                await self._closing.wait()
        except BaseException as error:
            if not isinstance(error, Exception):
                # A task that raises SystemExit or KeyboardInterrupt ends the whole loop.
                error = RuntimeError(f"resource {resource.name} raised {type_name(error)}")
            if self.value.done():
                raise error from None
            self.value.set_exception(error)
            self.value.exception()  # retrieved: all jobs that requested it may have ended

    def has_failed(self) -> bool:
        return self.value.done() and (self.value.cancelled() or self.value.exception() is not None)

    async def close(self) -> None:
        self._closing.set()
        await self._task
