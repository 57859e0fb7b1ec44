"""A process that has stopped is started again, by SQL, by command, and all that have stopped at once."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from fairlane.cli.main import cli
from tests.supervisors.conftest import Database
from tests.supervisors.hand_worker import Process, process

__all__ = ["process"]
pytestmark = pytest.mark.requirement("S7", "S8")

PAUSES = """
select extract(epoch from scheduled_at - enqueued_at)::int from queues.task where task_type = 'db_function' order by task_id
"""
MADE_BEFORE = """
alter table comms.send_email_stopped drop column restarts;
alter table comms.send_email_stopped add primary key (send_email_task_id);
drop table comms.send_email_restarted;
drop function comms.restart_send_email, comms.restart_stopped_send_email;
"""
"""A process as it was generated before processes could be started again."""


def fairlane(db: Database, *words: str, exits: int = 0) -> str:
    ran = CliRunner().invoke(cli, ["supervisors", *words, "--url", db.dsn])
    assert ran.exit_code == exits, ran.output
    return ran.output


def stop(db: Database, process: Process, *messages: int) -> None:
    """Processes whose three attempts fail."""
    process.error = "451 try later"
    for message in messages:
        db.do("select comms.kickoff_send_email(%s)", message)
    process.finish()
    process.error = None
    assert db.one("select bool_and(comms.is_send_email_stuck(n)) from unnest(%s::bigint[]) n", list(messages)) is True


def counts(db: Database) -> tuple[int, ...]:
    [found] = db.ask("select open, succeeded, stopped, failed_attempts from queues.process_counts()")
    return tuple(found)


def test_a_process_that_has_stopped_is_started_again_and_succeeds(db: Database, process: Process) -> None:
    stop(db, process, 7)
    assert db.one("select comms.kickoff_send_email(7)") is None
    assert process.step() is None, "a kickoff leaves it alone"
    assert counts(db) == (0, 0, 1, 3)
    assert db.one("select comms.restart_send_email(7, 'the server is back', 'dana')") is None
    assert counts(db) == (1, 0, 0, 3)
    assert db.one("select comms.is_send_email_stuck(7)") is False
    assert process.finish() == ["succeeded"] * 3
    assert process.delivered == [{"to_address": "7@example.com"}]
    assert counts(db) == (0, 1, 0, 3)
    assert db.ask("select error_message from comms.over order by 1") == [("3 attempts have failed",), (None,)]
    assert db.ask("select restarts, failed_attempts, restarted_by, notes from comms.send_email_restarted") == [
        (1, 3, "dana", "the server is back")
    ]
    assert db.ask("select status, restarts from comms.send_email_stopped") == [("max_attempts_reached", 0)], "it stays"


def test_failures_of_before_count_no_more(db: Database, process: Process) -> None:
    stop(db, process, 7)
    db.do("select comms.restart_send_email(7)")
    process.error = "550 no"
    assert process.finish() == ["succeeded", "succeeded"] * 3 + ["max_attempts_reached"]
    assert [pause for (pause,) in db.ask(PAUSES)] == [0, 10, 20, 40] * 2
    assert db.ask("select restarts, error_message from comms.send_email_stopped order by 1") == [
        (0, "3 attempts have failed"),
        (1, "3 attempts have failed"),
    ]
    assert db.one("select comms.is_send_email_stuck(7)") is True
    assert counts(db) == (0, 0, 1, 6)
    assert db.one("select comms.count_send_email_failed_attempts(1)") == 6, "facts stay"


def test_what_a_before_handler_refused_is_looked_at_anew(db: Database, process: Process) -> None:
    db.do("update comms.email_message set to_address = null where email_message_id = 7")
    db.do("select comms.kickoff_send_email(7)")
    assert [process.step(), process.step()] == ["succeeded", "succeeded"]
    db.do("update comms.email_message set to_address = 'new@example.com' where email_message_id = 7")
    db.do("select comms.restart_send_email(7)")  # while the look of before still waits: that one ends by itself
    assert process.finish() == ["succeeded"] * 4
    assert process.delivered == [{"to_address": "new@example.com"}]
    assert db.one("select count(*) from queues.task where task_type = 'db_function'") == 4
    db.do("update comms.email_message set to_address = null where email_message_id = 8")
    db.do("select comms.kickoff_send_email(8)")
    process.finish()
    db.do("select comms.restart_send_email(8)")
    assert process.finish()[-1] == "validation_failed"
    assert db.ask("select restarts from comms.send_email_stopped where send_email_task_id = 2 order by 1") == [
        (0,),
        (1,),
    ]


def test_a_process_that_nobody_looks_after_goes_on(db: Database, process: Process) -> None:
    db.do("select comms.kickoff_send_email(7)")
    process.step()
    [(look,)] = db.ask("select max(task_id) from queues.task where task_type = 'db_function'")
    db.do("select queues.complete_task(%s)", look)
    process.error = "451 try later"
    assert process.finish() == ["succeeded"]
    process.error = None
    for _ in range(2):  # a second time makes no second attempt
        assert db.one("select comms.restart_send_email(7)") is None
    assert process.finish() == ["succeeded"] * 4
    assert len(process.delivered) == 1
    assert db.one("select comms.count_send_email_attempts(1)") == 2


def test_work_in_sql_alone_is_started_again(db: Database) -> None:
    db.do("select queues.create_process('shop.rebuild', _max_attempts => 1)")
    process = Process(db)
    db.do("select shop.kickoff_rebuild(1)")
    assert process.finish() == ["succeeded", "max_attempts_reached"]
    db.do(
        "create or replace function shop.run_rebuild(_rebuild_task_id bigint) returns jsonb language sql security definer "
        """set search_path = shop, pg_temp as $$ select '{"validation_failure_message": "no"}'::jsonb $$"""
    )
    db.do("select shop.restart_rebuild(1)")
    assert process.finish() == ["validation_failed"]
    assert db.ask("select restarts, status from shop.rebuild_stopped order by 1") == [
        (0, "max_attempts_reached"),
        (1, "validation_failed"),
    ]
    process.worker.close()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("8", "no process of email_message_id 8 was started"),
        ("null", "no process of email_message_id null was started"),
        ("7", "the process of email_message_id 7 has succeeded"),
    ],
)
def test_what_cannot_be_started_again_is_left_alone_with_the_reason(
    db: Database, process: Process, given: str, says: str
) -> None:
    db.do("select comms.kickoff_send_email(7)")
    process.finish()
    assert db.one(f"select comms.restart_send_email({given})") == says
    assert db.one("select count(*) from comms.send_email_restarted") == 0
    assert process.step() is None


def test_only_its_owner_starts_again_unless_it_is_granted(db: Database, process: Process) -> None:
    for call in ("restart_send_email(7)", "restart_stopped_send_email()"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            process.worker.execute(f"select comms.{call}".encode())


def test_a_process_that_was_made_before_can_be_made_again_and_then_started_again(
    db: Database, process: Process
) -> None:
    stop(db, process, 7)
    db.do(MADE_BEFORE)
    assert counts(db) == (0, 0, 1, 3)
    assert "call `queues.create_process` again" in fairlane(db, "restart", "comms.send_email", "7", exits=2)
    db.do(
        "select queues.create_process('comms.send_email', 'comms.email_message.email_message_id', 'email', 'email', 3, 10, 60)"
    )
    fairlane(db, "restart", "comms.send_email", "7")
    assert process.finish() == ["succeeded"] * 3
    assert counts(db) == (0, 1, 0, 3)


class TestCommand:
    def test_it_starts_subjects_again_and_says_who_and_why(self, db: Database, process: Process) -> None:
        stop(db, process, 7, 8)
        words = ("restart", "comms.send_email", "7", "99", "x", "--by", "dana", "--notes", "the server is back")
        said = fairlane(db, *words, exits=4)
        assert "started comms.send_email 7 again" in said
        assert "no process of email_message_id 99 was started" in said
        assert 'invalid input syntax for type bigint: "x"' in said
        assert db.ask("select restarted_by, notes from comms.send_email_restarted") == [("dana", "the server is back")]
        process.finish()
        assert counts(db) == (0, 1, 1, 6)

    def test_it_starts_all_that_have_stopped(self, db: Database, process: Process) -> None:
        stop(db, process, 5, 6, 7)
        db.do("select comms.kickoff_send_email(8)")

        def restart(*words: str) -> Any:
            return json.loads(fairlane(db, "restart", "comms.send_email", "--stopped", "--json", *words))

        assert restart("--limit", "2") == {"restarted": 2}
        assert db.ask("select send_email_task_id from comms.send_email_restarted order by 1") == [(1,), (2,)]
        assert restart() == {"restarted": 1}
        assert restart() == {"restarted": 0}
        process.finish()
        assert counts(db) == (0, 4, 0, 9)

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (("comms.send_mail", "7"), 'Nearest: "comms.send_email"'),
            (("send_email", "7"), "there are comms.send_email"),
            (("comms.send_email",), "name subjects, or --stopped"),
            (("comms.send_email", "7", "--stopped"), "name subjects, or --stopped"),
        ],
    )
    def test_it_says_what_is_wrong(self, db: Database, process: Process, words: tuple[str, ...], says: str) -> None:
        assert says in fairlane(db, "restart", *words, exits=2)
