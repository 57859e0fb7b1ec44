"""What a claim passes over because its limit has no room: nothing that is free waits behind it."""

from __future__ import annotations

import pytest

from fairlane.core.limit import Limit
from fairlane.core.ops import PauseClaims, Take
from tests.support.acting import Scene, wanting
from tests.support.limiting import (
    BOTH_QUEUES,
    HERE,
    each_kind,
    every_tenant,
    got,
    put,
    queue,
    task,
    tenant,
)

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


def test_a_row_of_a_full_type_is_looked_at_and_has_had_its_lines_turn(scene: Scene) -> None:
    """a: x x y, b: y y. In the first two rounds a's full rows take its turn."""
    put(scene, 2, tenant="a", type="x")
    [a] = put(scene, tenant="a", type="y")
    b = put(scene, 3, tenant="b", type="y")
    result = scene.turn(scene.hire(), wanting(9, queues=BOTH_QUEUES), limits=(task("x", running=0),))
    assert [lease.id for lease in result.leases] == [b[0], b[1], a, b[2]]
    assert [mark.seq for mark in result.marks] == [scene.see(a).seq, scene.see(b[2]).seq]


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


def test_unwanted_rows_cost_no_turn_where_full_ones_do(scene: Scene) -> None:
    put(scene, 2, tenant="a", type="unknown")
    [a] = put(scene, tenant="a", type="y")
    put(scene, tenant="b", type="x")
    [b] = put(scene, tenant="b", type="y")
    [c] = put(scene, tenant="c", type="y")
    assert got(scene, task("x", running=0), types=("x", "y")) == [a, c, b]


def test_in_a_take_passed_over_rows_count_against_the_takes_limit_alone(scene: Scene) -> None:
    put(scene, 2, type="x")
    free = put(scene, 3, type="y")
    full = task("x", running=0)
    short = Take(queue="bulk", band=5, tenant="acme", limit=3)
    assert got(scene, full, takes=(short,), discover=False, limit=9) == free[:1]
    longer = Take(queue="bulk", band=5, tenant="acme", limit=9)
    assert got(scene, full, takes=(longer,), discover=False, limit=1) == free[1:2]


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
