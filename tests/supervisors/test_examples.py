"""The worked examples as printed, with a real worker and real servers: happy paths, and both stuck paths of the checklist."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.eventually import eventually
from tests.supervisors.conftest import Database
from tests.supervisors.gateways import MailServer, WebServer

EXAMPLES = Path(__file__).parents[2] / "examples" / "supervisors"
MAKEFILE = EXAMPLES.parents[1] / "Makefile"
pytestmark = pytest.mark.requirement("S8", "S11", "D15")


class Company:
    """A database with examples in it, and the examples' own worker."""

    def __init__(self, db: Database, mail: MailServer, web: WebServer, app: Any) -> None:
        self.db, self.mail, self.web, self.app = db, mail, web, app

    def load(self, *names: str) -> None:
        for name in names:
            self.db.do((EXAMPLES / f"{name}.sql").read_text())

    def work_until(self, query: str) -> None:
        """Run the worker until a query says so, and let nobody wait for a backoff."""

        def is_over() -> bool:
            self.db.do("update fairlane.scheduled set due_at = now() where due_at > now()")
            return bool(self.db.one(query))

        with self.app.running():
            eventually(is_over, 60)

    def drain(self) -> None:
        self.work_until(
            "select not exists (select task_id from queues.task except select task_id from queues.task_completed)"
        )


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[MailServer, WebServer]]:
    mail, web = MailServer(), WebServer()
    yield mail, web
    mail.close()
    web.close()


@pytest.fixture
def company(db: Database, servers: tuple[MailServer, WebServer], monkeypatch: pytest.MonkeyPatch) -> Iterator[Company]:
    mail, web = servers
    mail.mails.clear()
    mail.recipient_says = "250 OK"
    web.messages.clear()
    web.objects.clear()
    web.status.clear()
    settings = {"FAIRLANE_URL": db.dsn, "SMTP_PORT": str(mail.port), "GATEWAY_URL": web.url}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    app = runpy.run_path(str(EXAMPLES / "channels.py"))["app"]
    yield Company(db, mail, web, app)
    app.close()


def test_an_email_is_sent_once_and_one_that_cannot_be_sent_ends(company: Company) -> None:
    company.load("email")
    db = company.db
    db.do(
        "insert into comms.email_message (to_address, subject, body) values ('ann@example.com', 'Hi', 'Hello'), (null, 'Hi', 'x')"
    )
    for message in (1, 2, 1):
        assert db.one(f"select comms.kickoff_send_email({message})") is None
    assert db.one("select comms.kickoff_send_email(99)") == "there is no comms.email_message with email_message_id 99"
    company.drain()
    assert [mail["To"] for mail in company.mail.mails] == ["ann@example.com"]
    assert db.ask("select send_email_task_id from comms.send_email_task_succeeded") == [(1,)]
    assert db.ask("select send_email_task_id, status from comms.send_email_stopped") == [(2, "validation_failed")]


def test_an_email_that_fails_is_attempted_again_up_to_the_maximum(company: Company) -> None:
    company.load("email")
    db = company.db
    company.mail.recipient_says = "550 no such user"
    db.do("insert into comms.email_message (to_address, subject, body) values ('ann@example.com', 'Hi', 'Hello')")
    db.do("select comms.kickoff_send_email(1)")
    company.drain()
    assert company.mail.mails == []
    assert db.ask("select error_message from comms.send_email_attempt_failed") == [("550 no such user",)] * 5
    assert db.one("select count(*) from queues.error") == 5
    assert db.ask("select status from comms.send_email_stopped") == [("max_attempts_reached",)]


def test_an_sms_is_sent_once(company: Company) -> None:
    company.load("sms")
    db = company.db
    db.do("insert into comms.sms_message (to_number, body) values ('+491', 'Code 42')")
    db.do("select comms.kickoff_send_sms(1)")
    company.drain()
    assert company.web.messages == [{"To": "+491", "From": "+4930123", "Body": "Code 42"}]
    assert db.one("select count(*) from comms.send_sms_attempt_succeeded") == 1


def test_a_file_is_deleted_and_marked(company: Company) -> None:
    company.load("files")
    db = company.db
    company.web.objects.add("/photos/cat.jpg")
    db.do("insert into accounts.account default values")
    db.do("insert into files.file (account_id, bucket, object_key) values (1, 'photos', 'cat.jpg')")
    db.do("select files.kickoff_file_deletion(1)")
    company.drain()
    assert company.web.objects == set()
    assert db.ask("select file_id, metadata from files.file_metadata") == [(1, {"deleted": True})]
    [payload] = [row[0] for row in db.ask("select payload from queues.task where task_type = 'file_delete'")]
    assert {name: payload[name] for name in ("task_type", "file_deletion_task_id", "file_id", "before_handler")} == {
        "task_type": "file_delete",
        "file_deletion_task_id": 1,
        "file_id": 1,
        "before_handler": "files.get_file_delete_payload",
    }


@pytest.fixture
def account(company: Company) -> Company:
    """An account with a profile, a cue, and two recordings that were uploaded."""
    company.load("files", "accounts")
    company.db.do("insert into accounts.account (email, name) values ('ann@example.com', 'Ann')")
    company.db.do(
        "insert into learning.profile (account_id) values (1); insert into learning.cue (prompt) values ('Say hello')"
    )
    for n in (1, 2):
        company.web.objects.add(f"/recordings/{n}.wav")
        company.db.do(
            f"insert into files.upload_intent (account_id, bucket, object_key) values (1, 'recordings', '{n}.wav'); "
            f"select learning.complete_recording_upload({n}, 1, 1)"
        )
    assert company.db.one("select count(*) from learning.profile_cue_recording join files.file using (file_id)") == 2
    return company


def test_checklist_happy_path(account: Company) -> None:
    db = account.db
    for _ in range(2):
        assert db.one("select api.request_account_deletion(1)") is None
    assert db.ask("select flag from accounts.account_flag where account_id = 1") == [("deleted",)]
    assert db.one("select count(*) from accounts.account_deletion_task where account_id = 1") == 1
    account.drain()
    assert account.web.objects == set()
    assert db.ask(
        "select f.file_id, m.metadata->'deleted' from files.file f join files.file_deletion_task t using (file_id) "
        "join files.file_deletion_task_succeeded using (file_deletion_task_id) join files.file_metadata m using (file_id) order by 1"
    ) == [(1, True), (2, True)]
    assert db.one("select count(*) from accounts.account_anonymization_task where account_id = 1") == 1
    assert db.ask("select flag from accounts.account_flag order by flag") == [("anonymized",), ("deleted",)]
    assert db.one("select count(*) from accounts.account_deletion_task_succeeded") == 1
    assert db.ask("select email, name from accounts.account") == [(None, None)]


def test_checklist_file_deletion_stuck_path(account: Company) -> None:
    db = account.db
    account.web.status["/recordings/2.wav"] = 403
    db.do("select api.request_account_deletion(1)")
    account.drain()
    assert db.one("select count(*) from files.file_deletion_task_failed") == 3
    assert db.ask("select files.is_file_deletion_stuck(1), files.is_file_deletion_stuck(2)") == [(False, True)]
    assert db.ask("select error_message from accounts.account_deletion_task_failed") == [
        ("file 2 could not be deleted",)
    ]
    assert db.ask("select status from accounts.account_deletion_stopped") == [("validation_failed",)]
    assert db.one("select count(*) from accounts.account_anonymization_task") == 0
    del account.web.status["/recordings/2.wav"]  # somebody has mended it
    assert db.ask("select files.restart_file_deletion(2), accounts.restart_account_deletion(1)") == [(None, None)]
    account.drain()
    assert account.web.objects == set()
    assert db.one("select count(*) from accounts.account_deletion_task_succeeded") == 1
    assert db.ask("select flag from accounts.account_flag order by flag") == [("anonymized",), ("deleted",)]


def test_checklist_anonymization_stuck_path(account: Company) -> None:
    db = account.db
    db.do(
        "create or replace function accounts.anonymize_account(_account_id bigint) returns void language plpgsql security definer "
        "set search_path = accounts, pg_temp as $$ begin raise exception 'not today'; end $$"
    )
    db.do("select api.request_account_deletion(1)")
    account.drain()
    assert db.ask("select error_message from accounts.account_anonymization_task_failed") == [("not today",)] * 3
    assert db.one("select accounts.is_account_anonymization_stuck(1)") is True
    assert db.ask("select error_message from accounts.account_deletion_task_failed") == [
        ("the account could not be anonymized",)
    ]
    assert db.one("select count(*) from accounts.account_deletion_task_succeeded") == 0
    assert db.ask("select flag from accounts.account_flag") == [("deleted",)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "shows"),
    [
        ("email", ["ann@example.com", "validation_failed"]),
        ("sms", ["send_sms_task_id | sms_message_id", "comms.record_sms_success"]),
        ("files", ["cat.jpg | {'deleted': True}", "dog.jpg | {'deleted': True}"]),
    ],
)
def test_an_example_runs_as_it_is_started_by_hand(name: str, shows: list[str]) -> None:
    command = [sys.executable, "-m", "examples.supervisors", name]
    ran = subprocess.run(command, cwd=EXAMPLES.parents[1], text=True, capture_output=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    assert [text for text in shows if text not in ran.stdout] == []


def test_every_example_has_a_target_of_make_and_none_is_unknown() -> None:
    targets = re.findall(r"example-(\w+)", re.findall(r"^EXAMPLES = (.*)$", MAKEFILE.read_text(), re.MULTILINE)[0])
    ran = subprocess.run(
        [sys.executable, "-m", "examples.supervisors", "pigeons"],
        cwd=EXAMPLES.parents[1], text=True, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == 1
    assert ran.stderr == f"usage: python -m examples.supervisors {' | '.join(targets)}\n"
