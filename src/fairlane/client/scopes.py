"""Where open resources live: with one attempt, or with one worker. Closed newest first, each told how the work ended."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, Protocol

from fairlane.client.resourcing import AsyncResource, Resource, SyncResource, job_scope, worker_scope
from fairlane.core.storable import format_traceback
from fairlane.errors import NoCurrentJob

logger = logging.getLogger("fairlane.resources")


class Scope(Protocol):
    def get(self, resource: SyncResource[Any]) -> Any: ...

    async def aget(self, resource: AsyncResource[Any]) -> Any: ...


def require_scope(resource: Resource[Any]) -> Scope:
    """Where a resource that is asked for here lives. Without a worker around the job, all of them live with the job."""
    scope = job_scope.get()
    if resource.scope == "worker":
        scope = worker_scope.get() or scope
    if scope is None:
        raise NoCurrentJob(f"resource {resource.name}")
    return scope


class JobScope:
    """The resources of one attempt."""

    def __init__(self) -> None:
        self._values: dict[Resource[Any], Any] = {}
        self._open: list[tuple[Resource[Any], Any]] = []
        self._lock = threading.RLock()
        self._opening: dict[Resource[Any], asyncio.Lock] = {}
        self._is_closed = False

    def get(self, resource: SyncResource[Any]) -> Any:
        with self._lock:
            if resource not in self._values:
                manager = self._manager(resource)
                self._keep(resource, manager, manager.__enter__())
            return self._values[resource]

    async def aget(self, resource: AsyncResource[Any]) -> Any:
        async with self._opening.setdefault(resource, asyncio.Lock()):
            if resource not in self._values:
                manager = self._manager(resource)
                self._keep(resource, manager, await manager.__aenter__())
            return self._values[resource]

    def close(self, error: BaseException | None) -> None:
        """Close everything; raises what a closing raised, if the work itself raised nothing."""
        told = error
        while (last := self._last()) is not None:
            resource, manager = last
            try:
                manager.__exit__(*_told(told))
            except BaseException as raised:  # noqa: BLE001 - the others still have to be closed
                told = _first(told, raised, resource)
        if error is None and told is not None:
            raise told

    async def aclose(self, error: BaseException | None) -> None:
        told = error
        while (last := self._last()) is not None:
            resource, manager = last
            try:
                if isinstance(resource, AsyncResource):
                    await manager.__aexit__(*_told(told))
                else:
                    manager.__exit__(*_told(told))
            except BaseException as raised:  # noqa: BLE001 - the others still have to be closed
                told = _first(told, raised, resource)
        if error is None and told is not None:
            raise told

    def _manager(self, resource: SyncResource[Any] | AsyncResource[Any]) -> Any:
        if self._is_closed:
            raise NoCurrentJob(f"resource {resource.name}")
        return resource.open()

    def _keep(self, resource: Resource[Any], manager: Any, value: Any) -> None:
        self._values[resource] = value
        self._open.append((resource, manager))

    def _last(self) -> tuple[Resource[Any], Any] | None:
        if self._open:
            return self._open.pop()
        self._is_closed = True
        return None


def scoped(function: Callable[..., Any], *, is_async: bool) -> Callable[..., Any]:
    """The function with a scope of its own around each call, closed in the thread or on the loop that ran it."""

    @wraps(function)
    async def arun(**arguments: Any) -> Any:
        scope = JobScope()
        token = job_scope.set(scope)
        try:
            try:
                result = await function(**arguments)
            except BaseException as error:
                await scope.aclose(error)
                raise
            await scope.aclose(None)
            return result
        finally:
            job_scope.reset(token)

    @wraps(function)
    def run(**arguments: Any) -> Any:
        scope = JobScope()
        token = job_scope.set(scope)
        try:
            try:
                result = function(**arguments)
            except BaseException as error:
                scope.close(error)
                raise
            scope.close(None)
            return result
        finally:
            job_scope.reset(token)

    return arun if is_async else run


def _told(error: BaseException | None) -> tuple[Any, Any, Any]:
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)


def _first(told: BaseException | None, raised: BaseException, resource: Resource[Any]) -> BaseException:
    """The work's own exception stands; one that a closing adds to it is only logged."""
    if told is None:
        return raised
    if raised is not told:
        logger.warning("resource %s could not be closed\n%s", resource.name, format_traceback(raised))
    return told
