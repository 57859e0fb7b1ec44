"""The shop's own tests: its orders are in its database, its jobs in memory, and no worker runs."""

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from shop import Base, confirm, engine, web

from fairlane import Fairlane, NonRetryable
from fairlane.testing import Sandbox, assert_enqueued, assert_nothing_enqueued, enqueued


@pytest.fixture
def site(fairlane_app: Fairlane) -> Iterator[TestClient]:
    """The site as somebody of acme sees it, without orders. `fairlane_app` is there before its first request."""
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    with TestClient(web, headers={"x-organization": "acme"}) as client:
        yield client


def test_an_order_is_confirmed_by_its_job(site: TestClient, fairlane_jobs: Sandbox) -> None:
    site.post("/orders", params={"email": "ada@example.com"})
    assert_enqueued(confirm, tenant="acme", idempotency_key="ada@example.com")
    assert site.get("/orders").json() == {"ada@example.com": False}
    fairlane_jobs.run_due()
    assert site.get("/orders").json() == {"ada@example.com": True}


def test_an_order_that_is_refused_leaves_no_job(site: TestClient) -> None:
    assert site.post("/orders", params={"email": "nobody"}).status_code == 422
    assert_nothing_enqueued()
    assert site.get("/orders").json() == {}


def test_an_order_sent_twice_has_one_job(site: TestClient) -> None:
    first, second = (site.post("/orders", params={"email": "ada@example.com"}).json() for _ in range(2))
    assert first == second
    assert len(enqueued(confirm)) == 1


def test_an_order_of_another_organization_is_not_confirmed(site: TestClient, fairlane_jobs: Sandbox) -> None:
    site.post("/orders", params={"email": "ada@example.com"})
    order_id = assert_enqueued(confirm).args["order_id"]
    fairlane_jobs.run_due()
    confirm.using(tenant="globex").enqueue(order_id)
    with pytest.raises(NonRetryable, match="another organization"):
        fairlane_jobs.run_due()
