"""Document S with Fairlane from the start: the contract in psql, a process by its recipe, and a worker with the worker's rights alone."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.scenes.channel_shell import Shell
from tests.faults.eventually import eventually
from tests.supervisors.conftest import Database
from tests.supervisors.gateways import MailServer
from tests.support.stores import Ground, ground

__all__ = ["ground"]

ROOT = Path(__file__).parents[3]

PROCESS = """
create schema comms;
create table comms.email_message (
  email_message_id bigserial primary key, to_address text, subject text not null, body text not null);
select queues.create_process('comms.send_email', 'comms.email_message.email_message_id', _channel => 'email',
  _noun => 'email', _max_attempts => 2, _base_s => 1);
create or replace function comms.build_email_payload(_send_email_task_id bigint) returns jsonb
language sql stable security definer set search_path = comms, pg_temp
as $$
  select jsonb_build_object('to_address', m.to_address, 'subject', m.subject, 'text', m.body)
  from send_email_task t join email_message m using (email_message_id)
  where t.send_email_task_id = _send_email_task_id and m.to_address is not null
$$;
insert into comms.email_message (to_address, subject, body) values ('ann@example.com', 'Welcome', 'Hello Ann');
"""
CONTRACT = r"""
select queues.enqueue(_task_type => 'db_function', _payload => '{"n": 2}', _scheduled_at => now() - interval '1 second');
select queues.enqueue('fax', '{"n": 1}', now() - interval '1 minute');
select queues.enqueue('fax', '{"n": 3}', now() + interval '1 hour');
select task_id, task_type, payload->>'n' as n from queues.dequeue_next_available_task() \gset
\echo :task_type :n
select queues.fail_task(:task_id, 'no dialling tone');
select queues.complete_task(:task_id), queues.complete_task(:task_id);
select task_type as next_type, payload->>'n' as next_n from queues.dequeue_next_available_task() \gset
\echo :next_type :next_n
select coalesce(task_id, 0) as rest from queues.dequeue_next_available_task();
select count(*) = 1 and bool_and(error_message = 'no dialling tone') as recorded from queues.error;
select count(*) as completed from queues.task_completed;
select count(*) filter (where expires_at > now() + interval '4 minutes') as leased from queues.task_lease;
"""


@pytest.fixture
def mail() -> Iterator[MailServer]:
    server = MailServer()
    yield server
    server.close()


@pytest.fixture
def db(ground: Ground) -> Iterator[Database]:
    found = Database(ground.server.new_database("scenes_of_document_s"))
    yield found
    found.owner.close()


@pytest.fixture
def shell(tmp_path: Path, db: Database, mail: MailServer) -> Shell:
    shell = Shell(tmp_path, db.dsn, mail.port)
    shell.run("migrate", "up", "--with", "supervisors")
    return shell


@pytest.mark.requirement("S1", "S2")
def test_the_contract_by_hand(shell: Shell, ground: Ground) -> None:
    ran = subprocess.run(
        [ground.server.programs / "psql", "-XAtq", "-v", "ON_ERROR_STOP=1", shell.environment["FAIRLANE_URL"]],
        input=CONTRACT, text=True, capture_output=True, check=True,
    )  # fmt: skip
    assert [line for line in ran.stdout.splitlines() if line.strip("|")] == [
        "fax 1",
        "db_function 2",
        "0",
        "t",
        "1",
        "2",
    ]


@pytest.mark.requirement("S8", "S11")
def test_an_account_and_its_files_are_deleted_as_the_example_is_typed() -> None:
    command = [sys.executable, "-m", "examples.supervisors", "accounts"]  # make example-accounts
    ran = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "1 | None | None | ['deleted', 'anonymized']" in ran.stdout


@pytest.fixture
def login(request: pytest.FixtureRequest, db: Database) -> Iterator[str]:
    """A role that may log in, and nothing else; as it was, afterwards."""
    role = str(request.param)
    db.do(f"alter role {role} login" if role == "worker_service_user" else f"create role {role} login")
    yield role
    if role == "worker_service_user":
        db.do(f"alter role {role} nologin; revoke fairlane_worker from {role}")
    else:
        db.do(f"drop role {role}")


@pytest.mark.requirement("S5", "S6", "S7", "S9", "S11", "L13", "L14")
@pytest.mark.parametrize(
    "login", ["worker_service_user", pytest.param("shop_worker_of_s", marks=pytest.mark.long)], indirect=True
)
def test_a_process_by_the_recipe_run_by_a_worker_that_has_the_workers_rights_alone(
    shell: Shell, db: Database, mail: MailServer, ground: Ground, login: str
) -> None:
    db.do(PROCESS)
    db.do("select comms.kickoff_send_email(1)")
    worker = ground.server.dsn(db.dsn.rpartition("/")[2], login)

    # The worker says which right it lacks, until it has them.
    refused = shell.run("worker", "--app", "channels:app", "--processes", "1", exits=5, FAIRLANE_URL=worker)
    assert "`fairlane migrate isolate`" in refused
    shell.run("migrate", "isolate")
    [grant] = re.findall(r"`(grant [^`]+)`", shell.run("worker", "--app", "channels:app", exits=5, FAIRLANE_URL=worker))
    db.do(grant)
    if login != "worker_service_user":
        with shell.worker(FAIRLANE_URL=worker):
            [membership] = eventually(
                lambda: re.findall(r"(grant worker_service_user to \"\w+\")", shell.log.read_text()), 60
            )
        db.do(membership)
        assert db.one("select count(*) from comms.send_email_attempt") == 0, "its task waits, uncharged"
    assert db.one("select has_table_privilege(%s, 'fairlane.job', 'select')", login) is False

    # The mail server refuses: two attempts, and the process stops where people see it.
    mail.recipient_says = "451 try later"
    with shell.worker(FAIRLANE_URL=worker):
        eventually(lambda: db.one("select comms.is_send_email_stuck(1)"), 60)
        eventually(lambda: "process_stopped" in shell.run("alerts", "list"), 60)
        assert re.search(r"comms\.send_email +0 +0 +1 +2 ", shell.run("supervisors", "list"))
        assert shell.run("supervisors", "errors").count("451 try later") == 2
        assert "fairlane supervisors restart comms.send_email --stopped" in shell.run("doctor")
        assert db.one("select sum(failed) from fairlane.stat_minute where type = 'email'") == 2, "job_failures_total"

        # It is started again as doctor says, and the mail goes out once.
        mail.recipient_says = "250 OK"
        started = shell.run("supervisors", "restart", "comms.send_email", "--stopped", "--notes", "it answers again")
        assert started == "started 1 process of comms.send_email again\n"
        eventually(lambda: db.one("select comms.has_send_email_succeeded_attempt(1)"), 60)
    assert [message["To"] for message in mail.mails] == ["ann@example.com"]
    assert db.ask("select restarted_by, notes from comms.send_email_restarted") == [("mira", "it answers again")]
    assert shell.run("supervisors", "check", "--strict") == "0 refused, 0 warnings\n"
