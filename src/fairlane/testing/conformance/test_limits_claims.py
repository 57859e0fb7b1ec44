"""Limits on running: nothing is claimed where there is no room; who wins where several speak; names, pauses, hints."""

from __future__ import annotations

import msgspec
import pytest

from fairlane.core.limits import NO_LIMIT, Limit
from fairlane.testing.conformance.limits import (
    BOTH_QUEUES,
    clear_limit,
    each_kind,
    every_tenant,
    got,
    named,
    pause_limit,
    put,
    queue,
    rate,
    set_limit,
    task,
    tenant,
)
from fairlane.testing.conformance.samples import OUTCOMES, completed
from fairlane.testing.conformance.scene import Scene, wanting

pytestmark = pytest.mark.requirement("I2", "I3", "I5")

LIMITS = each_kind(running=2)
each_limit = pytest.mark.parametrize("limit", LIMITS.values(), ids=list(LIMITS))


@each_limit
@pytest.mark.parametrize("by", ["given", "set"])
def test_no_more_run_at_once_than_the_limit_says(scene: Scene, limit: Limit, by: str) -> None:
    jobs = put(scene, 5)
    given = (limit,) if by == "given" else ()
    if by == "set":
        set_limit(scene, limit)
    assert got(scene, *given, limit=1) == jobs[:1]
    assert got(scene, *given) == jobs[1:2]
    assert got(scene, *given) == []


@pytest.mark.parametrize("limit", [LIMITS["queue"], LIMITS["named"]], ids=["queue", "named"])
@pytest.mark.parametrize("kind", [*OUTCOMES, "crash"])
def test_every_ending_of_an_attempt_makes_room(scene: Scene, limit: Limit, kind: str) -> None:
    jobs = put(scene, 4)
    worker = scene.hire(10)
    first, second = scene.claim(worker, 9, queues=BOTH_QUEUES, limits=(limit,))
    if kind == "crash":
        scene.later(10)
        assert len(scene.reclaim()) == 2
        assert set(got(scene, limit)) == {first.id, second.id}
    else:
        scene.settle(worker, OUTCOMES[kind](first))
        assert got(scene, limit) == ([first.id] if kind == "released" else jobs[2:3])


@each_limit
def test_what_a_turn_settles_leaves_room_for_what_it_claims(scene: Scene, limit: Limit) -> None:
    jobs = put(scene, 4)
    worker = scene.hire()
    leases = scene.claim(worker, 9, queues=BOTH_QUEUES, limits=(limit,))
    done = tuple(completed(lease) for lease in leases)
    result = scene.turn(worker, wanting(9, queues=BOTH_QUEUES), outcomes=done, limits=(limit,))
    assert [lease.id for lease in result.leases] == jobs[2:]


@each_limit
def test_who_ends_a_job_under_a_limit_that_was_lowered_meanwhile_gets_no_other_for_it(
    scene: Scene, limit: Limit
) -> None:
    jobs = put(scene, 5)
    set_limit(scene, msgspec.structs.replace(limit, running=3))
    worker = scene.hire()
    first, second, third = scene.claim(worker, 9, queues=BOTH_QUEUES)
    set_limit(scene, msgspec.structs.replace(limit, running=1))
    for ended, then in ((first, []), (second, []), (third, jobs[3:4])):
        result = scene.turn(worker, wanting(1, queues=BOTH_QUEUES), outcomes=(completed(ended),))
        assert [lease.id for lease in result.leases] == then


@each_limit
def test_leases_from_before_the_limit_count(scene: Scene, limit: Limit) -> None:
    jobs = put(scene, 4)
    assert got(scene, limit=1) == jobs[:1]
    assert got(scene, limit) == jobs[1:2]


@each_limit
def test_leases_from_before_a_person_set_the_limit_count(scene: Scene, limit: Limit) -> None:
    jobs = put(scene, 4)
    assert got(scene, limit=1) == jobs[:1]
    set_limit(scene, limit)
    assert got(scene) == jobs[1:2]


@each_limit
def test_a_prefetched_lease_counts_like_a_running_one(scene: Scene, limit: Limit) -> None:
    jobs = put(scene, 4)
    assert got(scene, limit, start=0) == jobs[:2]
    assert got(scene, limit) == []


@each_limit
def test_a_limit_of_nothing_lets_nothing_run(scene: Scene, limit: Limit) -> None:
    put(scene, 2)
    set_limit(scene, limit.__class__(kind=limit.kind, name=limit.name, queue=limit.queue, types=limit.types, running=0))
    result = scene.turn(scene.hire(), wanting(9, queues=BOTH_QUEUES))
    assert (result.leases, result.limited) == ((), True)


@each_limit
def test_no_limit_said_by_a_person_wins_over_the_limit_of_the_code(scene: Scene, limit: Limit) -> None:
    jobs = put(scene, 4)
    free = Limit(kind=limit.kind, name=limit.name, queue=limit.queue, types=limit.types, running=NO_LIMIT)
    set_limit(scene, free)
    assert got(scene, limit) == jobs


@each_limit
def test_what_a_person_set_wins_over_the_code_until_it_is_cleared(scene: Scene, limit: Limit) -> None:
    jobs = put(scene, 9)
    more = Limit(kind=limit.kind, name=limit.name, queue=limit.queue, types=limit.types, running=3)
    set_limit(scene, more)
    assert got(scene, limit) == jobs[:3]
    clear_limit(scene, more)
    assert got(scene, limit) == []
    set_limit(scene, Limit(kind=limit.kind, name=limit.name, queue=limit.queue, types=limit.types, running=5))
    assert got(scene, limit) == jobs[3:5]


def test_what_a_person_left_unsaid_is_as_the_code_says(scene: Scene) -> None:
    jobs = put(scene, 4)
    set_limit(scene, tenant("acme", waiting=100))
    assert got(scene, tenant("acme", running=2)) == jobs[:2]


def test_a_tenants_own_limit_wins_over_that_of_every_tenant(scene: Scene) -> None:
    acme, bolt = put(scene, 5), put(scene, 5, tenant="bolt")
    both = (every_tenant(running=1), tenant("acme", running=3))
    assert got(scene, *both) == [acme[0], bolt[0], acme[1], acme[2]]


def test_a_tenants_own_freedom_wins_over_the_limit_people_set_for_every_tenant(scene: Scene) -> None:
    acme, bolt = put(scene, 3), put(scene, 3, tenant="bolt")
    set_limit(scene, every_tenant(running=1))
    assert got(scene, tenant("acme", running=NO_LIMIT)) == [acme[0], bolt[0], acme[1], acme[2]]


def test_a_tenant_is_limited_over_all_queues_and_in_each(scene: Scene) -> None:
    bulk, default = put(scene, 4), put(scene, 4, queue="default")
    limits = (tenant("acme", running=3), tenant("acme", "bulk", running=2))
    assert got(scene, *limits) == [*bulk[:2], *default[:1]]


def test_every_tenant_has_the_limit_for_itself(scene: Scene) -> None:
    jobs = {name: put(scene, 3, tenant=name) for name in ("a", "b", "c")}
    assert got(scene, every_tenant(running=1)) == [mine[0] for mine in jobs.values()]


def test_the_name_of_a_limit_is_taken_exactly(scene: Scene) -> None:
    jobs = put(scene, 3)
    others = (tenant("Acme", running=0), queue("bul%", running=0), task("report_make", running=0))
    assert got(scene, *others, queue("acme", running=0), tenant("report.make", running=0), limit=3) == jobs


# Named limits.


def test_tasks_under_one_name_share_its_room(scene: Scene) -> None:
    mail, reports = put(scene, 2, type="mail.send"), put(scene, 2)
    other = put(scene, type="other")
    smtp = named("smtp", "mail.send", "report.make", running=3)
    assert got(scene, smtp) == [*mail, reports[0], *other]


def test_a_task_under_two_names_needs_room_under_both(scene: Scene) -> None:
    jobs = put(scene, 4)
    limits = (named("printer", "report.make", running=3), named("disk", "report.make", "x", running=2))
    assert got(scene, *limits) == jobs[:2]


def test_a_person_may_list_other_tasks_under_a_name(scene: Scene) -> None:
    mail, reports = put(scene, 2, type="mail.send"), put(scene, 2)
    set_limit(scene, named("smtp", "report.make"))
    assert got(scene, named("smtp", "mail.send", running=1)) == [*mail, reports[0]]


def test_a_name_whose_tasks_nobody_lists_again_keeps_those_of_the_code(scene: Scene) -> None:
    reports = put(scene, 3)
    set_limit(scene, named("printer", running=2))
    assert got(scene, named("printer", "report.make", running=1)) == reports[:2]


def test_a_name_that_only_people_know_holds_too(scene: Scene) -> None:
    reports = put(scene, 3)
    set_limit(scene, named("printer", "report.make", running=2))
    assert got(scene) == reports[:2]


# Paused limits.


PAUSED = {"queue": "bulk", "tenant": "acme", "type": "report.make", "named": "printer"}


@pytest.mark.parametrize("kind", PAUSED)
def test_nothing_under_a_paused_limit_is_claimed_before_its_end(scene: Scene, kind: str) -> None:
    [held] = put(scene)
    [free] = put(scene, type="mail.send", queue="default", tenant="bolt")
    limits = (named("printer", "report.make"), queue("elsewhere", running=1))
    pause_limit(scene, kind, PAUSED[kind], 30)  # type: ignore[arg-type]
    assert got(scene, *limits) == [free]
    scene.later(29.999999)
    assert got(scene, *limits) == []
    scene.later(0.000001)
    assert got(scene, *limits) == [held]


def test_a_tenant_may_be_paused_in_one_queue_alone(scene: Scene) -> None:
    put(scene)
    [elsewhere] = put(scene, queue="default")
    pause_limit(scene, "tenant", "acme", 30, queue="bulk")
    assert got(scene) == [elsewhere]


def test_rows_of_a_paused_type_cost_their_line_no_turn(scene: Scene) -> None:
    put(scene, 2, tenant="a", type="x")
    [a] = put(scene, tenant="a", type="y")
    b = put(scene, 3, tenant="b", type="y")
    pause_limit(scene, "type", "x", 30)
    assert got(scene) == [a, *b]


# What a worker is told.


def test_a_turn_says_whether_any_limit_is_in_force(scene: Scene) -> None:
    worker = scene.hire(6000)

    def limited(*limits: Limit) -> bool:
        return scene.turn(worker, wanting(1), limits=limits).limited

    assert not limited()
    assert not limited(tenant("acme", waiting=5, payload_bytes=9, enqueue_rate=rate(1)))
    assert not limited(queue(running=NO_LIMIT, rate=rate(NO_LIMIT)))
    assert limited(queue("elsewhere", running=5))
    assert limited(task(rate=rate(5)))
    assert limited(every_tenant(running=5), tenant("acme", running=NO_LIMIT))
    set_limit(scene, queue(running=NO_LIMIT))
    assert not limited(queue(running=5))
    set_limit(scene, queue(running=7))
    assert limited()
    clear_limit(scene, queue())
    assert not limited()
    pause_limit(scene, "named", "smtp", 10)
    assert limited()
    scene.later(10)
    assert not limited()


def test_a_turn_hints_at_when_a_pause_ends(scene: Scene) -> None:
    put(scene)
    until = pause_limit(scene, "queue", "bulk", 30).until
    result = scene.turn(scene.hire(), wanting(1, queues=("bulk",)))
    assert (result.leases, result.limited_until) == ((), until)
    assert scene.turn(scene.hire(), wanting(1, queues=("default",))).limited_until is None


def test_a_turn_says_whether_a_wanted_type_has_no_room(scene: Scene) -> None:
    put(scene, 3)
    nobody, two = every_tenant(running=0), LIMITS["named"]
    unwanted = scene.turn(scene.hire(), wanting(9, queues=BOTH_QUEUES, types=("other",)), limits=(two,))
    assert (unwanted.leases, unwanted.limited, unwanted.held_back) == ((), True, False)
    tenants = scene.turn(scene.hire(), wanting(9, queues=BOTH_QUEUES), limits=(nobody,))
    assert (tenants.leases, tenants.limited, tenants.held_back) == ((), True, False)
    full = scene.turn(scene.hire(), wanting(9, queues=BOTH_QUEUES), limits=(two,))
    assert (len(full.leases), full.limited, full.held_back) == (2, True, True)


# What is claimed ahead


EITHER = pytest.mark.parametrize("limit", [*LIMITS.values(), *each_kind(rate=rate(9)).values()], ids=str)


@EITHER
@pytest.mark.parametrize("slots", [0, 2])
def test_jobs_under_a_limit_are_claimed_for_free_slots_alone(scene: Scene, limit: Limit, slots: int) -> None:
    jobs = put(scene, 5)
    limit = msgspec.structs.replace(limit, running=limit.running and 9)
    assert got(scene, limit, slots=slots) == jobs[:slots]
    set_limit(scene, limit)
    assert got(scene, limit=2, slots=1) == jobs[slots : slots + 1]


@EITHER
def test_jobs_under_no_limit_are_claimed_ahead_beside_those_under_one(scene: Scene, limit: Limit) -> None:
    others = {"tenant": "system", "type": "mail.send", "queue": "default"}
    limited, free = put(scene, 4), put(scene, 6, **others)
    set_limit(scene, msgspec.structs.replace(limit, running=limit.running and 9))
    assert got(scene, slots=1, limit=5) == [limited[0], *free[:4]]
    assert got(scene, slots=0, limit=9) == free[4:]


def test_jobs_behind_one_that_waits_for_a_slot_are_claimed_ahead(scene: Scene) -> None:
    printed, [sent] = put(scene, 3), put(scene, type="mail.send")
    assert got(scene, task("report.make", running=9), slots=2) == [*printed[:2], sent]


def test_tenants_in_turn_fill_the_slots_that_their_limit_leaves(scene: Scene) -> None:
    mine, theirs = put(scene, 3), put(scene, 3, tenant="globex")
    limit = tenant("acme", running=9)
    assert got(scene, limit, slots=3, limit=6) == [mine[0], theirs[0], mine[1], theirs[1], theirs[2]]


def test_each_lane_of_a_turn_has_slots_of_its_own(scene: Scene) -> None:
    jobs = put(scene, 5)
    wants = [wanting(4, queues=BOTH_QUEUES, lane=lane, slots=slots) for lane, slots in (("fast", 1), ("general", 2))]
    result = scene.turn(scene.hire(), *wants, limits=(task("report.make", running=9),))
    assert [(lease.lane, lease.id) for lease in result.leases] == [
        ("fast", jobs[0]),
        ("general", jobs[1]),
        ("general", jobs[2]),
    ]
