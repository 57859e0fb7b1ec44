"""One tenant's scope: whatever belongs to another is not there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlane.core.job import Lease
from fairlane.core.ops import (
    ALL_TENANTS,
    GetDeadLetter,
    PageAudit,
    PageDeadLetters,
    PageJobs,
    Scope,
    only,
)
from fairlane.testing.conformance.scene import Scene

FOREIGN = only("bolt")
OWN = only("acme")


def everything(scene: Scene) -> object:
    """All there is to see, by everyone's eyes."""
    return (
        scene.run(PageJobs(scope=ALL_TENANTS, limit=200)),
        scene.run(PageDeadLetters(scope=ALL_TENANTS)),
        scene.run(PageAudit(scope=ALL_TENANTS)),
        scene.stats(),
        [scene.find(job) for job in scene.list_jobs()],
    )


JOB_ACTS: dict[str, Callable[[Scene, Lease, Scope], object]] = {
    "cancel": lambda scene, lease, scope: scene.cancel(lease.id, scope).refused,
    "fail": lambda scene, lease, scope: scene.fail(lease.id, scope=scope).refused,
    "fail with retry": lambda scene, lease, scope: scene.fail(lease.id, retry_delay_s=1, scope=scope).refused,
    "bury": lambda scene, lease, scope: scene.bury(lease.id, scope=scope).refused,
}
LETTER_ACTS: dict[str, Callable[[Scene, Lease, Scope], object]] = {
    "reprocess": lambda scene, lease, scope: scene.reprocess(lease.seq, scope).refused,
    "discard": lambda scene, lease, scope: scene.discard(lease.seq, scope).refused,
    "resolve": lambda scene, lease, scope: scene.resolve(lease.seq, scope).refused,
    "acknowledge": lambda scene, lease, scope: scene.acknowledge(lease.seq, scope).refused,
}
FOREIGN_NAMES = ("bolt", "", "ACME", "acme ", "acm", "acme%", "%", "*")


@pytest.mark.parametrize("act", JOB_ACTS)
@pytest.mark.parametrize("place", ["running", "waiting"])
def test_a_foreign_tenants_act_on_a_job_finds_nothing_and_changes_nothing(scene: Scene, act: str, place: str) -> None:
    worker, lease = scene.leased(tenant="acme")
    if place == "waiting":
        scene.retire(worker)
    before = everything(scene)
    for foreign in FOREIGN_NAMES:
        assert JOB_ACTS[act](scene, lease, only(foreign)) == "not_found"
    assert everything(scene) == before
    assert JOB_ACTS[act](scene, lease, OWN) is None


@pytest.mark.parametrize("act", LETTER_ACTS)
def test_a_foreign_tenants_act_on_a_dead_letter_finds_nothing_and_changes_nothing(scene: Scene, act: str) -> None:
    lease = scene.dead(tenant="acme")
    before = everything(scene)
    assert LETTER_ACTS[act](scene, lease, FOREIGN) == "not_found"
    assert everything(scene) == before
    assert LETTER_ACTS[act](scene, lease, OWN) is None


def test_a_foreign_tenant_reads_nothing(scene: Scene) -> None:
    waiting, lease = scene.put(tenant="acme", queue="secret"), scene.dead(tenant="acme")
    scene.acknowledge(lease.seq)
    for job in (waiting.id, lease.id):
        assert scene.find(job, FOREIGN) is None
        assert scene.find(job, OWN) is not None
    assert scene.list_jobs(FOREIGN) == []
    assert scene.list_jobs(FOREIGN, statuses=("dead",)) == []
    assert scene.list_jobs(FOREIGN, idempotency_key=str(waiting.id)) == []
    assert scene.run(GetDeadLetter(scope=FOREIGN, id=lease.seq)) is None
    page = scene.run(PageDeadLetters(scope=FOREIGN))
    assert (page.dead_letters, page.total) == ((), 0)
    assert scene.audit(FOREIGN) == ()
    stats = scene.stats(FOREIGN)
    assert (stats.queues, stats.completed, stats.dead, stats.cancelled, stats.dead_letters) == ((), 0, 0, 0, {})


def test_a_tenant_reads_its_own_and_only_that(scene: Scene) -> None:
    mine, theirs = scene.put(tenant="acme", queue="bulk"), scene.put(tenant="bolt", queue="bulk")
    own, foreign = scene.dead(tenant="acme"), scene.dead(tenant="bolt")
    for lease in (own, foreign):
        scene.acknowledge(lease.seq)
    assert set(scene.list_jobs(OWN)) == {mine.id, own.id}
    assert [letter.id for letter in scene.run(PageDeadLetters(scope=OWN)).dead_letters] == [own.seq]
    assert [record.target for record in scene.audit(OWN)] == [f"dead_letter:{own.seq}"]
    stats = scene.stats(OWN)
    assert ([queue.ready for queue in stats.queues], stats.dead, stats.dead_letters) == ([1], 1, {"pending_review": 1})
    assert set(scene.list_jobs(FOREIGN)) == {theirs.id, foreign.id}


def test_all_tenants_said_out_loud_sees_everyone(scene: Scene) -> None:
    jobs = [scene.put(tenant=tenant).id for tenant in ("acme", "bolt", "system")]
    assert scene.list_jobs(ALL_TENANTS) == jobs[::-1]


def test_the_default_tenant_is_a_tenant_like_any_other(scene: Scene) -> None:
    job = scene.put()
    assert scene.list_jobs(only("system")) == [job.id]
    assert scene.list_jobs(OWN) == []
