"""Threads in which an engine's loop calls the plain functions of tasks."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any

from fairlane.core.payload.storable import type_name

Call = tuple["asyncio.Future[Any]", contextvars.Context, Callable[..., Any], Mapping[str, Any]]


class Threads:
    """Threads for tasks that are plain functions, started when a call finds none free.

    A thread stuck in a call is left behind and replaced.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str = "fairlane") -> None:
        self._loop, self._name = loop, name
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._free = 0
        self._lock = threading.Lock()
        self.abandoned = 0
        """Calls whose caller was cancelled and that still hold their thread: a reason to recycle the process."""

    async def run(self, function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        """Call it in a thread, in the caller's context. After a cancellation it runs on and its result is dropped."""
        future: asyncio.Future[Any] = self._loop.create_future()
        with self._lock:
            if self._free:
                self._free -= 1
            else:
                self._start()
        self._calls.put((future, contextvars.copy_context(), function, arguments))
        try:
            return await future
        except asyncio.CancelledError:
            if not future.done() or future.cancelled():
                self.abandoned += 1
            raise

    def close(self) -> None:
        for _ in self._threads:
            self._calls.put(None)

    def _start(self) -> None:
        # Daemons: a call that never returns must not keep the process from exiting.
        thread = threading.Thread(target=self._serve, name=f"{self._name}-{len(self._threads) + 1}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        while True:
            call = self._calls.get()
            if call is None:
                return
            future, context, function, arguments = call
            try:
                result, error = context.run(function, **arguments), None
            except BaseException as raised:  # noqa: BLE001 - a runner: handed to whoever awaits the call
                result, error = None, raised
            with self._lock:
                self._free += 1
            try:
                self._loop.call_soon_threadsafe(self._settle, future, result, error)
            except RuntimeError:
                return  # the loop is closed: the process is exiting

    def _settle(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        if future.cancelled():
            self.abandoned -= 1
        elif error is None:
            future.set_result(result)
        else:
            try:
                # Thrown into a coroutine, a GeneratorExit closes it.
                future.set_exception(
                    RuntimeError("the task raised GeneratorExit") if type(error) is GeneratorExit else error
                )
            except BaseException:  # noqa: BLE001 - StopIteration, or a class that resists: no caller waits for ever
                future.set_exception(RuntimeError(f"the task raised {type_name(error)}"))
