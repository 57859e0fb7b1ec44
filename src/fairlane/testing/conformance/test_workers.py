"""Workers: their heartbeat, what they may do without one, and how they leave."""

from __future__ import annotations

import pytest

from fairlane.core.ids import WorkerId
from fairlane.core.ops import (
    ALL_TENANTS,
    MOST_EXCEPTIONS,
    CaughtException,
    ListExceptions,
    ReportExceptions,
    Scope,
)
from fairlane.testing.conformance.samples import completed
from fairlane.testing.conformance.scene import Scene, wanting

pytestmark = pytest.mark.requirement("Q17")


def test_a_new_worker_is_fresh_and_good_for_its_lease(scene: Scene) -> None:
    worker = scene.making.worker_id()
    renewed = scene.renew(worker, 15)
    assert (renewed.fresh, renewed.now, renewed.expires_at) == (True, scene.now, scene.at(15))


def test_a_renewed_heartbeat_lasts_from_now_on(scene: Scene) -> None:
    worker = scene.hire()
    scene.later(10)
    renewed = scene.renew(worker, 20)
    assert (renewed.fresh, renewed.expires_at) == (False, scene.at(20))


def test_a_worker_without_a_row_is_given_nothing(scene: Scene) -> None:
    scene.put()
    result = scene.turn(scene.making.worker_id(), wanting(1))
    assert (result.registered, result.leases) == (False, ())
    assert scene.queue().ready == 1


def test_a_worker_whose_heartbeat_is_too_old_is_given_nothing(scene: Scene) -> None:
    scene.put()
    worker = scene.hire(lease_s=15)
    scene.later(15)
    result = scene.turn(worker, wanting(1))
    assert (result.registered, result.leases) == (False, ())


def test_a_heartbeat_holds_until_the_last_moment(scene: Scene) -> None:
    scene.put()
    worker = scene.hire(lease_s=15)
    scene.later(14.999999)
    result = scene.turn(worker, wanting(1))
    assert (result.registered, len(result.leases)) == (True, 1)


def test_a_worker_whose_heartbeat_is_too_old_may_still_settle_what_it_holds(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.later(60)
    result = scene.turn(worker, wanting(1), outcomes=(completed(lease, "1"),))
    assert (result.registered, result.refused, result.leases) == (False, (), ())
    assert scene.status(lease.id) == "completed"


def test_a_worker_that_renews_before_anyone_reclaims_keeps_its_leases(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.later(60)
    assert scene.renew(worker).fresh is False
    assert scene.reclaim() == ()
    assert scene.settle(worker, completed(lease)).refused == ()


def test_a_worker_that_lost_its_row_learns_it_when_it_renews(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.later(60)
    scene.reclaim()
    assert scene.renew(worker).fresh is True
    assert scene.settle(worker, completed(lease)).refused


def test_a_retired_worker_gives_everything_back_uncharged(scene: Scene) -> None:
    scene.put_many(3)
    worker = scene.hire()
    started, *prefetched = scene.claim(worker, 3, start=1)
    scene.later(4)
    assert scene.retire(worker) == 3
    for lease in (started, *prefetched):
        job = scene.see(lease.id)
        assert (job.status, job.attempts, job.crashes, job.worker) == ("pending", 0, 0, None)
        [attempt] = scene.attempts(lease.id)
        assert (attempt.outcome, attempt.worker, attempt.ended_at) == ("released", worker, scene.now)
    assert [lease.suspect for lease in scene.claim(scene.hire(), 9)] == [False] * 3


def test_a_retired_worker_is_gone(scene: Scene) -> None:
    scene.put()
    worker = scene.hire()
    assert scene.retire(worker) == 0
    assert scene.turn(worker, wanting(1)).registered is False
    assert scene.renew(worker).fresh is True


def test_retiring_twice_or_a_stranger_is_fine(scene: Scene) -> None:
    worker, _ = scene.leased()
    assert (scene.retire(worker), scene.retire(worker)) == (1, 0)
    assert scene.retire(scene.making.worker_id()) == 0


def test_a_retired_workers_job_that_was_asked_to_stop_is_cancelled(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.cancel(lease.id)
    assert scene.retire(worker) == 1
    assert scene.status(lease.id) == "cancelled"


def test_a_worker_settles_nothing_after_it_retired(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.retire(worker)
    assert scene.settle(worker, completed(lease)).refused
    assert scene.status(lease.id) == "pending"


def test_retiring_one_worker_leaves_the_others_alone(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.retire(scene.hire())
    assert scene.settle(worker, completed(lease)).refused == ()


def caught(scene: Scene, tenant: str = "acme", error: str = "no route", at_s: float = 0.0) -> CaughtException:
    return CaughtException(
        id=scene.making.job_id(),
        task="mail.send",
        tenant=tenant,
        attempt=2,
        type="ConnectionError",
        error=error,
        error_class="transient",
        is_final=False,
        at=scene.at(at_s),
    )


def listed(
    scene: Scene, scope: Scope = ALL_TENANTS, limit: int | None = None
) -> list[tuple[WorkerId, CaughtException]]:
    return [(one.worker, one.caught) for one in scene.run(ListExceptions(scope=scope, limit=limit)).exceptions]


@pytest.mark.requirement("Q7")
def test_the_last_exceptions_of_every_worker_are_listed_newest_first(scene: Scene) -> None:
    one, other = sorted((scene.hire(), scene.hire()))
    assert listed(scene) == []
    first, second = caught(scene), caught(scene, "bolt", "täglich \x1b[31m ☃", at_s=20)
    third = caught(scene, at_s=10)
    assert scene.run(ReportExceptions(worker=one, exceptions=(first, second))).accepted
    assert scene.run(ReportExceptions(worker=other, exceptions=(third,))).accepted
    assert listed(scene) == [(one, second), (other, third), (one, first)]
    assert listed(scene, limit=2) == [(one, second), (other, third)]
    assert listed(scene, Scope("acme")) == [(other, third), (one, first)]
    assert listed(scene, Scope("acme"), limit=1) == [(other, third)]
    assert listed(scene, Scope("nobody")) == []
    scene.renew(one)
    assert len(listed(scene)) == 3
    scene.run(ReportExceptions(worker=one, exceptions=(second,)))
    scene.retire(other)
    assert listed(scene) == [(one, second)]


@pytest.mark.requirement("Q7")
def test_the_exceptions_of_a_worker_are_bounded_and_those_of_an_unknown_one_refused(scene: Scene) -> None:
    worker = scene.hire()
    many = tuple(caught(scene, at_s=n) for n in range(MOST_EXCEPTIONS + 5))
    scene.run(ReportExceptions(worker=worker, exceptions=many))
    assert [found for _, found in listed(scene)] == list(reversed(many[5:]))
    assert not scene.run(ReportExceptions(worker=scene.making.worker_id(), exceptions=many)).accepted
    assert len(listed(scene)) == MOST_EXCEPTIONS
