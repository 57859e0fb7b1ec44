"""Jobs found, explained and acted on; snapshot and purge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from fairlane import Fairlane, FakeClock, InvalidOption, InvalidState, Job, JobNotFound, Retry, SyncTask
from fairlane.client.admin.filters import JobFilters, filter_words, job_filter
from fairlane.core.job import DeadLetter
from fairlane.core.ops import DeadLetterFilter, JobFilter
from fairlane.errors import DeadLetterNotFound, NotFound
from fairlane.testing import run_due


@pytest.fixture
def add(app: Fairlane) -> SyncTask[[int, int], int]:
    @app.task(name="add", retry=Retry(max_attempts=3), category="export")
    def add(a: int, b: int) -> int:
        return a // b

    return add


def dead_letter(app: Fairlane, add: SyncTask[[int, int], int]) -> DeadLetter:
    app.jobs.bury(add.using(tenant="acme", idempotency_key="k").enqueue(1, 0), "stuck")
    return app.dead_letters.list().dead_letters[0]


@pytest.mark.requirement("L5")
def test_a_job_is_failed_by_hand_with_or_without_a_retry(
    app: Fairlane, add: SyncTask[[int, int], int], clock: FakeClock
) -> None:
    retried = app.jobs.fail(add.enqueue(1, 2), "looks wrong", retry_delay=timedelta(seconds=30), by="ada", notes="n")
    assert (retried.status, retried.attempts, retried.last_error) == ("failed", 1, "looks wrong")
    assert retried.run_at == clock.now() + timedelta(seconds=30)
    dead = asyncio.run(app.jobs.afail(add.enqueue(1, 2).id, "wrong", by="ada"))
    assert (dead.status, dead.error_type) == ("dead", "FailedByHand")


@pytest.mark.requirement("W8")
def test_every_attempt_of_a_dead_job_can_be_read(
    app: Fairlane, add: SyncTask[[int, int], int], clock: FakeClock
) -> None:
    handle = add.enqueue(1, 0)
    for _ in range(3):
        run_due(app)
        clock.advance(3600)
    detail = app.jobs.detail(handle)
    assert detail is not None
    assert [attempt.outcome for attempt in detail.attempts] == ["failed", "failed", "dead"]
    assert all("ZeroDivisionError" in (attempt.error_type or "") for attempt in detail.attempts)
    [letter] = app.dead_letters.list(type="add", status="pending_review").dead_letters
    assert letter.job.id == handle.id
    assert app.dead_letters.list(type="other").dead_letters == ()


@pytest.mark.requirement("L5", "L16", "W1")
def test_jobs_are_paged_and_filtered(app: Fairlane, add: SyncTask[[int, int], int], clock: FakeClock) -> None:
    for n in range(6):
        add.using(tenant=f"t{n % 2}", correlation_id=f"c{n % 3}", idempotency_key=f"k{n}").enqueue(n, 1)

    def found(**filters: Any) -> list[int]:
        return [int(job.payload[5]) for job in app.jobs.list(**filters).jobs]

    assert found() == [5, 4, 3, 2, 1, 0]
    assert found(tenant="t1") == [5, 3, 1]
    assert found(correlation_id="c0", tenant="t0") == [0]
    assert found(status=("completed", "dead")) == []
    assert found(category="export", queue="default", type="add", status="pending") == [5, 4, 3, 2, 1, 0]
    assert found(idempotency_key="k2") == [2]
    assert found(enqueued_from=clock.now() + timedelta(seconds=1)) == []
    page = app.jobs.list(limit=4)
    assert [int(job.payload[5]) for job in page.jobs] == [5, 4, 3, 2]
    assert page.next is not None
    assert found(before=page.next) == [1, 0]


BAD_QUESTIONS: list[tuple[Callable[[Fairlane], object], str]] = [
    (lambda app: app.jobs.list(limit=0), "limit"),
    (lambda app: app.jobs.list(limit=1000), "limit"),
    (lambda app: app.jobs.list(status="done"), "one of pending"),  # type: ignore[arg-type]
    (lambda app: app.jobs.list(status=[10**5000]), "one of pending"),  # type: ignore[list-item]
    (lambda app: app.limits.set(queue="bulk", rate=10**5000), "starts in a period"),
    (lambda app: app.jobs.list(statuses=()), 'Nearest: "status"'),  # type: ignore[call-arg]
    (lambda app: app.jobs.list(parent="x"), "parent"),
    (lambda app: app.jobs.list(tenant=""), "tenant"),
    (lambda app: app.jobs.list(enqueued_from="today"), "time zone"),  # type: ignore[arg-type]
    (lambda app: app.dead_letters.list(status="open"), "one of pending_review"),  # type: ignore[arg-type]
    (lambda app: app.jobs.get("x"), "job"),
    (lambda app: app.jobs.cancel("x"), "job"),
    (lambda app: app.jobs.cancel(app.runtime.new_job_id(), by=""), "by"),
    (lambda app: app.jobs.fail(app.runtime.new_job_id(), " "), "reason"),
    (lambda app: app.jobs.fail(app.runtime.new_job_id(), "x", retry_delay=-1), "retry_delay"),
    (lambda app: app.dead_letters.discard("x"), "dead letter"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("ask", "problem"), BAD_QUESTIONS)
def test_a_bad_question_or_act_is_refused(app: Fairlane, ask: Callable[[Fairlane], object], problem: str) -> None:
    with pytest.raises(InvalidOption, match=problem):
        ask(app)


def test_another_tenants_jobs_are_not_there(app: Fairlane, add: SyncTask[[int, int], int]) -> None:
    handle = add.using(tenant="acme").enqueue(1, 2)
    assert app.jobs.get(handle, tenant="other") is None
    for act in (
        app.jobs.cancel,
        lambda *a, **k: app.jobs.bury(*a, "why", **k),
        lambda *a, **k: app.jobs.fail(*a, "why", **k),
    ):
        with pytest.raises(JobNotFound):
            act(handle, tenant="other")
    letter = dead_letter(app, add)
    for close in (
        app.dead_letters.discard,
        app.dead_letters.resolve,
        app.dead_letters.acknowledge,
        app.dead_letters.reprocess,
    ):
        with pytest.raises(DeadLetterNotFound):
            close(letter, tenant="other")
    assert app.dead_letters.get(letter.id, tenant="other") is None
    assert handle.status() == "pending"


@pytest.mark.requirement("L5")
def test_stats_tell_the_oldest_due_time(app: Fairlane, add: SyncTask[[int, int], int], clock: FakeClock) -> None:
    began = clock.now()
    add.enqueue(1, 2)
    clock.advance(60)
    add.using(delay=10).enqueue(1, 2)
    [queue] = app.statistics.counts().queues
    assert (queue.queue, queue.ready, queue.scheduled, queue.oldest_due_at) == ("default", 1, 1, began)
    assert asyncio.run(app.statistics.acounts(tenant="nobody")).queues == ()
    assert app.statistics.health().store == app.runtime.access.name


@pytest.mark.requirement("Q11")
def test_a_snapshot_has_the_documents_keys(app: Fairlane, add: SyncTask[[int, int], int], url: str) -> None:
    add.enqueue(1, 2)
    add.using(delay=60).enqueue(1, 2)
    expected = {"depth": 2, "ready": 1, "scheduled": 1, "shutdown": False, "redis_active": False}
    of_the_spool = {"reachable": True, "spooled": 0, "spool_age_s": 0.0}
    assert app.snapshot() == {**expected, **of_the_spool, "store": url.partition(":")[0]}
    assert asyncio.run(app.asnapshot()) == app.snapshot()


@pytest.mark.requirement("Q11")
def test_purge_is_for_tests_and_refused_in_production(make_app: Callable[..., Fairlane]) -> None:
    production = make_app(profile="production")
    production.task(name="t")(lambda: None).enqueue()
    with pytest.raises(InvalidState, match='profile = "development"'):
        production.jobs.purge()
    with pytest.raises(InvalidState):
        asyncio.run(production.jobs.apurge())
    development = make_app(store=production.runtime.store)
    jobs: tuple[Job, ...] = development.jobs.list().jobs
    assert len(jobs) == 1
    assert development.jobs.purge() == 1
    assert asyncio.run(development.jobs.apurge()) == 0


def test_filters_are_written_once_and_read_the_same_everywhere(app: Fairlane, add: SyncTask[[int, int], int]) -> None:
    first, second = add.using(tenant="acme").enqueue(1, 2), add.enqueue(1, 2)
    where = job_filter({"status": ["pending", "pending"], "type": "add", "parent": None})
    assert where == JobFilter(statuses=("pending",), type="add")
    assert [job.id for job in app.jobs.list(where=where).jobs] == [second.id, first.id]
    renamed = {"status": "statuses", "parent": "parent_id"}
    assert {renamed.get(name, name) for name in JobFilters.__annotations__} == {*JobFilter.__struct_fields__}
    words = filter_words(["status:failed,dead", 'correlation-id:"order 7"'], (*JobFilters.__annotations__,))
    assert words == {"status": ("failed", "dead"), "correlation_id": "order 7"}
    for bad in ("status", "colour:red", "type:a type:b", 'type:"a'):
        with pytest.raises(InvalidOption):
            filter_words([bad], ("status", "type"))


def test_a_dead_job_is_run_again_as_a_new_one(app: Fairlane, add: SyncTask[[int, int], int]) -> None:
    handle = add.enqueue(1, 0)
    with pytest.raises(InvalidState, match="cannot retry"):
        app.jobs.retry(handle)
    app.jobs.bury(handle, "stuck")
    new = app.jobs.retry(handle, by="ada")
    assert (new.status, new.created_by) == ("pending", "ada")
    assert asyncio.run(app.jobs.aretry(handle.id)) == new
    with pytest.raises(JobNotFound):
        app.jobs.retry(app.runtime.new_job_id())


def test_many_jobs_are_acted_on_and_one_refusal_stops_no_other(app: Fairlane, add: SyncTask[[int, int], int]) -> None:
    first, second, third = (add.enqueue(1, n) for n in (1, 2, 3))
    app.jobs.cancel(second)
    unknown = app.runtime.new_job_id()
    acts = app.jobs.act_on_many("bury", [first, second, first, unknown], reason="stuck", by="ada")
    assert (acts.matched, [job.id for job in acts.done]) == (3, [first.id])
    assert [(refused.id, refused.code) for refused in acts.refused] == [
        (str(second.id), "invalid_state"),
        (str(unknown), "job_not_found"),
    ]
    where = JobFilter(statuses=("pending",))
    counted = app.jobs.act_on_many("cancel", where=where, dry_run=True)
    assert (counted.matched, counted.done, third.status()) == (1, (), "pending")
    assert [job.id for job in asyncio.run(app.jobs.aact_on_many("cancel", where=where)).done] == [third.id]
    for bad in ({}, {"jobs": [first], "where": where}, {"jobs": [first], "limit": 0}):
        with pytest.raises(InvalidOption):
            app.jobs.act_on_many("cancel", **bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="reason"):
        app.jobs.act_on_many("fail", [first])


@pytest.mark.requirement("D27")
def test_a_preview_counts_what_would_be_changed_and_the_rest_by_its_state(
    app: Fairlane, add: SyncTask[[int, int], int]
) -> None:
    waiting, ended, buried, closed, again = (add.enqueue(1, n) for n in range(5))
    app.jobs.cancel(ended)
    for job in (buried, closed, again):
        app.jobs.bury(job, "stuck")
    app.dead_letters.discard(app.jobs.get(closed).seq)  # type: ignore[union-attr]
    retried = app.jobs.retry(again)

    def preview(verb: Any, jobs: Any = None, **how: Any) -> tuple[int, dict[str, int]]:
        acts = app.jobs.act_on_many(verb, jobs, dry_run=True, **how)
        return acts.matched, acts.left

    every = JobFilter(type="add")
    assert preview("cancel", where=every) == (2, {"dead": 3, "cancelled": 1})
    assert preview("bury", where=every, reason="x") == (2, {"dead": 3, "cancelled": 1})
    assert preview("retry", where=every) == (1, {"pending": 2, "cancelled": 1, "discarded": 1, "retried": 1})
    assert preview("cancel", where=JobFilter(statuses=("dead",))) == (0, {"dead": 3})
    unknown = app.runtime.new_job_id()
    assert preview("cancel", [waiting, ended, unknown]) == (1, {"cancelled": 1, "not found": 1})
    assert preview("reset", [waiting]) == (0, {"pending": 1})
    acts = app.jobs.act_on_many("cancel", where=every)
    assert ({job.id for job in acts.done}, acts.refused) == ({waiting.id, retried.id}, ())
    assert preview("retry", [again]) == (1, {}), "the job made last was cancelled"


@pytest.mark.requirement("D27")
def test_an_empty_filter_means_nothing_unless_all_is_said(app: Fairlane, add: SyncTask[[int, int], int]) -> None:
    add.using(tenant="acme").enqueue(1, 1)
    add.enqueue(1, 2)
    for act, empty in (
        (app.jobs.act_on_many, JobFilter()),
        (app.dead_letters.act_on_many, DeadLetterFilter()),
    ):
        with pytest.raises(InvalidOption, match="for all there are, all=True"):
            act("cancel" if empty == JobFilter() else "discard", where=empty)  # type: ignore[operator]
    assert len(app.jobs.act_on_many("cancel", where=JobFilter(), tenant="acme").done) == 1
    assert len(app.jobs.act_on_many("cancel", all=True).done) == 1
    assert app.dead_letters.act_on_many("discard", all=True).matched == 0


def test_an_act_by_filter_continues_where_it_ended(app: Fairlane, add: SyncTask[[int, int], int]) -> None:
    handles = [add.enqueue(1, n) for n in range(1, 6)]
    where, before, done = JobFilter(type="add"), None, []
    while True:
        acts = app.jobs.act_on_many("cancel", where=where, limit=2, before=before)
        done += [job.id for job in acts.done]
        if (before := acts.next) is None:
            break
    assert done == [handle.id for handle in reversed(handles)]


def test_a_part_of_an_id_that_older_jobs_may_have_names_none(
    app: Fairlane, add: SyncTask[[int, int], int], clock: FakeClock
) -> None:
    mine, ours = add.enqueue(1, 2), UUID("0a0a0a0a-0000-1000-8000-0123456789ab")
    clock.advance(24 * 3600)
    new = list(app.enqueue_many([add.bind(1, 2) for _ in range(998)]))
    add.using(id=ours).enqueue(1, 2)
    assert app.jobs.id_of(str(mine.id)[:8]) == mine.id
    assert app.jobs.id_of("0123456789ab") == ours
    second = add.enqueue(1, 2)
    text = str(second.id)
    for part in (text[:-2], text[-8:], "0a0a0a0a", "0123456789ab"):
        with pytest.raises(InvalidOption, match="older ones may begin or end like"):
            app.jobs.id_of(part)
    for part in (str(new[1].id)[:8], text[:6]):
        with pytest.raises(InvalidOption, match="it may be"):
            app.jobs.id_of(part)
    with pytest.raises(NotFound, match="newest 1,000"):
        app.jobs.id_of(str(mine.id)[-12:])
    assert app.jobs.id_of(text[-12:]) == second.id
    assert app.jobs.id_of("1") == mine.id
