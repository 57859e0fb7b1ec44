"""An application for worker tests, importable by processes of their own: `tests.worker.shop:app`.

What its tasks do is written to the file that SHOP_DIARY names, a line for each event.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from typing import Any

from fairlane import Cancel, Fairlane, NonRetryable, RateLimited, Retry, Snooze, current_job

app = Fairlane(os.environ.get("SHOP_URL", "memory://"), profile="development")


def diary(event: str) -> None:
    path = os.environ.get("SHOP_DIARY")
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{event} {current_job().id} {current_job().attempt} {os.getpid()}\n")


@app.task(name="shop.add")
async def add(a: int, b: int) -> int:
    diary("add")
    return a + b


@app.task(name="shop.slow", timeout=30)
async def slow(seconds: float) -> str:
    diary("began")
    await asyncio.sleep(seconds)
    diary("ended")
    return "slept"


@app.task(name="shop.block", timeout=30)
def block(seconds: float) -> str:
    diary("began")
    time.sleep(seconds)
    diary("ended")
    return "blocked"


@app.task(name="shop.fail", retry=Retry(max_attempts=3, delays=(0.0,)))
def fail(message: str = "no") -> None:
    raise ConnectionError(message)


@app.task(name="shop.refuse")
def refuse() -> None:
    raise NonRetryable("never")


@app.task(name="shop.later")
def later(times: int) -> str:
    if current_job().attempt <= times:
        raise Snooze(0)
    return "done"


@app.task(name="shop.quit")
def quit_() -> None:
    raise Cancel("changed my mind")


@app.task(name="shop.limited")
def limited() -> None:
    raise RateLimited("slow down", retry_after=5)


@app.task(name="shop.hurry", timeout=0.2, max_attempts=1)
async def hurry() -> None:
    await asyncio.sleep(30)


@app.task(name="shop.stubborn", timeout=0.2, max_attempts=1)
async def stubborn(seconds: float) -> str:
    ends = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < ends:
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            diary("ignored")
    return "stubborn"


@app.task(name="shop.alone", isolated=True, timeout=20)
def alone(how: str = "return") -> int:
    diary(how)
    if how == "exit":
        os._exit(3)
    if how == "segfault":
        ctypes.string_at(0)
    if how == "loop":
        while True:
            pass
    if how == "memory":
        return len(bytearray(4 * 2**30))
    return os.getpid()


@app.task(name="shop.wide")
def wide() -> str:
    return "\0 and \ud800"


@app.task(name="shop.odd")
def odd() -> Any:
    return object()


@app.task(name="shop.urgent", queue="critical")
async def urgent() -> str:
    diary("urgent")
    return "now"
