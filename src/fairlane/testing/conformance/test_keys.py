"""Keys: one job per (tenant, idempotency key) for good, one unfinished job per (tenant, type, dedup key)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlane.core.ids import WorkerId
from fairlane.core.job import Lease
from fairlane.testing.conformance.samples import OUTCOMES, cancelled, completed, died, released, retried, snoozed
from fairlane.testing.conformance.scene import Scene

pytestmark = pytest.mark.requirement("W6", "L4")


def test_a_second_job_with_the_same_idempotency_key_is_told_which_it_duplicates(scene: Scene) -> None:
    first = scene.put(idempotency_key="welcome-7")
    [second] = scene.enqueue(scene.job("mail.other", idempotency_key="welcome-7")).receipts
    assert (second.disposition, second.key) == ("duplicate", "idempotency")
    assert (second.id, second.seq) == (first.id, first.seq)
    assert scene.list_jobs() == [first.id]


def test_an_idempotency_key_belongs_to_its_tenant(scene: Scene) -> None:
    scene.put(idempotency_key="k", tenant="acme")
    scene.put(idempotency_key="k", tenant="bolt")
    assert len(scene.list_jobs()) == 2


def test_an_idempotency_key_holds_after_its_job_has_finished(scene: Scene) -> None:
    lease = scene.finished(idempotency_key="k")
    [receipt] = scene.enqueue(scene.job(idempotency_key="k")).receipts
    assert (receipt.disposition, receipt.id) == ("duplicate", lease.id)


@pytest.mark.parametrize("end", ["dead", "cancelled"])
def test_an_idempotency_key_holds_however_its_job_ended(scene: Scene, end: str) -> None:
    job = scene.put(idempotency_key="k")
    scene.bury(job.id) if end == "dead" else scene.cancel(job.id)
    assert scene.status(job.id) == end
    assert scene.enqueue(scene.job(idempotency_key="k")).receipts[0].disposition == "duplicate"


def test_a_second_unfinished_job_with_the_same_dedup_key_is_told_which_it_duplicates(scene: Scene) -> None:
    first = scene.put(dedup_key="nightly")
    [second] = scene.enqueue(scene.job(dedup_key="nightly")).receipts
    assert (second.disposition, second.key, second.id) == ("duplicate", "dedup", first.id)


def test_a_dedup_key_belongs_to_its_tenant_and_type(scene: Scene) -> None:
    scene.put(dedup_key="nightly", tenant="acme")
    scene.put(dedup_key="nightly", tenant="bolt")
    scene.put("mail.other", dedup_key="nightly", tenant="acme")
    assert len(scene.list_jobs()) == 3


def test_the_idempotency_key_is_looked_at_before_the_dedup_key(scene: Scene) -> None:
    by_key, by_dedup = scene.put(idempotency_key="k"), scene.put(dedup_key="d")
    [receipt] = scene.enqueue(scene.job(idempotency_key="k", dedup_key="d")).receipts
    assert (receipt.key, receipt.id) == ("idempotency", by_key.id)
    assert receipt.id != by_dedup.id


@pytest.mark.parametrize("key", ["idempotency_key", "dedup_key"])
def test_within_one_call_the_first_is_created_and_the_second_is_its_duplicate(scene: Scene, key: str) -> None:
    first, second, other = scene.enqueue(scene.job(**{key: "k"}), scene.job(**{key: "k"}), scene.job()).receipts
    assert [first.disposition, second.disposition, other.disposition] == ["created", "duplicate", "created"]
    assert (second.id, second.seq) == (first.id, first.seq)
    assert second.key == key.removesuffix("_key")


def test_a_duplicate_by_one_key_does_not_take_its_other_key(scene: Scene) -> None:
    scene.put(idempotency_key="k")
    scene.enqueue(scene.job(idempotency_key="k", dedup_key="free"))
    scene.put(dedup_key="free")
    scene.enqueue(scene.job(dedup_key="free", idempotency_key="free too"))
    scene.put(idempotency_key="free too")


def settle(scene: Scene, worker: WorkerId, lease: Lease, outcome: Callable[[Lease], object]) -> None:
    assert not scene.settle(worker, outcome(lease)).refused  # type: ignore[arg-type]


ENDINGS: dict[str, Callable[[Scene, WorkerId, Lease], object]] = {
    "completed": lambda scene, worker, lease: settle(scene, worker, lease, completed),
    "died": lambda scene, worker, lease: settle(scene, worker, lease, died),
    "cancelled by its code": lambda scene, worker, lease: settle(scene, worker, lease, cancelled),
    "cancelled then retried": lambda scene, worker, lease: (
        scene.cancel(lease.id),
        settle(scene, worker, lease, retried),
    ),
    "cancelled then snoozed": lambda scene, worker, lease: (
        scene.cancel(lease.id),
        settle(scene, worker, lease, snoozed),
    ),
    "cancelled then released": lambda scene, worker, lease: (
        scene.cancel(lease.id),
        settle(scene, worker, lease, released),
    ),
    "released then cancelled": lambda scene, worker, lease: (
        settle(scene, worker, lease, released),
        scene.cancel(lease.id),
    ),
    "snoozed then cancelled": lambda scene, worker, lease: (
        settle(scene, worker, lease, snoozed),
        scene.cancel(lease.id),
    ),
    "failed by hand": lambda scene, worker, lease: scene.fail(lease.id),
    "buried": lambda scene, worker, lease: scene.bury(lease.id),
    "cancelled then retired": lambda scene, worker, lease: (scene.cancel(lease.id), scene.retire(worker)),
    "cancelled then reclaimed": lambda scene, worker, lease: (
        scene.cancel(lease.id),
        scene.later(60),
        scene.reclaim(),
    ),
    "overran": lambda scene, worker, lease: (scene.renew(worker, 100_000), scene.later(10_000), scene.reclaim()),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_whatever_ends_a_job_frees_its_dedup_key(scene: Scene, ending: str) -> None:
    worker, lease = scene.leased(dedup_key="nightly")
    ENDINGS[ending](scene, worker, lease)
    assert scene.status(lease.id) in {"completed", "dead", "cancelled"}
    scene.put(dedup_key="nightly")


GOING_ON: dict[str, Callable[[Scene, WorkerId, Lease], object]] = {
    "leased": lambda scene, worker, lease: None,
    "retried": lambda scene, worker, lease: settle(scene, worker, lease, retried),
    "snoozed": lambda scene, worker, lease: settle(scene, worker, lease, snoozed),
    "released": lambda scene, worker, lease: settle(scene, worker, lease, released),
    "asked to cancel": lambda scene, worker, lease: scene.cancel(lease.id),
    "failed by hand, to run again": lambda scene, worker, lease: scene.fail(lease.id, retry_delay_s=5),
    "reclaimed": lambda scene, worker, lease: (scene.later(60), scene.reclaim()),
    "retired": lambda scene, worker, lease: scene.retire(worker),
}


@pytest.mark.parametrize("place", GOING_ON)
def test_a_dedup_key_is_held_for_as_long_as_its_job_is_unfinished(scene: Scene, place: str) -> None:
    worker, lease = scene.leased(dedup_key="nightly")
    GOING_ON[place](scene, worker, lease)
    assert scene.status(lease.id) in {"pending", "processing", "failed"}
    [receipt] = scene.enqueue(scene.job(dedup_key="nightly")).receipts
    assert (receipt.disposition, receipt.id) == ("duplicate", lease.id)


def test_a_freed_dedup_key_passes_on_and_the_old_job_cannot_free_it_again(scene: Scene) -> None:
    old = scene.put(dedup_key="nightly")
    scene.cancel(old.id)
    new = scene.put(dedup_key="nightly")
    scene.cancel(old.id)
    assert scene.retain(finished_before=scene.at(60)) == 1
    [receipt] = scene.enqueue(scene.job(dedup_key="nightly")).receipts
    assert (receipt.disposition, receipt.id) == ("duplicate", new.id)


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_stale_outcome_never_frees_a_key(scene: Scene, outcome: str) -> None:
    worker, lease = scene.leased(dedup_key="nightly")
    scene.later(60)
    scene.reclaim()
    assert scene.settle(worker, OUTCOMES[outcome](lease)).refused
    assert scene.enqueue(scene.job(dedup_key="nightly")).receipts[0].disposition == "duplicate"
