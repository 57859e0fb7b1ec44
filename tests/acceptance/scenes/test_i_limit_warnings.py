"""Document I, row 2 of its tests: "Enqueue 501 jobs for one org: 501st logs warning, still enqueued", as it is written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest

from fairlane import Fairlane
from fairlane.api.app import create_api
from fairlane.core.clock import Clock, SystemClock
from fairlane.core.ops import ALL_TENANTS, ReadEvents
from fairlane.stores.base import Store
from fairlane.stores.sqlite import MemoryStore
from fairlane.worker.duties.limit_warnings import EVERY_S
from fairlane.worker.duties.loop import JITTER, TOGETHER_S
from tests.faults.eventually import eventually
from tests.support.stores import Ground, open_at

pytestmark = pytest.mark.requirement("I2", "I14", "D23")

Put = Callable[[Fairlane], object]


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    ground = Ground()
    yield ground
    ground.close()


@pytest.fixture(params=("memory", "sqlite-apsw", "postgres", "redis"))
def store(request: pytest.FixtureRequest, ground: Ground) -> Iterator[Store]:
    store = open_at(request.param, ground.address(request.param))
    if request.param.startswith("sqlite") and (migrator := store.migrator()) is not None:
        migrator.up()
    yield store
    store.close()


class Ahead(SystemClock):
    """The machine's time, and as much more as a test says."""

    ahead_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s


def isolated(store: Store, clock: Clock | None = None) -> Fairlane:
    app = Fairlane(store=store, profile="isolation", clock=clock)

    @app.task(name="sync.process_delta")
    def sync(connection_id: int = 1) -> None: ...

    return app


def warnings_of(app: Fairlane, caplog: pytest.LogCaptureFixture) -> tuple[list[str], list[object]]:
    """What the log says, and what was published."""
    events = app.runtime.store.run(ReadEvents(scope=ALL_TENANTS, kinds=("job_limit_warning",))).events
    return [record.getMessage() for record in caplog.records], [event.data["organization"] for event in events]


def put_one(app: Fairlane) -> object:
    return app.tasks["sync.process_delta"].using(tenant="ORG-1").enqueue()


def put_by_name(app: Fairlane) -> object:
    return app.tasks.enqueue("sync.process_delta", {}, tenant="ORG-1")


def put_as_another_application(app: Fairlane) -> object:
    return app.tasks.enqueue("sync.process_delta", {}, tenant="ORG-1", rules=OTHER.runtime)


OTHER = isolated(MemoryStore())
"""Whose rules its jobs follow, wherever they are enqueued."""


@pytest.mark.requirement("I13")
@pytest.mark.parametrize("put", [put_one, put_by_name, put_as_another_application])
def test_the_501st_of_501_jobs_enqueued_one_by_one_warns_once_and_is_queued(
    store: Store, put: Put, caplog: pytest.LogCaptureFixture
) -> None:
    with isolated(store) as app, caplog.at_level(logging.WARNING, "fairlane.client"):
        for _ in range(500):
            put(app)
        assert warnings_of(app, caplog) == ([], [])
        for _ in range(20):
            put(app)
        [logged], [published] = warnings_of(app, caplog)
        assert logged == 'tenant "ORG-1" is at its limit of 500 jobs in queue "default"; further ones are queued'
        assert published == "ORG-1"
        assert app.queues.depth("default") == 520


def test_jobs_enqueued_on_a_loop_side_by_side_warn_once(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    async def story(app: Fairlane) -> None:
        task = app.tasks["sync.process_delta"].using(tenant="ORG-1")
        for _ in range(51):
            await asyncio.gather(*(task.aenqueue() for _ in range(10)))

    with isolated(store) as app, caplog.at_level(logging.WARNING, "fairlane.client"):
        asyncio.run(story(app))
        logged, published = warnings_of(app, caplog)
        assert len(logged) == len(published) == 1


def test_the_501st_job_posted_to_the_api_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    async def story(app: Fairlane) -> None:
        token = (await app.tokens.acreate("poster", roles=["operator"], by="mira")).secret
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(create_api(app)), base_url="http://jobs") as http:
            for n in range(1, 511):
                job = {"type": "sync.process_delta", "payload": {}, "tenant": "ORG-1"}
                answer = await http.post("/api/jobs/", json=job, headers=headers)
                assert answer.status_code == 201, answer.text
                assert bool(caplog.records) is (n > 500)

    with isolated(MemoryStore()) as app, caplog.at_level(logging.WARNING, "fairlane.client"):
        asyncio.run(story(app))
        logged, published = warnings_of(app, caplog)
        assert len(logged) == len(published) == 1


class Still(SystemClock):
    """For a process whose last job is its last of this second: it never counts again."""

    def monotonic(self) -> float:
        return 1.0


def test_what_several_processes_cross_together_is_found_by_a_worker_though_nobody_enqueues_again(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Each knows only its own jobs in between, and none of them reaches the limit."""
    assert EVERY_S * (1 + JITTER) + TOGETHER_S <= 2
    apps = [isolated(store, Still()) for _ in range(3)]
    with ExitStack() as stack, caplog.at_level(logging.WARNING, "fairlane.client"):
        worker = stack.enter_context(isolated(store))
        worker.queues.pause("default", by="ada")
        for _ in range(167):
            for app in apps:
                put_one(app)
        assert warnings_of(worker, caplog) == ([], [])
        stack.enter_context(worker.running(slots=1))
        eventually(lambda: warnings_of(worker, caplog)[1])
        for app in apps:
            put_one(app)
        worker.queues.resume("default", by="ada")
        eventually(lambda: worker.queues.depth("default") == 0, 40)
        logged, published = warnings_of(worker, caplog)
        assert published == ["ORG-1"]
        assert logged == ['tenant "ORG-1" is at its limit of 500 jobs in queue "default"; further ones are queued']


def test_what_two_processes_cross_together_is_found_by_the_next_job_a_second_later(
    ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    """Each knows only its own jobs in between: here two applications on one store, and a clock that is moved."""
    clock = Ahead()
    store = open_at("postgres", ground.address("postgres"))
    one, other = isolated(store, clock), isolated(store, clock)
    with one, other, caplog.at_level(logging.WARNING, "fairlane.client"):
        for _ in range(251):
            put_one(one)
            put_one(other)
        clock.ahead_s = 1.0
        put_one(other)
        assert "at its limit of 500 jobs" in caplog.text
    store.close()
