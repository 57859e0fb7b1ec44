"""The application of the chaos run: its tasks write what they do to a file outside the store, YARD_DIARY.

A line for each event, with the monotonic time that all processes of a machine share: `began`, `alive` every few
milliseconds, `ended`. So what ran, and until when, is known of processes that were killed, too.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time

from fairlane import Fairlane, Retry, current_job

LIMIT = 3
ALIVE_S = 0.03

app = Fairlane(os.environ.get("YARD_URL", "memory://"), profile="production")
AGAIN = Retry(max_attempts=20, delays=(0.1,))


def record(event: str) -> None:
    job = current_job()
    fd = os.open(os.environ["YARD_DIARY"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{event} {job.type} {job.id} {job.attempt} {os.getpid()} {time.monotonic()}\n".encode())
    os.close(fd)


async def live(seconds: float) -> None:
    record("began")
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        await asyncio.sleep(ALIVE_S)
        record("alive")
    record("ended")


@app.task(name="site.work", timeout=30, retry=AGAIN)
async def work(seconds: float) -> None:
    await live(seconds)


@app.task(name="site.block", timeout=30, retry=AGAIN)
def block(seconds: float) -> None:
    asyncio.run(live(seconds))


@app.task(name="site.limited", timeout=30, retry=AGAIN, running=LIMIT)
async def limited(seconds: float) -> None:
    await live(seconds)


@app.task(name="site.crash", timeout=30)
async def crash() -> None:
    record("began")
    os._exit(3)


class RaisingHandler(logging.Handler):
    def handle(self, record: logging.LogRecord) -> bool:
        raise SystemExit(f"no handler takes {record.name}")


@app.task(name="site.noise", timeout=30, max_attempts=1)
async def noise() -> None:
    logging.getLogger().addHandler(RaisingHandler())
    raise ConnectionError("nobody hears of it")


@app.task(name="site.minute", cron="* * * * *", timeout=30, retry=AGAIN)
async def minute() -> None:
    await live(0.0)
