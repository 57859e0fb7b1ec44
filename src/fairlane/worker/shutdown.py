"""Ends tasks and event loops within a bounded time, although a task's code may ignore its cancellation for ever.

In which order a worker stops is in `engine`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from fairlane.client.logs import GuardedLogger
from fairlane.core.payload.storable import type_name

log = GuardedLogger("fairlane.worker")

LET_GO_S = 2.0
"""How long a cancelled task may take to end."""


async def end_tasks(tasks: Iterable[asyncio.Task[None]], within_s: float) -> None:
    """Cancel tasks and wait for them, at most `within_s`; one that ignores it is logged and abandoned."""
    asked = tuple(tasks)
    for task in asked:
        task.cancel()
    _, left = await asyncio.wait(asked, timeout=within_s)
    for task in left:
        log.error(
            "%s does not end although it was cancelled; its job was given back, its code is abandoned",
            task.get_name(),
        )


def run_to_end(
    main: Coroutine[Any, Any, None], new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> None:
    """Like `asyncio.run`, except that it waits at most half a second for the tasks left on the loop.

    And that a SystemExit in a task or callback which the application's code left on the loop does not end `main`.
    """
    loop = (new_loop or asyncio.new_event_loop)()
    asyncio.set_event_loop(loop)
    try:
        task = loop.create_task(main)
        while True:
            try:
                loop.run_until_complete(task)
                break
            except (SystemExit, KeyboardInterrupt) as stray:
                if task.done():
                    raise
                log.error("the application raised %s outside of any job; the worker runs on", type_name(stray))  # noqa: TRY400
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
