"""A shop with three tenants on FastAPI and SQLAlchemy, from the request to the worker, on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import copy

import httpx
import pytest
from sqlalchemy import create_engine, text

from fairlane import Fairlane
from fairlane.api import Person, create_api
from tests.support.stores import Ground, ground

__all__ = ["ground"]

TENANTS = ("acme", "globex", "initech")
EXAMPLE = Path(__file__).parents[2] / "examples" / "shop"


class Shop:
    """The example in a directory of its own: its site in one process, its workers in others."""

    def __init__(self, place: Path, url: str) -> None:
        self.database = url.replace("postgresql://", "postgresql+psycopg://")
        self._place, self.url = place, url
        for file in ("shop.py", "conftest.py", "test_shop.py", "pytest.ini"):
            copy(EXAMPLE / file, place)
        self.jobs = Fairlane(url, sqlite_library="stdlib")

    def python(self, *arguments: str, **settings: str) -> str:
        environment = {**os.environ, "SHOP_URL": self.url, "PYTHONPATH": str(self._place), **settings}
        ran = subprocess.run(
            [sys.executable, *arguments],
            cwd=self._place, env=environment, capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        return ran.stdout


@pytest.fixture(params=["sqlite", "postgres"])
def shop(request: pytest.FixtureRequest, ground: Ground, tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path, f"sqlite:///{tmp_path}/shop.db" if request.param == "sqlite" else ground.address("postgres"))
    yield shop
    shop.jobs.close()


SITE = f"""
import asyncio, httpx, shop

async def day():
    transport = httpx.ASGITransport(shop.web)
    async with shop.web.router.lifespan_context(shop.web), httpx.AsyncClient(transport=transport, base_url="http://shop") as http:
        async def order(tenant, email):
            answer = await http.post("/orders", params={{"email": email}}, headers={{"x-organization": tenant}})
            return answer.status_code
        placed = [await order(tenant, f"{{number}}@{{tenant}}.example.com") for tenant in {TENANTS!r} for number in range(3)]
        refused = [await order(tenant, "nobody") for tenant in {TENANTS!r}]
    print(set(placed), set(refused))

asyncio.run(day())
"""


def test_orders_and_their_jobs_are_one_for_each_tenant(shop: Shop) -> None:
    """Requests that fail leave neither an order nor a job; each tenant's jobs run as that tenant, and it sees them alone."""
    assert shop.python("-c", SITE).strip() == "{200} {422}"
    page = shop.jobs.jobs.list(type="confirm")
    assert sorted(job.tenant for job in page.jobs) == sorted(TENANTS * 3)

    shop.python("-m", "fairlane", "worker", "shop:jobs", "--drain", "--processes", "1", "--slots", "3")
    engine = create_engine(shop.database)
    with engine.connect() as connection:
        assert connection.scalar(text("select count(*) from orders where is_confirmed")) == 9
        assert connection.scalar(text("select count(*) from orders")) == 9
    engine.dispose()

    for tenant in TENANTS:
        seen = asyncio.run(listed_by(shop.jobs, tenant))
        assert {job["tenant"] for job in seen} == {tenant}
        assert {job["status"] for job in seen} == {"completed"}
        assert len(seen) == 3


SUITE = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis")


@pytest.mark.parametrize("shop", ["sqlite"], indirect=True)
def test_the_shop_s_own_suite_passes_and_leaves_its_orders_and_jobs_alone(shop: Shop) -> None:
    shop.python("-c", SITE)
    assert "5 passed" in shop.python(*SUITE)
    assert len(shop.jobs.jobs.list(type="confirm").jobs) == 9
    engine = create_engine(shop.database)
    with engine.connect() as connection:
        assert connection.scalar(text("select count(*) from orders")) == 9
    engine.dispose()


@pytest.mark.long
@pytest.mark.parametrize("shop", ["postgres"], indirect=True)
def test_the_shop_s_own_suite_passes_in_a_database_of_postgresql(shop: Shop) -> None:
    assert "5 passed" in shop.python(*SUITE, SHOP_TEST_URL=shop.url)
    assert shop.jobs.jobs.list(type="confirm").jobs == ()


async def listed_by(jobs: Fairlane, tenant: str) -> list[dict[str, str]]:
    """What somebody who belongs to one tenant sees of the jobs."""
    api = create_api(jobs, users=lambda request: Person(name="ada", roles=("viewer",), tenant=tenant))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="https://jobs") as http:
        found: list[dict[str, str]] = (await http.get("/api/jobs/")).json()["jobs"]
        return found
