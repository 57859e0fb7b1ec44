"""`pause`, `resume` and `drain` of queues, tasks and tenants; `pauses`; `jobs reset`; `workers list`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from fairlane import Fairlane
from fairlane.core.ids import JobId, WorkerId
from fairlane.core.ops import CaughtException, Note, Renew, ReportExceptions, Turn, Want
from tests.cli.conftest import Command, Run, Scene

THINGS = [("queues", "default", "queue"), ("tasks", "mail.send", "task"), ("tenants", "globex", "tenant")]


@pytest.mark.requirement("L15")
@pytest.mark.parametrize(("noun", "name", "word"), THINGS)
def test_a_queue_a_task_or_a_tenant_is_paused_and_resumed(
    scene: Scene, run: Run, answer: Callable[..., Any], noun: str, name: str, word: str
) -> None:
    thing = (name, "--url", scene.url)
    assert run(noun, "pause", *thing, "--notes", "deploy").stdout == f'{word} "{name}" is paused\n'
    [pause] = answer("pauses", "--url", scene.url)["pauses"]
    assert (pause["name"], pause["by"], pause["notes"]) == (name, "olga", "deploy")
    assert name in run("pauses", "--url", scene.url).stdout
    assert run(noun, "resume", *thing).stdout == f'{word} "{name}" is resumed\n'
    assert run(noun, "resume", *thing).stdout == f'{word} "{name}" was not paused\n'
    empty = run("pauses", "--url", scene.url)
    assert (empty.stdout, empty.stderr) == ("", "nothing is paused\n")


@pytest.mark.requirement("L15")
@pytest.mark.parametrize(("noun", "name", "word"), THINGS)
def test_what_is_paused_may_refuse_new_jobs(
    scene: Scene, run: Run, answer: Callable[..., Any], noun: str, name: str, word: str
) -> None:
    thing = (name, "--url", scene.url, "--refuse", "--notes", "moving house")
    assert run(noun, "pause", *thing).stdout == f'{word} "{name}" is paused and refuses new jobs\n'
    [pause] = answer("pauses", "--url", scene.url)["pauses"]
    assert pause["refuse"] is True
    refused = run("enqueue", "mail.send", "--url", scene.url, "--tenant", "globex", "--queue", "default")
    assert refused.exit_code == 1
    assert "refuses new jobs (moving house)" in refused.stderr


@pytest.mark.requirement("L15")
def test_the_list_of_queues_names_those_that_are_paused(scene: Scene, run: Run, answer: Callable[..., Any]) -> None:
    for name in ("default", "empty"):
        run("queues", "pause", name, "--url", scene.url)
    listed = run("queues", "--url", scene.url).stdout.splitlines()
    assert (listed[0].split()[-1], [row.split()[0] for row in listed[1:3]]) == ("PAUSED", ["default", "empty"])
    assert all(row.endswith("yes") for row in listed[1:3])
    queues = answer("queues", "--url", scene.url)["queues"]
    assert [(queue["queue"], queue["paused"]) for queue in queues] == [("default", True), ("empty", True)]


@pytest.mark.parametrize(
    ("noun", "typed", "meant"), [("queues", "defualt", "default"), ("tasks", "mail.sned", "mail.send")]
)
def test_a_pause_of_what_nothing_knows_is_made_with_the_nearest_name_on_stderr(
    scene: Scene, command: Command, noun: str, typed: str, meant: str
) -> None:
    ran = command(noun, "pause", typed, "--url", scene.url)
    assert (ran.returncode, len(ran.stderr.splitlines())) == (0, 1)
    assert f'"{typed}", which nothing here knows' in ran.stderr
    assert (f'Nearest: "{meant}".' in ran.stderr) is (noun == "queues")  # no worker says here which tasks there are


@pytest.mark.parametrize("noun", ["queues", "tasks", "tenants"])
@pytest.mark.parametrize("verb", ["pause", "resume", "drain"])
def test_what_is_paused_is_named_by_a_good_name(scene: Scene, run: Run, noun: str, verb: str) -> None:
    assert run(noun, verb, "--url", scene.url).exit_code == 2
    assert run(noun, verb, "no\x00such", "--url", scene.url).exit_code == 2


class Holding:
    """A worker that holds the waiting job."""

    def __init__(self, scene: Scene) -> None:
        with Fairlane(scene.url) as app:
            self.id = WorkerId(app.runtime.new_job_id())
            app.runtime.store.run(Renew(worker=self.id, lease_s=3600, name="host:7", figures={"rss_mb": 42.5}))
            want = Want(lane="l", queues=("default",), limit=1, start=1, types=("mail.send",))
            [lease] = app.runtime.store.run(Turn(worker=self.id, claim_no=1, wants=(want,))).leases
            assert str(lease.id) == scene.waiting
            app.runtime.store.run(
                Note(
                    worker=self.id,
                    seq=lease.seq,
                    attempt=lease.attempt,
                    claim_no=lease.claim_no,
                    progress=0.5,
                    log=("half \x1b way",),
                )
            )


@pytest.mark.requirement("L15")
def test_draining_says_when_something_still_runs(scene: Scene, run: Run) -> None:
    Holding(scene)
    result = run("tasks", "drain", "mail.send", "--timeout", "0s", "--url", scene.url)
    assert result.exit_code == 1
    assert 'jobs of task "mail.send" are still running' in result.stderr
    assert "mail.send" in run("pauses", "--url", scene.url).stdout


@pytest.mark.requirement("L15")
def test_all_jobs_that_run_for_too_long_are_reset_by_hand(scene: Scene, run: Run) -> None:
    Holding(scene)
    longer = ("jobs", "reset", "--url", scene.url, "--running-longer-than")
    assert run(*longer, "1h", "--yes").stdout == ""
    assert run(*longer, "0s", "--yes").stdout == f"{scene.waiting}  mail.send  pending\n"
    for wrong in (("jobs", "reset", "--url", scene.url), (*longer, "1h", scene.waiting), (*longer, "soon")):
        assert run(*wrong).exit_code == 2


@pytest.mark.requirement("L15")
def test_a_running_job_is_reset_by_hand(scene: Scene, run: Run, answer: Callable[..., Any]) -> None:
    Holding(scene)
    assert run("jobs", "reset", scene.waiting, "--url", scene.url).stdout == f"{scene.waiting}  mail.send  pending\n"
    again = run("jobs", "reset", scene.waiting, "--url", scene.url)
    assert (again.exit_code, again.stdout) == (4, "")
    [record] = answer("audit", "list", "--url", scene.url)["records"]
    assert (record["action"], record["by"]) == ("job_reset", "olga")


def test_what_a_running_job_said_is_shown(scene: Scene, run: Run, answer: Callable[..., Any]) -> None:
    Holding(scene)
    shown = run("jobs", "show", scene.waiting, "--url", scene.url).stdout
    assert "progress  50%" in shown
    assert "attempt 1  half \\x1b way" in shown
    detail = answer("jobs", "show", scene.waiting, "--url", scene.url)
    assert (detail["progress"], len(detail["log"])) == (0.5, 1)


@pytest.mark.requirement("L21")
def test_workers_are_listed(scene: Scene, run: Run, answer: Callable[..., Any]) -> None:
    assert "no worker is registered" in run("workers", "list", "--url", scene.url).stderr
    worker = Holding(scene)
    _, row = run("workers", "list", "--url", scene.url).stdout.splitlines()
    assert row.split()[:5] == [str(worker.id), "host:7", "at", "work", "1"]
    assert "rss_mb=42.5" in row
    [seen] = answer("workers", "list", "--url", scene.url)["workers"]
    assert (seen["name"], seen["leases"], seen["figures"]) == ("host:7", 1, {"rss_mb": 42.5})


@pytest.mark.requirement("Q7")
def test_the_last_exceptions_of_workers_are_listed(scene: Scene, run: Run, answer: Callable[..., Any]) -> None:
    empty = run("workers", "exceptions", "--url", scene.url)
    assert (empty.stdout, empty.stderr) == ("", "no worker has reported an exception\n")
    with Fairlane(scene.url) as app:
        worker = WorkerId(app.runtime.new_job_id())
        app.runtime.store.run(Renew(worker=worker, lease_s=3600, name="box:1"))
        caught = CaughtException(
            id=JobId(UUID(scene.waiting)),
            task="mail.send",
            tenant="acme",
            attempt=1,
            type="OSError",
            error="no \x1b[31m route",
            error_class="transient",
            is_final=False,
            at=app.runtime.clock.now(),
        )
        app.runtime.store.run(ReportExceptions(worker=worker, exceptions=(caught,)))
    shown = run("workers", "exceptions", "--url", scene.url).stdout
    assert "OSError" in shown
    assert "box:1" in shown
    assert "\x1b" not in shown
    [one] = answer("workers", "exceptions", "--url", scene.url)["exceptions"]
    assert (one["caught"]["id"], one["caught"]["type"]) == (scene.waiting, "OSError")
    assert run("workers", "exceptions", "--tenant", "globex", "--url", scene.url).stdout == ""
