"""The application that `bench/worker.py` gives its workers. Each job writes down when it began, by the clock that all processes share."""

from __future__ import annotations

import asyncio
import os
import time

from fairlane import Fairlane, current_job

app = Fairlane(os.environ.get("BENCH_URL", "memory://"), profile="development")


@app.task(name="bench.note", timeout=60)
async def note(sent_s: float, sleep_s: float = 0.0) -> None:
    began_s = time.monotonic()
    job = current_job()
    line = f"{job.id} {job.attempt} {sent_s} {began_s} {os.getpid()}\n"
    fd = os.open(os.environ["BENCH_DIARY"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, line.encode())
    os.close(fd)
    if sleep_s:
        await asyncio.sleep(sleep_s)


@app.task(name="bench.nothing", timeout=60)
async def nothing() -> None:
    pass
