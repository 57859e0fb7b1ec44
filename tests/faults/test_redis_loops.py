"""Connections of the Redis store: whatever loop they were opened in, closing the store ends them."""

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
