"""A team with the document's Go worker takes Fairlane's instead: its SQL as it is, its open mails sent once, its history kept."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.scenes.channel_shell import Shell
from tests.faults.eventually import eventually
from tests.supervisors.gateways import MailServer
from tests.supervisors.go_team import GoTeam, go_team
from tests.support.stores import Ground, ground

__all__ = ["go_team", "ground"]
pytestmark = pytest.mark.requirement("S1", "S3", "S4", "S10")


@pytest.fixture
def mail() -> Iterator[MailServer]:
    server = MailServer()
    yield server
    server.close()


@pytest.fixture
def shell(tmp_path: Path, go_team: GoTeam, mail: MailServer) -> Shell:
    return Shell(tmp_path, go_team.dsn, mail.port)


def test_a_team_that_has_the_go_worker_takes_this_one(
    go_team: GoTeam, mail: MailServer, shell: Shell, ground: Ground
) -> None:
    # The Go worker has sent a mail, is about to send another, and has not looked at a third, when it is stopped.
    go_team.kickoff("ann@example.com", "bob@example.com")
    sent_before = []
    for _ in range(3):
        task = go_team.lease()
        assert task is not None
        sent_before.append(go_team.process(task))
    assert sent_before == [None, None, "ann@example.com"]
    go_team.kickoff("cy@example.com", None)
    held = go_team.lease()
    assert held is not None
    assert "fairlane supervisors take-over" in shell.run("migrate", "up", "--with", "supervisors", exits=4)
    assert "Stop it and run this again" in shell.run("supervisors", "take-over", exits=4)
    assert go_team.process(held) == "bob@example.com"

    assert "moved 4 open tasks" in shell.run("supervisors", "take-over")
    assert "nothing to do" in shell.run("supervisors", "take-over")
    found = shell.run("supervisors", "check")
    assert "0 refused" in found
    assert "-- warning: comms.send_email_supervisor(jsonb): everybody may execute it" in found

    with shell.worker():
        eventually(lambda: go_team.one("select comms.has_send_email_succeeded_attempt(3)"), 60)
        eventually(lambda: "process_stopped" in shell.run("alerts", "list"), 90)
    assert [message["To"] for message in mail.mails] == ["cy@example.com"], "nothing lost, and nothing sent again"
    assert go_team.ask(
        "select send_email_task_id from comms.send_email_attempt_succeeded join comms.send_email_attempt using (send_email_attempt_id) order by 1"
    ) == [(1,), (2,), (3,)]
    assert (
        go_team.ask("select error_message from comms.send_email_attempt_failed")
        == [("the message has no address",)] * 3
    )
    assert go_team.one("select count(*) from queues_before.task_completed") == 4
    listed = shell.run("supervisors", "list")
    assert "comms.send_email" in listed

    # What the check prints is SQL to run as it is.
    sql = shell.run("supervisors", "check")
    subprocess.run(
        [ground.server.programs / "psql", "-Xq", "-v", "ON_ERROR_STOP=1", go_team.dsn],
        input="".join(line + "\n" for line in sql.splitlines() if line.endswith(";")), text=True, check=True,
    )  # fmt: skip
    assert shell.run("supervisors", "check", "--strict") == "0 refused, 0 warnings\n"
