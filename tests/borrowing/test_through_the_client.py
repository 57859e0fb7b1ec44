"""The same through the application's own face: `using(conn=…)`, `enqueue`, `aenqueue`, `enqueue_many`."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from fairlane import Fairlane, wait_for
from fairlane.client.task import SyncTask
from fairlane.core.ops import Deliver
from fairlane.errors import DuplicateJob, InvalidPayload
from fairlane.testing import run_due
from tests.borrowing.conftest import Desk


def application(desk: Desk) -> tuple[Fairlane, SyncTask[[int], int]]:
    app = Fairlane(store=desk.store)

    @app.task(name=f"ship.{desk.kind.store}")
    def ship(order: int) -> int:
        return order

    return app, ship


@pytest.mark.requirement("L4")
def test_an_order_and_its_job_are_one(desk: Desk) -> None:
    app, ship = application(desk)

    async def story() -> None:
        kept, dropped = desk.new_order(), desk.new_order()
        async with desk.kind.open(desk.address) as caller:
            await caller.begin()
            await caller.order(dropped)
            lost = await _enqueue(desk, ship.using(conn=caller.conn), dropped)
            await caller.rollback()
            await caller.begin()
            await caller.order(kept)
            handle = await _enqueue(desk, ship.using(conn=caller.conn, tenant="acme"), kept)
            await caller.commit()
        assert await desk.has_order(kept)
        assert not await desk.has_order(dropped)
        assert handle.status() == "pending"
        ran = await asyncio.to_thread(run_due, app)
        assert [ran.lease.id for ran in ran] == [handle.id]
        assert handle.result(timeout=0) == kept
        assert lost.id not in {ran.lease.id for ran in ran}

    asyncio.run(story())


@pytest.mark.requirement("L4", "W6")
def test_many_at_once_and_duplicates_told_or_raised(desk: Desk) -> None:
    app, ship = application(desk)

    async def story() -> None:
        key = f"client {desk.kind} {desk.colour}"
        order = desk.new_order()
        async with desk.kind.open(desk.address) as caller:
            await caller.begin()
            bound = [ship.bind(number) for number in range(3)] + [ship.using(idempotency_key=key).bind(9)]
            if desk.colour == "async":
                handles = await app.aenqueue_many(bound, conn=caller.conn)
            else:
                handles = app.enqueue_many(bound, conn=caller.conn)
            again = await _enqueue(desk, ship.using(conn=caller.conn, idempotency_key=key), 9)
            assert (again.duplicate, again.id) == (True, handles[3].id)
            with pytest.raises(DuplicateJob):
                await _enqueue(desk, ship.using(conn=caller.conn, idempotency_key=key, on_duplicate="raise"), 9)
            with pytest.raises(InvalidPayload):
                await _enqueue(desk, ship.using(conn=caller.conn), 10**400)
            await caller.order(order)
            await caller.commit()
        assert await desk.has_order(order)
        assert [handle.status() for handle in handles] == ["pending"] * 4
        await asyncio.to_thread(run_due, app)

    asyncio.run(story())


@pytest.mark.requirement("L4", "L18")
def test_an_order_its_signal_and_its_workflow_are_one(desk: Desk) -> None:
    app, ship = application(desk)

    @app.task(name=f"wait.{desk.kind.store}")
    def wait(key: str) -> str:
        return str(wait_for("paid", key=key, timeout=600))

    async def story() -> None:
        key, order = uuid4().hex, desk.new_order()
        waiting = wait.using(tenant="acme").enqueue(key)
        await asyncio.to_thread(run_due, app)
        assert app.jobs.detail(waiting).waits_for is not None
        async with desk.kind.open(desk.address) as caller:
            for is_kept in (False, True):
                await caller.begin()
                if is_kept:
                    await caller.order(order)
                flow = app.workflow(f"order {is_kept}")
                first = flow.add(ship.using(tenant="acme").bind(order))
                last = flow.add(ship.using(tenant="acme").bind(first.result))
                if desk.colour == "async":
                    await app.signals.aemit("paid", is_kept, tenant="acme", key=key, conn=caller.conn)
                    handle = await flow.aenqueue(conn=caller.conn)
                else:
                    app.signals.emit("paid", is_kept, tenant="acme", key=key, conn=caller.conn)
                    handle = flow.enqueue(conn=caller.conn)
                await (caller.commit() if is_kept else caller.rollback())
        app.runtime.store.run(Deliver())
        await asyncio.to_thread(run_due, app)
        assert waiting.result(timeout=0) == "True", "what was rolled back was never heard"
        assert handle.result(last) == order
        assert await desk.has_order(order)

    asyncio.run(story())


async def _enqueue(desk: Desk, ship: SyncTask[[int], int], order: int):  # type: ignore[no-untyped-def]
    return await ship.aenqueue(order) if desk.colour == "async" else ship.enqueue(order)
