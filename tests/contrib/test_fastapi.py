"""FastAPI: the store is open while the site is, requests enqueue for their tenant, in sync and async endpoints."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI, Header

from fairlane import Fairlane, QueueFull, StoreUnavailable
from fairlane.contrib.fastapi import busy, jobs_of, lifespan, tenant_of
from fairlane.testing import run_due


@pytest.fixture
def app(tmp_path: Path) -> Fairlane:
    return Fairlane(f"sqlite:///{tmp_path}/jobs.db")


def organization(x_organization: Annotated[str, Header()]) -> str:
    return x_organization


def site(app: Fairlane, **options: object) -> FastAPI:
    @app.task(name="add")
    def add(a: int, b: int) -> int:
        return a + b

    bound = [Depends(tenant_of(organization))]
    web = FastAPI(lifespan=lifespan(app, **options), dependencies=bound)  # type: ignore[arg-type]

    @web.post("/sync")
    def sync(jobs: Annotated[Fairlane, Depends(jobs_of)]) -> str:
        assert jobs is app
        return str(add.enqueue(1, 2).id)

    @web.post("/async")
    async def not_sync() -> str:
        return str((await add.aenqueue(1, 2)).id)

    @web.post("/fails")
    async def fails() -> str:
        raise RuntimeError

    return web


@asynccontextmanager
async def served(web: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the site while it is up."""
    transport = httpx.ASGITransport(web)
    async with (
        web.router.lifespan_context(web),
        httpx.AsyncClient(transport=transport, base_url="http://shop.example.com") as http,
    ):
        yield http


async def post(http: httpx.AsyncClient, path: str, name: str) -> str:
    answer = await http.post(path, headers={"x-organization": name})
    return str(answer.json())


def test_a_request_enqueues_for_its_tenant(app: Fairlane) -> None:
    async def story() -> None:
        async with served(site(app)) as http:
            ids = [(name, await post(http, path, name)) for path in ("/sync", "/async") for name in ("acme", "globex")]
            with pytest.raises(RuntimeError):
                await post(http, "/fails", "acme")
            await asyncio.to_thread(run_due, app)
            for name, job_id in ids:
                job = await app.jobs.aget(job_id)
                assert job is not None
                assert (job.tenant, job.status) == (name, "completed")

    asyncio.run(story())


def test_the_store_is_closed_with_the_site_and_opened_with_the_next(app: Fairlane) -> None:
    async def story(web: FastAPI) -> None:
        async with served(web) as http:
            assert (await app.asnapshot())["shutdown"] is False
            assert await post(http, "/sync", "acme")

    web = site(app)
    for _ in range(2):  # as TestClient does: a lifespan for each test
        asyncio.run(story(web))
        assert app.snapshot()["shutdown"] is True


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ({"capacity": 2}, 429),
        ({"queues": {"default": {"max_per_tenant": 2, "when_full": "reject"}}}, 429),
        ({"tenant_enqueue_rate": "2/min"}, 429),
        ({"tenant_payload_bytes": 5}, 413),
    ],
    ids=["the store is full", "the tenant has too many", "the tenant is too fast", "the payload is too large"],
)
def test_a_job_that_there_is_no_room_for_is_answered_without_a_word_for_operators(
    tmp_path: Path, settings: dict[str, Any], status: int
) -> None:
    async def story() -> None:
        web = site(Fairlane(f"sqlite:///{tmp_path}/jobs.db", **settings))
        web.add_exception_handler(QueueFull, busy)
        async with served(web) as http:
            answers = [
                await http.post(path, headers={"x-organization": "acme"})
                for path in ("/sync", "/async", "/sync", "/async")
            ]
        assert [answer.status_code for answer in answers] == [
            *([200, 200] if status == 429 else [413, 413]),
            *[status] * 2,
        ]
        for answer in answers[2:]:
            assert (int(answer.headers.get("retry-after", "0")) >= 1) == (status == 429)
            assert list(answer.json()) == ["detail"]
            for word in ("acme", "fairlane", "limit", "capacity", "queue"):
                assert word not in answer.text

    asyncio.run(story())


def test_a_site_whose_store_is_away_does_not_start() -> None:
    async def story() -> None:
        async with served(site(Fairlane("postgresql://nobody@127.0.0.1:1/none"))):
            pass

    with pytest.raises(StoreUnavailable):
        asyncio.run(story())


def test_a_worker_runs_in_the_process_if_asked_to_and_an_own_lifespan_is_kept(app: Fairlane) -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def own(web: FastAPI) -> AsyncIterator[dict[str, str]]:
        seen.append("opened")
        yield {"setting": "theirs"}
        seen.append("closed")

    async def story() -> None:
        web = site(app, around=own, worker=True, slots=2)
        async with web.router.lifespan_context(web) as state:
            assert state == {"setting": "theirs"}
            assert await (await app.tasks["add"].aenqueue(1, 2)).aresult(timeout=20) == 3

    asyncio.run(story())
    assert seen == ["opened", "closed"]
