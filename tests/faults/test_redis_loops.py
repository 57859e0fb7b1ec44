"""Calls of the Redis store in any event loop: closing the store ends its connections, cancelling a call is never lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from fairlane.core.ops import Check
from fairlane.stores.redis import RedisStore
from tests.support.stores import Ground


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("closes", ["in the loop", "outside"])
def test_a_store_is_closed_whatever_its_loop(
    ground: Ground, new_loop: Callable[[], asyncio.AbstractEventLoop], closes: str
) -> None:
    store = RedisStore(ground.valkey.url)
    loop = new_loop()

    async def use() -> None:
        await asyncio.gather(*(store.arun(Check()) for _ in range(3)))
        if closes == "in the loop":
            await store.aclose()

    loop.run_until_complete(use())
    if closes == "outside":
        store.close()
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_cancellation_ends_a_task_whatever_its_call_is_doing(
    ground: Ground, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """As a worker that stops cancels its duties: one that goes on would keep it from ending."""
    store = RedisStore(ground.valkey.url)

    async def call_for_ever() -> None:
        while True:
            await store.arun(Check())

    async def cancel_at_every_step() -> None:
        for steps in range(40):
            task = asyncio.create_task(call_for_ever())
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            for _ in range(100):
                await asyncio.sleep(0)
            assert task.done(), f"cancelled after {steps} steps of the loop, it goes on"
        await store.aclose()

    loop = new_loop()
    try:
        loop.run_until_complete(cancel_at_every_step())
    finally:
        loop.close()
