"""Many jobs of one task, from rows of arguments."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from fairlane import Fairlane, SyncTask
from fairlane.errors import InvalidArguments, InvalidOption, StoreError, TenantLimitReached
from tests.support.stores import Ground, ground, open_at

__all__ = ["ground"]

Add = SyncTask[[int, int], int]


@pytest.fixture
def add(app: Fairlane) -> Add:
    @app.task(name="add")
    def add(a: int, b: int = 0) -> int:
        return a + b

    return add


def arguments(app: Fairlane) -> list[dict[str, int]]:
    return [json.loads(job.payload) for job in reversed(app.jobs.list(limit=200).jobs)]


def test_each_row_is_a_job_by_name_or_in_the_order_of_the_arguments(app: Fairlane, add: Add) -> None:
    rows: list[Any] = [{"a": 1, "b": 2}, (3, 4), [5]]
    assert add.using(tenant="acme", priority=2).enqueue_map(rows) == 3
    assert arguments(app) == [{"a": 1, "b": 2}, {"a": 3, "b": 4}, {"a": 5}]
    assert {(job.tenant, job.priority) for job in app.jobs.list().jobs} == {("acme", 2)}


def test_rows_are_taken_as_they_are_needed_and_progress_follows_each_commit(app: Fairlane, add: Add) -> None:
    taken, seen = [], []

    def source() -> Iterator[tuple[int]]:
        for n in range(25):
            taken.append(n)
            yield (n,)

    def progress(enqueued: int) -> None:
        seen.append((enqueued, len(taken), len(arguments(app))))

    assert add.enqueue_map(source(), chunk=10, progress=progress) == 25
    assert seen == [(10, 10, 10), (20, 20, 20), (25, 25, 25)]


def test_an_async_generator_is_a_source_too(app: Fairlane, add: Add) -> None:
    async def source() -> AsyncIterator[dict[str, int]]:
        for n in range(25):
            await asyncio.sleep(0)
            yield {"a": n}

    async def main() -> tuple[int, int]:
        seen: list[int] = []
        first = await add.aenqueue_map(source(), chunk=10, progress=seen.append)
        assert seen == [10, 20, 25]
        return first, await add.aenqueue_map([(n,) for n in range(25, 30)])

    assert asyncio.run(main()) == (25, 5)
    assert [row["a"] for row in arguments(app)] == list(range(30))


def test_nothing_to_enqueue_is_nothing(app: Fairlane, add: Add) -> None:
    assert add.enqueue_map([]) == 0
    assert arguments(app) == []


def test_an_error_leaves_the_chunks_before_and_says_how_many_they_are(app: Fairlane, add: Add) -> None:
    rows: list[Any] = [*((n,) for n in range(15)), {"c": 1}, (16,)]
    with pytest.raises(InvalidArguments) as refused:
        add.enqueue_map(rows, chunk=5)
    assert refused.value.__notes__ == ['15 jobs of "add" were enqueued before, in commits of their own']
    assert len(arguments(app)) == 15


def test_a_limit_refuses_its_chunk_whole(make_app: Callable[..., Fairlane]) -> None:
    app = make_app()
    task: Any = app.task(name="add")(lambda a: None)
    app.limits.set(tenant="acme", waiting=12, when_full="reject")
    with pytest.raises(TenantLimitReached) as refused:
        task.using(tenant="acme").enqueue_map([(n,) for n in range(20)], chunk=5)
    assert refused.value.__notes__[0].startswith("10 jobs")
    assert len(arguments(app)) == 10


@pytest.mark.parametrize("row", [7, "text", None, b"x", {1, 2}], ids=repr)
def test_a_row_that_is_no_arguments_is_refused(app: Fairlane, add: Add, row: Any) -> None:
    with pytest.raises(InvalidOption, match="a mapping by name, a tuple or a list"):
        add.enqueue_map([row])
    assert arguments(app) == []


@pytest.mark.parametrize("chunk", [0, -1, 10_001, True, 1.5, "10"], ids=repr)
def test_a_chunk_that_is_no_number_of_rows_is_refused(add: Add, chunk: Any) -> None:
    with pytest.raises(InvalidOption, match="chunk"):
        add.enqueue_map([(1,)], chunk=chunk)


@pytest.mark.parametrize("option", ["id", "idempotency_key", "dedup_key"])
def test_one_key_for_all_rows_is_refused(add: Add, option: str) -> None:
    key: Any = {option: "0190163d-8694-739b-aea5-966c26f8ad91"}
    with pytest.raises(InvalidOption, match="none for a whole map"):
        add.using(**key).enqueue_map([(1,), (2,)])


@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_stores_with_a_server_take_maps_too(ground: Ground, kind: str) -> None:
    store = open_at(kind, ground.address(kind))
    try:
        app = Fairlane(store=store)
        task: Any = app.task(name="add")(lambda a: None)
        assert task.enqueue_map(({"a": n} for n in range(120)), chunk=50) == 120
        jobs = app.jobs.list(limit=200).jobs
        assert [json.loads(job.payload)["a"] for job in reversed(jobs)] == list(range(120))
        assert len({job.id for job in jobs}) == 120
    finally:
        store.close()


def test_the_ids_of_one_call_ascend(app: Fairlane, add: Add) -> None:
    ids = [handle.id for handle in app.enqueue_many([add.bind(n) for n in range(50)])]
    assert ids == sorted(ids)
    assert len(set(ids)) == 50


def test_a_source_that_fails_keeps_its_own_error(app: Fairlane, add: Add) -> None:
    def source() -> Iterator[tuple[int]]:
        yield (1,)
        yield (2,)
        raise StoreError("the source is gone")

    with pytest.raises(StoreError, match="the source is gone"):
        add.enqueue_map(source(), chunk=1)
    assert len(arguments(app)) == 2
