"""An application for foremen, importable by processes of their own: `tests.worker.foreman.yard:app`.

Its tasks write to the file that YARD_DIARY names, a line for each event, with the monotonic time that all processes share.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import time
from pathlib import Path
from typing import Any

from fairlane import CurrentJob, Fairlane, Retry, asleep, astep, await_for, current_job, sleep, step, wait_for
from fairlane.worker.turns import TurnLoop

app = Fairlane(os.environ.get("YARD_URL", "memory://"), profile="development")

held_memory: list[bytearray] = []


def diary(event: str, job: CurrentJob | None = None) -> None:
    job = job or current_job()
    fd = os.open(os.environ["YARD_DIARY"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{event} {job.id} {job.attempt} {os.getpid()} {time.monotonic()}\n".encode())
    os.close(fd)


@app.task(name="yard.work", timeout=60)
async def work(seconds: float = 0.0) -> str:
    diary("began")
    await asyncio.sleep(seconds)
    diary("ended")
    return "worked"


@app.task(name="yard.work_once", timeout=60)
async def work_once(seconds: float) -> str:
    """Takes long the first time only."""
    diary("began")
    await asyncio.sleep(seconds if current_job().attempt == 1 else 0.0)
    return "worked"


@app.task(name="yard.block", timeout=60)
def block(seconds: float) -> str:
    diary("began")
    time.sleep(seconds)
    diary("ended")
    return "blocked"


@app.task(name="yard.hold_lock", timeout=60)
async def hold_lock(seconds: float) -> str:
    """Hold the interpreter lock in C, as a bad extension does: not even a thread runs meanwhile."""
    diary("began")
    library = ctypes.PyDLL(None)
    ends_s = time.monotonic() + seconds
    while time.monotonic() < ends_s:
        library.usleep(900_000)
    diary("ended")
    return "held"


@app.task(name="yard.spin", timeout=0.5)
async def spin() -> None:
    diary("began")
    while True:
        pass


@app.task(name="yard.oversleep", timeout=1)
async def oversleep() -> None:
    diary("began")
    time.sleep(60)


@app.task(name="yard.quick", timeout=1)
async def quick() -> None:
    diary("began")


@app.task(name="yard.prompt", timeout=0.5)
async def prompt() -> None:
    diary("began")


@app.task(name="yard.nap", timeout=0.5)
async def nap() -> None:
    diary("began")
    await asyncio.sleep(0.05)


@app.task(name="yard.brief", timeout=0.5)
def brief() -> None:
    diary("began")


@app.task(name="yard.ignore", timeout=0.5)
async def ignore() -> None:
    diary("began")
    while True:
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            continue


@app.task(name="yard.block_for_ever", timeout=0.3, max_attempts=1)
def block_for_ever() -> None:
    diary("began")
    while True:
        time.sleep(0.05)


@app.task(name="yard.exit", timeout=60)
async def exit_(code: int = 3) -> None:
    diary("began")
    os._exit(code)


@app.task(name="yard.moody", timeout=60)
def moody(mood: str) -> int:
    """Ends its process, or does not."""
    diary("began")
    if mood == "bad":
        os._exit(3)
    return os.getpid()


@app.task(name="yard.complain", max_attempts=1)
def complain(words: str) -> None:
    raise ValueError(words)


@app.task(name="yard.fail", retry=Retry(max_attempts=2, delays=(0.0,)))
async def fail() -> None:
    diary("began")
    raise ConnectionError("the other side is away")


@app.task(name="yard.stumble", retry=Retry(max_attempts=3, delays=(4.0,)))
async def stumble() -> None:
    """Fails the first time."""
    diary("began")
    if current_job().attempt == 1:
        raise ConnectionError("the other side is away")


class RaisingHandler(logging.Handler):
    def handle(self, record: logging.LogRecord) -> bool:
        raise SystemExit(f"no handler takes {record.name}")


@app.task(name="yard.sabotage")
async def sabotage(what: str) -> None:
    """Break the worker from inside."""
    diary("began")
    if what == "log":
        logging.getLogger().addHandler(RaisingHandler())
        raise ConnectionError
    if what == "turns" and current_job().attempt == 1:
        monkey: Any = TurnLoop
        monkey._wants = None
    if what == "tasks":
        for task in asyncio.all_tasks():
            task.cancel()


@app.task(name="yard.grow")
async def grow(megabytes: int) -> int:
    held_memory.append(bytearray(megabytes * 2**20))
    diary("grown")
    return os.getpid()


@app.task(name="yard.urgent", queue="critical")
async def urgent() -> str:
    diary("began")
    return "now"


@app.task(name="yard.lot", batch=8, within=0.1, timeout=60)
async def lot(numbers: list[int]) -> list[int]:
    for job in current_job().batch:
        diary("began", job)
    await asyncio.sleep(0.2)
    for job in current_job().batch:
        diary("ended", job)
    return numbers


@app.task(name="yard.total")
async def total(numbers: list[int]) -> int:
    diary("total")
    return sum(numbers)


class Order:
    """What a job with durable steps does, and where it kills its process the first time it comes there."""

    def __init__(self, dies: str) -> None:
        self._dies = dies

    def at(self, place: str) -> None:
        diary(place)
        if place == self._dies and f"killed {current_job().id} " not in Path(os.environ["YARD_DIARY"]).read_text():
            diary("killed")
            os.kill(os.getpid(), signal.SIGKILL)

    def charge(self) -> str:
        self.at("in_charge")
        diary("charged")
        return "charged"

    def ship(self) -> str:
        self.at("in_ship")
        diary("shipped")
        return "shipped"


def _fulfil(dies: str) -> list[str]:
    order = Order(dies)
    charged = step("charge", order.charge)
    order.at("charge_done")
    sleep(0.01)
    order.at("slept")
    paid = wait_for("paid", key=str(current_job().id), timeout=60, type=str)
    order.at("paid")
    shipped = step("ship", order.ship)
    order.at("end")
    return [charged, paid, shipped]


@app.task(name="yard.fulfil", timeout=60)
def fulfil(dies: str) -> list[str]:
    return _fulfil(dies)


@app.task(name="yard.fulfil_alone", timeout=60, isolated=True)
def fulfil_alone(dies: str) -> list[str]:
    return _fulfil(dies)


@app.task(name="yard.afulfil", timeout=60)
async def afulfil(dies: str) -> list[str]:
    order = Order(dies)
    charged = await astep("charge", order.charge)
    order.at("charge_done")
    await asleep(0.01)
    order.at("slept")
    paid = await await_for("paid", key=str(current_job().id), timeout=60, type=str)
    order.at("paid")
    shipped = await astep("ship", order.ship)
    order.at("end")
    return [charged, paid, shipped]
