"""What a running attempt says of itself: progress and log lines."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.core.ids import WorkerId
from fairlane.core.job import Lease
from fairlane.core.ops import ALL_TENANTS, LOG_LINES, GetJob, JobDetail, LogLine, Note, only
from fairlane.testing.conformance.samples import NO_SUCH_SEQ, completed, retried
from fairlane.testing.conformance.scene import Scene


def note(scene: Scene, worker: WorkerId, lease: Lease, **said: Any) -> bool:
    return scene.run(
        Note(worker=worker, seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, **said)
    ).accepted


def detail(scene: Scene, lease: Lease) -> JobDetail:
    found = scene.find(lease.id)
    assert found is not None
    return found


def test_a_job_that_said_nothing_has_no_progress_and_no_log(scene: Scene) -> None:
    _, lease = scene.leased()
    assert (detail(scene, lease).progress, detail(scene, lease).log) == (None, ())


def test_progress_and_log_lines_are_read_with_the_job(scene: Scene) -> None:
    worker, lease = scene.leased()
    first = scene.later(1)
    assert note(scene, worker, lease, progress=0.25, log=("read the file", "300 rows"))
    second = scene.later(1)
    assert note(scene, worker, lease, progress=0.5, log=("half way",))
    assert detail(scene, lease).progress == 0.5
    assert detail(scene, lease).log == (
        LogLine(at=first, attempt=1, message="read the file"),
        LogLine(at=first, attempt=1, message="300 rows"),
        LogLine(at=second, attempt=1, message="half way"),
    )


def test_a_note_leaves_what_it_does_not_say(scene: Scene) -> None:
    worker, lease = scene.leased()
    note(scene, worker, lease, progress=0.25)
    note(scene, worker, lease, log=("going on",))
    assert note(scene, worker, lease)
    assert (detail(scene, lease).progress, len(detail(scene, lease).log)) == (0.25, 1)
    note(scene, worker, lease, progress=0.0)
    assert detail(scene, lease).progress == 0.0


def test_notes_change_nothing_else_of_the_job(scene: Scene) -> None:
    worker, lease = scene.leased()
    before = scene.see(lease.id)
    scene.later(1)
    note(scene, worker, lease, progress=1.0, log=("done",))
    assert scene.see(lease.id) == before
    assert scene.audit() == ()


@pytest.mark.requirement("Q17")
def test_an_attempt_whose_lease_is_gone_notes_nothing(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.settle(worker, completed(lease))
    before = detail(scene, lease)
    assert not note(scene, worker, lease, progress=0.9, log=("too late",))
    assert detail(scene, lease) == before


@pytest.mark.requirement("Q17")
def test_an_older_attempt_or_another_worker_notes_nothing_while_a_newer_one_runs(scene: Scene) -> None:
    old_worker, old = scene.leased()
    scene.later(60)
    scene.reclaim()
    worker = scene.hire()
    [lease] = scene.claim(worker)
    note(scene, worker, lease, progress=0.1)
    assert not note(scene, old_worker, old, progress=0.9, log=("late",))
    assert not note(scene, worker, old, progress=0.9)
    assert not note(scene, old_worker, lease, progress=0.9)
    assert (detail(scene, lease).progress, detail(scene, lease).log) == (0.1, ())


def test_a_note_on_a_job_nobody_knows_is_not_taken(scene: Scene) -> None:
    assert not scene.run(Note(worker=scene.hire(), seq=NO_SUCH_SEQ, attempt=1, claim_no=1, log=("hello",))).accepted


def test_a_worker_whose_heartbeat_is_late_still_notes_what_it_holds(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.later(60)
    assert note(scene, worker, lease, progress=0.5)


def test_a_prefetched_attempt_may_note(scene: Scene) -> None:
    worker, lease = scene.leased(start=False)
    assert note(scene, worker, lease, log=("soon",))


def test_lines_of_all_attempts_are_kept_in_order_and_progress_stays_until_said_again(scene: Scene) -> None:
    worker, lease = scene.leased()
    note(scene, worker, lease, progress=0.8, log=("first try",))
    scene.settle(worker, retried(lease, 0))
    [again] = scene.claim(worker)
    note(scene, worker, again, log=("second try",))
    assert [(line.attempt, line.message) for line in detail(scene, lease).log] == [(1, "first try"), (2, "second try")]
    assert detail(scene, lease).progress == 0.8
    note(scene, worker, again, progress=0.1)
    assert detail(scene, lease).progress == 0.1


@pytest.mark.parametrize("at_once", [1, 7, 100, 230])
def test_only_the_newest_lines_are_kept(scene: Scene, at_once: int) -> None:
    worker, lease = scene.leased()
    lines = [f"line {nth}" for nth in range(230)]
    for first in range(0, len(lines), at_once):
        note(scene, worker, lease, log=tuple(lines[first : first + at_once]))
    assert [line.message for line in detail(scene, lease).log] == lines[-LOG_LINES:]


def test_lines_are_kept_as_they_were_said(scene: Scene) -> None:
    worker, lease = scene.leased()
    said = ("žluťoučký kůň 🐎", 'quo"te\\', "two\nlines", "", "{}", "null", "a,b")
    note(scene, worker, lease, log=said)
    assert tuple(line.message for line in detail(scene, lease).log) == said


def test_one_jobs_notes_are_not_anothers(scene: Scene) -> None:
    worker, lease = scene.leased()
    _, other = scene.leased()
    note(scene, worker, lease, progress=0.5, log=("mine",))
    assert (detail(scene, other).progress, detail(scene, other).log) == (None, ())


def test_notes_outlive_the_attempt_and_go_with_the_job(scene: Scene) -> None:
    worker, lease = scene.leased(tenant="acme")
    note(scene, worker, lease, progress=1.0, log=("done",))
    scene.settle(worker, completed(lease))
    assert detail(scene, lease).progress == 1.0
    assert scene.run(GetJob(scope=only("bolt"), id=lease.id)) is None
    assert scene.retain(finished_before=scene.at(1)) == 1
    assert scene.run(GetJob(scope=ALL_TENANTS, id=lease.id)) is None
