"""A worker inside the application's own process says of itself what one under a foreman does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from fairlane import Fairlane
from fairlane.core.ops import ListWorkers
from fairlane.core.profiles import ANY, Lane
from fairlane.metrics import exposition
from fairlane.worker.config import WorkerConfig
from tests.worker.conftest import eventually

CONFIG = WorkerConfig(lanes=(Lane("general", 2, (ANY,)),), lease_s=0.6)
ALWAYS = {"memory_mb", "started", "ended", "lane.general.slots", "lane.general.utilisation", "duties.oldest_s"}


@pytest.fixture
def app() -> Iterator[Fairlane]:
    with Fairlane("memory://") as app:
        yield app


def figures(app: Fairlane) -> dict[str, float]:
    [worker] = app.runtime.store.run(ListWorkers()).workers
    return worker.figures


@pytest.mark.requirement("I11")
def test_an_embedded_worker_tells_its_memory_its_lanes_and_the_sizes_of_payloads(app: Fairlane) -> None:
    release = threading.Event()

    @app.task
    def hold(text: str) -> None:
        release.wait(30)

    with app.running(config=CONFIG):
        assert figures(app).keys() >= ALWAYS, "from the first heartbeat on"
        assert 0 < figures(app)["memory_mb"] < 2000
        assert figures(app)["lane.general.slots"] == 2
        jobs = [hold.enqueue("x" * 100) for _ in range(2)]
        asyncio.run(eventually(lambda: figures(app)["lane.general.utilisation"] > 0.9))
        assert 'fairlane_lane_slots{lane="general"}' in exposition(app).decode()
        release.set()
        for job in jobs:
            job.result(30)
        asyncio.run(eventually(lambda: figures(app).get("payload.under_128") == 2))
        assert figures(app)["ended"] == 2


def test_an_embedded_worker_on_the_callers_own_loop_tells_them_too(app: Fairlane) -> None:
    @app.task
    async def work() -> int:
        return 7

    async def story() -> None:
        async with app.running(config=CONFIG):
            assert figures(app).keys() >= ALWAYS
            await asyncio.gather(*[job.aresult(30) for job in [await work.aenqueue() for _ in range(3)]])
            await eventually(lambda: figures(app)["ended"] == 3)

    asyncio.run(story())
    assert app.runtime.store.run(ListWorkers()).workers == ()
