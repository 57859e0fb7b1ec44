"""Leaving an event loop although something on it will not end: a task's code may swallow its cancellation for ever."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable

log = logging.getLogger("fairlane.worker")

LET_GO_S = 2.0
"""How long what was cancelled may take to let go."""


async def end_tasks(tasks: Iterable[asyncio.Task[None]], within_s: float) -> None:
    """Cancel tasks and wait for them, but no longer than this: what ignores it is reported and left behind."""
    asked = tuple(tasks)
    for task in asked:
        task.cancel()
    _, left = await asyncio.wait(asked, timeout=within_s)
    for task in left:
        log.error(
            "%s does not end although it was cancelled; its job was given back, its code is left behind",
            task.get_name(),
        )


def run_and_leave(
    main: Coroutine[object, object, None], new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> None:
    """`asyncio.run`, except that it does not wait for ever for what is left on the loop."""
    loop = (new_loop or asyncio.new_event_loop)()
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(main)
    finally:
        try:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left, timeout=LET_GO_S / 4))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            asyncio.set_event_loop(None)
            loop.close()
