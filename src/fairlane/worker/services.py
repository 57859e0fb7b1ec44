"""Keeps the internal tasks and threads of a worker running: one that ends before it should is started again.

Slots, watchdog, duties, wake-ups, tickers, supervisors: nobody awaits them, so that an end nobody expected would go
unnoticed, and jobs would wait for a worker that looks alive. (tests/worker/test_services.py)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from fairlane.client.logs import GuardedLogger, is_ctrl_c
from fairlane.core.clock import SystemClock
from fairlane.core.payload.storable import format_traceback

PAUSES_S = (0.0, 0.1, 0.5, 1.0, 5.0)
"""Before a service that ended is started again; from the first again once it has run for SETTLED_S."""
SETTLED_S = 60.0

_monotonic = SystemClock().monotonic


class Restarts:
    """Logs each unexpected end of one service, and says how long to wait before its next start."""

    def __init__(self, name: str, log: GuardedLogger) -> None:
        self._name, self._log = name, log
        self._count = 0
        self._started_s = _monotonic()

    def pause_after(self, error: BaseException | None) -> float:
        """`error`: what ended it; None: it returned."""
        now_s = _monotonic()
        if now_s - self._started_s > SETTLED_S:
            self._count = 0
        pause_s = PAUSES_S[min(self._count, len(PAUSES_S) - 1)]
        self._count += 1
        self._started_s = now_s + pause_s
        self._log.error(
            "%s ended unexpectedly and is started again%s: %s",
            self._name,
            f" in {pause_s:g} s" if pause_s else "",
            "it returned" if error is None else format_traceback(error).strip(),
        )
        return pause_s


async def keep(
    name: str, run: Callable[[], Awaitable[None]], *, is_ending: Callable[[], bool], log: GuardedLogger
) -> None:
    """Run it, again and again, until it returns or is cancelled while `is_ending()`, or a person presses Ctrl-C."""
    restarts, own, pause_s = Restarts(name, log), asyncio.current_task(), 0.0
    assert own is not None
    while True:
        error: BaseException | None = None
        try:
            if pause_s:
                await asyncio.sleep(pause_s)
            await run()
        except BaseException as raised:
            if not is_current(own) or is_ctrl_c(raised) or (isinstance(raised, asyncio.CancelledError) and is_ending()):
                raise
            error = raised
        if error is None and is_ending():
            return
        while own.uncancel():
            continue  # cancelled by the application's code, or left over: not for the next run
        pause_s = restarts.pause_after(error)
        if is_ending():
            return


def keep_thread(name: str, run: Callable[[], None], *, is_ending: Callable[[], bool], log: GuardedLogger) -> None:
    """The same in the calling thread, with `time.sleep` between."""
    restarts = Restarts(name, log)
    while True:
        error: BaseException | None = None
        try:
            run()
        except BaseException as raised:  # noqa: BLE001 - a service loop
            error = raised
        if is_ending():
            return
        time.sleep(restarts.pause_after(error))


def is_current(task: asyncio.Task[None]) -> bool:
    """Whether this task runs now. A coroutine that is collected after its loop has closed gets a GeneratorExit."""
    try:
        return asyncio.current_task() is task
    except RuntimeError:
        return False
