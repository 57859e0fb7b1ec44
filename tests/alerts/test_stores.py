"""Alerts and metrics on every store there is, by its own clock."""

from __future__ import annotations

import asyncio

import pytest

from fairlane import Fairlane
from fairlane.alerts import AlertDuty
from fairlane.alerts.duty import NAME
from fairlane.core.breaker import BreakerPolicy
from fairlane.core.ids import WorkerId
from fairlane.core.ops import ALL_TENANTS, AddStats, Check, ReadAlerts, ReadEvents, Renew, Report, StatRow, TakeDuty
from fairlane.metrics import aexposition
from tests.metrics.shop import read, value
from tests.support.stores import Ground, open_at

KINDS = ("memory", "sqlite-apsw", "postgres")


class Apps:
    """Two applications on one store, as in two processes."""

    def __init__(self, ground: Ground, kind: str) -> None:
        address = ground.address(kind)
        first = open_at(kind, address)
        self.stores = [first, first if kind == "memory" else open_at(kind, address)]
        self.apps = [Fairlane(store=store) for store in self.stores]

    async def close(self) -> None:
        for store in dict.fromkeys(self.stores):
            await store.aclose()


@pytest.fixture(params=KINDS)
def apps(request: pytest.FixtureRequest, ground: Ground) -> Apps:
    return Apps(ground, request.param)


@pytest.mark.requirement("I12", "L14")
def test_two_that_look_at_once_tell_once_and_go_on_from_what_is_kept(apps: Apps) -> None:
    async def story() -> None:
        store = apps.apps[0].runtime.access
        await store.arun(Report(name="stripe", policy=BreakerPolicy(threshold=1), failures=1))
        now = (await store.arun(Check())).now
        duties = [AlertDuty(app) for app in apps.apps]
        told = await asyncio.gather(*(duty.evaluate(now) for duty in duties))
        assert sorted(map(len, told)) == [0, 1]
        events = (await store.arun(ReadEvents(scope=ALL_TENANTS, kinds=("alert_fired",)))).events
        assert [event.data["about"] for event in events] == ["stripe"]
        [alert] = (await store.arun(ReadAlerts())).alerts
        assert (alert.rule, alert.state, alert.fired_at) == ("breaker_open", "firing", now)
        again = [AlertDuty(app) for app in apps.apps]  # restarted
        assert [await duty.evaluate(now) for duty in again] == [(), ()]
        await apps.close()

    asyncio.run(story())


def test_the_duty_is_taken_by_one(apps: Apps) -> None:
    async def story() -> None:
        steps = [await AlertDuty(app).step() for app in apps.apps]
        assert steps == [15.0, 15.0]
        assert not (await apps.apps[0].runtime.access.arun(TakeDuty(name=NAME, every_s=10.0))).taken
        await apps.close()

    asyncio.run(story())


@pytest.mark.requirement("I11", "Q14")
def test_metrics_are_read_from_every_store(apps: Apps) -> None:
    async def story() -> None:
        app = apps.apps[0]

        @app.task(name="mail.send", queue="mail")
        def send() -> None: ...

        worker = WorkerId(app.runtime.new_job_id())
        await app.runtime.access.arun(Renew(worker=worker, lease_s=60))
        families = read(await aexposition(app))
        assert value(families, "redis_health") == 1
        minute = (await app.runtime.access.arun(Check())).now.replace(second=0, microsecond=0)
        row = StatRow(minute=minute, type="mail.send", queue="mail", tenant="acme", completed=3, run_us=9, run_buckets={1: 3})  # fmt: skip
        await app.runtime.access.arun(AddStats(worker=worker, batch=1, rows=(row,)))
        await send.using(tenant="acme").aenqueue()
        # Another process than the one above: it has seen nothing yet, and its first look counts nothing.
        fresh = Fairlane(store=apps.stores[1])
        families = read(await aexposition(fresh))
        assert value(families, "jobs_completed_total", org="acme", status="success") == 0
        assert value(families, "queue_depth", queue="mail") == 1
        assert value(families, "org_job_count", org="acme", queue="mail") == 1
        own = read(await aexposition(fresh, tenant="acme"))
        assert value(own, "queue_depth", queue="mail") == 1
        await apps.close()

    asyncio.run(story())
