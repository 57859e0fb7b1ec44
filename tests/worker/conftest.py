"""Engines at work on a store of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from fairlane import Fairlane
from fairlane.client.task import Task
from fairlane.core.clock import SystemClock
from fairlane.core.ids import WorkerId
from fairlane.core.ops import Renew
from fairlane.core.profiles import ANY, Lane, ProfileName
from fairlane.stores.sqlite import MemoryStore
from fairlane.worker.config import WorkerConfig
from fairlane.worker.engine import Engine
from tests.worker import shop

GENERAL = Lane("general", 4, (ANY,))


class Ahead(SystemClock):
    """The machine's time, and as much more as a test says."""

    ahead_s = 0.0

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.ahead_s)

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s


class Works:
    """One application over a memory store, and engines that run it for as long as a test wants."""

    def __init__(self, profile: ProfileName = "development") -> None:
        self.time = Ahead()
        self.app = Fairlane(store=MemoryStore(self.time), profile=profile)
        self.app.runtime.tasks.update({name: self._moved(task) for name, task in shop.app.tasks.items()})

    def _moved(self, task: Task[..., Any]) -> Task[..., Any]:
        return type(task)(task.definition, self.app.runtime.enqueuer)

    def task(self, name: str) -> Any:
        return self.app.tasks[f"shop.{name}"]

    def engine(self, *lanes: Lane, **config: Any) -> Engine:
        worker = WorkerId(self.app.runtime.new_job_id())
        self.app.runtime.store.run(Renew(worker=worker, lease_s=3600))
        return Engine(
            self.app, WorkerConfig(lanes=lanes or (GENERAL,), **{"poll_s": 0.2, "grace_s": 5.0, **config}), worker
        )

    def drain(self, *lanes: Lane, **config: Any) -> Engine:
        """Run until nothing is left to do."""
        engine = self.engine(*lanes, drain=True, **config)
        asyncio.run(engine.run())
        return engine


@pytest.fixture
def works() -> Iterator[Works]:
    works = Works()
    yield works
    works.app.close()


async def eventually(condition: Any, within_s: float = 10.0) -> None:
    """Wait until it holds, or fail."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - what it waits for is in a store, a file or another process
            await asyncio.sleep(0.005)
