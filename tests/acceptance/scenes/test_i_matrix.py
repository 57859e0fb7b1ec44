"""The test matrix of the document on job isolation, row by row, with a real engine on every store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fairlane import Fairlane, JobFailed, Retry, current_job
from fairlane.core.profiles import Lane
from fairlane.stores.base import Store
from fairlane.worker.config import WorkerConfig
from tests.support.stores import Ground, open_at

pytestmark = pytest.mark.requirement("I14")

KINDS = ("memory", "sqlite-apsw", "postgres", "redis")
FAX = "dartwing_fax.send_fax"


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    ground = Ground()
    yield ground
    ground.close()


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, ground: Ground) -> Iterator[Store]:
    store = open_at(request.param, ground.address(request.param))
    if request.param.startswith("sqlite") and (migrator := store.migrator()) is not None:
        migrator.up()
    yield store
    store.close()


@pytest.fixture
def app(store: Store) -> Iterator[Fairlane]:
    app = Fairlane(store=store, profile="isolation", routes={FAX: "critical", "*.exports.*": "bulk"})
    yield app
    app.close()


@contextmanager
def work(app: Fairlane, *lanes: Lane) -> Iterator[None]:
    """A worker at work while the block lasts."""
    general = (Lane("general", 4, ("critical", "default", "bulk")),)
    with app.running(config=WorkerConfig(lanes=lanes or general, poll_s=0.05)):
        yield


@pytest.mark.requirement("I1", "D8")
def test_queue_routing_a_fax_goes_to_the_critical_queue(app: Fairlane) -> None:
    @app.task(name=FAX)
    def send_fax() -> None: ...

    @app.task(name="core.exports.full_export")
    def export() -> None: ...

    @app.task(name="never.heard.of")
    def other() -> None: ...

    assert [task.enqueue().job().queue for task in (send_fax, export, other)] == ["critical", "bulk", "default"]


@pytest.mark.requirement("I6")
def test_retry_success_a_job_that_fails_once_completes(app: Fairlane) -> None:
    tries: list[int] = []

    @app.task(name="flaky", retry=Retry(max_attempts=3, delays=(0.01,)))
    def flaky() -> int:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("not yet")
        return len(tries)

    handle = flaky.enqueue()
    with work(app):
        assert handle.result(timeout=30) == 2


@pytest.mark.requirement("I6", "I7", "D16")
def test_dlq_routing_a_job_that_fails_three_times_is_a_dead_letter(app: Fairlane) -> None:
    @app.task(name="doomed", retry=Retry(max_attempts=3, delays=(0.01,)))
    def doomed() -> None:
        raise ConnectionError("x" * 3000)

    handle = doomed.using(tenant="ORG-1").enqueue()
    with work(app), pytest.raises(JobFailed):
        handle.result(timeout=30)
    [letter] = app.dead_letters.list(tenant="ORG-1").dead_letters
    assert (letter.job.id, letter.status, letter.job.attempts) == (handle.id, "pending_review", 3)
    assert len(letter.reason) == 2000


@pytest.mark.requirement("I10")
def test_permission_isolation_a_job_that_asks_for_another_org_s_data_is_denied(app: Fairlane) -> None:
    @app.task(name="curious", max_attempts=1)
    def curious() -> None:
        app.jobs.list(tenant="ORG-2")

    own, denied = curious.using(tenant="ORG-2").enqueue(), curious.using(tenant="ORG-1").enqueue()
    with work(app):
        own.result(timeout=30)
        with pytest.raises(JobFailed):
            denied.result(timeout=30)
    assert denied.job().error_type == "PermissionDenied"


@pytest.mark.requirement("I4")
def test_worker_scaling_critical_jobs_start_at_once_while_bulk_and_default_are_full(app: Fairlane) -> None:
    """By position: at most the eight slots of the rest begin another job between the sending of a fax and its start."""
    begun: list[str] = []
    positions: list[int] = []

    @app.task(name="crunch")
    async def crunch(n: int) -> None:
        begun.append("crunch")
        await asyncio.sleep(0.05)

    @app.task(name=FAX)
    async def fax(sent_after: int) -> None:
        positions.append(begun.count("crunch") - sent_after)

    app.enqueue_many([crunch.using(tenant=f"ORG-{n % 3}").bind(n) for n in range(600)])
    with work(app, Lane("critical", 4, ("critical",), prompt=True), Lane("rest", 8, ("default", "bulk"))):
        for _ in range(8):
            fax.using(tenant="ORG-9").enqueue(begun.count("crunch")).result(timeout=30)
    assert len(begun) < 600, "the rest ran dry"
    assert len(positions) == 8
    assert sorted(positions)[4] <= 16, "a fax waits for two rounds of the other slots at most"


@pytest.mark.requirement("I3", "I4")
def test_worker_scaling_high_load_on_critical_itself_is_worked_off_in_order_and_shared(app: Fairlane) -> None:
    """While critical, default and bulk are all full: first in, first out within a tenant, and no tenant waits for
    another's backlog, whatever waits in the other queues."""
    started: list[tuple[str, int]] = []

    @app.task(name="crunch")
    async def crunch() -> None:
        await asyncio.sleep(0.2)

    @app.task(name=FAX)
    async def fax(n: int) -> None:
        job = current_job()
        started.append((job.tenant, n))
        await asyncio.sleep(0.002)

    app.enqueue_many([crunch.using(tenant=f"ORG-{n % 3}").bind() for n in range(600)])
    flood = app.enqueue_many([fax.using(tenant="ORG-1").bind(n) for n in range(300)])
    few = app.enqueue_many([fax.using(tenant="ORG-2").bind(n) for n in range(20)])
    with work(app, Lane("critical", 4, ("critical",), prompt=True), Lane("rest", 8, ("default", "bulk"))):
        for sent in (*few, *flood):
            sent.result(timeout=60)
        waiting = app.queues.depth("default")
    assert waiting > 0, "the load on the other queues was gone before"
    places = [place for place, (tenant, _) in enumerate(started) if tenant == "ORG-2"]
    assert places[-1] <= 2 * len(few) + 4 * 5, "the few share the lane evenly with the flood, from the first on"
    for tenant in ("ORG-1", "ORG-2"):
        order = [n for who, n in started if who == tenant]
        assert all(abs(place - n) < 4 for place, n in enumerate(order)), "four slots: at most three overtake"
