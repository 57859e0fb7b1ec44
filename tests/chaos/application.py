"""The application of a chaos run, importable by its workers: tasks that work, fail, crash, and spoil their process."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time

from fairlane import Fairlane, Retry, current_job
from tests.chaos.recorder import LIMITED_TENANT, LIMITED_TYPE, PLACES, SHARING_TYPES, recorded

app = Fairlane(os.environ.get("YARD_URL", "memory://"), profile="development")
shared = app.limits.declare("shared", running=PLACES["named"])
AGAIN = Retry(max_attempts=3, delays=(0.2,))


@app.task(name="chaos.work", timeout=60)
async def work(seconds: float) -> None:
    with recorded():
        await asyncio.sleep(seconds)


@app.task(name="chaos.block", timeout=60)
def block(seconds: float) -> None:
    with recorded():
        time.sleep(seconds)


@app.task(name="chaos.alone", timeout=60, isolated=True)
def alone(seconds: float) -> None:
    with recorded():
        time.sleep(seconds)


@app.task(name=LIMITED_TYPE, timeout=60, running=PLACES["type"])
async def limited(seconds: float) -> None:
    with recorded():
        await asyncio.sleep(seconds)


@app.task(name=SHARING_TYPES[0], timeout=60, limit=shared)
async def sharing(seconds: float) -> None:
    with recorded():
        await asyncio.sleep(seconds)


@app.task(name=SHARING_TYPES[1], timeout=60, limit=shared)
def sharing_too(seconds: float) -> None:
    with recorded():
        time.sleep(seconds)


@app.task(name="chaos.keyed", timeout=60, key=lambda **_: "chaos:shared", running=PLACES["key"])
async def keyed(seconds: float) -> None:
    with recorded():
        await asyncio.sleep(seconds)


@app.task(name="chaos.ordered", timeout=60, retry=AGAIN, key=lambda **_: "chaos-order:one", ordered=True)
def ordered(seconds: float, times: int = 0) -> None:
    """Fails in the first so many attempts: its turn is over when it has ended for good."""
    with recorded():
        time.sleep(seconds)
        if current_job().attempts < times:
            raise ConnectionError("the other side is away")


@app.task(name="chaos.crash", timeout=60)
async def crash(how: str, times: int) -> None:
    """End this process in the first so many attempts."""
    with recorded():
        if current_job().attempt <= times:
            if how == "exit":
                os._exit(3)
            os.kill(os.getpid(), signal.SIGSEGV)
            await asyncio.sleep(5)


@app.task(name="chaos.fail", timeout=60, retry=AGAIN)
async def fail(times: int) -> None:
    with recorded():
        if current_job().attempts < times:
            raise ConnectionError("the other side is away")


class RaisingHandler(logging.Handler):
    def handle(self, record: logging.LogRecord) -> bool:
        raise SystemExit(f"no handler takes {record.name}")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise SystemExit("no words")


@app.task(name="chaos.spoil", timeout=60, retry=AGAIN)
async def spoil(what: str) -> None:
    """Break the worker from inside, once."""
    with recorded():
        if current_job().attempts:
            return
        if what == "log":
            logging.getLogger().addHandler(RaisingHandler())
            raise ConnectionError
        raise Unspeakable


@app.task(name="chaos.tick", timeout=60, cron="* * * * *", catch_up="all")
async def tick() -> None:
    with recorded():
        await asyncio.sleep(0)


TENANT_LIMIT = {"tenant": LIMITED_TENANT, "running": PLACES["tenant"]}
