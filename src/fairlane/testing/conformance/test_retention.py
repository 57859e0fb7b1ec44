"""Retention, purge and check."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.core.ids import JobId
from fairlane.core.ops import ALL_TENANTS, Check, DropResults, GetDeadLetter, PageDeadLetters, Purge, Retain
from fairlane.testing.conformance.samples import cancelled, completed, retried
from fairlane.testing.conformance.scene import Scene


def test_finished_jobs_past_their_age_are_removed_with_everything_they_had(scene: Scene) -> None:
    worker, lease = scene.leased(idempotency_key="k", correlation_id="c")
    scene.settle(worker, retried(lease, 1))
    scene.later(1)
    [lease] = scene.claim(worker)
    scene.settle(worker, completed(lease, '"done"'))
    assert scene.retain(finished_before=scene.now) == 0
    assert scene.retain(finished_before=scene.at(0.000001)) == 1
    assert scene.find(lease.id) is None
    assert scene.list_jobs() == scene.list_jobs(correlation_id="c") == []
    assert scene.stats().completed == 0
    scene.put(idempotency_key="k")


def test_a_removed_jobs_id_is_free_again(scene: Scene) -> None:
    job = scene.job(idempotency_key="k", dedup_key="d")
    scene.enqueue(job)
    scene.cancel(job.id)
    scene.retain(finished_before=scene.at(1))
    [receipt] = scene.enqueue(job).receipts
    assert receipt.disposition == "created"
    assert scene.attempts(job.id) == ()


def test_cancelled_jobs_go_the_same_way(scene: Scene) -> None:
    scene.cancel(scene.put().id)
    worker, lease = scene.leased()
    scene.settle(worker, cancelled(lease))
    assert scene.retain(finished_before=scene.at(1)) == 2


def test_unfinished_jobs_are_never_removed(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.settle(worker, retried(lease, 60))
    scene.leased()
    scene.put(delay_s=60)
    scene.put()
    scene.later(10**7)
    assert scene.retain(finished_before=scene.now, closed_before=scene.now) == 0
    assert len(scene.list_jobs()) == 4


def test_a_step_continues_where_the_one_before_ended(scene: Scene) -> None:
    leases = []
    for _ in range(4):
        leases.append(scene.finished())
        scene.later(10)
    third = scene.at(-20)
    step = scene.run(Retain(finished_before=scene.now, finished_from=third, limit=1))
    assert (step.jobs, step.finished_to) == (1, third)
    assert scene.list_jobs() == [leases[3].id, leases[1].id, leases[0].id]
    assert scene.run(Retain(finished_before=scene.at(-40), finished_from=third)).finished_to is None
    assert scene.run(Retain(finished_before=scene.now)).finished_to == scene.at(-10)
    assert scene.list_jobs() == []


def test_the_oldest_go_first_and_no_more_than_the_limit(scene: Scene) -> None:
    leases = []
    for _ in range(4):
        leases.append(scene.finished())
        scene.later(10)
    assert scene.retain(finished_before=scene.now, limit=3) == 3
    assert scene.list_jobs() == [leases[3].id]


def test_only_what_finished_before_is_removed(scene: Scene) -> None:
    old = scene.finished()
    scene.later(100)
    young = scene.finished()
    assert scene.retain(finished_before=scene.at(-50)) == 1
    assert scene.list_jobs() == [young.id]
    assert scene.find(old.id) is None


def test_dead_letters_pending_review_are_never_removed(scene: Scene) -> None:
    lease = scene.dead()
    scene.acknowledge(lease.seq)
    scene.later(10**7)
    assert scene.retain(finished_before=scene.now, closed_before=scene.now) == 0
    assert scene.letter(lease.seq).status == "pending_review"


@pytest.mark.parametrize("how", ["discard", "resolve", "reprocess"])
def test_closed_dead_letters_are_removed_by_when_they_were_closed(scene: Scene, how: str) -> None:
    lease = scene.dead(idempotency_key="k")
    scene.later(1000)
    getattr(scene, how)(lease.seq)
    scene.later(5)
    assert scene.retain(closed_before=scene.at(-5)) == 0
    assert scene.retain(finished_before=scene.now) == 0
    assert scene.retain(closed_before=scene.at(-4)) == 1
    assert scene.find(lease.id) is None
    assert scene.run(GetDeadLetter(scope=ALL_TENANTS, id=lease.seq)) is None
    assert scene.run(PageDeadLetters(scope=ALL_TENANTS)).total == 0
    scene.put(idempotency_key="k")


def test_retention_without_an_age_removes_nothing(scene: Scene) -> None:
    scene.finished()
    assert scene.retain() == 0


def test_one_limit_holds_for_both_kinds(scene: Scene) -> None:
    scene.finished()
    scene.discard(scene.dead().seq)
    scene.later(10)
    ages = {"finished_before": scene.now, "closed_before": scene.now}
    assert [scene.retain(**ages, limit=1) for _ in range(3)] == [1, 1, 0]


@pytest.mark.requirement("S1", "S10")
def test_a_queue_keeps_its_jobs_for_a_time_of_its_own(scene: Scene) -> None:
    """Longer or shorter than the others; finished ones and closed dead letters."""
    kept: dict[str, list[JobId]] = {queue: [] for queue in ("audited", "brief", "default")}
    for queue, ids in kept.items():
        ids.append(scene.finished(queue=queue).id)
        ids.append(scene.cancel(scene.put(queue=queue).id).job.id)  # type: ignore[union-attr]
        letter = scene.dead(queue=queue)
        scene.discard(letter.seq)
        ids.append(letter.id)
    scene.later(1000)

    def retain(audited: float, brief: float, others: float) -> int:
        ages = {"audited": scene.at(-audited), "brief": scene.at(-brief)}
        return scene.retain(by_queue=ages, finished_before=scene.at(-others), closed_before=scene.at(-others))

    assert retain(2000, 2000, 2000) == 0
    assert retain(2000, 999, 2000) == 3
    assert set(scene.list_jobs()) == {*kept["audited"], *kept["default"]}
    assert retain(2000, 999, 999) == 3
    assert set(scene.list_jobs()) == set(kept["audited"])
    assert scene.attempts(kept["audited"][0])[0].outcome == "completed"
    assert scene.retain(by_queue={"audited": scene.at(-1000)}) == 0
    assert scene.retain(by_queue={"audited": scene.at(-999)}) == 3, "no age is given for the others"
    assert scene.list_jobs() == []


def test_jobs_that_are_kept_are_examined_a_bounded_number_at_a_time(scene: Scene) -> None:
    for queue in ("audited", "audited", "default", "audited", "default"):
        scene.finished(queue=queue)
        scene.later(1)
    scene.cancel(scene.put(queue="audited").id)
    for _ in range(2):  # at the same instant
        scene.cancel(scene.put(queue="default").id)
    scene.later(1)
    rule: dict[str, Any] = {"finished_before": scene.now, "by_queue": {"audited": scene.at(-1000)}, "examine": 2}
    removed, steps, reached = 0, 0, None
    while steps == 0 or reached is not None:
        step = scene.run(Retain(**rule, finished_from=reached))
        removed, steps, reached = removed + step.jobs, steps + 1, step.examined_to
    assert (removed, steps) == (4, 4)
    assert {scene.see(job).queue for job in scene.list_jobs()} == {"audited"}
    assert scene.run(Retain(finished_before=scene.now, examine=1)).jobs == 4, "unbounded where no queue has an age"


@pytest.mark.requirement("Q11")
def test_a_purge_leaves_nothing(scene: Scene) -> None:
    worker, lease = scene.leased(idempotency_key="k", dedup_key="d")
    scene.dead()
    scene.finished()
    scene.put(delay_s=60)
    scene.cancel(lease.id)
    assert scene.run(Purge()).jobs == 4
    assert (scene.list_jobs(), scene.audit(), scene.stats().queues) == ([], (), ())
    assert scene.run(PageDeadLetters(scope=ALL_TENANTS)).total == 0
    assert scene.settle(worker, completed(lease)).refused
    assert scene.renew(worker).fresh is True
    scene.put(idempotency_key="k", dedup_key="d")
    assert scene.run(Purge()).jobs == 1


def test_a_check_reads_the_stores_own_state(scene: Scene) -> None:
    health = scene.run(Check())
    assert health.now == scene.now
    assert health.store
    assert health.server
    assert health.schema_version >= 0
    assert all(isinstance(sentence, str) for sentence in health.degraded)


def test_results_of_one_task_are_dropped_and_its_jobs_stay(scene: Scene) -> None:
    ended = []
    for task in ("mail.send", "report", "mail.send", "mail.send"):
        worker, lease = scene.leased(type=task)
        scene.settle(worker, completed(lease, '"done"'))
        ended.append(lease.id)
        scene.later(10)
    scene.cancel(scene.put().id)
    scene.dead()
    answer = scene.run(DropResults(type="mail.send", finished_before=scene.at(-10)))
    assert (answer.dropped, answer.more) == (2, False)
    assert [scene.see(job).result for job in ended] == [None, '"done"', None, '"done"']
    assert [scene.see(job).status for job in ended] == ["completed"] * 4
    again = scene.run(DropResults(type="mail.send", finished_before=scene.at(1), at=answer.at, seq=answer.seq))
    assert (again.dropped, again.more) == (1, False)
    assert scene.see(ended[3]).result is None
    assert scene.run(DropResults(type="mail.send", finished_before=scene.at(1))).dropped == 0


def test_results_of_one_instant_are_dropped_step_by_step(scene: Scene) -> None:
    leases = [scene.leased() for _ in range(5)]
    for worker, lease in leases:
        scene.settle(worker, completed(lease, "1"))
    at, seq, dropped = None, None, []
    while True:
        step = scene.run(DropResults(type="mail.send", finished_before=scene.at(1), at=at, seq=seq, limit=2))
        at, seq, _ = step.at, step.seq, dropped.append(step.dropped)
        if not step.more:
            break
    assert dropped == [2, 2, 1]
    assert scene.retain(finished_before=scene.at(1)) == 5
    assert scene.run(DropResults(type="mail.send", finished_before=scene.at(1), at=at, seq=seq)).at == at
    assert scene.run(DropResults(type="mail.send", finished_before=scene.at(1), limit=0)).more
