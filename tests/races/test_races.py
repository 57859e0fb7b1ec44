"""Many processes on one store: exactly one job per key, no job twice, none lost."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import pytest

from fairlane.core.clock import SystemClock
from fairlane.core.ids import JobId, Seq
from fairlane.core.job import FINAL
from fairlane.core.ops import Renew
from fairlane.testing.conformance.scene import Scene
from tests.races.track import Track


@pytest.fixture
def scene(track: Track) -> Scene:
    track.scene.now = SystemClock().now()
    return track.scene


@pytest.mark.requirement("W6", "L4")
@pytest.mark.parametrize("key", ["idempotency_key", "dedup_key"])
@pytest.mark.parametrize("batch", [1, 10])
def test_a_hundred_keys_enqueued_by_everyone_make_exactly_a_hundred_jobs(
    track: Track, scene: Scene, key: str, batch: int
) -> None:
    rounds = (60 if track.is_long else 2) * (1 if batch == 1 else 4)
    told = track.race("enqueue_keys", key=key, keys=100, rounds=rounds, batch=batch)
    stands: dict[str, set[str]] = {}
    for racer in told:
        for name, ids in racer["stands"].items():
            stands.setdefault(name, set()).update(ids)
    assert {len(ids) for ids in stands.values()} == {1}
    assert {str(job) for job in scene.list_jobs(limit=200)} == {job for ids in stands.values() for job in ids}
    dispositions = sum((Counter(racer["dispositions"]) for racer in told), Counter())
    assert dispositions == {"created": 100, "duplicate": 100 * rounds * track.count - 100}


@pytest.mark.requirement("W6")
def test_the_same_jobs_sent_by_everyone_are_created_once_and_replayed_to_the_rest(track: Track, scene: Scene) -> None:
    jobs = 300 if track.is_long else 40
    told = sum((Counter(racer) for racer in track.race("enqueue_same_jobs", jobs=jobs)), Counter())
    assert told == {"created": jobs, "replayed": jobs * (track.count - 1)}
    assert len(scene.list_jobs(limit=200)) == jobs


@pytest.mark.requirement("W5")
def test_many_claimers_take_every_job_once_and_lose_none(track: Track, scene: Scene) -> None:
    jobs = 5000 if track.is_long else 600
    for tenant in ("acme", "bolt", "coil"):
        scene.put_many(jobs // 3, tenant=tenant)
    told = track.race("claim_and_complete", batch=7)
    claimed = [job for racer in told for job in racer["claimed"]]
    assert len(claimed) == len(set(claimed)) == jobs // 3 * 3
    assert sum(racer["refused"] for racer in told) == 0
    assert scene.stats().completed == jobs // 3 * 3
    for racer in told:
        for job in racer["claimed"][:20]:
            assert str(scene.see(JobId(UUID(job))).worker) == racer["worker"]


@pytest.mark.requirement("W5", "Q17")
def test_whatever_workers_and_people_do_at_once_each_job_ends_once(track: Track, scene: Scene) -> None:
    receipts = scene.put_many(60, max_attempts=100)
    jobs = [[str(receipt.id), receipt.seq] for receipt in receipts]
    told = track.race("live_dangerously", jobs=jobs, steps=2000 if track.is_long else 150)
    accepted = Counter(seq for racer in told for seq, _ in racer)
    for receipt in receipts:
        detail = scene.find(receipt.id)
        assert detail is not None
        assert accepted[receipt.seq] == (detail.job.status == "completed"), "completed once, and nothing else then"
        numbers = [attempt.attempt for attempt in detail.attempts]
        assert numbers == sorted(set(numbers)), "one record for each attempt"
        assert [attempt.outcome for attempt in detail.attempts].count("completed") == accepted[receipt.seq]
        charged = [attempt for attempt in detail.attempts if attempt.outcome in ("failed", "failed_by_hand")]
        assert detail.job.attempts == len(charged), "charged once for each failure"
    scene.later(3600)
    scene.reclaim()
    track.race("claim_and_complete", batch=5)
    assert {scene.status(receipt.id) for receipt in receipts} <= FINAL


@pytest.mark.requirement("W5")
def test_one_turn_sent_by_several_at_once_claims_once(track: Track, scene: Scene) -> None:
    scene.put_many(50)
    for _ in range(20 if track.is_long else 5):
        worker = scene.making.worker_id()
        scene.store.run(Renew(worker=worker, lease_s=600))
        told = track.race("send_one_turn", worker=str(worker), limit=2)
        assert {len(leases) for leases in told} == {2}
        assert len({tuple(leases) for leases in told}) == 1
        scene.retire(worker)


def test_dead_letters_reprocessed_by_everyone_make_one_job_each(track: Track, scene: Scene) -> None:
    receipts = scene.put_many(20)
    for receipt in receipts:
        scene.bury(receipt.id)
    letters: list[Seq] = [receipt.seq for receipt in receipts]
    told = track.race("reprocess", letters=letters)
    for stands in zip(*told, strict=True):
        assert len({job for job, _ in stands}) == 1
        assert [repeated for _, repeated in stands].count(False) == 1
    assert len(scene.list_jobs(statuses=("pending",))) == 20


@pytest.mark.requirement("L4")
def test_a_dedup_key_worked_off_by_everyone_is_never_left_blocked(track: Track, scene: Scene) -> None:
    created = sum(track.race("use_one_key", rounds=300 if track.is_long else 25))
    jobs = scene.list_jobs(limit=200)
    assert len(jobs) == created
    unfinished = [job for job in jobs if scene.status(job) not in FINAL]
    assert len(unfinished) <= 1
    track.race("claim_and_complete", batch=5)
    scene.put(dedup_key="only one")
