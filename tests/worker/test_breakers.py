"""Tasks behind breakers: spared while their dependency fails, and tried again by themselves."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from fairlane import Breaker, BreakerOpen, Fairlane, MissingData, NonRetryable, RateLimited, Retry
from fairlane.client.handle import Handle
from fairlane.core.ops import Op
from fairlane.core.profiles import ANY, Lane
from fairlane.stores.sqlite import MemoryStore
from tests.worker.conftest import Works, eventually

ONE = Lane("one", 1, (ANY,))
ONCE = Retry(max_attempts=1)
SMTP = Breaker("smtp", threshold=3, cooldown=60)


def breaker(app: Fairlane) -> Any:
    [found] = app.breakers.list()
    return found


def outcomes(app: Fairlane, handle: Handle[Any]) -> list[str]:
    detail = app.jobs.detail(handle)
    assert detail is not None
    return [attempt.outcome for attempt in detail.attempts]


@pytest.mark.requirement("Q10", "L8")
def test_an_open_breaker_puts_jobs_off_uncharged_without_running_them(works: Works) -> None:
    ran: list[int] = []

    @works.app.task(name="send", breaker=SMTP)
    async def send() -> None:
        ran.append(1)

    works.app.breakers.open("smtp", by="ada")
    handle = send.enqueue()
    works.drain()
    job = handle.job()
    assert (ran, job.status, job.attempts, outcomes(works.app, handle)) == ([], "pending", 0, [])
    assert 59 < (job.run_at - job.enqueued_at).total_seconds() < 67


@pytest.mark.requirement("Q10", "L8")
def test_failing_jobs_open_their_breaker_and_spare_the_others(works: Works) -> None:
    ran: list[int] = []

    @works.app.task(name="send", breaker=SMTP, retry=ONCE)
    async def send(n: int) -> None:
        ran.append(n)
        raise ConnectionError("refused")

    handles = [send.enqueue(n) for n in range(20)]
    works.drain(ONE)
    assert ran == [0, 1, 2]
    assert Counter(handle.status() for handle in handles) == {"dead": 3, "pending": 17}
    assert breaker(works.app).state == "open"


@pytest.mark.requirement("Q10")
@pytest.mark.parametrize(
    ("error", "state"),
    [
        (RateLimited(retry_after=60), "open"),
        (ValueError("odd"), "open"),
        (NonRetryable("bad address"), "closed"),
        (MissingData(), "closed"),
    ],
)
def test_which_failures_count(works: Works, error: Exception, state: str) -> None:
    @works.app.task(name="send", breaker=SMTP)
    def send(n: int) -> None:
        raise error

    for n in range(3):
        send.enqueue(n)
    works.drain(ONE)
    assert breaker(works.app).state == state


@pytest.mark.requirement("Q10", "L9")
def test_a_dependency_that_hangs_opens_its_breaker(works: Works) -> None:
    @works.app.task(name="send", breaker=Breaker("smtp", threshold=1), retry=ONCE, timeout=0.05)
    async def send() -> None:
        await asyncio.Event().wait()

    @works.app.task(name="fetch", retry=ONCE, timeout=0.05)
    async def fetch() -> None:
        async with works.app.breakers.guard(Breaker("web", threshold=1)):
            await asyncio.Event().wait()

    send.enqueue()
    fetch.enqueue()
    works.drain()
    assert [(each.name, each.state) for each in works.app.breakers.list()] == [("smtp", "open"), ("web", "open")]


@pytest.mark.requirement("Q10")
def test_after_the_cooldown_one_job_is_tried_and_the_rest_follow(works: Works) -> None:
    is_down = True
    ran: list[int] = []

    @works.app.task(name="send", breaker=Breaker("smtp", threshold=1, cooldown=0.3), retry=Retry(delays=(0.0,)))
    async def send(n: int) -> None:
        ran.append(n)
        if is_down:
            raise ConnectionError

    handles = [send.enqueue(n) for n in range(8)]

    async def story() -> None:
        nonlocal is_down
        engine = works.engine(Lane("four", 4, (ANY,), prompt=True))
        running = asyncio.create_task(engine.run())
        await eventually(lambda: any(each.state == "open" for each in works.app.breakers.list()))
        is_down = False
        await eventually(lambda: all(handle.status() == "completed" for handle in handles), 30)
        engine.stop()
        await running

    asyncio.run(story())
    assert breaker(works.app).state == "closed"
    assert max(handle.job().attempts for handle in handles) <= 2


@pytest.mark.requirement("Q10")
def test_an_open_breaker_inside_a_task_puts_its_job_off_uncharged(works: Works) -> None:
    @works.app.task(name="send")
    async def send() -> None:
        async with works.app.breakers.guard(SMTP):
            raise AssertionError("it was called")

    works.app.breakers.open("smtp")
    handle = send.enqueue()
    works.drain()
    assert (handle.status(), handle.job().attempts, outcomes(works.app, handle)) == ("pending", 0, ["snoozed"])


def test_a_task_may_catch_an_open_breaker_and_do_something_else(works: Works) -> None:
    @works.app.task(name="send")
    def send() -> str:
        try:
            with works.app.breakers.guard("smtp"):
                return "mail"
        except BreakerOpen:
            return "letter"

    works.app.breakers.open("smtp")
    handle = send.enqueue()
    works.drain()
    assert handle.result(timeout=0) == "letter"


def test_a_guard_inside_a_task_of_the_same_breaker_counts_once(works: Works) -> None:
    @works.app.task(name="send", breaker=SMTP, retry=ONCE)
    async def send() -> None:
        async with works.app.breakers.guard(SMTP):
            raise ConnectionError

    @works.app.task(name="block", breaker=SMTP, retry=ONCE)
    def block() -> None:
        with works.app.breakers.guard("smtp"):
            raise ConnectionError

    send.enqueue()
    block.enqueue()
    works.drain(ONE)
    assert breaker(works.app).failures == 2


def test_jobs_behind_a_closed_breaker_cost_no_questions() -> None:
    asked: Counter[str] = Counter()

    class Counted(MemoryStore):
        async def arun(self, op: Op[Any], *, on: object | None = None) -> Any:
            asked[type(op).__name__] += 1
            return await super().arun(op, on=on)

    works = Works()
    works.app = Fairlane(store=Counted(), profile="development")

    @works.app.task(name="send", breaker="smtp")
    async def send() -> None: ...

    works.app.enqueue_many([send.bind() for _ in range(200)])
    works.drain(ONE)
    assert sum(queue.pending for queue in works.app.statistics.counts().queues) == 0
    assert asked["Report"] <= 2
    assert asked["Admit"] == 0


@pytest.mark.requirement("Q10")
def test_jobs_that_were_put_off_do_not_use_a_worker_up(works: Works) -> None:
    ran: list[int] = []

    @works.app.task(name="send", breaker=SMTP)
    async def send() -> None:
        raise AssertionError

    @works.app.task(name="count", priority=9)
    async def count(n: int) -> None:
        ran.append(n)

    works.app.breakers.open("smtp", by="ada")
    works.app.enqueue_many([send.bind() for _ in range(5)])
    works.app.enqueue_many([count.bind(n) for n in range(5)])
    works.drain(ONE, max_jobs=3)
    assert len(ran) == 3
