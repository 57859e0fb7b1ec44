"""A job and the data it is about are one: both there, or neither."""

from __future__ import annotations

import asyncio

import pytest

from fairlane.errors import FairlaneError
from tests.borrowing.conftest import Desk


@pytest.mark.requirement("L4")
def test_a_job_commits_with_the_callers_row_and_is_seen_only_then(desk: Desk) -> None:
    async def story() -> None:
        job, order = desk.job(), desk.new_order()
        async with desk.kind.open(desk.address) as caller:
            await caller.begin()
            await caller.order(order)
            result = await desk.enqueue(caller, job)
            assert [receipt.disposition for receipt in result.receipts] == ["created"]
            assert not desk.is_there(job)
            await caller.commit()
        assert desk.is_there(job)
        assert await desk.has_order(order)

    asyncio.run(story())


@pytest.mark.requirement("L4")
def test_a_job_goes_with_the_callers_row_when_that_is_rolled_back(desk: Desk) -> None:
    async def story() -> None:
        jobs, order = [desk.job(idempotency_key=f"rolled back {number}") for number in range(3)], desk.new_order()
        async with desk.kind.open(desk.address) as caller:
            await caller.begin()
            await desk.enqueue(caller, *jobs)
            await caller.order(order)
            await caller.rollback()
            assert not any(desk.is_there(job) for job in jobs)
            assert not await desk.has_order(order)
            # The keys are free again, and the connection is as good as before.
            await caller.begin()
            again = await desk.enqueue(caller, *jobs)
            assert [receipt.disposition for receipt in again.receipts] == ["created"] * 3
            await caller.rollback()

    asyncio.run(story())


@pytest.mark.requirement("L4")
def test_a_caller_that_leaves_without_a_commit_leaves_no_job(desk: Desk) -> None:
    async def story() -> None:
        job = desk.job()
        async with desk.kind.open(desk.address) as caller:
            await caller.begin()
            await caller.order(desk.new_order())
            await desk.enqueue(caller, job)
        assert not desk.is_there(job)

    asyncio.run(story())


@pytest.mark.requirement("W6")
def test_a_duplicate_is_an_answer_and_the_transaction_goes_on(desk: Desk) -> None:
    async def story() -> None:
        key = f"duplicate {desk.kind} {desk.colour}"
        first, second, other = (desk.job(idempotency_key=key), desk.job(idempotency_key=key), desk.job(dedup_key=key))
        order = desk.new_order()
        async with desk.kind.open(desk.address) as caller:
            await caller.begin()
            await desk.enqueue(caller, first)
            await caller.commit()
            await caller.begin()
            [duplicate] = (await desk.enqueue(caller, second)).receipts
            assert (duplicate.disposition, duplicate.id) == ("duplicate", first.id)
            [replayed] = (await desk.enqueue(caller, first)).receipts
            assert replayed.disposition == "replayed"
            await desk.enqueue(caller, other)
            await caller.order(order)
            await caller.commit()
        assert await desk.has_order(order)
        assert not desk.is_there(second)
        assert desk.is_there(other)

    asyncio.run(story())


def test_data_the_store_refuses_inside_a_savepoint_leaves_the_caller_able_to_go_on(desk: Desk) -> None:
    async def story() -> None:
        good, bad, order = desk.job(), desk.job(type=None), desk.new_order()
        async with desk.kind.open(desk.address) as caller:
            await caller.begin()
            await caller.order(order)
            await desk.enqueue(caller, good)
            await caller.execute("savepoint before_it")
            with pytest.raises(FairlaneError):
                await desk.enqueue(caller, bad)
            await caller.execute("rollback to savepoint before_it")
            await caller.commit()
        assert desk.is_there(good)
        assert not desk.is_there(bad)
        assert await desk.has_order(order)

    asyncio.run(story())


def test_many_jobs_in_one_call_and_many_calls_in_one_transaction(desk: Desk) -> None:
    async def story() -> None:
        jobs = [desk.job() for _ in range(30)]
        async with desk.kind.open(desk.address) as caller:
            await caller.begin()
            for start in range(0, 30, 10):
                result = await desk.enqueue(caller, *jobs[start : start + 10])
                assert [receipt.id for receipt in result.receipts] == [job.id for job in jobs[start : start + 10]]
            await caller.commit()
        assert all(desk.is_there(job) for job in jobs)

    asyncio.run(story())
