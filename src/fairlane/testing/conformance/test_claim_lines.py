"""Claiming along known lines: takes, watermarks, and how far a claim looks."""

from __future__ import annotations

import pytest

from fairlane.core.job import JobSpec
from fairlane.core.ops import Mark, Receipt, Take
from fairlane.testing.conformance.scene import Scene, wanting

pytestmark = pytest.mark.requirement("W5", "W14")


def line(
    tenant: str = "system", *, limit: int = 9, band: int = 5, queue: str = "default", after: Mark | None = None
) -> Take:
    return Take(queue=queue, band=band, tenant=tenant, limit=limit, after=after)


def mark(scene: Scene, job: Receipt, tenant: str = "system") -> Mark:
    seen = scene.see(job.id)
    return Mark(queue=seen.queue, band=seen.priority, tenant=tenant, rank=0, due_at=seen.run_at, seq=job.seq)


def test_takes_come_before_discovery_each_up_to_its_limit(scene: Scene) -> None:
    for tenant in "abc":
        scene.put_many(3, tenant=tenant)
    takes = (line("c", limit=2), line("b", limit=1))
    result = scene.turn(scene.hire(), wanting(6, takes=takes))
    assert [lease.tenant for lease in result.leases] == ["c", "c", "b", "a", "b", "c"]


def test_takes_count_against_the_limit(scene: Scene) -> None:
    for tenant in "ab":
        scene.put_many(3, tenant=tenant)
    leases = scene.claim(scene.hire(), 2, takes=(line("b", limit=5), line("a", limit=5)))
    assert [lease.tenant for lease in leases] == ["b", "b"]


def test_without_discovery_only_the_named_lines_are_served(scene: Scene) -> None:
    for tenant in "ab":
        scene.put_many(2, tenant=tenant)
    leases = scene.claim(scene.hire(), 9, takes=(line("b"),), discover=False)
    assert [lease.tenant for lease in leases] == ["b", "b"]


def test_a_take_is_of_one_queue_and_one_band(scene: Scene) -> None:
    scene.put(priority=1)
    scene.put(queue="bulk")
    wanted = scene.put(priority=5)
    leases = scene.claim(scene.hire(), 9, takes=(line(),), discover=False)
    assert [lease.id for lease in leases] == [wanted.id]


def test_a_take_never_gives_a_type_the_worker_does_not_know(scene: Scene) -> None:
    scene.put("report.make")
    wanted = scene.put("mail.send")
    leases = scene.claim(scene.hire(), 9, takes=(line(),), discover=False, types=("mail.send",))
    assert [lease.id for lease in leases] == [wanted.id]


def test_a_take_from_an_empty_line_gives_nothing(scene: Scene) -> None:
    assert scene.claim(scene.hire(), 9, takes=(line("nobody"),)) == ()


def test_a_take_begins_behind_its_mark(scene: Scene) -> None:
    jobs = scene.put_many(4)
    takes = (line(after=mark(scene, jobs[1])),)
    leases = scene.claim(scene.hire(), 9, takes=takes, discover=False)
    assert [lease.id for lease in leases] == [job.id for job in jobs[2:]]


def test_a_mark_need_not_name_a_job_that_is_still_there(scene: Scene) -> None:
    jobs = scene.put_many(3)
    worker = scene.hire()
    [first] = scene.claim(worker)
    after = Mark(queue="default", band=5, tenant="system", rank=0, due_at=first.due_at, seq=first.seq)
    leases = scene.claim(worker, 9, takes=(line(after=after),), discover=False)
    assert [lease.id for lease in leases] == [job.id for job in jobs[1:]]


def test_a_mark_orders_by_rank_then_due_time_then_number(scene: Scene) -> None:
    def own(priority: int, **options: object) -> Receipt:
        return scene.put(priority=priority, priority_scope="tenant", **options)

    later_rank = own(7, run_at=scene.at(-100))
    same_rank_later_due = own(3, run_at=scene.at(-10))
    passed = own(3, run_at=scene.at(-50))
    own(3, run_at=scene.at(-60))
    own(1)
    after = Mark(queue="default", band=0, tenant="system", rank=3, due_at=scene.at(-50), seq=passed.seq)
    leases = scene.claim(scene.hire(), 9, takes=(line(band=0, after=after),), discover=False)
    assert [lease.id for lease in leases] == [same_rank_later_due.id, later_rank.id]


def test_a_claim_marks_the_last_row_it_looked_at_in_every_line(scene: Scene) -> None:
    a = scene.put_many(2, tenant="a")
    b = scene.put_many(2, tenant="b", priority=1)
    result = scene.turn(scene.hire(), wanting(4))
    assert result.marks == (
        Mark(queue="default", band=1, tenant="b", rank=0, due_at=scene.now, seq=b[1].seq),
        Mark(queue="default", band=5, tenant="a", rank=0, due_at=scene.now, seq=a[1].seq),
    )


def test_rows_of_unknown_types_are_marked_as_looked_at_too(scene: Scene) -> None:
    jobs = scene.put_many(3, "report.make")
    result = scene.turn(scene.hire(), wanting(4, types=("mail.send",), takes=(line(),)))
    assert (result.leases, [seen.seq for seen in result.marks]) == ((), [jobs[-1].seq])


def test_marks_carry_a_worker_past_rows_it_does_not_serve(scene: Scene) -> None:
    scene.put_many(6, "report.make")
    wanted = scene.put("mail.send")
    worker = scene.hire()
    after: Mark | None = None
    claimed: list[object] = []
    for _ in range(3):
        want = wanting(1, types=("mail.send",), takes=(line(after=after),), discover=False, look=3)
        result = scene.turn(worker, want)
        claimed += [lease.id for lease in result.leases]
        after = result.marks[0] if result.marks else after
    assert claimed == [wanted.id]


def test_a_claim_looks_at_no_more_rows_of_a_line_than_it_may(scene: Scene) -> None:
    jobs = scene.put_many(4, "report.make")
    scene.put("mail.send")
    result = scene.turn(scene.hire(), wanting(1, types=("mail.send",), look=3))
    assert result.leases == ()
    assert [seen.seq for seen in result.marks] == [jobs[2].seq]


def test_the_bound_is_each_lines_own(scene: Scene) -> None:
    for tenant in "ab":
        scene.put_many(2, "report.make", tenant=tenant)
        scene.put("mail.send", tenant=tenant)
    leases = scene.claim(scene.hire(), 9, types=("mail.send",), look=3)
    assert [lease.tenant for lease in leases] == ["a", "b"]


def test_discovery_goes_on_where_a_take_of_its_line_ended(scene: Scene) -> None:
    jobs = scene.put_many(5)
    leases = scene.claim(scene.hire(), 5, takes=(line(limit=2),))
    assert [lease.id for lease in leases] == [job.id for job in jobs]


@pytest.mark.parametrize("limit", [0, 3])
def test_a_take_that_looked_at_nothing_leaves_its_whole_line_to_discovery(scene: Scene, limit: int) -> None:
    jobs = scene.put_many(3)
    takes = (line(limit=limit, after=mark(scene, jobs[-1])),)
    leases = scene.claim(scene.hire(), 9, takes=takes)
    assert [lease.id for lease in leases] == [job.id for job in jobs]


def test_a_take_that_looked_at_something_leaves_what_was_before_its_mark_for_another_turn(scene: Scene) -> None:
    jobs = scene.put_many(3)
    worker = scene.hire()
    leases = scene.claim(worker, 9, takes=(line(limit=1, after=mark(scene, jobs[0])),))
    assert [lease.id for lease in leases] == [jobs[1].id, jobs[2].id]
    assert [lease.id for lease in scene.claim(worker, 9)] == [jobs[0].id]


def test_one_turn_never_gives_the_same_job_to_two_lanes(scene: Scene) -> None:
    scene.put_many(5)
    want = wanting(3, lane="fast"), wanting(3, lane="general", takes=(line(),))
    leases = scene.turn(scene.hire(), *want).leases
    assert len({lease.id for lease in leases}) == len(leases) == 5


def test_a_job_put_in_front_of_a_mark_is_found_by_the_next_look_from_the_start(scene: Scene) -> None:
    scene.put()
    worker = scene.hire()
    seen = scene.turn(worker, wanting(1)).marks[0]
    behind: JobSpec = scene.job(run_at=scene.at(-60))
    scene.enqueue(behind)
    assert scene.claim(worker, 1, takes=(line(after=seen),), discover=False) == ()
    assert [lease.id for lease in scene.claim(worker, 1)] == [behind.id]
