"""`fairlane jobs`: finding them, and acting on them by hand."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlane import Fairlane
from tests.cli.conftest import Run, Scene

Answer = Callable[..., Any]


def ids(page: Any) -> set[str]:
    return {job["id"] for job in page["jobs"]}


def test_jobs_are_listed_newest_first_with_their_status(run: Run, scene: Scene) -> None:
    result = run("jobs", "list", "--url", scene.url)
    lines = result.stdout.splitlines()
    headings = ["NUMBER", "ID", "TYPE", "STATUS", "TENANT", "QUEUE", "PRIORITY", "ATTEMPTS", "ENQUEUED", "DUE"]
    assert lines[0].split() == headings
    assert [line.split()[1] for line in lines[1:]] == [scene.waiting, scene.failed, scene.dead, scene.done]
    assert [line.split()[3] for line in lines[1:]] == ["pending", "failed", "dead", "completed"]
    assert result.stderr == ""


@pytest.mark.requirement("Q1")
def test_the_label_of_a_priority_is_shown(run: Run, scene: Scene) -> None:
    with Fairlane(scene.url) as app:
        job = app.task(name="t")(lambda: None).using(priority="high").enqueue()
    shown = run("jobs", "show", str(job.id), "--url", scene.url).stdout
    assert "0 (high)" in shown
    first = run("jobs", "list", "--url", scene.url).stdout.splitlines()[1].split()
    assert first[1:7] == [str(job.id), "t", "pending", "system", "default", "high"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--status", "failed"], {"failed"}),
        (["status:failed"], {"failed"}),
        (["--status", "failed", "--status", "dead"], {"failed", "dead"}),
        (["status:failed,dead"], {"failed", "dead"}),
        (["status:failed", "status:dead"], {"failed", "dead"}),
        (["--tenant", "acme"], {"done", "dead"}),
        (["tenant:acme"], {"done", "dead"}),
        (["tenant:acme status:dead"], {"dead"}),
        (["--type", "mail.send", "tenant:globex"], {"waiting"}),
        (["queue:default"], {"done", "dead", "failed", "waiting"}),
        (["queue:bulk"], set()),
        (["--correlation-id", "order 9"], {"dead"}),
        (['correlation_id:"order 9"'], {"dead"}),
        (['correlation-id:"order 9"'], {"dead"}),
        (["--created-by", "shop"], {"waiting"}),
        (["created_by:shop"], {"waiting"}),
        (["--idempotency-key", "welcome-7"], {"done"}),
        (["--category", "maintenance", "status:completed"], {"done"}),
        (["--since", "1h"], {"done", "dead", "failed", "waiting"}),
        (["since:1h"], {"done", "dead", "failed", "waiting"}),
        (["--until", "1h ago"], set()),
        (["--until", "-1h"], set()),
        (["--since", "2020-01-01T00:00Z", "--until", "now", "--all-tenants"], {"done", "dead", "failed", "waiting"}),
    ],
)
def test_filters_mean_the_same_as_options_and_as_words(
    answer: Answer, scene: Scene, words: list[str], expected: set[str]
) -> None:
    found = answer("jobs", "list", *words, "--url", scene.url)
    assert ids(found) == {getattr(scene, name) for name in expected}


@pytest.mark.requirement("L16")
def test_children_are_found_by_their_parent(answer: Answer, scene: Scene) -> None:
    with Fairlane(scene.url) as app:

        @app.task(name="mail.send")
        def send(to: int) -> None: ...

        child = str(send.using(parent=scene.done).enqueue(to=1).id)
    assert ids(answer("jobs", "list", "--parent", scene.done, "--url", scene.url)) == {child}
    assert ids(answer("jobs", "list", f"parent:{scene.done}", "--url", scene.url)) == {child}


def test_the_tenant_of_the_environment_is_a_default_only(run: Run, scene: Scene) -> None:
    def found(*args: str) -> set[str]:
        result = run("jobs", "list", *args, "--json", "--url", scene.url, env={"FAIRLANE_TENANT": "acme"})
        return ids(json.loads(result.stdout))

    acme, globex = {scene.done, scene.dead}, {scene.failed, scene.waiting}
    assert found() == acme
    assert found("tenant:globex") == globex
    assert found("--tenant", "globex") == globex
    assert found("--all-tenants") == acme | globex


def test_pages_follow_one_another(run: Run, scene: Scene) -> None:
    first = run("jobs", "list", "--limit", 3, "--url", scene.url)
    assert len(first.stdout.splitlines()) == 4
    before = first.stderr.split("--before ")[1].strip()
    second = run("jobs", "list", "--limit", 3, "--before", before, "--url", scene.url)
    assert [line.split()[1] for line in second.stdout.splitlines()[1:]] == [scene.done]
    assert second.stderr == ""


def test_an_empty_list_says_why_on_stderr_only(run: Run, scene: Scene) -> None:
    result = run("jobs", "list", "tenant:nobody", "--url", scene.url)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no job matches\n")


def test_a_job_is_shown_with_its_attempts(run: Run, answer: Answer, scene: Scene) -> None:
    said = run("jobs", "show", scene.failed, "--url", scene.url).stdout
    assert "crm.sync" in said
    assert "ConnectionError (transient): the CRM did not answer" in said
    shown = answer("jobs", "show", scene.failed, "--url", scene.url)
    assert shown["job"]["payload"] == {"account": 1}
    assert [attempt["outcome"] for attempt in shown["attempts"]] == ["failed"]
    assert re.search(r"\nattempt 1:\nTraceback \(most recent call last\):\n  … \d frames? of Fairlane\n", said)
    assert 'raise ConnectionError("the CRM did not answer")' in said


def test_a_job_of_another_tenant_is_not_found(run: Run, scene: Scene) -> None:
    before = scene.everything()
    for act in (["show"], ["cancel"], ["bury", "--reason", "x"], ["fail", "--reason", "x"]):
        result = run("jobs", act[0], scene.waiting, *act[1:], "--tenant", "acme", "--url", scene.url)
        assert (result.exit_code, result.stdout) == (3, "")
    assert scene.everything() == before


def test_a_waiting_job_is_cancelled_in_the_name_of_who_is_logged_in(run: Run, answer: Answer, scene: Scene) -> None:
    result = run("jobs", "cancel", scene.waiting, "--notes", "sent by hand", "--url", scene.url)
    assert result.stdout == f"{scene.waiting}  mail.send  cancelled\n"
    [record] = answer("audit", "list", "--url", scene.url)["records"]
    assert (record["by"], record["action"], record["notes"]) == ("olga", "job_cancel", "sent by hand")
    assert record["target"] == f"job:{scene.waiting}"


def test_the_actor_can_be_named(run: Run, answer: Answer, scene: Scene) -> None:
    run("jobs", "cancel", scene.waiting, "--by", "dana", "--url", scene.url)
    run("jobs", "bury", scene.failed, "--reason", "x", "--url", scene.url, env={"FAIRLANE_BY": "night shift"})
    assert [record["by"] for record in answer("audit", "list", "--url", scene.url)["records"]] == [
        "night shift",
        "dana",
    ]


def test_a_job_failed_by_hand_runs_again_only_when_asked(answer: Answer, scene: Scene) -> None:
    again = ["jobs", "fail", scene.waiting, "--reason", "wrong", "--url", scene.url]
    [job] = answer(*again, "--retry", "--delay", "1h")["jobs"]
    assert (job["status"], job["attempts"], job["last_error"]) == ("failed", 1, "wrong")
    [job] = answer(*again)["jobs"]
    assert (job["status"], job["attempts"]) == ("dead", 2)


def test_a_job_is_buried_with_its_reason(answer: Answer, scene: Scene) -> None:
    [job] = answer("jobs", "bury", scene.waiting, "--reason", "poison", "--url", scene.url)["jobs"]
    assert (job["status"], job["error_type"], job["last_error"]) == ("dead", "Buried", "poison")


def test_what_has_ended_cannot_be_cancelled(run: Run, scene: Scene) -> None:
    before = scene.everything()
    result = run("jobs", "cancel", scene.done, "--url", scene.url)
    assert (result.exit_code, result.stdout) == (4, "")
    assert "it is completed; nothing was changed" in result.stderr
    assert scene.everything() == before


def test_acting_on_several_needs_a_yes(run: Run, scene: Scene) -> None:
    before = scene.everything()
    result = run("jobs", "cancel", scene.waiting, scene.failed, "--url", scene.url)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--yes" in result.stderr
    assert scene.everything() == before


def test_one_refusal_does_not_keep_the_others_from_being_done(run: Run, scene: Scene) -> None:
    result = run("jobs", "cancel", scene.done, scene.waiting, scene.failed, "--yes", "--url", scene.url)
    assert result.exit_code == 4
    assert [line.split()[0] for line in result.stdout.splitlines()] == [scene.waiting, scene.failed]
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.requirement("L13")
def test_counts_add_up_by_queue_type_and_tenant(answer: Answer, run: Run, scene: Scene) -> None:
    everyone = answer("queues", "--url", scene.url)
    [queue] = everyone["queues"]
    assert (queue["queue"], queue["pending"], queue["failed"]) == ("default", 1, 1)
    assert (everyone["completed"], everyone["dead"], everyone["dead_letters"]) == (1, 1, {"pending_review": 1})
    assert everyone["pending_types"] == {"mail.send": 1}
    assert "pending types  mail.send=1" in run("queues", "--url", scene.url).stdout
    acme = answer("queues", "--tenant", "acme", "--url", scene.url)
    assert (acme["queues"], acme["completed"], acme["dead"]) == ([], 1, 1)
    assert "default  1        1      1          0           1" in run("queues", "--url", scene.url).stdout


@pytest.mark.requirement("Q11")
def test_a_snapshot_gives_depth_and_store(answer: Answer, run: Run, scene: Scene) -> None:
    taken = answer("snapshot", "--url", scene.url)
    assert taken == {
        "depth": 2,
        "ready": 1,
        "scheduled": 1,
        "shutdown": False,
        "redis_active": False,
        "store": "sqlite",
        "reachable": True,
        "spooled": 0,
        "spool_age_s": 0.0,
    }
    assert "depth         2" in run("snapshot", "--url", scene.url).stdout


@pytest.mark.requirement("Q11", "D27")
@pytest.mark.parametrize("kind", ["postgresql", "redis"])
def test_a_snapshot_while_the_store_is_away_says_so_and_what_waits_here(run: Run, kind: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"{kind}://127.0.0.1:{taken.getsockname()[1]}/0"
    env = {"FAIRLANE_URL": url, "FAIRLANE_SPOOL": str(tmp_path / "spool")}
    with Fairlane(url, spool=env["FAIRLANE_SPOOL"]) as app:
        app.task(name="mail.send")(lambda: None).enqueue()
    asked = run("snapshot", "--json", env=env)
    said = json.loads(asked.stdout)
    assert (said["reachable"], said["redis_active"], said["spooled"], said["depth"]) == (False, False, 1, None)
    assert (said["store"], asked.exit_code) == (kind, 69)
    assert "cannot be reached" in asked.stderr


def test_all_jobs_that_match_are_acted_on_after_their_number_was_shown(run: Run, answer: Answer, url: str) -> None:
    with Fairlane(url) as app:
        task = app.task(name="mail.send")(lambda: None)
        for tenant in ("acme", "globex"):
            app.enqueue_many(task.using(tenant=tenant).bind() for _ in range(5))
    dry = answer("jobs", "cancel", "tenant:acme", "status:pending", "--dry-run", "--url", url)
    assert dry == {"dry_run": True, "matched": 5, "left": {}}
    refused = run("jobs", "cancel", "tenant:acme", "--url", url)
    assert (refused.exit_code, "Cancel 5 jobs? Nothing was changed" in refused.stderr) == (2, True)
    assert answer("jobs", "list", "status:cancelled", "--url", url)["jobs"] == []
    acts = answer("jobs", "cancel", "tenant:acme", "--yes", "--notes", "a mistake", "--url", url)
    assert {job["tenant"] for job in acts["jobs"]} == {"acme"}
    assert len(answer("jobs", "list", "status:cancelled", "--url", url)["jobs"]) == 5
    dry = answer("jobs", "cancel", "type:mail.send", "--dry-run", "--url", url)
    assert dry == {"dry_run": True, "matched": 5, "left": {"cancelled": 5}}
    shown = run("jobs", "cancel", "tenant:acme", "--dry-run", "--url", url).stdout
    assert shown == "0 jobs to cancel, leaving 5 cancelled; nothing was changed\n"
    again = run("jobs", "cancel", "tenant:acme", "status:pending", "--yes", "--url", url)
    assert (again.exit_code, again.stdout) == (0, "0 jobs to cancel; nothing was changed\n")
    buried = run("jobs", "bury", "since:1h", "type:mail.send", "status:pending", "--reason", "x", "--yes", "--url", url)
    assert (buried.exit_code, buried.stdout.count(" dead\n")) == (0, 5)
    assert run("jobs", "retry", "status:dead", "--dry-run", "--url", url).stdout.startswith("5 jobs to retry;")


def test_whoever_means_every_job_says_so(run: Run, answer: Answer, url: str) -> None:
    with Fairlane(url) as app:
        app.task(name="mail.send")(lambda: None).enqueue()
    for verb in (["cancel"], ["retry"], ["reset"], ["bury", "--reason", "x"], ["fail", "--reason", "x"]):
        refused = run("jobs", *verb, "--yes", "--url", url)
        assert (refused.exit_code, "give ids, filters or --all" in refused.stderr) == (2, True)
    assert run("dead-letters", "discard", "--yes", "--url", url).exit_code == 2
    assert answer("dead-letters", "discard", "--all", "--dry-run", "--url", url)["matched"] == 0
    assert run("jobs", "cancel", "type:mail.send", "--all", "--url", url).exit_code == 2
    assert len(answer("jobs", "cancel", "--all", "--yes", "--url", url)["jobs"]) == 1


def test_more_jobs_than_one_call_takes_are_acted_on(run: Run, url: str) -> None:
    with Fairlane(url) as app:
        task = app.task(name="mail.send")(lambda: None)
        app.enqueue_many(task.bind() for _ in range(1_100))
    ran = run("jobs", "cancel", "type:mail.send", "--yes", "--url", url)
    assert (ran.exit_code, ran.stdout.count("cancelled")) == (0, 1_100)
