"""Pausing: no claim takes jobs of a paused queue, type or tenant; everything else goes on."""

from __future__ import annotations

import pytest

from fairlane.core.ids import JobId
from fairlane.core.limits import Limit
from fairlane.core.ops import (
    EnqueueResult,
    ListPauses,
    Pause,
    PauseClaims,
    PauseKind,
    Pauses,
    Purge,
    ResumeClaims,
    Take,
)
from fairlane.testing.conformance.samples import completed, retried
from fairlane.testing.conformance.scene import Scene, wanting

pytestmark = pytest.mark.requirement("L15")

KINDS: tuple[PauseKind, ...] = ("queue", "type", "tenant")
every_kind = pytest.mark.parametrize("kind", KINDS)
NAMED = {"queue": "bulk", "type": "report.make", "tenant": "acme"}
"""By kind: the name that is paused; `elsewhere` has another of each."""


def pause(
    scene: Scene, kind: PauseKind, name: str, by: str = "ada", notes: str | None = None, *, refuse: bool = False
) -> Pauses:
    return scene.run(PauseClaims(kind=kind, name=name, refuse=refuse, by=by, notes=notes))


def resume(scene: Scene, kind: PauseKind, name: str, notes: str | None = None) -> Pauses:
    return scene.run(ResumeClaims(kind=kind, name=name, by="ada", notes=notes))


def here(scene: Scene, **options: str | int) -> JobId:
    return scene.put(**{"type": "report.make", "queue": "bulk", "tenant": "acme", **options}).id  # type: ignore[arg-type]


def elsewhere(scene: Scene, kind: PauseKind) -> JobId:
    """A job that differs only in what is paused."""
    return here(scene, **{kind: {"queue": "default", "type": "mail.send", "tenant": "bolt"}[kind]})


def claimed(scene: Scene, limit: int = 9, **want: object) -> list[JobId]:
    want.setdefault("queues", ("bulk", "default"))
    return [lease.id for lease in scene.claim(scene.hire(600), limit, **want)]


@every_kind
@pytest.mark.parametrize("types", [None, ("report.make", "mail.send")], ids=["any type", "named types"])
def test_what_is_paused_is_not_claimed_and_the_rest_is(
    scene: Scene, kind: PauseKind, types: tuple[str, ...] | None
) -> None:
    held = here(scene)
    free = elsewhere(scene, kind)
    pause(scene, kind, NAMED[kind])
    assert claimed(scene, types=types) == [free]
    assert scene.status(held) == "pending"


@every_kind
def test_takes_give_nothing_of_what_is_paused(scene: Scene, kind: PauseKind) -> None:
    held = here(scene)
    free = elsewhere(scene, kind)
    pause(scene, kind, NAMED[kind])
    takes = tuple(
        Take(queue=queue, band=5, tenant=tenant, limit=5)
        for queue in ("bulk", "default")
        for tenant in ("acme", "bolt")
    )
    assert claimed(scene, takes=takes, discover=False) == [free]
    resume(scene, kind, NAMED[kind])
    assert claimed(scene, takes=takes, discover=False) == [held]


@every_kind
def test_what_is_resumed_is_claimed_again_in_its_order(scene: Scene, kind: PauseKind) -> None:
    jobs = [here(scene) for _ in range(3)]
    pause(scene, kind, NAMED[kind])
    assert claimed(scene) == []
    later = here(scene)
    resume(scene, kind, NAMED[kind])
    assert claimed(scene) == [*jobs, later]


@every_kind
def test_enqueueing_promoting_and_reading_go_on_during_a_pause(scene: Scene, kind: PauseKind) -> None:
    pause(scene, kind, NAMED[kind])
    here(scene)
    here(scene, delay_s=5)
    scene.later(5)
    assert scene.promote().count == 1
    assert scene.queue("bulk").ready == 2


@every_kind
def test_running_jobs_go_on_during_a_pause_and_their_retries_wait(scene: Scene, kind: PauseKind) -> None:
    here(scene)
    here(scene)
    worker = scene.hire(600)
    first, second = scene.claim(worker, 2, queues=("bulk",))
    pause(scene, kind, NAMED[kind])
    assert scene.settle(worker, completed(first), retried(second, 1)).refused == ()
    scene.later(1)
    assert claimed(scene) == []
    resume(scene, kind, NAMED[kind])
    assert claimed(scene) == [second.id]


@every_kind
def test_a_turn_repeated_during_a_pause_still_returns_its_leases(scene: Scene, kind: PauseKind) -> None:
    here(scene)
    worker = scene.hire()
    want = wanting(1, queues=("bulk",))
    leases = scene.turn(worker, want, claim_no=7).leases
    assert len(leases) == 1
    pause(scene, kind, NAMED[kind])
    assert scene.turn(worker, want, claim_no=7).leases == leases


def test_a_paused_type_is_passed_over_and_counts_as_looked_at(scene: Scene) -> None:
    first = here(scene)
    second = here(scene, type="mail.send")
    pause(scene, "type", "report.make")
    result = scene.turn(scene.hire(), wanting(9, queues=("bulk",)))
    assert [lease.id for lease in result.leases] == [second]
    assert [mark.seq for mark in result.marks] == [scene.see(second).seq]
    here(scene, type="mail.send")
    result = scene.turn(scene.hire(), wanting(9, queues=("bulk",), look=1))
    assert result.leases == ()
    assert [mark.seq for mark in result.marks] == [scene.see(first).seq]


@pytest.mark.parametrize("kind", ["queue", "tenant"])
def test_the_lines_of_a_paused_queue_or_tenant_are_not_even_looked_at(scene: Scene, kind: PauseKind) -> None:
    here(scene)
    pause(scene, kind, NAMED[kind])
    take = Take(queue="bulk", band=5, tenant="acme", limit=1)
    result = scene.turn(scene.hire(), wanting(9, queues=("bulk",), takes=(take,)))
    assert (result.leases, result.marks, result.cursors) == ((), (), {})


@pytest.mark.requirement("I3")
def test_a_paused_tenant_takes_no_turn_from_the_others(scene: Scene) -> None:
    for tenant in ("a", "b", "c"):
        for _ in range(2):
            here(scene, tenant=tenant)
    pause(scene, "tenant", "b")
    result = scene.turn(scene.hire(), wanting(3, queues=("bulk",), cursor="a"))
    assert [lease.tenant for lease in result.leases] == ["c", "a", "c"]
    assert result.cursors == {"general": "c"}
    assert [mark.tenant for mark in result.marks] == ["a", "c"]


def test_a_name_paused_as_one_kind_is_free_as_another(scene: Scene) -> None:
    job = here(scene, type="same", queue="default", tenant="other")
    pause(scene, "queue", "same")
    pause(scene, "tenant", "same")
    assert claimed(scene) == [job]


def test_several_pauses_hold_together(scene: Scene) -> None:
    here(scene, tenant="x")
    here(scene, type="y")
    here(scene, queue="default")
    free = here(scene)
    pause(scene, "tenant", "x")
    pause(scene, "type", "y")
    pause(scene, "queue", "default")
    assert claimed(scene) == [free]


def test_pauses_are_listed_by_kind_and_name(scene: Scene) -> None:
    assert scene.run(ListPauses()) == Pauses(pauses=())
    at = scene.now
    pause(scene, "type", "mail.send")
    pause(scene, "queue", "z", by="grace", notes="maintenance")
    told = pause(scene, "queue", "a")
    listed = (
        Pause(kind="queue", name="a", by="ada", at=at, notes=None),
        Pause(kind="queue", name="z", by="grace", at=at, notes="maintenance"),
        Pause(kind="type", name="mail.send", by="ada", at=at, notes=None),
    )
    assert told == Pauses(pauses=listed, changed=True)
    assert scene.run(ListPauses()) == Pauses(pauses=listed)
    assert resume(scene, "queue", "z") == Pauses(pauses=(listed[0], listed[2]), changed=True)


@every_kind
def test_pausing_twice_or_resuming_what_is_not_paused_writes_nothing(scene: Scene, kind: PauseKind) -> None:
    assert resume(scene, kind, "x") == Pauses(pauses=(), changed=False)
    first = pause(scene, kind, "x", notes="first")
    scene.later(5)
    assert pause(scene, kind, "x", by="grace", notes="second") == Pauses(pauses=first.pauses, changed=False)
    assert len(scene.audit()) == 1


@pytest.mark.requirement("W12")
@every_kind
def test_pausing_and_resuming_are_written_down(scene: Scene, kind: PauseKind) -> None:
    pause(scene, kind, "acme", notes="flooding us")
    scene.later(5)
    resume(scene, kind, "acme")
    resumed, paused = scene.audit()
    assert (paused.action, resumed.action) == ("pause", "resume")
    assert {record.target for record in (paused, resumed)} == {f"{kind}:acme"}
    assert {record.tenant for record in (paused, resumed)} == {"acme" if kind == "tenant" else None}
    assert (paused.by, paused.notes, resumed.notes, resumed.at) == ("ada", "flooding us", None, scene.now)
    assert (paused.before, paused.after) == ({"paused": False}, {"paused": True})
    assert (resumed.before, resumed.after) == ({"paused": True}, {"paused": False})


def test_names_are_paused_exactly_as_written(scene: Scene) -> None:
    job = here(scene, tenant="Acme")
    pause(scene, "tenant", "acme")
    pause(scene, "queue", "bul%")
    pause(scene, "type", "report_make")
    assert claimed(scene) == [job]


@every_kind
@pytest.mark.parametrize(("others", "key"), [(0, {}), (0, {"idempotency_key": "k"}), (2, {"delay_s": 60.0})])
def test_a_pause_that_refuses_refuses_the_whole_call(
    scene: Scene, kind: PauseKind, others: int, key: dict[str, str | float]
) -> None:
    told = pause(scene, kind, NAMED[kind], notes="moving house", refuse=True)
    [refusing] = told.pauses
    assert (refusing.refuse, refusing.notes) == (True, "moving house")
    free = [scene.job("mail.send", queue="default", tenant="bolt") for _ in range(others)]
    result = scene.enqueue(*free, scene.job("report.make", queue="bulk", tenant="acme", **key))
    assert result == EnqueueResult(paused=refusing)
    assert scene.list_jobs() == []
    elsewhere(scene, kind)
    resume(scene, kind, NAMED[kind])
    assert scene.enqueue(scene.job("report.make", queue="bulk", tenant="acme", **key)).receipts


def test_of_several_refusing_pauses_the_first_jobs_is_named_then_the_first_by_kind(scene: Scene) -> None:
    for kind in KINDS:
        pause(scene, kind, NAMED[kind], refuse=True)
    pause(scene, "queue", "default")
    by_type, by_tenant = scene.job("report.make"), scene.job("mail.send", tenant="acme")
    for jobs, named in [((by_type, by_tenant), "type"), ((by_tenant, by_type), "tenant")]:
        found = scene.enqueue(scene.job("mail.send"), *jobs).paused
        assert found is not None
        assert found.kind == named
    found = scene.enqueue(scene.job("report.make", tenant="acme", queue="bulk")).paused
    assert found is not None
    assert found.kind == "queue"


def test_a_full_store_is_said_before_a_refusing_pause_and_that_before_a_limit(scene: Scene) -> None:
    none = Limit(kind="tenant", name="*", waiting=0, when_full="reject")
    pause(scene, "queue", "default", refuse=True)
    job = scene.job(tenant="acme")
    assert scene.enqueue(job, capacity=0, limits=(none,)) == EnqueueResult(full=True, depth=0)
    result = scene.enqueue(job, capacity=9, limits=(none,))
    assert (result.paused is not None, result.refused, result.depth) == (True, None, 0)
    resume(scene, "queue", "default")
    assert scene.enqueue(job, limits=(none,)).refused is not None


@every_kind
def test_pausing_again_adds_a_refusal_and_never_takes_it_back(scene: Scene, kind: PauseKind) -> None:
    pause(scene, kind, "x", notes="first")
    at = scene.later(5)
    added = pause(scene, kind, "x", by="grace", notes="second", refuse=True)
    assert added == Pauses(
        pauses=(Pause(kind=kind, name="x", by="grace", at=at, notes="second", refuse=True),), changed=True
    )
    scene.later(5)
    for refuse in (False, True):
        assert pause(scene, kind, "x", refuse=refuse) == Pauses(pauses=added.pauses)
    resume(scene, kind, "x")
    assert not pause(scene, kind, "x").pauses[0].refuse
    states = [(record.action, record.before, record.after) for record in reversed(scene.audit())]
    assert states == [
        ("pause", {"paused": False}, {"paused": True}),
        ("pause", {"paused": True}, {"paused": True, "refuse": True}),
        ("resume", {"paused": True, "refuse": True}, {"paused": False}),
        ("pause", {"paused": False}, {"paused": True}),
    ]


def test_a_purge_forgets_what_a_pause_refuses(scene: Scene) -> None:
    pause(scene, "queue", "default", refuse=True)
    scene.run(Purge())
    assert not pause(scene, "queue", "default").pauses[0].refuse
    assert scene.enqueue(scene.job()).receipts


def test_dead_letters_are_reprocessed_into_what_refuses_and_wait(scene: Scene) -> None:
    lease = scene.dead(type="report.make")
    pause(scene, "type", "report.make", refuse=True)
    act = scene.reprocess(lease.seq)
    assert act.new_job is not None
    assert scene.status(act.new_job.id) == "pending"
    assert claimed(scene) == []
