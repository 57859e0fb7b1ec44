"""Resources as an application writes them: registered, replaced in tests, refused where they cannot work."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from fairlane import Fairlane, InvalidOption
from fairlane.errors import NoCurrentJob
from fairlane.testing import run_due


@pytest.mark.requirement("Q9", "L6")
def test_a_job_that_returned_has_failed_if_its_session_cannot_commit(app: Fairlane) -> None:
    @app.resource
    def session() -> Iterator[list[str]]:
        work: list[str] = []
        yield work
        raise ConnectionError(f"commit of {work} failed")

    @app.task(name="write", max_attempts=1)
    def write() -> None:
        session().append("row")

    handle = write.enqueue()
    run_due(app)
    assert (handle.status(), handle.job().last_error) == ("dead", "commit of ['row'] failed")


@pytest.mark.requirement("Q9")
def test_resources_close_newest_first_each_told_how_the_work_ended(app: Fairlane) -> None:
    closed: list[tuple[str, str]] = []

    def told(name: str) -> Callable[[], AsyncIterator[str]]:
        async def resource() -> AsyncIterator[str]:
            try:
                yield name
            except Exception as error:
                closed.append((name, str(error)))
                if name == "second":
                    raise OSError("while closing") from error
                raise

        return resource

    first, second, third = (app.resource(told(name)) for name in ("first", "second", "third"))

    @app.task(name="use", max_attempts=1)
    async def use() -> None:
        await first()
        await second()
        await third()
        raise ConnectionError("the work")

    handle = use.enqueue()
    run_due(app)
    assert closed == [("third", "the work"), ("second", "the work"), ("first", "the work")]
    assert handle.job().last_error == "the work"


def test_a_resource_that_swallows_the_failure_does_not_save_the_job(app: Fairlane) -> None:
    @app.resource
    def session() -> Iterator[int]:
        with contextlib.suppress(ConnectionError):
            yield 1

    @app.task(name="use", max_attempts=1)
    def use() -> None:
        session()
        raise ConnectionError

    handle = use.enqueue()
    run_due(app)
    assert handle.status() == "dead"


@pytest.mark.requirement("L6")
def test_a_resource_may_use_another(app: Fairlane) -> None:
    @app.resource(scope="worker")
    async def engine() -> AsyncIterator[str]:
        yield "engine"

    @app.resource
    async def session() -> AsyncIterator[str]:
        yield f"session of {await engine()}"

    @app.task(name="use")
    async def use() -> str:
        return await session()

    handle = use.enqueue()
    run_due(app)
    assert handle.result(timeout=0) == "session of engine"


def test_concurrent_parts_of_one_job_share_its_session(app: Fairlane) -> None:
    opened: list[int] = []

    @app.resource
    async def session() -> AsyncIterator[int]:
        opened.append(1)
        await asyncio.sleep(0)
        yield len(opened)

    @app.task(name="use")
    async def use() -> list[int]:
        return list(await asyncio.gather(*(session() for _ in range(10))))

    handle = use.enqueue()
    run_due(app)
    assert handle.result(timeout=0) == [1] * 10


@pytest.mark.requirement("L6")
def test_a_test_puts_its_own_value_in_the_place_of_a_resource(app: Fairlane) -> None:
    @app.resource
    def mailer() -> Iterator[list[str]]:
        raise AssertionError("not in a test")
        yield

    @app.resource
    async def session() -> AsyncIterator[str]:
        raise AssertionError("not in a test")
        yield

    @app.task(name="send")
    async def send(to: str) -> str:
        mailer().append(to)
        return await session()

    with mailer.replaced([]) as sent, session.replaced("fake"):
        assert asyncio.run(send("ada")) == "fake"
        handle = send.enqueue("bob")
        run_due(app)
    assert (sent, handle.result(timeout=0)) == (["ada", "bob"], "fake")


def test_outside_a_job_there_is_no_resource(app: Fairlane) -> None:
    @app.resource
    def session() -> Iterator[int]:
        yield 1

    @app.resource(scope="worker")
    async def engine() -> AsyncIterator[int]:
        yield 1

    with pytest.raises(NoCurrentJob, match=r"no job runs here: resource .*session works inside a task's code"):
        session()
    with pytest.raises(NoCurrentJob, match="engine"):
        asyncio.run(engine())  # type: ignore[arg-type]


BAD: list[tuple[Callable[[Fairlane], Any], str]] = [
    (lambda app: app.resource(lambda: 5), "that yields its value once"),  # type: ignore[arg-type]
    (lambda app: app.resource(scope="tenant"), "one of job, worker"),  # type: ignore[call-overload]
]


@pytest.mark.parametrize(("register", "problem"), BAD)
def test_a_bad_resource_is_refused_when_it_is_registered(
    app: Fairlane, register: Callable[[Fairlane], Any], problem: str
) -> None:
    def needy(url: str) -> Iterator[str]:
        yield url

    with pytest.raises(InvalidOption, match=problem):
        register(app)
    with pytest.raises(InvalidOption, match="no parameters to fill"):
        app.resource(needy)  # type: ignore[arg-type]
