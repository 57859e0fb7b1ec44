"""Jobs that a worker puts off before anything ran: no attempt is kept of it, however often it happens.

Where they wait for something with a name, such as newer code, the first of a series of put-offs is kept, and a job that
has waited for too long is dead.
"""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.core.ids import JobId, WorkerId
from fairlane.core.job import Lease
from fairlane.core.limits import Limit
from fairlane.core.ops import Take
from fairlane.core.outcome import Failure, Snoozed
from fairlane.testing.conformance.limits import queue, rate, task, tenant
from fairlane.testing.conformance.samples import NO_SUCH_SEQ, completed, crashed, failure, released, retried, snoozed
from fairlane.testing.conformance.scene import Scene, wanting

pytestmark = pytest.mark.requirement("Q10", "L8")


def put_off(lease: Lease, delay_s: float = 60.0) -> Snoozed:
    return snoozed(lease, delay_s, recorded=False)


def history(scene: Scene, job: JobId) -> list[tuple[int, str]]:
    detail = scene.find(job)
    assert detail is not None
    return [(attempt.attempt, attempt.outcome) for attempt in detail.attempts]


def leased(scene: Scene) -> tuple[WorkerId, Lease]:
    worker, lease = scene.leased()
    scene.renew(worker, 10_000)
    return worker, lease


def wait(scene: Scene, worker: WorkerId, lease: Lease, times: int) -> Lease:
    """Put it off so often; the lease it has in the end."""
    for _ in range(times):
        assert scene.settle(worker, put_off(lease)).refused == ()
        scene.later(60)
        [lease] = scene.claim(worker)
    return lease


def test_a_job_that_waited_an_hour_has_no_history_of_it(scene: Scene) -> None:
    worker = scene.hire(10_000)
    first = scene.put()
    [lease] = scene.claim(worker)
    scene.settle(worker, retried(lease, 1.0))
    scene.later(1)
    [lease] = scene.claim(worker)
    lease = wait(scene, worker, lease, 60)
    assert (lease.attempts, history(scene, first.id)) == (1, [(1, "failed")])
    scene.settle(worker, completed(lease))
    assert history(scene, first.id) == [(1, "failed"), (lease.attempt, "completed")]


def test_a_job_put_off_is_pending_uncharged_and_due_later(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.settle(worker, put_off(lease, 1800))
    job = scene.see(lease.id)
    assert (job.status, job.attempts, job.run_at, job.worker) == ("pending", 0, scene.at(1800), None)
    assert (job.started_at, job.last_error) == (None, None)
    assert (scene.claim(worker), scene.queue().scheduled) == ((), 1)


def test_every_lease_keeps_a_number_of_its_own(scene: Scene) -> None:
    worker, lease = leased(scene)
    again = wait(scene, worker, lease, 2)
    assert again.attempt == lease.attempt + 2
    assert scene.settle(worker, completed(lease)).refused != ()
    assert scene.settle(worker, completed(again)).refused == ()


def test_told_again_or_too_late_it_is_not_refused_for_nothing_ran(scene: Scene) -> None:
    worker, lease = leased(scene)
    for _ in range(2):
        assert scene.settle(worker, put_off(lease)).refused == ()
    other = scene.hire()
    assert scene.settle(other, put_off(lease)).refused == ()
    assert scene.see(lease.id).run_at == scene.at(60)
    scene.later(60)
    [again] = scene.claim(worker)
    assert scene.settle(worker, put_off(lease)).refused == ()
    assert scene.see(lease.id).status == "processing"
    gone = Snoozed(seq=NO_SUCH_SEQ, attempt=1, claim_no=1, delay_s=1.0, recorded=False)
    assert scene.settle(worker, gone, completed(again)).refused == ()


def test_asked_to_cancel_it_ends_cancelled(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.cancel(lease.id)
    scene.settle(worker, put_off(lease))
    assert scene.see(lease.id).status == "cancelled"
    assert history(scene, lease.id) == [(1, "snoozed")]


def test_a_suspect_job_stays_suspect(scene: Scene) -> None:
    worker, lease = leased(scene)
    scene.settle(worker, crashed(lease))
    [lease] = scene.claim(worker)
    assert lease.suspect
    assert wait(scene, worker, lease, 1).suspect


@pytest.mark.parametrize(
    "limit", [queue(rate=rate(1, 600.0)), task(rate=rate(1, 600.0)), tenant("system", rate=rate(1, 600.0))]
)
def test_a_put_off_gives_its_token_back_to_jobs_that_can_run(scene: Scene, limit: Limit) -> None:
    scene.put_many(2)
    worker = scene.hire(10_000)
    [lease] = scene.claim(worker, limits=(limit,))
    assert scene.claim(worker, limits=(limit,)) == ()
    scene.settle(worker, put_off(lease))
    [other] = scene.claim(worker, limits=(limit,))
    assert other.seq != lease.seq
    scene.settle(worker, snoozed(other, 60.0))
    assert scene.claim(worker, limits=(limit,)) == ()


NEWER, NOBODY = (failure("not here", error_type=kind) for kind in ("NeedsNewerCode", "MissingPrincipal"))


def put_off_for(lease: Lease, reason: Failure = NEWER, give_up_s: float | None = 86_400.0, **options: Any) -> Snoozed:
    return snoozed(lease, 60.0, recorded=False, failure=reason, give_up_s=give_up_s, **options)


def again(scene: Scene, worker: WorkerId, after_s: float = 60.0) -> Lease:
    scene.later(after_s)
    scene.renew(worker, 200_000)
    [lease] = scene.claim(worker)
    return lease


@pytest.mark.requirement("L17", "I10")
def test_the_first_put_off_of_a_series_is_kept_with_its_reason(scene: Scene) -> None:
    worker, lease = leased(scene)
    for _ in range(5):
        assert scene.settle(worker, put_off_for(lease)).refused == ()
        lease = again(scene, worker)
    assert history(scene, lease.id) == [(1, "snoozed")]
    job = scene.see(lease.id)
    assert (job.status, job.attempts, job.error_type) == ("processing", 0, "NeedsNewerCode")
    assert (job.last_error, job.last_error_at) == ("not here", scene.at(-300))
    scene.settle(worker, completed(lease))
    assert history(scene, lease.id) == [(1, "snoozed"), (lease.attempt, "completed")]


@pytest.mark.requirement("L17")
def test_a_job_put_off_for_too_long_is_a_dead_letter_uncharged(scene: Scene) -> None:
    worker, lease = leased(scene)
    scene.settle(worker, put_off_for(lease, give_up_s=0.0))
    lease = again(scene, worker)
    scene.settle(worker, put_off_for(lease, give_up_s=60.001))
    assert scene.see(lease.id).status == "pending", "not a moment too early"
    lease = again(scene, worker)
    assert scene.settle(worker, put_off_for(lease, give_up_s=120.0)).refused == ()
    job = scene.see(lease.id)
    assert (job.status, job.attempts, job.error_type) == ("dead", 0, "NeedsNewerCode")
    letter = scene.letter(lease.seq)
    assert (letter.reason, letter.died_at) == ("not here", scene.at(0))
    assert history(scene, lease.id) == [(1, "snoozed"), (lease.attempt, "dead")]
    assert scene.settle(worker, put_off_for(lease, give_up_s=120.0)).refused == ()


@pytest.mark.requirement("L17")
def test_a_series_begins_anew_after_anything_else_and_never_dies_of_its_first(scene: Scene) -> None:
    worker, lease = leased(scene)
    scene.settle(worker, put_off_for(lease))
    lease = again(scene, worker)
    scene.settle(worker, put_off_for(lease, NOBODY, give_up_s=0.0))
    lease = again(scene, worker)
    scene.settle(worker, put_off_for(lease, give_up_s=0.0))
    lease = again(scene, worker)
    scene.settle(worker, retried(lease, 60.0))
    lease = again(scene, worker)
    scene.settle(worker, put_off_for(lease, give_up_s=0.0))
    assert scene.see(lease.id).status == "pending"
    assert [outcome for _, outcome in history(scene, lease.id)] == [
        "snoozed",
        "snoozed",
        "snoozed",
        "failed",
        "snoozed",
    ]


@pytest.mark.requirement("L17")
def test_an_attempt_that_is_given_back_does_not_end_a_series(scene: Scene) -> None:
    worker, lease = leased(scene)
    scene.settle(worker, put_off_for(lease))
    lease = again(scene, worker)
    scene.settle(worker, released(lease))
    [lease] = scene.claim(worker)
    scene.settle(worker, put_off_for(lease, give_up_s=60.0))
    assert scene.see(lease.id).status == "dead"


@pytest.mark.requirement("L17", "I10")
def test_a_job_put_off_that_was_asked_to_cancel_ends_cancelled_not_dead(scene: Scene) -> None:
    worker, lease = leased(scene)
    scene.settle(worker, put_off_for(lease))
    lease = again(scene, worker)
    scene.cancel(lease.id)
    scene.settle(worker, put_off_for(lease, give_up_s=0.0))
    assert scene.see(lease.id).status == "cancelled"


@pytest.mark.requirement("I10")
def test_without_a_bound_a_job_is_put_off_for_ever(scene: Scene) -> None:
    worker, lease = leased(scene)
    for _ in range(3):
        scene.settle(worker, put_off_for(lease, NOBODY, give_up_s=None))
        lease = again(scene, worker, 100_000)
    job = scene.see(lease.id)
    assert (job.status, job.attempts, history(scene, lease.id)) == ("processing", 0, [(1, "snoozed")])


def test_a_recorded_snooze_with_a_reason_is_kept_each_time(scene: Scene) -> None:
    worker, lease = leased(scene)
    for _ in range(2):
        scene.settle(worker, snoozed(lease, 60.0, failure=NOBODY))
        lease = again(scene, worker)
    assert history(scene, lease.id) == [(1, "snoozed"), (2, "snoozed")]


@pytest.mark.requirement("L17")
@pytest.mark.parametrize("types", [None, ("mail.send", "other")])
def test_a_worker_leaves_jobs_of_a_type_that_were_put_off_to_others(
    scene: Scene, types: tuple[str, ...] | None
) -> None:
    worker, lease = leased(scene)
    scene.settle(worker, put_off_for(lease))
    scene.later(60)
    scene.put(type="other")
    plain = scene.put()
    leaves: dict[str, Any] = {"types": types, "leaves": ("mail.send",)}
    assert {claimed.type for claimed in scene.claim(worker, 2, **leaves)} == {"mail.send", "other"}
    assert scene.see(plain.id).status == "processing"
    assert scene.claim(worker, 5, **leaves) == ()
    takes = (Take(queue="default", band=5, tenant="system", limit=5),)
    assert scene.claim(worker, 5, takes=takes, **leaves) == ()
    [again] = scene.claim(scene.hire(), 5, types=types, leaves=("other",))
    assert again.id == lease.id


@pytest.mark.requirement("L17")
def test_a_job_counts_as_put_off_until_it_is_claimed(scene: Scene) -> None:
    worker, lease = leased(scene)
    scene.settle(worker, put_off_for(lease))
    lease = again(scene, worker)
    scene.settle(worker, released(lease))
    [lease] = scene.claim(worker, leaves=("mail.send",))
    scene.settle(worker, snoozed(lease, 60.0))
    scene.later(60)
    [lease] = scene.claim(worker, leaves=("mail.send",))
    scene.settle(worker, put_off_for(lease))
    scene.fail(lease.id, retry_delay_s=0.0)
    scene.later(1)
    assert len(scene.claim(worker, leaves=("mail.send",))) == 1


@pytest.mark.requirement("L17", "L2")
def test_what_is_left_to_others_hides_nothing_behind_it(scene: Scene) -> None:
    worker = scene.hire(10_000)
    scene.put_many(5)
    for lease in scene.claim(worker, 5):
        scene.settle(worker, put_off_for(lease))
    scene.later(60)
    scene.put()
    want = {"leaves": ("mail.send",), "types": ("mail.send",)}
    turn = scene.turn(worker, wanting(1, look=3, **want))
    assert turn.leases == ()
    [mark] = turn.marks
    take = Take(queue="default", band=5, tenant="system", limit=1, after=mark)
    [lease] = scene.claim(worker, 1, takes=(take,), discover=False, look=3, **want)
    assert lease.attempt == 1
