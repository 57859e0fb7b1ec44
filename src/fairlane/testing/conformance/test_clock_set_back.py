"""A clock that was ahead and is set back: nothing waits for the wrong future, and nothing that runs is lost."""

from __future__ import annotations

import pytest

from fairlane.core.breaker import BreakerPolicy
from fairlane.core.limits import Limit
from fairlane.core.ops import (
    Admit,
    BringBack,
    BroughtBack,
    ForceBreaker,
    ListBreakers,
    ListLimits,
    ListWorkers,
    Purge,
    ReadSetBack,
    ReadSteps,
    Report,
    SaveAlerts,
    SetBack,
    TakeDuty,
)
from fairlane.core.outcome import Suspension
from fairlane.testing.conformance import test_alerts as alerts
from fairlane.testing.conformance.held_jobs import hold
from fairlane.testing.conformance.limits import each_kind, got, pause_limit, put, queue, rate, unhold
from fairlane.testing.conformance.samples import completed, retried, snoozed
from fairlane.testing.conformance.scene import Scene, wanting
from fairlane.testing.conformance.workflows import Flow

AHEAD_S = 3600.0


def ahead(scene: Scene) -> None:
    scene.later(AHEAD_S)


def bring_back(scene: Scene, behind_s: float | None = AHEAD_S, limit: int = 1000) -> BroughtBack:
    return scene.run(BringBack(behind_s=behind_s, limit=limit))


def set_back(scene: Scene, by_s: float = AHEAD_S) -> BroughtBack:
    """The clock is set right again, and a worker notices."""
    scene.later(-by_s)
    return bring_back(scene, by_s)


def test_a_delay_begun_in_the_future_begins_now(scene: Scene) -> None:
    ahead(scene)
    late = scene.put(delay_s=30)
    assert set_back(scene).moved == 1
    assert scene.see(late.id).run_at == scene.at(30)
    assert scene.promote().next_due_at == scene.at(30)
    scene.later(30)
    assert [lease.id for lease in scene.claim(scene.hire())] == [late.id]


@pytest.mark.parametrize("how", ["retried", "snoozed", "failed by hand"])
def test_so_does_the_wait_for_another_attempt(scene: Scene, how: str) -> None:
    before = scene.put()
    ahead(scene)
    worker = scene.hire()
    [lease] = scene.claim(worker)
    assert lease.id == before.id
    if how == "retried":
        scene.settle(worker, retried(lease, 20))
    elif how == "snoozed":
        scene.settle(worker, snoozed(lease, 20))
    else:
        scene.fail(lease.id, retry_delay_s=20)
    assert set_back(scene).moved == 1
    scene.later(19.999999)
    assert scene.promote().count == 0
    scene.later(0.000001)
    assert scene.promote().count == 1


def test_what_was_given_as_an_instant_stays(scene: Scene) -> None:
    ahead(scene)
    at = scene.at(600)
    fixed = scene.put(run_at=at)
    assert set_back(scene).moved == 0
    assert scene.see(fixed.id).run_at == at


def test_what_waited_before_the_clock_went_ahead_stays(scene: Scene) -> None:
    early = scene.put(delay_s=2 * AHEAD_S)
    at = scene.see(early.id).run_at
    ahead(scene)
    assert set_back(scene).moved == 0
    assert scene.see(early.id).run_at == at


def test_ready_jobs_keep_their_order_before_those_that_come_later(scene: Scene) -> None:
    ahead(scene)
    first = [scene.put().id, scene.put().id]
    assert set_back(scene).moved == 2
    scene.later(1)
    later = scene.put().id
    assert [lease.id for lease in scene.claim(scene.hire(), 3)] == [*first, later]


def test_a_job_released_from_a_lost_lease_is_not_due_in_the_future_either(scene: Scene) -> None:
    ahead(scene)
    worker, lease = scene.leased()
    set_back(scene)
    scene.retire(worker)
    other = scene.put().id
    assert [job.id for job in scene.claim(scene.hire(), 2)] == [lease.id, other]
    assert scene.see(lease.id).run_at <= scene.now


def test_a_lost_host_is_missed_after_its_lease(scene: Scene) -> None:
    ahead(scene)
    gone, lease = scene.leased()
    set_back(scene)
    scene.later(14.999999)
    assert scene.reclaim() == ()
    scene.later(0.000001)
    [taken] = scene.reclaim()
    assert (taken.id, taken.worker, taken.became) == (lease.id, gone, "ready")


def test_a_worker_that_lives_loses_nothing(scene: Scene) -> None:
    ahead(scene)
    worker, lease = scene.leased()
    set_back(scene)
    for _ in range(4):
        scene.later(5)
        assert scene.reclaim() == ()
        assert not scene.renew(worker).fresh
    assert scene.settle(worker, completed(lease)).refused == ()
    assert scene.status(lease.id) == "completed"


def test_a_heartbeat_of_before_is_good_as_long_as_it_was(scene: Scene) -> None:
    """The clock went ahead and back between two heartbeats."""
    worker, lease = scene.leased()
    ahead(scene)
    set_back(scene)
    [kept] = scene.run(ListWorkers()).workers
    assert (kept.renewed_at, kept.expires_at) == (scene.now, scene.at(15))
    assert scene.settle(worker, completed(lease)).refused == ()


@pytest.mark.parametrize("started", [True, False])
def test_deadlines_of_leases_are_as_long_from_now(scene: Scene, started: bool) -> None:
    ahead(scene)
    scene.put(timeout_s=50)
    worker = scene.hire(6000)
    [lease] = scene.claim(worker, start=int(started))
    set_back(scene)
    span_s = 100 if started else 60
    scene.later(span_s - 0.000001)
    assert scene.reclaim() == ()
    scene.later(0.000001)
    [taken] = scene.reclaim()
    assert (taken.id, taken.cause) == (lease.id, "deadline_passed" if started else "start_by_passed")


def test_an_attempt_begun_in_the_future_of_an_older_claim_begins_now(scene: Scene) -> None:
    scene.put(timeout_s=50)
    worker = scene.hire(6000)
    [lease] = scene.claim(worker, start=0)
    ahead(scene)
    assert scene.start(worker, lease, timeout_s=50).refused == ()
    set_back(scene)
    scene.later(99.999999)
    assert scene.reclaim() == ()
    scene.later(0.000001)
    assert [taken.cause for taken in scene.reclaim()] == ["deadline_passed"]


def test_a_repeated_claim_still_gets_its_leases(scene: Scene) -> None:
    ahead(scene)
    scene.put_many(2)
    worker = scene.hire()
    first = scene.turn(worker, wanting(2), claim_no=1).leases
    set_back(scene)
    again = scene.turn(worker, wanting(2), claim_no=1).leases
    assert [lease.key for lease in again] == [lease.key for lease in first]


@pytest.mark.parametrize("limit", each_kind(rate=rate(2, 10)).values(), ids=list(each_kind()))
def test_a_rate_used_up_in_the_future_is_free_after_its_period(scene: Scene, limit: Limit) -> None:
    ahead(scene)
    jobs = put(scene, 4)
    assert got(scene, limit) == jobs[:2]
    set_back(scene)
    assert got(scene, limit) == []
    scene.later(10)
    assert got(scene, limit) == jobs[2:]


def test_a_pause_of_a_limit_ends(scene: Scene) -> None:
    ahead(scene)
    [job] = put(scene)
    pause_limit(scene, "queue", "bulk", 60)
    set_back(scene)
    assert [kept.paused_until for kept in scene.run(ListLimits()).limits] == [None]
    assert got(scene) == [job]


def test_a_duty_taken_in_the_future_comes_round_again(scene: Scene) -> None:
    ahead(scene)
    assert scene.run(TakeDuty(name="alerts", every_s=15)).taken
    set_back(scene)
    scene.later(14.999999)
    assert not scene.run(TakeDuty(name="alerts", every_s=15)).taken
    scene.later(0.000001)
    assert scene.run(TakeDuty(name="alerts", every_s=15)).taken


def test_a_breaker_opened_in_the_future_is_tried_after_its_cooldown(scene: Scene) -> None:
    policy = BreakerPolicy(threshold=1, cooldown_s=60)
    ahead(scene)
    scene.run(Report(name="smtp", policy=policy, failures=1))
    scene.run(ForceBreaker(name="forced", by="ada"))
    set_back(scene)
    smtp, forced = sorted(scene.run(ListBreakers()).breakers, key=lambda breaker: breaker.name != "smtp")
    assert (smtp.opened_at, smtp.updated_at, smtp.last_failure_at) == (scene.now,) * 3
    assert (smtp.retry_at, forced.retry_at, forced.state) == (scene.at(60), None, "open")
    scene.later(59.999999)
    assert not scene.run(Admit(name="smtp", policy=policy)).admitted
    scene.later(0.000001)
    assert scene.run(Admit(name="smtp", policy=policy)).admitted


def test_an_alert_pending_since_the_future_is_pending_since_now(scene: Scene) -> None:
    old = alerts.alert(about="old", since=scene.at(-60))
    ahead(scene)
    new = alerts.alert(state="firing", since=scene.at(-5), fired_at=scene.now, told_at=scene.now)
    scene.run(SaveAlerts(alerts=(old, new)))
    set_back(scene)
    was, now = sorted(alerts.kept(scene), key=lambda one: one.about != "old")
    assert was == old
    assert (now.since, now.fired_at, now.told_at, now.resolved_at) == (scene.now, scene.now, scene.now, None)


def test_a_sleep_and_a_wait_for_a_signal_end_as_long_from_now(scene: Scene) -> None:
    ahead(scene)
    worker = scene.hire(6000)
    sleeper, waiter = (scene.put(type=name).id for name in ("sleeps", "waits"))
    for name, suspension in (
        ("sleeps", Suspension(n=1, name="sleep")),
        ("waits", Suspension(n=1, name="paid", key="7", signal=True)),
    ):
        [lease] = scene.claim(worker, types=(name,))
        scene.settle(worker, snoozed(lease, 40, suspension=suspension))
    assert set_back(scene).moved == 2
    found, waits = scene.find(sleeper), scene.find(waiter)
    assert found is not None
    assert waits is not None
    assert waits.waits_for is not None
    assert found.steps[0].until == waits.waits_for.until == scene.at(40)
    scene.later(40)
    leases = scene.claim(worker, 2)
    assert [lease.id for lease in leases] == [sleeper, waiter]
    [slept] = scene.run(
        ReadSteps(worker=worker, seq=leases[0].seq, attempt=leases[0].attempt, claim_no=leases[0].claim_no)
    ).steps
    assert slept.until == scene.now


def test_a_held_job_that_was_due_is_ready_when_it_is_released(scene: Scene) -> None:
    ahead(scene)
    held = hold(scene, 2)
    set_back(scene)
    assert unhold(scene) == 2
    later = scene.put(tenant="acme").id
    assert [lease.id for lease in scene.claim(scene.hire(), 3)] == [*held, later]


def test_so_is_a_node_whose_parents_have_ended(scene: Scene) -> None:
    ahead(scene)
    flow = Flow(scene, {"a": [], "b": ["a"]}).put()
    set_back(scene)
    assert flow.run() == ["a", "b"]


def test_it_is_noticed_by_what_workers_and_clients_have_written(scene: Scene) -> None:
    """Where nobody saw the clock go back: a worker that starts asks without knowing."""
    assert bring_back(scene, None) == BroughtBack(now=scene.now)
    for write in (scene.hire, scene.put, lambda: scene.run(TakeDuty(name="alerts", every_s=15))):
        ahead(scene)
        write()
        scene.later(-AHEAD_S)
        assert bring_back(scene, None).behind_s == AHEAD_S
        scene.later(2 * AHEAD_S)


def test_when_and_by_how_much_is_remembered(scene: Scene) -> None:
    assert scene.run(ReadSetBack()) == SetBack(now=scene.now)
    ahead(scene)
    set_back(scene, 1800.5)
    at = scene.now
    scene.later(60)
    assert scene.run(ReadSetBack()) == SetBack(now=scene.now, at=at, behind_s=1800.5)
    scene.run(Purge())
    assert scene.run(ReadSetBack()) == SetBack(now=scene.now)


def test_two_seconds_are_nothing(scene: Scene) -> None:
    scene.later(2)
    scene.hire()
    scene.put(delay_s=30)
    scene.later(-2)
    assert bring_back(scene, None) == BroughtBack(now=scene.now)


def test_jobs_are_examined_step_by_step_from_the_newest(scene: Scene) -> None:
    ahead(scene)
    jobs = scene.put_many(5, delay_s=30)
    scene.later(-AHEAD_S)
    answers = [bring_back(scene, limit=2)]
    while answers[-1].more:
        assert [scene.see(job.id).run_at == scene.at(30) for job in jobs] == [
            place >= 5 - 2 * len(answers) for place in range(5)
        ]
        answers.append(scene.run(BringBack(limit=2)))
        assert len(answers) < 9
    assert sum(answer.moved for answer in answers) == 5


def test_beginning_again_changes_nothing_more(scene: Scene) -> None:
    """Every worker notices, one after the other."""
    ahead(scene)
    job, worker = scene.put(delay_s=5000), scene.hire()
    set_back(scene)
    at = scene.see(job.id).run_at
    [kept] = scene.run(ListWorkers()).workers
    scene.later(3)
    assert bring_back(scene).moved == 0
    assert scene.see(job.id).run_at == at == scene.at(4997)
    assert scene.run(ListWorkers()).workers[0].expires_at == kept.expires_at
    assert kept.id == worker


def test_a_second_jump_is_brought_back_like_the_first(scene: Scene) -> None:
    ahead(scene)
    first = scene.put(delay_s=5000)
    set_back(scene)
    ahead(scene)
    second = scene.put(delay_s=50)
    at = scene.see(first.id).run_at
    assert set_back(scene).moved == 1
    assert scene.see(first.id).run_at == at
    assert scene.see(second.id).run_at == scene.at(50)


def test_limits_on_running_count_on(scene: Scene) -> None:
    limit = queue("bulk", running=1)
    ahead(scene)
    jobs = put(scene, 2)
    assert got(scene, limit) == jobs[:1]
    set_back(scene)
    assert got(scene, limit) == []
