"""Schedules: what is declared, what is due, and one firing of each nominal time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from fairlane.core.ids import JobId
from fairlane.core.ops import Declared, Fire, Fired, ListSchedules, PauseSchedule
from fairlane.core.schedules import Schedule
from fairlane.testing.conformance.samples import NOON, completed
from fairlane.testing.conformance.scene import Scene
from fairlane.testing.conformance.schedules import HOUR, declare, fire, firing, listed, names, spec

pytestmark = pytest.mark.requirement("L12")


def test_declared_schedules_are_listed_by_name_as_they_were_said(scene: Scene) -> None:
    wordy = spec(
        "z",
        timezone="Europe/Prague",
        payload='{"kůň": [1, 2.50, "\\u00e9"]}',
        payload_version=3,
        tenant="acme",
        queue="bulk",
        priority=0,
        priority_label="high",
        category="sync",
        max_attempts=2,
        timeout_s=12.5,
        catch_up="all",
        catch_up_limit=3,
        overlap="skip",
        jitter_s=2.5,
        starts_at=scene.at(-5),
        ends_at=scene.at(86400.000001),
    )
    plain = spec("a")
    assert declare(scene, wordy, plain) == Declared(added=("z", "a"))
    assert listed(scene) == (
        Schedule(spec=plain, source="code", next_at=NOON, declared_at=scene.now),
        Schedule(spec=wordy, source="code", next_at=NOON, declared_at=scene.now),
    )
    assert names(scene, limit=1) == ["a"]


def test_the_same_words_again_change_nothing_wherever_the_schedule_stands(scene: Scene) -> None:
    declare(scene, spec())
    fire(scene, firing(scene))
    before = listed(scene)
    scene.later(30)
    assert declare(scene, spec(), next_at=NOON + 9 * HOUR) == Declared()
    assert listed(scene) == before


@pytest.mark.parametrize(
    "words",
    [
        {"cron": "5 * * * *"},
        {"timezone": "Asia/Tokyo"},
        {"payload": '{"a":1}'},
        {"overlap": "skip"},
        {"priority": 0},
        {"priority_label": "x"},
        {"jitter_s": 5.0},
        {"starts_at": NOON},
        {"ends_at": NOON + 30 * HOUR},
    ],
    ids=lambda words: next(iter(words)),
)
def test_other_words_change_it_and_keep_what_it_has_behind_it(scene: Scene, words: dict[str, Any]) -> None:
    declare(scene, spec())
    job = firing(scene)
    fire(scene, job)
    scene.later(30)
    assert declare(scene, spec(**words), next_at=NOON + 9 * HOUR) == Declared(changed=("nightly",))
    [schedule] = listed(scene)
    assert (schedule.spec, schedule.next_at, schedule.declared_at) == (spec(**words), NOON + 9 * HOUR, scene.now)
    assert (schedule.last_at, schedule.last_job_id, schedule.source) == (NOON, job.id, "code")


def test_schedules_that_are_not_named_stay_unless_it_says_prune(scene: Scene) -> None:
    declare(scene, spec("c"), spec("a"), spec("b"))
    assert declare(scene, spec("b")) == Declared()
    assert names(scene) == ["a", "b", "c"]
    assert declare(scene, spec("b"), spec("d"), prune=True) == Declared(added=("d",), removed=("a", "c"))
    assert names(scene) == ["b", "d"]
    assert declare(scene, prune=True) == Declared(removed=("b", "d"))


def test_a_source_leaves_the_schedules_of_the_other_alone(scene: Scene) -> None:
    declare(scene, spec("mine"), source="person", by="ada")
    before = listed(scene)
    assert declare(scene, spec("mine", cron="9 * * * *"), spec("coded"), prune=True) == Declared(added=("coded",))
    assert [one for one in listed(scene) if one.source == "person"] == list(before)
    assert declare(scene, prune=True) == Declared(removed=("coded",))
    assert listed(scene) == before


@pytest.mark.requirement("W12")
def test_what_a_person_declares_is_written_down_and_what_code_declares_is_not(scene: Scene) -> None:
    declare(scene, spec("coded"))
    assert scene.audit() == ()
    declare(scene, spec("a", tenant="acme"), spec("b", tenant="acme"), source="person", by="ada")
    declare(scene, spec("a", tenant="acme", cron="1 * * * *"), source="person", prune=True, by="grace")
    removed, changed, *added = scene.audit()
    assert [(one.action, one.target, one.before, one.after) for one in reversed(added)] == [
        ("schedule_add", f"schedule:{name}", None, {"cron": "0 * * * *"}) for name in ("a", "b")
    ]
    assert (changed.action, changed.target, changed.by) == ("schedule_change", "schedule:a", "grace")
    assert (changed.before, changed.after) == ({"cron": "0 * * * *"}, {"cron": "1 * * * *"})
    assert (removed.action, removed.target) == ("schedule_remove", "schedule:b")
    assert (removed.before, removed.after) == ({"cron": "0 * * * *"}, None)
    assert {record.tenant for record in scene.audit()} == {"acme"}


def test_due_are_those_whose_time_has_come_earliest_first(scene: Scene) -> None:
    declare(scene, spec("later"), next_at=scene.at(0.000001))
    declare(scene, spec("b"), spec("a"), next_at=NOON)
    declare(scene, spec("old"), next_at=scene.at(-60))
    declare(scene, spec("never"), next_at=None)
    assert names(scene, due=True) == ["old", "a", "b"]
    assert names(scene, due=True, limit=2) == ["old", "a"]
    assert names(scene, due=True, limit=0) == []
    scene.later(1)
    assert names(scene, due=True) == ["old", "a", "b", "later"]


def test_what_is_due_comes_with_the_seconds_until_the_next(scene: Scene) -> None:
    assert scene.run(ListSchedules(due=True)).next_s is None
    declare(scene, spec("later"), next_at=scene.at(10.000001))
    declare(scene, spec("much-later"), next_at=scene.at(3600))
    declare(scene, spec("paused"), next_at=scene.at(1))
    declare(scene, spec("never"), next_at=None)
    declare(scene, spec("due"), spec("due-too"), next_at=scene.now)
    scene.run(PauseSchedule(name="paused", by="ada"))
    assert scene.run(ListSchedules(due=True, limit=1)).next_s == 10.000001
    assert scene.run(ListSchedules()).next_s is None
    scene.later(11)
    assert scene.run(ListSchedules(due=True)).next_s == 3589
    scene.later(3589)
    assert scene.run(ListSchedules(due=True)).next_s is None


def test_a_firing_puts_its_jobs_in_and_moves_the_schedule_on(scene: Scene) -> None:
    declare(scene, spec())
    jobs = [firing(scene, NOON - HOUR), firing(scene)]
    assert fire(scene, *jobs) == Fired(outcome="fired", job_ids=(jobs[0].id, jobs[1].id))
    [schedule] = listed(scene)
    assert (schedule.next_at, schedule.last_at, schedule.last_job_id) == (NOON + HOUR, NOON, jobs[1].id)
    assert schedule.declared_at == scene.now
    assert names(scene, due=True) == []
    assert [lease.id for lease in scene.claim(scene.hire(), 9)] == [job.id for job in jobs]
    assert scene.audit() == ()


def test_each_nominal_time_fires_once_however_many_workers_saw_it_due(scene: Scene) -> None:
    declare(scene, spec())
    told = [fire(scene, firing(scene)) for _ in range(3)]
    assert [one.outcome for one in told] == ["fired", "lost", "lost"]
    assert [one.job_ids for one in told[1:]] == [(), ()]
    assert len(scene.list_jobs()) == 1


def test_a_firing_seen_at_another_time_is_lost_and_changes_nothing(scene: Scene) -> None:
    declare(scene, spec())
    before = listed(scene)
    for stale in (NOON - HOUR, NOON + timedelta(microseconds=1)):
        assert fire(scene, firing(scene, stale), at=stale).outcome == "lost"
    assert fire(scene, firing(scene), name="nobody").outcome == "lost"
    assert listed(scene) == before
    assert scene.list_jobs() == []


def test_a_firing_lost_to_new_words_changes_nothing(scene: Scene) -> None:
    declare(scene, spec())
    declare(scene, spec(cron="30 * * * *"), next_at=NOON + HOUR / 2)
    assert fire(scene, firing(scene)).outcome == "lost"
    assert scene.list_jobs() == []


def test_a_job_already_there_for_a_nominal_time_stands_for_its_firing(scene: Scene) -> None:
    declare(scene, spec())
    there = firing(scene)
    scene.enqueue(there)
    new = firing(scene, NOON + HOUR)
    assert fire(scene, firing(scene), new) == Fired(outcome="fired", job_ids=(there.id, new.id))
    assert len(scene.list_jobs()) == 2


def test_the_last_of_the_jobs_may_be_one_that_was_there(scene: Scene) -> None:
    declare(scene, spec())
    there = firing(scene)
    scene.enqueue(there)
    fire(scene, firing(scene))
    assert listed(scene)[0].last_job_id == there.id


def test_with_no_jobs_a_schedule_only_moves_on(scene: Scene) -> None:
    declare(scene, spec(overlap="queue"))
    job = firing(scene)
    fire(scene, job)
    assert fire(scene, at=NOON + HOUR) == Fired(outcome="fired")
    [schedule] = listed(scene)
    assert (schedule.next_at, schedule.last_at, schedule.last_job_id) == (NOON + 2 * HOUR, NOON + HOUR, job.id)


def test_a_schedule_may_fire_for_the_last_time(scene: Scene) -> None:
    declare(scene, spec())
    scene.run(Fire(name="nightly", expected_at=NOON, jobs=(firing(scene),), fired_at=NOON, next_at=None))
    assert listed(scene)[0].next_at is None
    scene.later(86_400)
    assert listed(scene, due=True) == ()
    assert fire(scene, firing(scene)).outcome == "lost"


def overlapping(scene: Scene, overlap: str) -> JobId:
    """A schedule whose last job still runs, and its next firing has come due."""
    declare(scene, spec(overlap=overlap))
    job = firing(scene)
    fire(scene, job)
    scene.now = NOON + HOUR
    return job.id


def test_overlapping_firings_are_allowed_by_default(scene: Scene) -> None:
    first = overlapping(scene, "allow")
    second = firing(scene, scene.now)
    assert fire(scene, second, at=scene.now).outcome == "fired"
    assert sorted(scene.list_jobs()) == sorted([first, second.id])


def test_a_firing_over_an_unfinished_job_is_skipped_where_it_says_so(scene: Scene) -> None:
    first = overlapping(scene, "skip")
    assert fire(scene, firing(scene, scene.now), at=scene.now) == Fired(outcome="skipped")
    [schedule] = listed(scene)
    assert (schedule.next_at, schedule.last_at, schedule.last_job_id) == (scene.now + HOUR, scene.now, first)
    assert scene.list_jobs() == [first]


def test_a_firing_over_an_unfinished_job_waits_where_it_says_so(scene: Scene) -> None:
    first = overlapping(scene, "queue")
    before = listed(scene)
    assert fire(scene, firing(scene, scene.now), at=scene.now) == Fired(outcome="waiting")
    assert listed(scene) == before
    worker = scene.hire()
    [lease] = scene.claim(worker)
    assert lease.id == first
    assert fire(scene, firing(scene, scene.now), at=scene.now).outcome == "waiting"
    scene.settle(worker, completed(lease))
    assert fire(scene, firing(scene, scene.now), at=scene.now).outcome == "fired"


@pytest.mark.parametrize("overlap", ["skip", "queue"])
@pytest.mark.parametrize("end", ["completed", "dead", "cancelled", "gone"])
def test_a_job_that_has_ended_or_is_gone_does_not_overlap(scene: Scene, overlap: str, end: str) -> None:
    job = overlapping(scene, overlap)
    if end == "dead":
        scene.bury(job)
    elif end == "cancelled":
        scene.cancel(job)
    else:
        worker = scene.hire()
        [lease] = scene.claim(worker)
        scene.settle(worker, completed(lease))
    if end == "gone":
        assert scene.retain(finished_before=scene.at(1)) == 1
    assert fire(scene, firing(scene, scene.now), at=scene.now).outcome == "fired"


def test_the_jobs_of_a_firing_are_told_apart_from_their_neighbours_as_any_others(scene: Scene) -> None:
    declare(scene, spec())
    job = firing(scene)
    fire(scene, job)
    seen = scene.see(job.id)
    assert (seen.status, seen.idempotency_key, seen.type) == ("pending", job.idempotency_key, "report.make")
    assert (seen.enqueued_at, seen.run_at) == (scene.now, scene.now)
