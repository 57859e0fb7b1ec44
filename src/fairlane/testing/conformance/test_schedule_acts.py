"""What people do to schedules: pause, resume, run now, remove."""

from __future__ import annotations

from datetime import datetime

import pytest

from fairlane.core.ops import ListSchedules, PauseSchedule, RemoveSchedule, RunSchedule, ScheduleAct, only
from fairlane.testing.conformance.samples import NOON
from fairlane.testing.conformance.scene import Scene
from fairlane.testing.conformance.schedules import HOUR, declare, fire, firing, listed, names, spec

pytestmark = pytest.mark.requirement("L12", "L15")


def pause(scene: Scene, name: str = "nightly", notes: str | None = None) -> ScheduleAct:
    return scene.run(PauseSchedule(name=name, by="ada", notes=notes))


def resume(scene: Scene, next_at: datetime | None, name: str = "nightly") -> ScheduleAct:
    return scene.run(PauseSchedule(name=name, by="ada", paused=False, next_at=next_at))


def test_a_paused_schedule_is_not_due_and_does_not_fire(scene: Scene) -> None:
    declare(scene, spec())
    scene.later(5)
    act = pause(scene)
    assert act.refused is None
    assert act.schedule is not None
    assert (act.schedule.paused_at, act.schedule.next_at) == (scene.now, NOON)
    assert listed(scene) == (act.schedule,)
    assert names(scene, due=True) == []
    assert fire(scene, firing(scene)).outcome == "lost"
    assert scene.list_jobs() == []


def test_a_resumed_schedule_fires_from_the_given_time_on(scene: Scene) -> None:
    declare(scene, spec())
    pause(scene)
    act = resume(scene, NOON + 3 * HOUR)
    assert act.schedule is not None
    assert (act.schedule.paused_at, act.schedule.next_at) == (None, NOON + 3 * HOUR)
    assert listed(scene) == (act.schedule,)
    assert names(scene, due=True) == []
    assert fire(scene, firing(scene)).outcome == "lost"
    scene.now = NOON + 3 * HOUR
    assert names(scene, due=True) == ["nightly"]
    assert fire(scene, firing(scene, scene.now), at=scene.now).outcome == "fired"


def test_a_schedule_may_be_resumed_without_another_time(scene: Scene) -> None:
    declare(scene, spec())
    pause(scene)
    act = resume(scene, None)
    assert act.schedule is not None
    assert (act.schedule.paused_at, act.schedule.next_at) == (None, None)


def test_new_words_keep_a_pause(scene: Scene) -> None:
    declare(scene, spec())
    pause(scene)
    declare(scene, spec(cron="5 * * * *"))
    assert listed(scene)[0].paused_at == scene.now
    assert names(scene, due=True) == []


def test_pausing_a_schedule_twice_or_resuming_one_that_is_not_paused_writes_nothing(scene: Scene) -> None:
    declare(scene, spec())
    before = listed(scene)
    assert resume(scene, NOON + HOUR) == ScheduleAct(schedule=before[0])
    paused = pause(scene)
    scene.later(5)
    assert pause(scene) == paused
    assert len(scene.audit()) == 1


def test_a_schedule_run_by_hand_puts_its_job_in_beside_the_timetable(scene: Scene) -> None:
    declare(scene, spec(), next_at=NOON + HOUR)
    job = scene.job("report.make")
    act = scene.run(RunSchedule(name="nightly", job=job, by="ada"))
    assert (act.refused, act.job_id) == (None, job.id)
    assert act.schedule is not None
    assert (act.schedule.next_at, act.schedule.last_at, act.schedule.last_job_id) == (NOON + HOUR, None, job.id)
    assert listed(scene) == (act.schedule,)
    assert [lease.id for lease in scene.claim(scene.hire(), 9)] == [job.id]


def test_a_paused_schedule_may_be_run_by_hand_and_stays_paused(scene: Scene) -> None:
    declare(scene, spec())
    pause(scene)
    act = scene.run(RunSchedule(name="nightly", job=scene.job("report.make"), by="ada"))
    assert act.schedule is not None
    assert act.schedule.paused_at == scene.now
    assert len(scene.list_jobs()) == 1


def test_a_job_run_by_hand_counts_as_the_last_one_for_overlaps(scene: Scene) -> None:
    declare(scene, spec(overlap="skip"))
    scene.run(RunSchedule(name="nightly", job=scene.job("report.make"), by="ada"))
    assert fire(scene, firing(scene)).outcome == "skipped"


def test_a_job_that_is_there_already_stands_for_the_one_run_by_hand(scene: Scene) -> None:
    declare(scene, spec())
    there = scene.put("report.make", idempotency_key="by-hand")
    act = scene.run(RunSchedule(name="nightly", job=scene.job("report.make", idempotency_key="by-hand"), by="ada"))
    assert act.job_id == there.id
    assert listed(scene)[0].last_job_id == there.id
    assert len(scene.list_jobs()) == 1


@pytest.mark.parametrize("source", ["code", "person"])
def test_a_removed_schedule_is_gone_and_its_jobs_stay(scene: Scene, source: str) -> None:
    declare(scene, spec(), source=source)  # type: ignore[arg-type]
    job = firing(scene)
    fire(scene, job)
    [before] = listed(scene)
    act = scene.run(RemoveSchedule(name="nightly", by="ada"))
    assert act == ScheduleAct(schedule=before)
    assert scene.run(ListSchedules()).schedules == ()
    assert fire(scene, firing(scene, NOON + HOUR), at=NOON + HOUR).outcome == "lost"
    assert scene.list_jobs() == [job.id]


def test_acts_on_a_schedule_nobody_knows_find_nothing(scene: Scene) -> None:
    declare(scene, spec())
    for act in (
        pause(scene, "other"),
        resume(scene, NOON, "other"),
        scene.run(RunSchedule(name="other", job=scene.job(), by="ada")),
        scene.run(RemoveSchedule(name="other", by="ada")),
    ):
        assert act == ScheduleAct(refused="not_found")
    assert scene.audit() == ()
    assert scene.list_jobs() == []


@pytest.mark.requirement("W12")
def test_every_act_on_a_schedule_is_written_down(scene: Scene) -> None:
    declare(scene, spec(tenant="acme"))
    scene.later(5)
    pause(scene, notes="holidays")
    resume(scene, NOON + HOUR)
    job = scene.job("report.make")
    scene.run(RunSchedule(name="nightly", job=job, by="grace", notes="now"))
    scene.run(RemoveSchedule(name="nightly", by="ada"))
    removed, ran, resumed, paused = scene.audit()
    assert [record.action for record in (paused, resumed, ran, removed)] == [
        "schedule_pause",
        "schedule_resume",
        "schedule_run",
        "schedule_remove",
    ]
    assert {(one.target, one.tenant, one.at) for one in scene.audit()} == {("schedule:nightly", "acme", scene.now)}
    assert (paused.notes, resumed.notes, ran.by, ran.notes, removed.by) == ("holidays", None, "grace", "now", "ada")
    assert (paused.before, paused.after) == ({"paused": False}, {"paused": True})
    assert (resumed.before, resumed.after) == ({"paused": True}, {"paused": False})
    assert (ran.before, ran.after) == (None, {"job_id": str(job.id)})
    assert (removed.before, removed.after) == ({"cron": "0 * * * *"}, None)
    assert scene.audit(only("bolt")) == ()
    assert len(scene.audit(only("acme"))) == 4


def test_a_job_of_a_schedule_keeps_escapes_that_no_text_can_hold(scene: Scene) -> None:
    declare(scene, spec())
    payload = r'{"a":"\u0000"}'
    by_hand, fired = scene.job("report.make", payload=payload), scene.job("report.make", payload=payload)
    scene.run(RunSchedule(name="nightly", job=by_hand, by="ada"))
    assert fire(scene, fired).outcome == "fired"
    assert [scene.see(job.id).payload for job in (by_hand, fired)] == [payload, payload]
