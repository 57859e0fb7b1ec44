"""Reading jobs and dead letters: one, many, filtered, page by page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fairlane.core.ids import JobId, Seq
from fairlane.core.job import STATUSES
from fairlane.core.ops import (
    ALL_TENANTS,
    MAX_PAGE,
    DeadLetterFilter,
    GetDeadLetter,
    GetStatus,
    JobFilter,
    PageDeadLetters,
    PageJobs,
    Scope,
    only,
    status_of,
)
from fairlane.testing.conformance.samples import NO_SUCH_SEQ, cancelled, completed, died, failure, retried
from fairlane.testing.conformance.scene import Scene


def test_a_job_nobody_knows_is_not_found(scene: Scene) -> None:
    assert scene.find(scene.making.job_id()) is None
    assert scene.run(GetDeadLetter(scope=ALL_TENANTS, id=NO_SUCH_SEQ)) is None


def test_only_a_dead_job_has_a_dead_letter(scene: Scene) -> None:
    job = scene.put()
    assert scene.run(GetDeadLetter(scope=ALL_TENANTS, id=job.seq)) is None


def test_reading_changes_nothing(scene: Scene) -> None:
    _, lease = scene.leased()
    first = scene.find(lease.id)
    scene.later(1000)
    scene.list_jobs()
    scene.stats()
    assert scene.find(lease.id) == first


@pytest.mark.requirement("W8")
def test_a_jobs_attempts_are_told_oldest_first(scene: Scene) -> None:
    job = scene.put()
    worker = scene.hire(lease_s=600)
    for number in range(1, 5):
        [lease] = scene.claim(worker)
        scene.later(1)
        scene.settle(worker, retried(lease, 1, failure(f"error {number}")))
        scene.later(1)
    attempts = scene.attempts(job.id)
    assert [attempt.attempt for attempt in attempts] == [1, 2, 3, 4]
    assert [attempt.error_message for attempt in attempts] == [f"error {number}" for number in range(1, 5)]


def one_of_each_status(scene: Scene) -> dict[str, JobId]:
    """Seven jobs, one in each status and one prefetched."""
    made = {"completed": completed, "failed": retried, "dead": died, "cancelled": cancelled}
    ids: dict[str, JobId] = {}
    for status, outcome in made.items():
        worker, lease = scene.leased()
        scene.settle(worker, outcome(lease))
        ids[status] = lease.id
    ids["processing"] = scene.leased()[1].id
    ids["prefetched"] = scene.leased(start=False)[1].id
    ids["scheduled"] = scene.put(delay_s=600).id
    ids["pending"] = scene.put().id
    return ids


@pytest.mark.requirement("L1")
def test_the_status_alone_is_that_of_the_job(scene: Scene) -> None:
    jobs = one_of_each_status(scene).values()
    told = [scene.run(GetStatus(scope=ALL_TENANTS, id=job)) for job in jobs]
    assert told == [status_of(scene.see(job)) for job in jobs]
    assert {status.status for status in told if status} == set(STATUSES)
    assert scene.run(GetStatus(scope=ALL_TENANTS, id=scene.making.job_id())) is None


def test_a_tenant_asks_for_the_status_of_its_own_jobs_alone(scene: Scene) -> None:
    job = scene.put(tenant="acme")
    assert scene.run(GetStatus(scope=only("acme"), id=job.id)) is not None
    assert scene.run(GetStatus(scope=only("globex"), id=job.id)) is None


def test_jobs_are_listed_by_status(scene: Scene) -> None:
    ids = one_of_each_status(scene)
    pending = {ids.pop(name) for name in ("prefetched", "scheduled", "pending")}
    assert set(scene.list_jobs(statuses=("pending",))) == pending
    for status, job in ids.items():
        assert scene.list_jobs(statuses=(status,)) == [job]
    assert set(scene.list_jobs(statuses=("failed", "dead"))) == {ids["failed"], ids["dead"]}
    everyone = sorted({*ids.values(), *pending}, key=lambda job: scene.see(job).seq, reverse=True)
    assert scene.list_jobs(statuses=STATUSES) == everyone == scene.list_jobs()


def test_every_listed_job_is_shown_as_it_is_found_alone(scene: Scene) -> None:
    one_of_each_status(scene)
    for job in scene.run(PageJobs(scope=ALL_TENANTS)).jobs:
        assert job == scene.see(job.id)


@pytest.mark.requirement("L16", "L5")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("queue", "bulk"),
        ("type", "report.make"),
        ("category", "export"),
        ("correlation_id", "order-12"),
        ("created_by", "ada"),
        ("idempotency_key", "k"),
    ],
)
def test_jobs_are_listed_by_what_they_were_given(scene: Scene, name: str, value: str) -> None:
    options: dict[str, Any] = {"type": "mail.send", name: value}
    waiting = scene.put(**options)
    scene.put()
    assert scene.list_jobs(**{name: value}) == [waiting.id]
    worker = scene.hire()
    [lease] = scene.claim(worker, queues=(scene.see(waiting.id).queue,), types=(scene.see(waiting.id).type,))
    assert scene.list_jobs(**{name: value}, statuses=("processing",)) == [lease.id]
    scene.settle(worker, completed(lease))
    assert scene.list_jobs(**{name: value}, statuses=("completed",)) == [lease.id]
    assert scene.list_jobs(**{name: value}, statuses=("pending",)) == []
    assert scene.list_jobs(**{name: "no such thing"}) == []


@pytest.mark.requirement("L16")
def test_the_children_of_a_job_and_all_jobs_of_a_correlation_are_found(scene: Scene) -> None:
    root = scene.put()
    children = [scene.put(parent_id=root.id, correlation_id=str(root.id)).id for _ in range(2)]
    grandchild = scene.put(parent_id=children[0], correlation_id=str(root.id))
    scene.put()
    assert scene.list_jobs(parent_id=root.id) == children[::-1]
    assert scene.list_jobs(correlation_id=str(root.id)) == [grandchild.id, *children[::-1], root.id]


def test_a_job_is_found_by_its_own_id_where_it_has_no_key(scene: Scene) -> None:
    job = scene.put()
    scene.put()
    assert scene.list_jobs(idempotency_key=str(job.id)) == [job.id]
    assert scene.list_jobs(correlation_id=str(job.id)) == [job.id]


def test_every_given_filter_must_match(scene: Scene) -> None:
    scene.put(queue="bulk", category="export")
    both = scene.put(queue="bulk", category="sync")
    scene.put(category="sync")
    assert scene.list_jobs(queue="bulk", category="sync") == [both.id]


def test_jobs_are_listed_by_when_they_were_enqueued(scene: Scene) -> None:
    jobs = []
    for _ in range(4):
        jobs.append((scene.now, scene.put().id))
        scene.later(10)
    found = scene.list_jobs(enqueued_from=jobs[1][0], enqueued_before=jobs[3][0])
    assert found == [jobs[2][1], jobs[1][1]]


@pytest.mark.requirement("L15", "L13")
def test_jobs_are_listed_that_run_since_before_an_instant(scene: Scene) -> None:
    worker = scene.hire(lease_s=3600)
    old = scene.put(tenant="acme").id
    scene.claim(worker)
    scene.finished()
    scene.later(60)
    began = scene.now
    young = scene.put().id
    scene.claim(worker)
    scene.put()
    scene.prefetch(worker)
    scene.put()
    scene.later(1)
    assert scene.list_jobs(started_before=scene.now) == [young, old]
    assert scene.list_jobs(started_before=scene.now, statuses=("processing", "pending")) == [young, old]
    assert scene.list_jobs(started_before=began) == [old]
    assert scene.list_jobs(started_before=began, statuses=("completed", "pending")) == []
    assert scene.list_jobs(Scope("acme"), started_before=scene.now) == [old]


def test_pages_are_newest_first_and_meet_without_gap_or_overlap(scene: Scene) -> None:
    jobs = scene.put_many(7)
    pages, before = [], None
    while True:
        page = scene.run(PageJobs(scope=ALL_TENANTS, before=before, limit=3))
        pages.append([job.id for job in page.jobs])
        before = page.next
        if before is None:
            break
    assert [len(page) for page in pages] == [3, 3, 1]
    assert [job for page in pages for job in page] == [job.id for job in reversed(jobs)]


def test_a_full_last_page_says_that_nothing_follows(scene: Scene) -> None:
    scene.put_many(4)
    first = scene.run(PageJobs(scope=ALL_TENANTS, limit=2))
    assert first.next is not None
    assert scene.run(PageJobs(scope=ALL_TENANTS, before=first.next, limit=2)).next is None


def test_an_empty_store_has_one_empty_page(scene: Scene) -> None:
    page = scene.run(PageJobs(scope=ALL_TENANTS))
    assert (page.jobs, page.next) == ((), None)


def test_a_page_is_never_longer_than_the_most_there_may_be(scene: Scene) -> None:
    scene.put_many(MAX_PAGE + 5)
    assert len(scene.run(PageJobs(scope=ALL_TENANTS, limit=10_000)).jobs) == MAX_PAGE


def test_filtered_pages_meet_too(scene: Scene) -> None:
    wanted = []
    for number in range(12):
        job = scene.put(queue="bulk" if number % 3 == 0 else "default")
        if number % 3 == 0:
            wanted.append(job.id)
    assert scene.list_jobs(limit=1, queue="bulk") == wanted[::-1]
    assert scene.list_jobs(limit=2, queue="bulk", statuses=("pending", "processing")) == wanted[::-1]


def pages_while(scene: Scene, **where: Any) -> Iterator[list[JobId]]:
    before: Seq | None = None
    while True:
        page = scene.run(PageJobs(scope=ALL_TENANTS, where=JobFilter(**where), before=before, limit=2))
        yield [job.id for job in page.jobs]
        if page.next is None:
            return
        before = page.next


def test_what_is_there_throughout_appears_once_while_others_come_and_go(scene: Scene) -> None:
    lasting, passing = [], []
    for number in range(12):
        job = scene.put(queue="bulk")
        (passing if number % 3 == 1 else lasting).append(job.id)
    seen: list[JobId] = []
    for page in pages_while(scene, queue="bulk"):
        seen += page
        scene.put(queue="bulk")
        if passing:
            scene.cancel(passing.pop())
            scene.retain(finished_before=scene.at(1))
    assert [job for job in seen if job in lasting] == lasting[::-1]
    assert len(seen) == len(set(seen))


def test_a_job_that_changes_status_while_paging_is_not_told_twice(scene: Scene) -> None:
    scene.put_many(6)
    worker = scene.hire()
    seen: list[JobId] = []
    for page in pages_while(scene, statuses=("pending", "processing", "completed")):
        seen += page
        for lease in scene.claim(worker):
            scene.settle(worker, completed(lease))
    assert len(seen) == len(set(seen)) == 6


def letters(scene: Scene, **where: Any) -> list[Seq]:
    page = scene.run(PageDeadLetters(scope=ALL_TENANTS, where=DeadLetterFilter(**where)))
    assert page.total == len(page.dead_letters)
    return [letter.id for letter in page.dead_letters]


@pytest.mark.requirement("I7")
def test_dead_letters_are_listed_by_what_they_are(scene: Scene) -> None:
    plain = scene.dead().seq
    worker, lease = scene.leased(type="report.make", queue="bulk", category="export", correlation_id="order-12")
    scene.settle(worker, died(lease, failure(error_class="non_retryable", error_type="Odd", fingerprint="beef")))
    odd = lease.seq
    for name, value in {
        "queue": "bulk",
        "type": "report.make",
        "category": "export",
        "error_class": "non_retryable",
        "error_type": "Odd",
        "fingerprint": "beef",
        "correlation_id": "order-12",
    }.items():
        assert letters(scene, **{name: value}) == [odd]
    assert letters(scene) == [odd, plain]
    assert letters(scene, queue="bulk", error_type="ConnectionResetError") == []


@pytest.mark.requirement("I7")
def test_dead_letters_are_listed_by_what_was_done_about_them(scene: Scene) -> None:
    pending, retried_one, resolved, discarded = (scene.dead().seq for _ in range(4))
    scene.reprocess(retried_one)
    scene.resolve(resolved)
    scene.discard(discarded)
    scene.acknowledge(pending)
    by_status = {"pending_review": pending, "retried": retried_one, "resolved": resolved, "discarded": discarded}
    for status, seq in by_status.items():
        assert letters(scene, status=status) == [seq]
    assert letters(scene, acknowledged=True) == [pending]
    assert letters(scene, acknowledged=False) == [discarded, resolved, retried_one]


def test_dead_letters_are_paged_newest_first_with_their_total(scene: Scene) -> None:
    dead = [scene.dead().seq for _ in range(5)]
    found: list[Seq] = []
    before: Seq | None = None
    while True:
        page = scene.run(PageDeadLetters(scope=ALL_TENANTS, before=before, limit=2))
        assert page.total == 5
        found += [letter.id for letter in page.dead_letters]
        if page.next is None:
            break
        before = page.next
    assert found == dead[::-1]


@pytest.mark.parametrize("where", [DeadLetterFilter(), DeadLetterFilter(queue="default")])
def test_dead_letters_are_counted_as_far_as_is_asked_whatever_the_page(scene: Scene, where: DeadLetterFilter) -> None:
    dead = [scene.dead().seq for _ in range(4)]
    for cap, total in ((0, 0), (1, 1), (3, 3), (4, 4), (9, 4)):
        for limit, before, shown in ((2, None, dead[:1:-1]), (10, None, dead[::-1]), (2, dead[1], dead[:1])):
            page = scene.run(PageDeadLetters(scope=ALL_TENANTS, where=where, before=before, limit=limit, cap=cap))
            assert (page.total, [letter.id for letter in page.dead_letters]) == (total, shown)


def test_a_listed_dead_letter_is_shown_as_it_is_found_alone(scene: Scene) -> None:
    lease = scene.dead()
    scene.acknowledge(lease.seq)
    [letter] = scene.run(PageDeadLetters(scope=ALL_TENANTS)).dead_letters
    assert letter == scene.letter(lease.seq)
