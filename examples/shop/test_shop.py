"""The shop's own tests: its orders are in its database, its jobs in memory, and no worker runs."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from fastapi.testclient import TestClient
from shop import Base, Order, confirm, engine, web
from sqlalchemy import event
from sqlalchemy.orm import Session

from fairlane import Fairlane, NonRetryable
from fairlane.testing import Sandbox, assert_enqueued, assert_nothing_enqueued, enqueued


@pytest.fixture
def site(fairlane_app: Fairlane) -> Iterator[TestClient]:
    """The site as somebody of acme sees it, without orders. `fairlane_app` is there before its first request."""
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    with TestClient(web, headers={"x-organization": "acme"}) as client:
        yield client


@contextmanager
def failing_commits() -> Iterator[None]:
    def refuse(_: Session) -> None:
        raise OSError("the disk is full")

    event.listen(Session, "before_commit", refuse)
    try:
        yield
    finally:
        event.remove(Session, "before_commit", refuse)


def test_an_order_is_confirmed_by_its_job(site: TestClient, fairlane_jobs: Sandbox) -> None:
    site.post("/orders", params={"email": "ada@example.com"})
    assert_enqueued(confirm, tenant="acme")
    assert site.get("/orders").json() == {"ada@example.com": False}
    fairlane_jobs.run_due()
    assert site.get("/orders").json() == {"ada@example.com": True}


def test_an_order_that_is_refused_leaves_no_job(site: TestClient) -> None:
    assert site.post("/orders", params={"email": "nobody"}).status_code == 422
    assert_nothing_enqueued()
    assert site.get("/orders").json() == {}


def test_a_second_order_of_a_customer_is_confirmed_as_well(site: TestClient, fairlane_jobs: Sandbox) -> None:
    for _ in range(2):
        site.post("/orders", params={"email": "ada@example.com"})
    orders = {job.args["order_id"] for job in enqueued(confirm)}
    assert len(orders) == 2
    fairlane_jobs.run_due()
    with Session(engine) as session:
        assert all(session.get_one(Order, order).is_confirmed for order in orders)


def test_an_order_whose_commit_fails_is_answered_with_an_error(site: TestClient) -> None:
    answers = TestClient(web, headers=site.headers, raise_server_exceptions=False)
    with failing_commits():
        assert answers.post("/orders", params={"email": "ada@example.com"}).status_code == 500
    assert site.get("/orders").json() == {}


def test_an_order_of_another_organization_is_not_confirmed(site: TestClient, fairlane_jobs: Sandbox) -> None:
    site.post("/orders", params={"email": "ada@example.com"})
    order_id = assert_enqueued(confirm).args["order_id"]
    fairlane_jobs.run_due()
    confirm.using(tenant="globex").enqueue(order_id)
    with pytest.raises(NonRetryable, match="another organization"):
        fairlane_jobs.run_due()
