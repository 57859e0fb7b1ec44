"""A shop for many organizations: orders by SQLAlchemy, their jobs in the same transaction, a site by FastAPI.

uvicorn shop:web
fairlane worker shop:jobs
"""

import os
from collections.abc import Iterator
from typing import Annotated

from fastapi import Depends, FastAPI, Header, HTTPException
from sqlalchemy import create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from fairlane import Fairlane, NonRetryable, QueueFull, current_job
from fairlane.contrib.fastapi import busy, lifespan, tenant_of

URL = os.environ.get("SHOP_URL", "sqlite:///shop.db")
engine = create_engine(URL.replace("postgresql://", "postgresql+psycopg://"))
jobs = Fairlane(URL, sqlite_library="stdlib")  # the SQLite library that SQLAlchemy uses


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
            raise NonRetryable("an order of another organization")
        order.is_confirmed = True
        return order.email


def organization(x_organization: Annotated[str, Header()]) -> str:
    return x_organization  # from your own log-in: never from a header that anybody can write


def session() -> Iterator[Session]:
    with Session(engine) as session, session.begin():
        yield session


Organization = Annotated[str, Depends(tenant_of(organization))]
InTransaction = Annotated[Session, Depends(session, scope="function")]  # commits before the response is sent
web = FastAPI(lifespan=lifespan(jobs))
web.add_exception_handler(QueueFull, busy)


@web.post("/orders")
def place(email: str, tenant: Organization, session: InTransaction) -> str:
    order = Order(organization=tenant, email=email)
    session.add(order)
    session.flush()
    handle = confirm.using(conn=session).enqueue(order.id)
    if "@" not in email:
        raise HTTPException(422, "no address")  # neither the order nor its job is left
    return str(handle.id)


@web.get("/orders")
def orders(tenant: Organization, session: InTransaction) -> dict[str, bool]:
    """Whether each is confirmed, by address."""
    placed = session.scalars(select(Order).where(Order.organization == tenant))
    return {order.email: order.is_confirmed for order in placed}
