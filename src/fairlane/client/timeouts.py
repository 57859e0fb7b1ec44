"""A time limit around a block: `with timeout(5):` in plain functions, `async with timeout(5):` in coroutines."""

from __future__ import annotations

import ctypes
import threading
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self

from fairlane.client.enqueue.options import timeout_s
from fairlane.errors import AttemptInterrupted, InvalidOption

if TYPE_CHECKING:
    import asyncio


class timeout:  # noqa: N801 - used like a function
    """Raise `TimeoutError` in a block that takes longer than `seconds`.

    In a plain function the block is interrupted between two steps of Python code: a call into C, a read from a socket
    for instance, ends first. `except Exception` inside the block does not catch the interruption, an
    `AttemptInterrupted`; should the time be over on the very last step of the block, that may come out in place of
    the `TimeoutError`. May be nested; may be used again once it is over.
    """

    def __init__(self, seconds: float | timedelta) -> None:
        self._limit_s = timeout_s(seconds)
        self._interruption: _Interruption | None = None
        self._waiting: asyncio.Timeout | None = None

    def __enter__(self) -> Self:
        if _on_a_loop():
            raise InvalidOption("timeout", self._limit_s, "`async with timeout(…)` inside a coroutine")
        self._require_free(self._interruption)
        self._interruption = interruption = _Interruption(self._limit_s)
        # The last step before the block: no later call could raise the exception outside it.
        interruption.is_armed = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        interruption, self._interruption = self._interruption, None
        assert interruption is not None
        try:
            is_over = interruption.end()
        except interruption.kind:
            is_over = True  # Delivered during the last steps of the block.
        if is_over and (kind is None or issubclass(kind, interruption.kind)):
            raise self._error() from None

    async def __aenter__(self) -> Self:
        import asyncio  # Imported here: it doubles the import time of fairlane.

        self._require_free(self._waiting)
        self._waiting = asyncio.timeout(self._limit_s)
        await self._waiting.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        waiting, self._waiting = self._waiting, None
        assert waiting is not None
        try:
            await waiting.__aexit__(kind, error, traceback)
        except TimeoutError:
            raise self._error() from error

    def _error(self) -> TimeoutError:
        return TimeoutError(f"the block took longer than its {self._limit_s:g} s")

    def _require_free(self, running: object) -> None:
        if running is not None:
            raise InvalidOption("timeout", self._limit_s, "a timeout(…) of its own for each block that runs")


class _Interruption:
    """Raises an exception of its own kind in the thread that made it, once, unless ended before."""

    def __init__(self, limit_s: float) -> None:
        self.kind: type[BaseException] = type("BlockTimedOut", (AttemptInterrupted,), {})
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self.is_armed = self._has_ended = self._has_fired = False
        self._timer = threading.Timer(limit_s, self._fire)
        self._timer.daemon = True
        self._timer.start()

    def end(self) -> bool:
        """Prevent later interruptions; returns whether the time was over."""
        self._timer.cancel()
        with self._lock:
            self._has_ended = True
            if self._has_fired:
                _raise_in(self._thread, None)  # Not delivered yet, or delivered already: then this does nothing.
        return self._has_fired

    def _fire(self) -> None:
        while not self.is_armed:
            self._timer.finished.wait(0.001)
        with self._lock:
            if not self._has_ended:
                self._has_fired = True
                _raise_in(self._thread, self.kind)


def _raise_in(thread: int, kind: type[BaseException] | None) -> None:
    raised = ctypes.py_object() if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)


def _on_a_loop() -> bool:
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
