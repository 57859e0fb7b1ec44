"""A shop with three tenants on FastAPI and SQLAlchemy, from the request to the worker, on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from sqlalchemy import create_engine, text

from fairlane import Fairlane
from fairlane.api import Person, create_api
from tests.support.stores import Ground, ground

__all__ = ["ground"]

TENANTS = ("acme", "globex", "initech")
SHOP = """
import os
from collections.abc import Iterator
from typing import Annotated

from fastapi import Depends, FastAPI, Header, HTTPException
from sqlalchemy import create_engine, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from fairlane import Fairlane, NonRetryable, current_job
from fairlane.contrib.fastapi import lifespan, tenant_of

engine = create_engine(os.environ["SHOP_DATABASE"])
jobs = Fairlane(os.environ["SHOP_JOBS"], sqlite_library="stdlib")


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    organization: Mapped[str]
    email: Mapped[str]
    is_confirmed: Mapped[bool] = mapped_column(default=False)


Base.metadata.create_all(engine)


@jobs.task(name="confirm")
def confirm(order_id: int) -> str:
    with Session(engine) as session, session.begin():
        order = session.get_one(Order, order_id)
        if order.organization != current_job().tenant:
            raise NonRetryable("an order of another tenant")
        order.is_confirmed = True
        return order.email


def organization(x_organization: Annotated[str, Header()]) -> str:
    return x_organization


def session() -> Iterator[Session]:
    with Session(engine) as session, session.begin():
        yield session


web = FastAPI(lifespan=lifespan(jobs))


@web.post("/orders")
def place(
    email: str,
    tenant: Annotated[str, Depends(tenant_of(organization))],
    session: Annotated[Session, Depends(session)],
) -> str:
    order = Order(organization=tenant, email=email)
    session.add(order)
    session.flush()
    handle = confirm.using(conn=session, idempotency_key=email).enqueue(order.id)
    if "@" not in email:
        raise HTTPException(422, "no address")
    return str(handle.id)


def orders() -> int:
    with Session(engine) as session:
        return session.scalar(select(func.count()).select_from(Order)) or 0
"""


class Shop:
    """The shop in a directory of its own: its site in this process, its workers in others."""

    def __init__(self, place: Path, database: str, jobs: str) -> None:
        self.database = database
        self._place, self._env = place, {"SHOP_DATABASE": database, "SHOP_JOBS": jobs}
        (place / "shop.py").write_text(SHOP, "utf-8")
        self.jobs = Fairlane(jobs, sqlite_library="stdlib")

    def python(self, *arguments: str) -> str:
        environment = {**os.environ, **self._env, "PYTHONPATH": str(self._place)}
        ran = subprocess.run(
            [sys.executable, *arguments],
            cwd=self._place, env=environment, capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        return ran.stdout


@pytest.fixture(params=["sqlite", "postgres"])
def shop(request: pytest.FixtureRequest, ground: Ground, tmp_path: Path) -> Iterator[Shop]:
    if request.param == "sqlite":
        shop = Shop(tmp_path, f"sqlite:///{tmp_path}/shop.db", f"sqlite:///{tmp_path}/shop.db")
    else:
        address = ground.address("postgres")
        shop = Shop(tmp_path, address.replace("postgresql://", "postgresql+psycopg://"), address)
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
    print(set(placed), set(refused), shop.orders())

asyncio.run(day())
"""


def test_orders_and_their_jobs_are_one_for_each_tenant(shop: Shop) -> None:
    """Requests that fail leave neither an order nor a job; each tenant's jobs run as that tenant, and it sees them alone."""
    assert shop.python("-c", SITE).strip() == "{200} {422} 9"
    page = shop.jobs.jobs.list(type="confirm")
    assert sorted(job.tenant for job in page.jobs) == sorted(TENANTS * 3)

    shop.python("-m", "fairlane", "worker", "shop:jobs", "--drain", "--processes", "1", "--slots", "3")
    engine = create_engine(shop.database)
    with engine.connect() as connection:
        assert connection.scalar(text("select count(*) from orders where is_confirmed")) == 9
    engine.dispose()

    for tenant in TENANTS:
        seen = asyncio.run(listed_by(shop.jobs, tenant))
        assert {job["tenant"] for job in seen} == {tenant}
        assert {job["status"] for job in seen} == {"completed"}
        assert len(seen) == 3


async def listed_by(jobs: Fairlane, tenant: str) -> list[dict[str, str]]:
    """What somebody who belongs to one tenant sees of the jobs."""
    api = create_api(jobs, users=lambda request: Person(name="ada", roles=("viewer",), tenant=tenant))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="https://jobs") as http:
        found: list[dict[str, str]] = (await http.get("/api/jobs/")).json()["jobs"]
        return found
