"""`fairlane dead-letters`: a person looks at what died, and decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import Run, Scene

Answer = Callable[..., Any]

pytestmark = pytest.mark.requirement("L10")


def test_dead_letters_are_listed_with_their_reason(run: Run, answer: Answer, scene: Scene) -> None:
    result = run("dead-letters", "list", "--url", scene.url)
    assert "invoice 42: card expired" in result.stdout
    assert "1 in total" in result.stderr
    page = answer("dead-letters", "list", "--status", "pending_review", "--type", "billing.charge", "--url", scene.url)
    assert [letter["id"] for letter in page["dead_letters"]] == [scene.letter]
    assert answer("dead-letters", "list", "--tenant", "globex", "--url", scene.url)["total"] == 0
    assert answer("dead-letters", "list", "--acknowledged", "--url", scene.url)["total"] == 0
    assert answer("dead-letters", "list", "--unacknowledged", "--url", scene.url)["total"] == 1


def test_a_dead_letter_is_shown_with_payload_and_attempts(run: Run, answer: Answer, scene: Scene) -> None:
    shown = answer("dead-letters", "show", scene.letter, "--url", scene.url)
    assert shown["dead_letter"]["job"]["payload"] == {"invoice": 42}
    assert [attempt["outcome"] for attempt in shown["attempts"]] == ["dead"]
    said = run("dead-letters", "show", scene.letter, "--url", scene.url).stdout
    for part in ("pending_review", "NonRetryable (non_retryable)", "order 9", '"invoice": 42', "attempt 1:\nTraceback"):
        assert part in said


def test_reprocessing_makes_one_new_job_however_often_it_is_asked(answer: Answer, scene: Scene) -> None:
    first = answer("dead-letters", "reprocess", scene.letter, "--notes", "new card", "--url", scene.url)
    again = answer("dead-letters", "reprocess", scene.letter, "--url", scene.url)
    assert [job["id"] for job in first["jobs"]] == [job["id"] for job in again["jobs"]]
    assert first["jobs"][0]["idempotency_key"].endswith("_retry_1")
    letter = answer("dead-letters", "show", scene.letter, "--url", scene.url)["dead_letter"]
    assert (letter["status"], letter["closed_by"], letter["resolution_notes"]) == ("retried", "olga", "new card")


@pytest.mark.parametrize(("verb", "status"), [("discard", "discarded"), ("resolve", "resolved")])
def test_a_closed_dead_letter_stays_closed(run: Run, answer: Answer, scene: Scene, verb: str, status: str) -> None:
    [letter] = answer(
        "dead-letters", verb, scene.letter, "--notes", "paid in cash", "--by", "dana", "--url", scene.url
    )["dead_letters"]
    assert (letter["status"], letter["closed_by"], letter["resolution_notes"]) == (status, "dana", "paid in cash")
    again = run("dead-letters", "reprocess", scene.letter, "--url", scene.url)
    assert (again.exit_code, again.stdout) == (4, "")
    assert f"it is {status}" in again.stderr


def test_the_first_to_acknowledge_looks_after_it(run: Run, answer: Answer, scene: Scene) -> None:
    run("dead-letters", "acknowledge", scene.letter, "--by", "dana", "--url", scene.url)
    [letter] = answer("dead-letters", "acknowledge", scene.letter, "--by", "eric", "--url", scene.url)["dead_letters"]
    assert (letter["acknowledged_by"], letter["status"]) == ("dana", "pending_review")


def test_a_dead_letter_of_another_tenant_is_not_found(run: Run, scene: Scene) -> None:
    before = scene.everything()
    for verb in ("show", "reprocess", "discard", "resolve", "acknowledge"):
        assert run("dead-letters", verb, scene.letter, "--tenant", "globex", "--url", scene.url).exit_code == 3
    assert scene.everything() == before


def test_what_people_did_is_read_by_act_and_by_target(run: Run, answer: Answer, scene: Scene) -> None:
    run("dead-letters", "acknowledge", scene.letter, "--url", scene.url)
    run("dead-letters", "discard", scene.letter, "--notes", "obsolete", "--url", scene.url)
    target = f"dead_letter:{scene.letter}"
    records = answer("audit", "list", "--target", target, "--url", scene.url)["records"]
    assert [record["action"] for record in records] == ["job_dlq_discard", "job_dlq_acknowledge"]
    assert len(answer("audit", "list", "--action", "job_dlq_discard", "--url", scene.url)["records"]) == 1
    assert "obsolete" in run("audit", "list", "--tenant", "acme", "--url", scene.url).stdout
    assert run("audit", "list", "--tenant", "globex", "--url", scene.url).stdout == ""


def test_dlq_is_another_name_for_it(scene: Scene, run: Run, answer: Callable[..., Any]) -> None:
    by_alias = answer("dlq", "list", "--url", scene.url)
    assert by_alias == answer("dead-letters", "list", "--url", scene.url)
    assert "dead-letters" in run("--help").stdout


def test_dead_letters_that_failed_alike_are_grouped(scene: Scene, run: Run, answer: Callable[..., Any]) -> None:
    [group] = answer("dead-letters", "groups", "--url", scene.url)["groups"]
    assert (group["count"], group["newest"], group["type"]) == (1, scene.letter, "billing.charge")
    assert group["fingerprint"] in run("dead-letters", "groups", "--url", scene.url).stdout
    assert answer("dead-letters", "groups", "--status", "resolved", "--url", scene.url)["groups"] == []


def test_dead_letters_are_acted_on_by_filter_and_by_their_jobs_id(run: Run, answer: Answer, scene: Scene) -> None:
    fingerprint = answer("dead-letters", "groups", "--url", scene.url)["groups"][0]["fingerprint"]
    for_all = ("--fingerprint", fingerprint, "--url", scene.url)
    assert answer("dead-letters", "reprocess", "--dry-run", *for_all) == {"dry_run": True, "matched": 1, "left": {}}
    assert run("dead-letters", "reprocess", *for_all).exit_code == 2  # asks first
    shown = run("dead-letters", "show", scene.dead, "--url", scene.url).stdout
    assert f"dead letter      {scene.letter}" in shown
    [job] = answer("dead-letters", "reprocess", "--yes", *for_all)["jobs"]
    assert job["status"] == "pending"
    assert answer("dead-letters", "discard", "--dry-run", *for_all)["matched"] == 0
    assert run("dead-letters", "show", scene.waiting, "--url", scene.url).exit_code == 3
