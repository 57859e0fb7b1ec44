"""A team with the document's Go worker takes Fairlane's instead: its SQL as it is, its open mails sent once, its history kept."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.eventually import eventually
from tests.supervisors.gateways import MailServer
from tests.supervisors.go_team import GoTeam, go_team
from tests.support.stores import Ground, ground

__all__ = ["go_team", "ground"]
pytestmark = pytest.mark.requirement("S1", "S3", "S4", "S10")

APPLICATION = """
import os
from fairlane import Fairlane
from fairlane.supervisors.channels import Channels
from fairlane.supervisors.providers import SmtpMailer

app = Fairlane()
channels = Channels(app)
channels.add("email", SmtpMailer("127.0.0.1", port=int(os.environ["SMTP_PORT"]), sender="shop@example.com", security="none"))
"""


class Shell:
    """Commands as the team types them, in the folder of its application."""

    def __init__(self, folder: Path, team: GoTeam, mail: MailServer) -> None:
        (folder / "channels.py").write_text(APPLICATION)
        self.folder = folder
        self.environment = {**os.environ, "FAIRLANE_URL": team.dsn, "SMTP_PORT": str(mail.port)}

    def run(self, *words: str, exits: int = 0) -> str:
        command = [sys.executable, "-m", "fairlane", *words]
        ran = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert ran.returncode == exits, ran.stdout + ran.stderr
        return ran.stdout + ran.stderr

    @contextmanager
    def worker(self) -> Iterator[None]:
        command = [sys.executable, "-m", "fairlane", "worker", "--app", "channels:app", "--processes", "1"]
        with (
            (self.folder / "worker.log").open("w") as log,
            subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=log, stderr=log) as worker,
        ):
            try:
                yield
            finally:
                worker.terminate()


@pytest.fixture
def mail() -> Iterator[MailServer]:
    server = MailServer()
    yield server
    server.close()


@pytest.fixture
def shell(tmp_path: Path, go_team: GoTeam, mail: MailServer) -> Shell:
    return Shell(tmp_path, go_team, mail)


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
