"""What a claim passes over because its limit has no room: nothing that is free waits behind it."""

from __future__ import annotations

import pytest

from fairlane.core.ids import JobId
from fairlane.core.limits import Limit
from fairlane.core.ops import PauseClaims, Take
from fairlane.testing.conformance.limits import (
    BOTH_QUEUES,
    HERE,
    each_kind,
    every_tenant,
    got,
    named,
    put,
    queue,
    task,
    tenant,
)
from fairlane.testing.conformance.scene import Scene, wanting

pytestmark = pytest.mark.requirement("I2", "I3", "I5")

LIMITS = each_kind(running=2)
each_limit = pytest.mark.parametrize("limit", LIMITS.values(), ids=list(LIMITS))


def test_a_full_tenant_is_passed_over_unseen(scene: Scene) -> None:
    put(scene, 3)
    bolt = put(scene, 2, tenant="bolt")
    result = scene.turn(scene.hire(), wanting(9, queues=BOTH_QUEUES), limits=(tenant("acme", running=0),))
    assert [lease.id for lease in result.leases] == bolt
    assert [mark.tenant for mark in result.marks] == ["bolt"]
    assert result.cursors == {"general": "bolt"}


def test_a_full_queue_is_passed_over_unseen(scene: Scene) -> None:
    put(scene, 3)
    default = put(scene, 2, queue="default")
    result = scene.turn(scene.hire(), wanting(9, queues=BOTH_QUEUES), limits=(queue("bulk", running=0),))
    assert [lease.id for lease in result.leases] == default
    assert [mark.queue for mark in result.marks] == ["default"]


def test_a_line_leaves_off_where_the_room_of_its_tenant_ends(scene: Scene) -> None:
    acme = [scene.see(job).seq for job in put(scene, 5)]
    put(scene, 5, tenant="bolt")
    result = scene.turn(scene.hire(), wanting(9, queues=BOTH_QUEUES), limits=(tenant("acme", running=2),))
    assert [lease.tenant for lease in result.leases] == ["acme", "bolt"] * 2 + ["bolt"] * 3
    assert [mark.seq for mark in result.marks if mark.tenant == "acme"] == [acme[1]]


def test_a_queue_leaves_off_in_the_middle_of_a_round(scene: Scene) -> None:
    for name in "abc":
        put(scene, 2, tenant=name)
    result = scene.turn(scene.hire(), wanting(9, queues=BOTH_QUEUES), limits=(queue("bulk", running=4),))
    assert [lease.tenant for lease in result.leases] == ["a", "b", "c", "a"]
    assert result.cursors == {"general": "a"}
    assert [mark.tenant for mark in result.marks] == ["a", "b", "c"]


def test_a_full_band_does_not_hide_the_next_one(scene: Scene) -> None:
    put(scene, 3, priority=1)
    low = put(scene, 2, priority=9, tenant="bolt")
    assert got(scene, tenant("acme", running=0)) == low


def test_a_row_of_a_full_type_is_looked_at_and_its_line_keeps_its_turn(scene: Scene) -> None:
    put(scene, 2, tenant="a", type="x")
    [a] = put(scene, tenant="a", type="y")
    b = put(scene, 3, tenant="b", type="y")
    result = scene.turn(scene.hire(), wanting(9, queues=BOTH_QUEUES), limits=(task("x", running=0),))
    assert [lease.id for lease in result.leases] == [a, *b]
    assert [mark.seq for mark in result.marks] == [scene.see(a).seq, scene.see(b[2]).seq]


def test_behind_rows_of_a_full_type_tenants_get_one_job_each_in_turn(scene: Scene) -> None:
    """However many such rows each of them has in front, and also between two free ones."""
    free: dict[str, list[JobId]] = {}
    for name, full in (("a", 5), ("b", 0), ("c", 2)):
        put(scene, full, tenant=name, type="x")
        free[name] = put(scene, tenant=name, type="y")
        put(scene, full, tenant=name, type="x")
        free[name] += put(scene, tenant=name, type="y")
    in_turn = [free[name][nth] for nth in range(2) for name in "abc"]
    assert got(scene, task("x", running=0), limit=4) == in_turn[:4]
    assert got(scene, task("x", running=0)) == in_turn[4:]


def test_a_type_that_becomes_full_in_the_middle_of_a_round_costs_the_others_no_turn(scene: Scene) -> None:
    full = {name: put(scene, 2, tenant=name, type="x") for name in "abc"}
    free = {name: put(scene, 2, tenant=name, type="y") for name in "abc"}
    result = scene.turn(scene.hire(), wanting(5, queues=BOTH_QUEUES), limits=(task("x", running=2),))
    assert [lease.id for lease in result.leases] == [
        full["a"][0],
        full["b"][0],
        free["c"][0],
        free["a"][0],
        free["b"][0],
    ]
    assert [mark.seq for mark in result.marks] == [scene.see(free[name][0]).seq for name in "abc"]
    assert result.cursors == {"general": "b"}


def test_a_row_looked_at_while_its_type_had_room_keeps_its_place(scene: Scene) -> None:
    """One row of x is left over in each line that came too late, none in those that came in time."""
    mixed = {name: [*put(scene, tenant=name, type="x"), *put(scene, 2, tenant=name, type="y")] for name in "abc"}
    assert got(scene, task("x", running=2)) == [
        *(mixed["a"][0], mixed["b"][0], mixed["c"][1]),
        *(mixed["a"][1], mixed["b"][1], mixed["c"][2]),
        *(mixed["a"][2], mixed["b"][2]),
    ]


def test_tasks_under_a_name_are_passed_over_from_the_moment_either_has_filled_it(scene: Scene) -> None:
    mail = put(scene, tenant="a", type="mail.send")
    a = put(scene, tenant="a", type="other")
    reports = put(scene, 2, tenant="b")
    put(scene, 2, tenant="b", type="mail.send")
    b = put(scene, tenant="b", type="other")
    c = put(scene, 2, tenant="c", type="other")
    smtp = named("smtp", "mail.send", "report.make", running=2)
    assert got(scene, smtp) == [mail[0], reports[0], c[0], a[0], b[0], c[1]]


def test_a_task_with_room_of_its_own_is_passed_over_where_its_name_has_none(scene: Scene) -> None:
    put(scene, 2, tenant="a", type="mail.send")
    put(scene, 2, tenant="b", type="report.make")
    free = [put(scene, tenant=name, type="other")[0] for name in "abc"]
    limits = (task("mail.send", running=9), named("smtp", "mail.send", "report.make", running=0))
    assert got(scene, *limits) == free


def test_a_passed_over_row_does_not_count_as_served(scene: Scene) -> None:
    put(scene, tenant="b", type="x")
    put(scene, tenant="a", type="y")
    result = scene.turn(scene.hire(), wanting(9, queues=BOTH_QUEUES), limits=(task("x", running=0),))
    assert [lease.tenant for lease in result.leases] == ["a"]
    assert result.cursors == {"general": "a"}
    assert [mark.tenant for mark in result.marks] == ["a", "b"]


def test_passed_over_rows_do_not_count_against_what_is_wanted(scene: Scene) -> None:
    put(scene, 5, type="x")
    [free] = put(scene, type="y")
    assert got(scene, task("x", running=0), limit=1) == [free]


def test_passed_over_rows_count_as_looked_at(scene: Scene) -> None:
    full = put(scene, 3, type="x")
    put(scene, type="y")
    want = wanting(9, queues=("bulk",), look=3)
    result = scene.turn(scene.hire(), want, limits=(task("x", running=0),))
    assert (result.leases, [mark.seq for mark in result.marks]) == ((), [scene.see(full[-1]).seq])


def test_rows_of_full_types_cost_no_more_turns_than_unwanted_ones(scene: Scene) -> None:
    put(scene, 2, tenant="a", type="unknown")
    [a] = put(scene, tenant="a", type="y")
    put(scene, tenant="b", type="x")
    [b] = put(scene, tenant="b", type="y")
    [c] = put(scene, tenant="c", type="y")
    assert got(scene, task("x", running=0), types=("x", "y")) == [a, b, c]


def test_a_takes_limit_counts_only_the_jobs_it_gave(scene: Scene) -> None:
    put(scene, 3, type="x")
    free = put(scene, 4, type="y")
    full = task("x", running=0)
    short = Take(queue="bulk", band=5, tenant="acme", limit=2)
    assert got(scene, full, takes=(short,), discover=False, limit=9) == free[:2]
    longer = Take(queue="bulk", band=5, tenant="acme", limit=9)
    assert got(scene, full, takes=(longer,), discover=False, limit=1) == free[2:3]


def test_a_take_goes_on_behind_a_type_that_it_has_filled_itself(scene: Scene) -> None:
    full = put(scene, 3, type="x")
    free = put(scene, 3, type="y")
    take = Take(queue="bulk", band=5, tenant="acme", limit=3)
    want = wanting(9, queues=("bulk",), takes=(take,), discover=False)
    result = scene.turn(scene.hire(), want, limits=(task("x", running=1),))
    assert [lease.id for lease in result.leases] == [full[0], free[0], free[1]]
    assert [mark.seq for mark in result.marks] == [scene.see(free[1]).seq]


def test_a_take_looks_no_further_than_its_want_allows_at_rows_of_a_full_type(scene: Scene) -> None:
    put(scene, 3, type="x")
    free = put(scene, 2, type="y")
    take = Take(queue="bulk", band=5, tenant="acme", limit=2)
    assert got(scene, task("x", running=0), takes=(take,), discover=False, look=4) == free[:1]


def test_a_type_filled_by_one_take_is_passed_over_in_the_next(scene: Scene) -> None:
    full, free = put(scene, 2, type="x"), put(scene, type="y")
    put(scene, 2, tenant="bolt", type="x")
    bolt = put(scene, tenant="bolt", type="y")
    takes = tuple(Take(queue="bulk", band=5, tenant=name, limit=2) for name in ("acme", "bolt"))
    assert got(scene, task("x", running=1), takes=takes, discover=False) == [full[0], *free, *bolt]


def test_discovery_goes_on_behind_what_a_take_passed_over(scene: Scene) -> None:
    put(scene, 2, type="x")
    free = put(scene, 2, type="y")
    take = Take(queue="bulk", band=5, tenant="acme", limit=2)
    result = scene.turn(
        scene.hire(), wanting(9, queues=("bulk",), takes=(take,), look=4), limits=(task("x", running=0),)
    )
    assert [lease.id for lease in result.leases] == free


@pytest.mark.parametrize(
    "limit", [tenant("acme", running=2), queue("bulk", running=2), tenant("acme", "bulk", running=2)]
)
def test_a_take_leaves_off_where_the_room_of_its_line_ends(scene: Scene, limit: Limit) -> None:
    jobs = put(scene, 4)
    take = Take(queue="bulk", band=5, tenant="acme", limit=9)
    result = scene.turn(scene.hire(), wanting(9, queues=("bulk",), takes=(take,)), limits=(limit,))
    assert [lease.id for lease in result.leases] == jobs[:2]
    assert [mark.seq for mark in result.marks] == [scene.see(jobs[1]).seq]
    result = scene.turn(scene.hire(), wanting(9, queues=("bulk",), takes=(take,)), limits=(limit,))
    assert (result.leases, result.marks) == ((), ())


@each_limit
def test_an_empty_line_among_the_takes_hides_none_of_the_others(scene: Scene, limit: Limit) -> None:
    [job] = put(scene)
    takes = tuple(Take(queue="bulk", band=5, tenant=name, limit=3) for name in ("zed", "acme", "bolt"))
    assert got(scene, limit, takes=takes, discover=False, look=1) == [job]


@each_limit
def test_a_limit_reached_by_the_first_want_holds_for_the_second(scene: Scene, limit: Limit) -> None:
    jobs = put(scene, 4)
    wants = (wanting(1, lane="fast", queues=("bulk",)), wanting(9, lane="general", queues=("bulk",)))
    result = scene.turn(scene.hire(), *wants, limits=(limit,))
    assert [(lease.lane, lease.id) for lease in result.leases] == [("fast", jobs[0]), ("general", jobs[1])]


@each_limit
def test_a_repeated_turn_returns_its_leases_though_there_is_no_room(scene: Scene, limit: Limit) -> None:
    put(scene, 4)
    worker, want = scene.hire(), wanting(9, queues=("bulk",))
    leases = scene.turn(worker, want, claim_no=7, limits=(limit,)).leases
    assert len(leases) == 2
    assert scene.turn(worker, want, claim_no=7, limits=(limit,)).leases == leases


@pytest.mark.requirement("W14")
def test_hundreds_of_jobs_of_a_full_tenant_do_not_delay_one_free_job(scene: Scene) -> None:
    for _ in range(4):
        scene.enqueue(*(scene.job(**HERE) for _ in range(100)))
    [free] = put(scene, tenant="bolt")
    limit = tenant("acme", running=1)
    assert len(got(scene, limit, limit=1)) == 1
    result = scene.turn(scene.hire(), wanting(1, queues=("bulk",), look=5), limits=(limit,))
    assert [lease.id for lease in result.leases] == [free]
    assert [mark.tenant for mark in result.marks] == ["bolt"]


@pytest.mark.requirement("W14")
def test_hundreds_of_jobs_of_a_full_type_do_not_delay_another_tenants_free_job(scene: Scene) -> None:
    for _ in range(3):
        scene.enqueue(*(scene.job(**HERE) for _ in range(100)))
    [free] = put(scene, tenant="bolt", type="mail.send")
    limit = task("report.make", running=1)
    assert len(got(scene, limit, limit=1)) == 1
    assert got(scene, limit, limit=1) == [free]


def test_limits_and_pauses_hold_together(scene: Scene) -> None:
    put(scene, 2)
    bolt = put(scene, 3, tenant="bolt")
    scene.run(PauseClaims(kind="tenant", name="acme", by="ada"))
    assert got(scene, every_tenant(running=2)) == bolt[:2]


@pytest.mark.parametrize("room", [1, 20])
def test_a_tenant_with_room_is_found_behind_hundreds_that_have_none(scene: Scene, room: int) -> None:
    names = [f"t{n:03}" for n in range(300)]
    scene.enqueue(*(scene.job(tenant=name) for name in names for _ in range(2)))
    limits = (every_tenant(running=1),)
    while scene.claim(scene.hire(), 100, cursor=names[0], limits=limits):
        continue  # all of them have one running
    last = scene.put(tenant="u")
    assert [lease.id for lease in scene.claim(scene.hire(), room, limits=limits)] == [last.id]


@pytest.mark.parametrize("room", [1, 300])
def test_a_tenant_is_found_behind_hundreds_with_room_for_jobs_nobody_here_knows(scene: Scene, room: int) -> None:
    scene.enqueue(*(scene.job("other", tenant=f"t{n:03}") for n in range(300)))
    scene.enqueue(*(scene.job("other", tenant="t001", queue="bulk") for _ in range(3)))
    last = scene.put(tenant="u")
    worker, cursor, found = scene.hire(), "", []
    for _ in range(5):  # a store may stop on the way, if the next claim goes on from there
        want = wanting(room, queues=("default", "bulk"), types=("mail.send",), cursor=cursor)
        result = scene.turn(worker, want, limits=(every_tenant(running=1),))
        found += [lease.id for lease in result.leases]
        cursor = result.cursors.get("general", cursor)
    assert found == [last.id]
