"""Enqueueing: options, duplicates, many at once, capacity, closing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from fairlane import (
    DuplicateJob,
    Fairlane,
    FakeClock,
    Handle,
    InvalidOption,
    Job,
    QueueFull,
    Retry,
    StoreClosed,
    SyncTask,
)
from fairlane.errors import IdConflict, UnsupportedConnection
from fairlane.testing import run_due

OWN_ID = UUID("01890000-0000-7000-8000-000000000001")


@pytest.fixture
def add(app: Fairlane) -> SyncTask[[int, int], int]:
    @app.task(name="add")
    def add(a: int, b: int = 2) -> int:
        return a + b

    return add


def everything(app: Fairlane) -> tuple[Job, ...]:
    return app.jobs.list(limit=200).jobs


@pytest.mark.requirement("W2", "L1")
def test_a_plain_enqueue_has_every_default(app: Fairlane, add: SyncTask[[int, int], int], clock: FakeClock) -> None:
    handle = add.enqueue(1)
    job = handle.job()
    assert (job.type, job.payload, job.tenant, job.queue, job.priority) == ("add", '{"a":1}', "system", "default", 5)
    assert (job.status, job.attempts, job.category) == ("pending", 0, "maintenance")
    assert (job.max_attempts, job.timeout_s) == (5, None)
    assert job.id.version == 7
    assert job.idempotency_key == job.correlation_id == str(job.id)
    assert job.enqueued_at == job.scheduled_at == clock.now()
    assert not handle.duplicate


@pytest.mark.requirement("L4", "W2", "Q1", "Q2", "L1")
def test_every_option_reaches_the_job(app: Fairlane, add: SyncTask[[int, int], int], clock: FakeClock) -> None:
    parent = add.enqueue(0)
    job = (
        add.using(
            tenant=123,
            priority="high",
            run_at=clock.now() + timedelta(hours=1),
            idempotency_key="welcome-7",
            dedup_key="welcome",
            correlation_id=OWN_ID,
            parent=parent,
            created_by="ada",
            max_attempts=3,
            retry=Retry(base_s=1.0),
            timeout=timedelta(minutes=2),
            queue="critical",
            refs={"user_id": 7, "document": "d-1"},
            headers={"traceparent": "00-ab"},
            id=str(OWN_ID),
        )
        .enqueue(1, b=3)
        .job()
    )
    assert (job.id, job.tenant, job.priority, job.queue) == (OWN_ID, "123", 0, "critical")
    assert (job.idempotency_key, job.dedup_key, job.correlation_id) == ("welcome-7", "welcome", str(OWN_ID))
    assert (job.parent_id, job.created_by, job.max_attempts, job.timeout_s) == (parent.id, "ada", 3, 120.0)
    assert job.refs == {"user_id": 7, "document": "d-1"}
    assert job.headers == {"traceparent": "00-ab", "fairlane-priority": "high"}
    assert job.scheduled_at == clock.now() + timedelta(hours=1)
    assert job.payload == '{"a":1,"b":3}'


@pytest.mark.parametrize("name", ["fairlane-priority", "FAIRLANE-schedule"])
def test_a_header_that_fairlane_sets_itself_is_refused(add: Any, name: str) -> None:
    with pytest.raises(InvalidOption, match=f"a name in headers = '{name}': expected none that begins"):
        add.using(headers={name: "high"})


@pytest.mark.requirement("Q1")
def test_the_label_of_a_priority_is_kept_with_the_job(make_app: Callable[..., Fairlane]) -> None:
    app = make_app(priorities={"urgent": 0, "first": 0, "later": 20})
    task = app.task(name="t", priority="later")(lambda: None)

    def label(task: Any) -> tuple[int, str | None]:
        job = task.enqueue().job()
        return job.priority, job.priority_label

    assert label(task) == (20, "later")
    assert label(task.using(priority="first")) == (0, "first")
    assert label(task.using(priority="first", headers={"a": "b"})) == (0, "first")
    assert label(task.using(priority="first").using(priority=0)) == (0, None)
    assert label(task.using(priority="first").using(priority=None)) == (20, "later")
    assert label(app.task(name="u")(lambda: None)) == (5, None)
    [many] = app.enqueue_many([task.using(priority="urgent").bind()])
    assert app.jobs.list().jobs[0].priority_label == many.job().priority_label == "urgent"
    app.jobs.on_enqueue(lambda draft: draft.change(priority="urgent" if draft.priority else 7))
    assert label(task) == (0, "urgent")
    assert label(task.using(priority="first")) == (7, None)


@pytest.mark.requirement("Q2")
def test_a_delay_and_a_schedule_hold_a_job_back(
    app: Fairlane, add: SyncTask[[int, int], int], clock: FakeClock
) -> None:
    delayed = add.using(delay=30, priority=0).enqueue(1)
    scheduled = add.using(run_at=clock.now() + timedelta(seconds=60)).enqueue(2)
    late = add.using(run_at=clock.now() - timedelta(days=1)).enqueue(3)
    assert [ran.lease.id for ran in run_due(app)] == [late.id]
    clock.advance(30)
    assert [ran.lease.id for ran in run_due(app)] == [delayed.id]
    clock.advance(30)
    assert [ran.lease.id for ran in run_due(app)] == [scheduled.id]


def test_a_later_using_adds_to_an_earlier_one_and_none_takes_back(add: SyncTask[[int, int], int]) -> None:
    base = add.using(tenant="acme", delay=30, created_by="ada")
    job = base.using(run_at=None, delay=None, created_by=None, priority=1).enqueue(1).job()  # type: ignore[typeddict-item]
    assert (job.tenant, job.created_by, job.priority) == ("acme", None, 1)
    assert job.scheduled_at == job.enqueued_at
    assert base.enqueue(1).job().created_by == "ada"


BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"tenant": ""}, "tenant"),
    ({"tenant": "a\nb"}, "tenant"),
    ({"tenant": "x" * 129}, "tenant"),
    ({"tenant": 1.5}, "tenant"),
    ({"tenant": True}, "tenant"),
    ({"priority": -1}, "priority"),
    ({"priority": 40_000}, "priority"),
    ({"priority": 2.0}, "priority"),
    ({"delay": -1}, "delay"),
    ({"delay": float("nan")}, "delay"),
    ({"delay": float("inf")}, "delay"),
    ({"delay": "10"}, "delay"),
    ({"delay": 1e12}, "delay"),
    ({"run_at": datetime(2030, 1, 1)}, "time zone"),  # noqa: DTZ001 - naive on purpose
    ({"run_at": "tomorrow"}, "time zone"),
    ({"delay": 1, "run_at": datetime(2030, 1, 1, tzinfo=UTC)}, "not both"),
    ({"idempotency_key": ""}, "idempotency_key"),
    ({"idempotency_key": "x" * 600}, "idempotency_key"),
    ({"idempotency_key": "a\x00b"}, "idempotency_key"),
    ({"idempotency_key": 7}, "idempotency_key"),
    ({"dedup_key": "\ud800"}, "dedup_key"),
    ({"correlation_id": 5}, "correlation_id"),
    ({"parent": "not-an-id"}, "parent"),
    ({"created_by": ""}, "created_by"),
    ({"max_attempts": 0}, "max_attempts"),
    ({"max_attempts": True}, "max_attempts"),
    ({"retry": {"max_attempts": 3}}, "Retry"),
    ({"timeout": 0}, "timeout"),
    ({"queue": "no spaces"}, "queue"),
    ({"refs": [1]}, "refs"),
    ({"refs": {"user": 1.5}}, "refs"),
    ({"refs": {"user": True}}, "refs"),
    ({"refs": {"user": 2**70}}, "as text"),
    ({"headers": {"a": 1}}, "headers"),
    ({"headers": "a"}, "headers"),
    ({"on_duplicate": "ignore"}, "one of return, raise"),
    ({"id": "x"}, "id"),
    ({"tennant": "acme"}, 'Nearest: "tenant"'),
]


@pytest.mark.requirement("W2", "L4")
@pytest.mark.parametrize(("options", "problem"), BAD_OPTIONS)
def test_a_bad_option_is_refused_where_it_is_given_and_nothing_is_enqueued(
    app: Fairlane, add: SyncTask[[int, int], int], options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidOption, match=problem):
        add.using(**options).enqueue(1)
    assert everything(app) == ()


@pytest.mark.requirement("W6")
def test_a_duplicate_key_returns_the_job_that_was_there(app: Fairlane, add: SyncTask[[int, int], int]) -> None:
    first = add.using(tenant=1, idempotency_key="k").enqueue(1)
    second = add.using(tenant=1, idempotency_key="k").enqueue(2)
    elsewhere = add.using(tenant=2, idempotency_key="k").enqueue(1)
    assert (second.duplicate, second.id) == (True, first.id)
    assert not elsewhere.duplicate
    assert len(everything(app)) == 2
    with pytest.raises(DuplicateJob) as raised:
        add.using(tenant=1, idempotency_key="k", on_duplicate="raise").enqueue(3)
    assert raised.value.existing_id == first.id
    run_due(app)
    assert add.using(tenant=1, idempotency_key="k").enqueue(2).duplicate


@pytest.mark.requirement("L4")
def test_a_dedup_key_is_free_again_once_its_job_has_ended(app: Fairlane, add: SyncTask[[int, int], int]) -> None:
    first = add.using(dedup_key="d").enqueue(1)
    assert add.using(dedup_key="d").enqueue(1).id == first.id
    run_due(app)
    assert not add.using(dedup_key="d").enqueue(1).duplicate


def test_an_enqueue_repeated_with_its_id_makes_one_job(app: Fairlane, add: SyncTask[[int, int], int]) -> None:
    handles = [add.using(id=OWN_ID).enqueue(1) for _ in range(3)]
    assert {handle.id for handle in handles} == {OWN_ID}
    assert not any(handle.duplicate for handle in handles)
    assert len(everything(app)) == 1
    with pytest.raises(IdConflict, match="other content"):
        add.using(id=OWN_ID).enqueue(2)


def test_many_are_enqueued_in_one_call_and_come_back_in_order(app: Fairlane, add: SyncTask[[int, int], int]) -> None:
    handles = app.enqueue_many([add.using(idempotency_key=f"k{i % 3}").bind(i) for i in range(5)])
    assert [handle.duplicate for handle in handles] == [False, False, False, True, True]
    assert [handle.job().payload for handle in handles[:3]] == ['{"a":0}', '{"a":1}', '{"a":2}']
    assert handles[3].id == handles[0].id
    assert app.enqueue_many([]) == []
    assert [h.duplicate for h in asyncio.run(app.aenqueue_many([add.bind(9)]))] == [False]


def test_many_refuse_what_could_only_be_half_done(app: Fairlane, add: SyncTask[[int, int], int]) -> None:
    with pytest.raises(InvalidOption, match="look at each handle"):
        app.enqueue_many([add.bind(1), add.using(on_duplicate="raise").bind(2)])
    with pytest.raises(InvalidOption, match="one connection"):
        app.enqueue_many([add.using(conn=object()).bind(1), add.using(conn=object()).bind(2)])
    assert everything(app) == ()


def test_bound_calls_compare_by_what_they_ask_for(add: SyncTask[[int, int], int]) -> None:
    assert add.bind(1) == add.bind(a=1)
    assert add.bind(1) != add.bind(2)
    assert add.bind(1) != add.using(tenant=1).bind(1)
    assert repr(add.bind(1)) == "<Bound add(a=1)>"
    assert len({add.bind(1), add.bind(1)}) == 1


def test_a_connection_the_store_cannot_use_is_refused(app: Fairlane, add: SyncTask[[int, int], int]) -> None:
    with pytest.raises(UnsupportedConnection, match=r"builtins\.object"):
        add.using(conn=object()).enqueue(1)
    assert everything(app) == ()


@pytest.mark.requirement("Q6")
def test_past_the_capacity_an_enqueue_is_refused_whole(make_app: Callable[..., Fairlane]) -> None:
    app = make_app(capacity=3)
    task = app.task(name="t")(lambda: None)
    app.enqueue_many([task.bind(), task.bind()])
    with pytest.raises(QueueFull) as raised:
        app.enqueue_many([task.bind(), task.bind()])
    assert (raised.value.depth, raised.value.capacity) == (2, 3)
    assert raised.value.retry_after_s > 0
    assert len(everything(app)) == 2
    task.enqueue()
    with pytest.raises(QueueFull):
        asyncio.run(task.aenqueue())


@pytest.mark.requirement("Q6")
@pytest.mark.parametrize("capacity", [None, 100])
def test_the_warning_depth_is_logged_once_per_crossing(
    make_app: Callable[..., Fairlane], clock: FakeClock, caplog: pytest.LogCaptureFixture, capacity: int | None
) -> None:
    app = make_app(warn_depth=3, capacity=capacity)
    task = app.task(name="t")(lambda: None)

    def enqueue(count: int) -> int:
        caplog.clear()
        for _ in range(count):
            task.enqueue()
            clock.advance(1)
        return sum("warning depth" in record.message for record in caplog.records)

    with caplog.at_level(logging.WARNING, "fairlane.client"):
        assert enqueue(2) == 0
        assert enqueue(3) == 1
        assert enqueue(3) == 0
        run_due(app)
        assert enqueue(2) == 0
        assert enqueue(1) == 1


@pytest.mark.requirement("Q6")
@pytest.mark.parametrize("way", ["enqueue", "aenqueue", "many", "map", "by name"])
def test_the_warning_depth_is_logged_once_whichever_way_jobs_come_and_however_fast(
    make_app: Callable[..., Fairlane], caplog: pytest.LogCaptureFixture, way: str
) -> None:
    app = make_app(warn_depth=30)
    task = app.task(name="t")(lambda n: None)
    put: dict[str, Callable[[], object]] = {
        "enqueue": lambda: task.enqueue(1),
        "aenqueue": lambda: asyncio.run(task.aenqueue(1)),
        "many": lambda: app.enqueue_many([task.bind(1)]),
        "map": lambda: task.enqueue_map([[1]]),
        "by name": lambda: app.tasks.enqueue("t", {"n": 1}),
    }
    with caplog.at_level(logging.WARNING, "fairlane.client"):
        for _ in range(29):
            put[way]()
        assert not caplog.records
        for _ in range(20):
            put[way]()
    [record] = caplog.records
    assert "30 jobs or more are waiting" in record.getMessage()


@pytest.mark.requirement("Q6", "Q11")
def test_nothing_is_enqueued_after_close(app: Fairlane, add: SyncTask[[int, int], int]) -> None:
    add.enqueue(1)
    app.close()
    with pytest.raises(StoreClosed):
        add.enqueue(2)
    with pytest.raises(StoreClosed):
        asyncio.run(add.aenqueue(2))
    with pytest.raises(StoreClosed):
        app.enqueue_many([add.bind(1)])
    snapshot = app.snapshot()
    assert (snapshot["shutdown"], snapshot["depth"]) == (True, None)
    app.close()


def test_an_application_closes_itself_as_a_context(url: str) -> None:
    with Fairlane(url) as app:
        task = app.task(name="t")(lambda: None)
        task.enqueue()
    with pytest.raises(StoreClosed):
        task.enqueue()

    async def use() -> Handle[None]:
        async with Fairlane(url) as other:
            return await other.task(name="t")(lambda: None).aenqueue()

    handle = asyncio.run(use())
    with pytest.raises(StoreClosed):
        handle.status()


def test_a_closed_application_is_opened_again_by_entering_it(url: str) -> None:
    app = Fairlane(url)
    task = app.task(name="t")(lambda: 7)
    for _ in range(2):
        with app:
            handle = task.enqueue()
            run_due(app)
            assert handle.result(timeout=0) == 7
        with pytest.raises(StoreClosed, match="`with app:` opens"):
            task.enqueue()

    async def use() -> None:
        async with app:
            await task.aenqueue()

    asyncio.run(use())
    asyncio.run(use())
    assert app.snapshot()["shutdown"] is True


def test_a_store_that_was_handed_in_stays_open(make_app: Callable[..., Fairlane]) -> None:
    first = make_app()
    with Fairlane("memory://", store=first.runtime.store) as second:
        second.task(name="t")(lambda: None).enqueue()
    assert len(everything(first)) == 1


def test_async_code_enqueues_and_reads_without_a_detour(app: Fairlane, add: SyncTask[[int, int], int]) -> None:
    async def use() -> tuple[str, int]:
        handle = await add.using(tenant="acme").aenqueue(1)
        page = await app.jobs.alist(tenant="acme")
        assert [job.id for job in page.jobs] == [handle.id]
        return await handle.astatus(), len((await app.jobs.alist(tenant="other")).jobs)

    assert asyncio.run(use()) == ("pending", 0)
