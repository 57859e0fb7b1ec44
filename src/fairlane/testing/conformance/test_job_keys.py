"""Keys of jobs: as many run at once as their key has places, in order, at a rate; what an enqueue does at a full one."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.core.ids import JobId
from fairlane.core.job import Lease
from fairlane.core.job_keys import JobKey, OnConflict
from fairlane.core.limits import NO_LIMIT, Limit, Rate
from fairlane.core.ops import (
    ALL_TENANTS,
    BringBack,
    FreePlace,
    JobAct,
    KeyUse,
    ListKeys,
    Receipt,
    Reset,
    Scope,
    Why,
)
from fairlane.core.outcome import Suspension
from fairlane.testing.conformance.limits import clear_limit, pause_limit, set_limit, unhold
from fairlane.testing.conformance.samples import OUTCOMES, completed, died, retried, snoozed
from fairlane.testing.conformance.scene import Scene, wanting
from fairlane.testing.conformance.workflows import Flow

pytestmark = pytest.mark.requirement("D24")


def key(value: str = "customer:42", **said: Any) -> JobKey:
    return JobKey(value=value, **said)


def put(scene: Scene, count: int = 1, of: JobKey | None = None, **options: Any) -> list[JobId]:
    return [scene.put(key=of or key(), **options).id for _ in range(count)]


def got(scene: Scene, limit: int = 9) -> list[Lease]:
    """What a new worker gets; it keeps it."""
    return list(scene.claim(scene.hire(6000), limit))


def ids(leases: list[Lease] | tuple[Lease, ...]) -> list[JobId]:
    return [lease.id for lease in leases]


def limit_of(name: str = "customer", **said: Any) -> Limit:
    return Limit(kind="key", name=name, **said)


def uses(scene: Scene, scope: Scope = ALL_TENANTS, **said: Any) -> list[KeyUse]:
    return list(scene.run(ListKeys(scope=scope, **said)).keys)


def free(scene: Scene, job: JobId, scope: Scope = ALL_TENANTS) -> JobAct:
    return scene.run(FreePlace(scope=scope, id=job, by="ada", notes="it hangs"))


# Places.


def test_jobs_with_one_key_run_one_at_a_time(scene: Scene) -> None:
    jobs = put(scene, 3)
    worker = scene.hire()
    for job in jobs:
        [lease] = scene.claim(worker, 9)
        assert lease.id == job
        assert scene.claim(scene.hire(), 9) == ()
        scene.settle(worker, completed(lease))
    assert [scene.status(job) for job in jobs] == ["completed"] * 3


def test_a_turn_that_ends_a_job_claims_the_next_one_with_its_key(scene: Scene) -> None:
    jobs = put(scene, 2)
    worker = scene.hire()
    [first] = scene.claim(worker, 9)
    result = scene.turn(worker, wanting(9), outcomes=(completed(first),))
    assert ids(result.leases) == jobs[1:]


def test_other_keys_and_jobs_without_a_key_run_beside_it(scene: Scene) -> None:
    [held, other, plain] = put(scene, 1), put(scene, 1, key("customer:43")), [scene.put().id]
    waiting = put(scene, 2)
    assert set(ids(got(scene))) == {*held, *other, *plain}
    assert [scene.status(job) for job in waiting] == ["pending", "pending"]


def test_each_tenant_has_keys_of_its_own(scene: Scene) -> None:
    jobs = [*put(scene, 1, tenant="acme"), *put(scene, 1, tenant="globex")]
    assert sorted(ids(got(scene))) == sorted(jobs)


def test_a_key_is_shared_by_tasks_queues_and_priorities(scene: Scene) -> None:
    put(scene, 1, type="report.make", queue="bulk", priority=0)
    put(scene, 1, type="mail.send")
    worker = scene.hire()
    assert len(scene.claim(worker, 9, queues=("bulk", "default"))) == 1


def test_a_key_has_as_many_places_as_its_jobs_say(scene: Scene) -> None:
    jobs = put(scene, 5, key(running=3))
    leases = got(scene)
    assert ids(leases) == jobs[:3]
    assert got(scene) == []


def test_a_key_without_a_limit_holds_nobody_up(scene: Scene) -> None:
    jobs = put(scene, 5, key(running=NO_LIMIT))
    assert ids(got(scene)) == jobs


def test_the_next_turn_goes_by_what_the_job_says_that_is_the_first_then(scene: Scene) -> None:
    [one], [any_number] = put(scene, 1), put(scene, 1, key(running=NO_LIMIT))
    assert ids(got(scene)) == [one]
    assert ids(got(scene)) == [any_number]


def test_a_key_with_no_places_lets_nobody_in(scene: Scene) -> None:
    put(scene, 2, key(running=0))
    assert got(scene) == []


def test_the_most_urgent_job_held_at_a_key_comes_next(scene: Scene) -> None:
    [running] = put(scene)
    worker = scene.hire()
    [lease] = scene.claim(worker, 9)
    assert lease.id == running
    put(scene, 1, priority=9)
    [urgent] = put(scene, 1, priority=1)
    assert ids(scene.turn(worker, wanting(9), outcomes=(completed(lease),)).leases) == [urgent]


def test_a_job_that_is_not_due_takes_no_place(scene: Scene) -> None:
    [later] = put(scene, 1, delay_s=30.0)
    [now] = put(scene)
    assert ids(got(scene)) == [now]
    scene.later(30)
    scene.promote()
    assert got(scene) == []
    assert scene.status(later) == "pending"


@pytest.mark.parametrize("kind", [*OUTCOMES, "crash"])
def test_every_ending_of_an_attempt_gives_its_place_to_the_next(scene: Scene, kind: str) -> None:
    jobs = put(scene, 2)
    worker = scene.hire(10)
    [lease] = scene.claim(worker, 9)
    if kind == "crash":
        scene.later(10)
        assert len(scene.reclaim()) == 1
    else:
        scene.settle(worker, OUTCOMES[kind](lease))
    # What goes back at once is the first again.
    assert ids(got(scene)) == (jobs[:1] if kind in ("released", "crash", "crashed") else jobs[1:])


@pytest.mark.parametrize("act", ["cancel", "fail", "bury", "reset", "retire"])
def test_an_act_by_hand_gives_the_place_to_the_next(scene: Scene, act: str) -> None:
    jobs = put(scene, 2)
    worker = scene.hire()
    assert ids(scene.prefetch(worker, 9)) == jobs[:1]
    if act == "retire":
        scene.retire(worker)
    elif act == "reset":
        scene.run(Reset(scope=ALL_TENANTS, id=jobs[0], by="ada"))
    else:
        getattr(scene, act)(jobs[0])
    if act == "cancel":  # asked to stop: its place is its own until it has
        assert got(scene) == []
        return
    assert ids(got(scene)) == (jobs[1:] if act in ("fail", "bury") else jobs[:1])


def test_a_cancelled_job_that_waits_takes_no_place(scene: Scene) -> None:
    [first, second] = put(scene, 2)
    scene.cancel(first)
    assert ids(got(scene)) == [second]
    assert scene.status(first) == "cancelled"


def test_a_retried_job_waits_at_its_key_again(scene: Scene) -> None:
    [first, second] = put(scene, 2)
    worker = scene.hire()
    [lease] = scene.claim(worker, 9)
    [other] = scene.turn(worker, wanting(9), outcomes=(retried(lease, delay_s=5.0),)).leases
    assert other.id == second
    scene.later(5)
    assert scene.claim(worker, 9) == ()
    [again] = scene.turn(worker, wanting(9), outcomes=(completed(other),)).leases
    assert (again.id, again.attempts) == (first, 1)


def test_a_reclaimed_job_keeps_what_is_known_of_it(scene: Scene) -> None:
    [job] = put(scene)
    scene.claim(scene.hire(10), 9)
    scene.later(10)
    scene.reclaim()
    [lease] = got(scene)
    assert (lease.id, lease.attempt, lease.suspect) == (job, 2, True)


# Order.


def test_an_ordered_key_lets_jobs_in_as_they_were_enqueued_whatever_their_priority(scene: Scene) -> None:
    jobs = [*put(scene, 1, key(ordered=True), priority=9), *put(scene, 2, key(ordered=True), priority=0)]
    worker, leases = scene.hire(), ()
    for job in jobs:
        leases = scene.turn(worker, wanting(9), outcomes=tuple(map(completed, leases))).leases
        assert ids(leases) == [job]


@pytest.mark.parametrize("kind", ["retried", "snoozed"])
def test_an_ordered_job_that_has_begun_holds_the_line_until_it_has_ended(scene: Scene, kind: str) -> None:
    jobs = put(scene, 2, key(ordered=True))
    worker = scene.hire(6000)
    [lease] = scene.claim(worker, 9)
    again = retried(lease, delay_s=5.0) if kind == "retried" else OUTCOMES["snoozed"](lease)
    assert scene.turn(worker, wanting(9), outcomes=(again,)).leases == ()
    scene.later(60)
    [lease] = scene.claim(worker, 9)
    assert lease.id == jobs[0]
    assert ids(scene.turn(worker, wanting(9), outcomes=(completed(lease),)).leases) == jobs[1:]


@pytest.mark.parametrize("act", ["resolve", "discard"])
def test_a_dead_letter_of_an_ordered_key_holds_the_line_until_it_is_closed(scene: Scene, act: str) -> None:
    put(scene, 1, key(ordered=True))
    [second] = put(scene, 1, key(ordered=True))
    worker = scene.hire()
    [lease] = scene.claim(worker, 9)
    assert scene.turn(worker, wanting(9), outcomes=(died(lease),)).leases == ()
    getattr(scene, act)(lease.seq)
    assert ids(scene.claim(worker, 9)) == [second]


def test_a_reprocessed_job_of_an_ordered_key_is_the_next(scene: Scene) -> None:
    put(scene, 1, key(ordered=True))
    [second] = put(scene, 1, key(ordered=True))
    worker = scene.hire()
    [lease] = scene.claim(worker, 9)
    scene.settle(worker, died(lease))
    made = scene.reprocess(lease.seq).new_job
    assert made is not None
    assert made.key == "customer:42"
    [again] = scene.claim(worker, 9)
    assert again.id == made.id
    assert ids(scene.turn(worker, wanting(9), outcomes=(completed(again),)).leases) == [second]


def test_a_dead_letter_of_a_key_that_is_not_ordered_holds_nobody_up(scene: Scene) -> None:
    [_, second] = put(scene, 2)
    worker = scene.hire()
    [lease] = scene.claim(worker, 9)
    assert ids(scene.turn(worker, wanting(9), outcomes=(died(lease),)).leases) == [second]


def test_a_job_buried_before_its_turn_holds_nobody_up(scene: Scene) -> None:
    [first, second] = put(scene, 2, key(ordered=True))
    scene.bury(first)
    assert ids(got(scene)) == [second]


# Rates.


def test_a_key_lets_in_as_many_in_a_span_as_its_rate_allows(scene: Scene) -> None:
    jobs = put(scene, 4, key(running=NO_LIMIT, rate=Rate(2, 10.0)))
    worker = scene.hire(6000)
    assert ids(scene.claim(worker, 9)) == jobs[:2]
    scene.later(9.9)
    assert scene.claim(worker, 9) == ()
    scene.later(0.1)
    assert ids(scene.claim(worker, 9)) == jobs[2:]


def test_what_was_let_in_under_a_rate_counts_until_it_is_claimed(scene: Scene) -> None:
    jobs = put(scene, 3, key(running=NO_LIMIT, rate=Rate(1, 10.0)))
    worker = scene.hire(6000)
    scene.turn(worker)  # lets the first one in and claims nothing
    scene.later(20)
    assert ids(scene.claim(worker, 9)) == jobs[:1]
    scene.later(9.9)
    assert scene.claim(worker, 9) == ()
    scene.later(0.1)
    assert ids(scene.claim(worker, 9)) == jobs[1:2]


def test_a_job_released_before_it_began_gives_its_start_back(scene: Scene) -> None:
    jobs = put(scene, 2, key(running=NO_LIMIT, rate=Rate(1, 10.0)))
    worker = scene.hire(6000)
    [lease] = scene.prefetch(worker, 9)
    scene.settle(worker, OUTCOMES["released"](lease))
    assert ids(scene.claim(worker, 9)) == jobs[:1]
    assert scene.claim(worker, 9) == ()


def test_a_start_is_given_back_also_where_the_clock_was_set_back_behind_it(scene: Scene) -> None:
    worker = scene.hire(6000)
    scene.later(600)
    jobs = put(scene, 2, key(running=NO_LIMIT, rate=Rate(1, 10.0)))
    [lease] = scene.prefetch(worker, 9)
    scene.later(-600)
    scene.run(BringBack(behind_s=600.0))
    scene.settle(worker, OUTCOMES["released"](lease))
    assert ids(scene.claim(worker, 9)) == jobs[:1]
    assert scene.claim(worker, 9) == ()


def test_a_turn_says_when_a_rate_lets_the_next_one_in(scene: Scene) -> None:
    put(scene, 2, key(running=NO_LIMIT, rate=Rate(1, 10.0)))
    worker = scene.hire(6000)
    scene.claim(worker, 9)
    assert scene.turn(worker, wanting(9)).limited_until == scene.at(10)


def test_a_clock_that_is_set_back_lets_the_next_one_in_after_a_period(scene: Scene) -> None:
    jobs = put(scene, 2, key(running=NO_LIMIT, rate=Rate(1, 10.0)))
    worker = scene.hire(6000)
    scene.later(3600)
    assert ids(scene.claim(worker, 9)) == jobs[:1]
    assert scene.claim(worker, 9) == ()
    scene.now = scene.at(-3600)
    scene.run(BringBack(behind_s=3600.0))
    scene.later(9.9)
    assert scene.claim(worker, 9) == ()
    scene.later(0.1)
    assert ids(scene.claim(worker, 9)) == jobs[1:]


# What people set.


def test_a_limit_set_for_the_name_wins_over_what_the_jobs_say_until_it_is_cleared(scene: Scene) -> None:
    jobs = put(scene, 5)
    set_limit(scene, limit_of(running=2))
    leases = got(scene)
    assert ids(leases) == jobs[:2]
    set_limit(scene, limit_of(running=3))
    assert ids(got(scene)) == jobs[2:3]
    clear_limit(scene, limit_of())
    assert got(scene) == []


def test_a_limit_that_is_lowered_holds_from_the_first_moment(scene: Scene) -> None:
    jobs = put(scene, 4, key(running=3))
    worker = scene.hire(6000)
    scene.turn(worker)  # three are let in, none is claimed
    set_limit(scene, limit_of(running=1))
    assert ids(scene.claim(worker, 9)) == jobs[:1]


def test_an_ordered_key_has_one_place_whatever_is_set(scene: Scene) -> None:
    jobs = put(scene, 2, key(ordered=True))
    set_limit(scene, limit_of(running=5))
    assert ids(got(scene)) == jobs[:1]


def test_a_rate_set_for_the_name_wins_over_that_of_the_jobs(scene: Scene) -> None:
    jobs = put(scene, 3, key(running=NO_LIMIT))
    set_limit(scene, limit_of(rate=Rate(2, 10.0)))
    assert ids(got(scene)) == jobs[:2]


def test_nobody_is_let_in_while_the_limit_is_paused(scene: Scene) -> None:
    jobs = put(scene, 1)
    pause_limit(scene, "key", "customer", 10.0)
    worker = scene.hire(6000)
    result = scene.turn(worker, wanting(9))
    assert (result.leases, result.limited_until) == ((), scene.at(10))
    scene.later(10)
    assert ids(scene.claim(worker, 9)) == jobs


def test_a_limit_of_another_name_changes_nothing(scene: Scene) -> None:
    jobs = put(scene, 2, key(running=1))
    set_limit(scene, limit_of("custom", running=5))
    set_limit(scene, limit_of("customer:42", running=5))
    assert ids(got(scene)) == jobs[:1]


# Conflicts.


def enqueue(scene: Scene, on_conflict: OnConflict, **said: Any) -> Receipt:
    [receipt] = scene.enqueue(scene.job(key=key(on_conflict=on_conflict, **said))).receipts
    return receipt


@pytest.mark.parametrize("place", ["held", "ready", "scheduled", "leased"])
def test_a_job_is_discarded_while_another_one_with_its_key_is_unfinished(scene: Scene, place: str) -> None:
    first = scene.put(key=key(), delay_s=30.0 if place == "scheduled" else None)
    worker = scene.hire()
    if place == "ready":
        scene.turn(worker)
    leases = scene.claim(worker, 9) if place == "leased" else ()
    met = enqueue(scene, "discard")
    assert (met.disposition, met.key, met.id, met.seq) == ("duplicate", "job", first.id, first.seq)
    if leases:
        scene.settle(worker, completed(leases[0]))
        assert enqueue(scene, "discard").disposition == "created"


def test_as_many_as_run_at_once_are_kept_before_one_is_discarded(scene: Scene) -> None:
    found = [enqueue(scene, "discard", running=2).disposition for _ in range(3)]
    assert found == ["created", "created", "duplicate"]


def test_two_jobs_of_one_call_meet_each_other(scene: Scene) -> None:
    jobs = [scene.job(key=key(on_conflict="discard")) for _ in range(2)]
    assert [receipt.disposition for receipt in scene.enqueue(*jobs).receipts] == ["created", "duplicate"]


def test_a_job_replaces_those_that_wait_and_leaves_the_running_one(scene: Scene) -> None:
    [running, waiting, later] = [*put(scene, 2), *put(scene, 1, delay_s=30.0)]
    worker = scene.hire()
    [lease] = scene.claim(worker, 9)
    made = enqueue(scene, "replace")
    assert made.disposition == "created"
    assert [scene.status(job) for job in (running, waiting, later)] == ["processing", "cancelled", "cancelled"]
    assert ids(scene.turn(worker, wanting(9), outcomes=(completed(lease),)).leases) == [made.id]


def test_a_job_replaces_one_that_was_let_in_and_is_not_leased(scene: Scene) -> None:
    [waiting] = put(scene)
    worker = scene.hire()
    scene.turn(worker)
    made = enqueue(scene, "replace")
    assert scene.status(waiting) == "cancelled"
    assert ids(scene.claim(worker, 9)) == [made.id]


def test_a_job_asks_the_running_one_to_cancel_and_comes_after_it(scene: Scene) -> None:
    [running, waiting] = put(scene, 2)
    worker = scene.hire()
    [lease] = scene.claim(worker, 9)
    made = enqueue(scene, "cancel_running")
    assert scene.status(waiting) == "cancelled"
    result = scene.turn(worker, wanting(9))
    assert (result.cancels, result.leases) == ((lease.seq,), ())
    result = scene.turn(worker, wanting(9), outcomes=(OUTCOMES["cancelled"](lease),))
    assert ids(result.leases) == [made.id]
    assert scene.status(running) == "cancelled"


def test_a_policy_does_nothing_while_there_is_a_place(scene: Scene) -> None:
    jobs = put(scene, 2, key(running=3))
    assert enqueue(scene, "replace", running=3).disposition == "created"
    assert len(got(scene)) == 3
    assert [scene.status(job) for job in jobs] == ["processing", "processing"]


def test_a_request_that_is_repeated_is_known_again(scene: Scene) -> None:
    job = scene.job(key=key(on_conflict="discard"))
    [first], [again] = scene.enqueue(job).receipts, scene.enqueue(job).receipts
    assert (first.disposition, again.disposition) == ("created", "replayed")


# Seen and changed by people.


def test_keys_are_listed_with_who_holds_them_and_how_many_wait(scene: Scene) -> None:
    jobs = put(scene, 3, tenant="acme")
    put(scene, 2, key("shop:7", ordered=True), tenant="globex")
    put(scene, 1, key("alone"), tenant="globex")
    [lease, *_] = got(scene)
    assert lease.id == jobs[0]
    [first, second] = uses(scene)
    assert (first.tenant, first.key, first.running, first.in_use, first.waiting) == ("acme", "customer:42", 1, 1, 2)
    assert not first.ordered
    assert [(holder.id, holder.state, holder.since) for holder in first.holders] == [(jobs[0], "leased", scene.now)]
    assert (second.key, second.ordered, second.waiting) == ("shop:7", True, 1)
    assert uses(scene, Scope("globex")) == [second]
    assert uses(scene, name="shop") == [second]
    assert uses(scene, key="customer:42") == [first]
    assert uses(scene, name="sho") == uses(scene, key="shop") == []
    assert uses(scene, limit=1) == [first]


def test_a_place_is_freed_by_hand_while_its_job_goes_on(scene: Scene) -> None:
    jobs = put(scene, 2)
    worker = scene.hire()
    [lease] = scene.claim(worker, 9)
    assert free(scene, jobs[0], Scope("globex")).refused == "not_found"
    assert free(scene, jobs[1]).refused == "not_allowed"
    assert free(scene, jobs[0]).refused is None
    assert free(scene, jobs[0]).refused == "not_allowed"
    assert ids(scene.claim(worker, 9)) == jobs[1:]
    assert scene.settle(worker, completed(lease)).refused == ()
    [record] = [record for record in scene.audit() if record.action == "job_place_free"]
    assert (record.by, record.notes, record.target) == ("ada", "it hangs", f"job:{jobs[0]}")


def test_the_place_of_a_dead_letter_is_freed_by_hand(scene: Scene) -> None:
    [first, second] = put(scene, 2, key(ordered=True))
    worker = scene.hire()
    [lease] = scene.claim(worker, 9)
    scene.settle(worker, died(lease))
    assert free(scene, first).refused is None
    assert ids(scene.claim(worker, 9)) == [second]


def test_why_names_the_place_in_the_line_and_the_holder(scene: Scene) -> None:
    jobs = put(scene, 3)
    got(scene)
    told = scene.run(Why(scope=ALL_TENANTS, id=jobs[2]))
    assert told is not None
    assert told.key is not None
    assert (told.place, told.key_ahead, told.key.waiting, told.key.in_use) == ("held", 1, 2, 1)
    assert [holder.id for holder in told.key.holders] == jobs[:1]
    told = scene.run(Why(scope=ALL_TENANTS, id=jobs[0]))
    assert told is not None
    assert told.key is not None
    assert told.key_ahead is None


def test_why_tells_a_job_held_for_its_tenants_room_from_one_held_at_its_key(scene: Scene) -> None:
    full = (Limit(kind="tenant", name="acme", waiting=2, when_full="hold"),)
    jobs = [scene.enqueue(scene.job(key=key(), tenant="acme"), limits=full).receipts[0].id for _ in range(3)]
    got(scene)
    told = [scene.run(Why(scope=ALL_TENANTS, id=job, limits=full)) for job in jobs[1:]]
    assert [(one.place, one.key_ahead) for one in told if one is not None] == [("held", 0), ("held", None)]


def test_a_job_shows_its_key(scene: Scene) -> None:
    [job] = put(scene)
    assert scene.see(job).key == "customer:42"
    assert scene.see(scene.put().id).key is None


def test_jobs_held_at_keys_count_as_held(scene: Scene) -> None:
    put(scene, 3)
    got(scene)
    [stats] = scene.stats().queues
    assert (stats.pending, stats.ready, stats.held, stats.processing) == (2, 0, 2, 1)


def test_a_job_held_for_its_tenants_room_comes_to_its_key_behind(scene: Scene) -> None:
    full = (Limit(kind="tenant", name="acme", waiting=1, when_full="hold"),)
    jobs = [scene.enqueue(scene.job(key=key(), tenant="acme"), limits=full).receipts[0].id for _ in range(2)]
    worker = scene.hire()
    [lease] = scene.claim(worker, 9)
    assert lease.id == jobs[0]
    scene.settle(worker, completed(lease))
    assert unhold(scene, *full) == 1
    assert ids(scene.claim(worker, 9)) == jobs[1:]


def test_a_job_that_waits_for_a_signal_gives_its_place_to_the_next(scene: Scene) -> None:
    [_, second] = put(scene, 2)
    worker = scene.hire()
    [lease] = scene.claim(worker, 9)
    away = snoozed(lease, 60.0, ran_s=0.1, suspension=Suspension(n=1, name="paid", signal=True))
    assert ids(scene.turn(worker, wanting(9), outcomes=(away,)).leases) == [second]


@pytest.mark.requirement("L18")
def test_only_so_many_nodes_of_a_workflow_run_at_once_also_of_those_added_later(scene: Scene) -> None:
    two = {"key": key("workflow:1", running=2)}
    flow = Flow(scene, {"a": [], "b": ["a"], "c": ["a"], "d": ["a"], "e": ["b", "c", "d", "x"], "x": []}, job=two).put()
    assert flow.claim() == ["a", "x"]
    flow.complete("a", "x")
    first = flow.claim()
    assert len(first) == 2
    flow.add({"f": ["a"]})
    assert flow.claim() == []
    flow.complete(first[0])
    [third] = flow.claim()
    flow.die(first[1])
    [fourth] = flow.claim()
    assert {*first, third, fourth} == {"b", "c", "d", "f"}
    flow.complete(third, fourth)
    scene.reprocess(flow.see().dead[0])
    assert [use.key for use in uses(scene)] == ["workflow:1"]
    assert flow.run() == [first[1], "e"]
    assert flow.status == "completed"
