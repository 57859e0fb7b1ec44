"""The generator of supervisor-driven processes, and what the processes it makes do."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from fairlane import Fairlane
from fairlane.cli.main import cli
from tests.faults.eventually import eventually
from tests.supervisors.conftest import Database
from tests.supervisors.hand_worker import Process, process

__all__ = ["process"]


@pytest.mark.requirement("S7", "S11")
def test_a_process_starts_once_and_ends_with_one_success(db: Database, process: Process) -> None:
    for _ in range(2):
        assert db.one("select comms.kickoff_send_email(7)") is None
    assert db.one("select count(*) from comms.send_email_task") == 1
    [payload] = [row[0] for row in db.ask("select payload from queues.task where task_type = 'db_function'")]
    assert payload == {
        "task_type": "db_function",
        "db_function": "comms.send_email_supervisor",
        "send_email_task_id": 1,
    }
    assert process.step() == "succeeded"
    [payload] = [row[0] for row in db.ask("select payload from queues.task where task_type = 'email'")]
    assert payload == {
        "task_type": "email",
        "send_email_task_id": 1,
        "send_email_attempt_id": 1,
        "email_message_id": 7,
        "before_handler": "comms.get_email_payload",
        "success_handler": "comms.record_email_success",
        "error_handler": "comms.record_email_failure",
    }
    assert db.one("select count(*) from queues.task where task_type = 'db_function' and scheduled_at > now()") == 1, (
        "it checks again"
    )
    assert process.finish() == ["succeeded", "succeeded"]
    assert process.delivered == [{"to_address": "7@example.com"}]
    assert db.ask("select send_email_attempt_id from comms.send_email_attempt_succeeded") == [(1,)]
    assert db.ask("select * from comms.over") == [(1, None)]
    assert db.one("select count(*) from queues.task") == db.one("select count(*) from queues.task_completed") == 3


@pytest.mark.requirement("S7")
@pytest.mark.parametrize(
    ("given", "says"), [("null", "email_message_id is required"), ("99", "there is no comms.email_message with")]
)
def test_a_kickoff_says_what_is_wrong_instead_of_raising(db: Database, process: Process, given: str, says: str) -> None:
    assert says in db.one(f"select comms.kickoff_send_email({given})")
    assert db.one("select count(*) from comms.send_email_task") == db.one("select count(*) from queues.task") == 0


@pytest.mark.requirement("S7")
def test_attempts_that_fail_are_repeated_with_growing_pauses_up_to_the_maximum(db: Database, process: Process) -> None:
    process.error = "451 try later"
    db.do("select comms.kickoff_send_email(7)")
    assert process.finish() == ["succeeded", "succeeded"] * 3 + ["max_attempts_reached"]
    assert db.ask("select error_message from comms.send_email_task_failed") == [("451 try later",)] * 3
    assert db.one("select comms.is_send_email_stuck(7)") is True
    assert db.one("select comms.is_send_email_stuck(8)") is False
    assert db.ask("select status, error_message from comms.send_email_stopped") == [
        ("max_attempts_reached", "3 attempts have failed")
    ]
    assert db.ask("select error_message from comms.over") == [("3 attempts have failed",)]
    pauses = db.ask(
        "select extract(epoch from scheduled_at - enqueued_at)::int from queues.task where task_type = 'db_function' order by task_id"
    )
    assert [pause for (pause,) in pauses] == [0, 10, 20, 40]


@pytest.mark.requirement("S7")
def test_pauses_grow_up_to_the_cap_of_the_process(db: Database, process: Process) -> None:
    db.do(
        "select queues.create_process('comms.send_email', 'comms.email_message.email_message_id', 'email', 'email', 6, 10, 60)"
    )
    process.error = "451 try later"
    db.do("select comms.kickoff_send_email(7)")
    process.finish()
    pauses = db.ask(
        "select extract(epoch from scheduled_at - enqueued_at)::int from queues.task where task_type = 'db_function' order by task_id"
    )
    assert [pause for (pause,) in pauses] == [0, 10, 20, 40, 60, 60, 60]


@pytest.mark.requirement("S7")
def test_a_kickoff_for_a_later_time_is_looked_at_then(db: Database, process: Process) -> None:
    db.do("select comms.kickoff_send_email(7, now() + interval '1 day')")
    assert db.ask(
        "select round(extract(epoch from scheduled_at - enqueued_at)) from queues.task where task_type = 'db_function'"
    ) == [(86_400,)]
    assert process.worker.execute("select task_id from queues.dequeue_next_available_task()").fetchall() == [(None,)]


@pytest.mark.requirement("S7", "L13")
def test_the_command_line_tells_of_processes_that_stopped_and_of_what_failed(db: Database, process: Process) -> None:
    def run(*words: str, code: int = 0) -> Any:
        result = CliRunner().invoke(cli, [*words, "--url", db.dsn, "--json"])
        assert result.exit_code == code, result.output
        return json.loads(result.stdout)

    def doctor() -> list[tuple[str, str]]:
        checks = run("doctor")["checks"]
        return [(found["state"], found["says"]) for found in checks if found["check"] == "supervisors"]

    db.do("select comms.kickoff_send_email(n) from generate_series(1, 3) n")
    assert doctor() == [("ok", "open processes: 3")]
    db.do("update comms.email_message set to_address = null where email_message_id = 2")
    for _ in range(7):
        process.step()
    process.error = "451 try later"
    process.deliver({**PAYLOAD, "send_email_attempt_id": 3})
    task = db.one("select max(task_id) from queues.task where task_type = 'email'")
    process.worker.execute("select queues.fail_task(%s, '451 try later')", (task,))
    [counts] = run("supervisors", "list")["processes"]
    assert counts.pop("last_failed_at") is not None
    assert counts.pop("last_stopped_at") is not None
    assert counts == {
        "process": "comms.send_email",
        "open": 1,
        "succeeded": 1,
        "stopped": 1,
        "failed_attempts": 2,
        "error_message": "451 try later",
    }
    [error] = run("supervisors", "errors")["errors"]
    assert (error["task_id"], error["task_type"], error["error_message"]) == (task, "email", "451 try later")
    assert ("warn", "comms.send_email: 1 stopped without success, the last within a day") in doctor()
    db.do("grant execute on function comms.send_email_supervisor to public")
    assert doctor()[0][1].startswith("1 warning about functions of the worker, such as comms.send_email_supervisor")
    db.do("drop function comms.send_email_supervisor")
    checks = run("doctor", code=1)["checks"]
    assert any(found["check"] == "supervisors" and found["state"] == "fail" for found in checks)
    [refused] = run("supervisors", "check", code=1)["findings"]
    assert (refused["function"], refused["state"]) == ("comms.send_email_supervisor", "refused")


PAYLOAD = {
    "before_handler": "comms.get_email_payload",
    "success_handler": "comms.record_email_success",
    "error_handler": "comms.record_email_failure",
}


def cancel(db: Database, job: str, task: int) -> None:
    with Fairlane(db.dsn) as app:
        app.jobs.cancel(job)


def bury(db: Database, job: str, task: int) -> None:
    with Fairlane(db.dsn) as app:
        app.jobs.bury(job, reason="nobody reads it")


def complete(db: Database, job: str, task: int) -> None:
    db.do("select queues.complete_task(%s)", task)


def remove(db: Database, job: str, task: int) -> None:
    cancel(db, job, task)
    db.do("select fairlane.retain_v1(json_build_object('finished_before', now() + interval '1 hour', 'limit', 100))")


@pytest.mark.requirement("S7", "S10")
@pytest.mark.parametrize(
    ("end", "outcome"),
    [(cancel, "cancelled"), (bury, "dead: nobody reads it"), (complete, "completed"), (remove, "removed")],
)
def test_an_attempt_whose_task_calls_no_handler_has_failed_and_the_process_goes_on_to_its_end(
    db: Database, process: Process, end: Callable[[Database, str, int], None], outcome: str
) -> None:
    db.do("select comms.kickoff_send_email(7)")
    assert process.step() == "succeeded"
    for n in range(3):
        [(job, task)] = db.ask(
            "select j.id::text, j.seq from fairlane.job j where j.type = 'email' and not exists (select from fairlane.done d where d.seq = j.seq)"
        )
        end(db, job, task)
        assert process.step() == ("max_attempts_reached" if n == 2 else "succeeded")
    assert process.step() is None
    assert (
        db.ask("select error_message from comms.send_email_attempt_failed")
        == [(f"no result: its task is {outcome}",)] * 3
    )
    assert db.ask("select error_message from comms.over") == [("3 attempts have failed",)]


def test_an_attempt_whose_task_waits_or_runs_is_left_alone(db: Database, process: Process) -> None:
    db.do("select comms.kickoff_send_email(7)")
    process.step()
    look = {"send_email_task_id": 1}
    assert process.run("comms.send_email_supervisor", look) == {"status": "succeeded"}
    process.worker.execute("select queues.dequeue_next_available_task()")
    assert process.run("comms.send_email_supervisor", look) == {"status": "succeeded"}
    assert db.ask("select comms.count_send_email_attempts(1), comms.count_send_email_failed_attempts(1)") == [(1, 0)]


@pytest.mark.requirement("S7", "S10")
@pytest.mark.parametrize("times", [1, 2])
def test_a_dead_letter_that_is_reprocessed_before_the_next_look_is_delivered_once(
    db: Database, process: Process, times: int
) -> None:
    db.do("select comms.kickoff_send_email(7)")
    process.step()
    first = db.one("select task_id from queues.task where task_type = 'email'")
    with Fairlane(db.dsn) as app:
        for _ in range(times):
            [(job, seq)] = db.ask(
                "select id::text, seq from fairlane.job where type = 'email' order by seq desc limit 1"
            )
            app.jobs.bury(job, reason="nobody reads it")
            assert db.one("select queues.task_outcome(%s)", first) == "dead: nobody reads it"
            app.dead_letters.reprocess(seq)
            assert db.one("select queues.task_outcome(%s)", first) is None
        app.dead_letters.resolve(seq)  # closes the letter, and leaves its new job alone
    look = {"db_function": "comms.send_email_supervisor", "send_email_task_id": 1}
    assert process.run("comms.send_email_supervisor", look) == {"status": "succeeded"}
    assert db.ask("select comms.count_send_email_attempts(1), comms.count_send_email_failed_attempts(1)") == [(1, 0)]
    assert set(process.finish()) == {"succeeded"}
    assert len(process.delivered) == 1
    assert db.ask("select * from comms.over") == [(1, None)]
    assert db.one("select queues.task_outcome(%s)", first) == "completed"


@pytest.mark.requirement("D10", "S7")
def test_what_cannot_succeed_ends_the_process_at_its_first_attempt(db: Database, process: Process) -> None:
    db.do("update comms.email_message set to_address = null")
    db.do("select comms.kickoff_send_email(7)")
    assert process.finish() == ["succeeded", "succeeded", "validation_failed"]
    assert process.delivered == []
    assert db.ask("select status, error_message from comms.send_email_stopped") == [
        ("validation_failed", "there is nothing to deliver")
    ]
    assert db.one("select comms.is_send_email_stuck(7)") is True


@pytest.mark.requirement("S7")
def test_supervisors_of_one_root_that_run_at_once_make_one_attempt(db: Database, process: Process) -> None:
    db.do("select comms.kickoff_send_email(7)")
    payload = {"send_email_task_id": 1}
    failed: list[Exception] = []

    def run() -> None:
        try:
            with db.worker() as mine:
                for _ in range(5):
                    mine.execute(
                        "select internal.run_function('comms.send_email_supervisor', %s)", (json.dumps(payload),)
                    )
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=run) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert db.one("select comms.count_send_email_attempts(1)") == 1
    assert db.one("select count(*) from queues.task where task_type = 'email'") == 1


WAITING_INSERTS = """
create function comms.wait() returns trigger language plpgsql as $$
begin
  if current_setting('application_name') = 'handler' then perform pg_advisory_xact_lock(7); end if;
  return new;
end $$;
create trigger wait before insert on comms.send_email_attempt_failed for each row execute function comms.wait();
"""


@pytest.mark.requirement("S7")
@pytest.mark.parametrize("more", [{}, {"validation_failure_message": "no address"}])
def test_a_supervisor_and_a_handler_of_one_process_that_run_at_once_wait_for_each_other(
    db: Database, process: Process, more: dict[str, str]
) -> None:
    db.do("select comms.kickoff_send_email(7)")
    process.step()
    [job] = db.ask("select id::text, seq from fairlane.job where type = 'email'")
    cancel(db, *job)
    db.do(WAITING_INSERTS)

    def run(name: str, function: str, payload: Any) -> Any:
        with db.worker() as mine:
            mine.execute("select set_config('application_name', %s, false)", (name,))
            query = "select internal.run_function(%s, %s)"
            return mine.execute(query, (f"comms.{function}", json.dumps(payload))).fetchone()

    def waits(name: str) -> bool:
        query = "select count(*) from pg_stat_activity where application_name = %s and wait_event_type = 'Lock'"
        return bool(db.one(query, name))

    with ThreadPoolExecutor() as pool:
        db.do("select pg_advisory_lock(7)")
        try:
            handler = pool.submit(run, "handler", "record_email_failure", result_of(1, **more))
            eventually(lambda: waits("handler"), 10)
            supervisor = pool.submit(run, "supervisor", "send_email_supervisor", {"send_email_task_id": 1})
            eventually(lambda: waits("supervisor"), 10)
        finally:
            db.do("select pg_advisory_unlock(7)")
        assert handler.result() == ({"status": "succeeded"},)
        assert supervisor.result() == ({"status": "validation_failed" if more else "succeeded"},)
    assert db.ask("select error_message from comms.send_email_attempt_failed") == [("late",)]


@pytest.mark.requirement("S7", "S10")
def test_handlers_write_a_fact_once_and_never_its_opposite(db: Database, process: Process) -> None:
    db.do("select comms.kickoff_send_email(7)")
    process.step()
    about = {"original_payload": {"send_email_attempt_id": 1}, "worker_payload": {}, "error": "late"}
    for _ in range(2):
        assert process.run("comms.record_email_success", about) == {"status": "succeeded"}
    assert process.run("comms.record_email_failure", about) == {"status": "already_succeeded"}
    assert db.one("select comms.count_send_email_failed_attempts(1)") == 0
    assert db.ask("select * from comms.over") == [(1, None)]


def lost(db: Database, process: Process, attempts: int) -> None:
    """Start a process whose first attempts are cancelled, and so have failed for want of a result."""
    db.do("select comms.kickoff_send_email(7)")
    process.step()
    for _ in range(attempts):
        [job] = db.ask("select id::text, seq from fairlane.job where type = 'email' order by seq desc limit 1")
        cancel(db, *job)
        process.step()


def result_of(attempt: int, **more: str) -> dict[str, Any]:
    return {"original_payload": {"send_email_attempt_id": attempt}, "worker_payload": {}, "error": "late", **more}


@pytest.mark.requirement("S7", "S10")
def test_a_success_that_comes_late_is_one_of_the_process_while_that_is_not_over(db: Database, process: Process) -> None:
    lost(db, process, 1)
    assert process.run("comms.record_email_success", result_of(1)) == {"status": "succeeded"}
    assert process.run("comms.record_email_success", result_of(2)) == {"status": "succeeded"}
    no_address = result_of(2, validation_failure_message="no address")
    assert process.run("comms.record_email_failure", no_address) == {"status": "already_succeeded"}
    assert db.ask("select send_email_attempt_id from comms.send_email_attempt_succeeded") == [(1,), (2,)]
    assert db.ask("select * from comms.over") == [(1, None)]


@pytest.mark.requirement("S7", "S10")
def test_a_process_that_has_succeeded_is_not_stopped_by_another_attempt(db: Database, process: Process) -> None:
    lost(db, process, 1)
    assert process.run("comms.record_email_success", result_of(1)) == {"status": "succeeded"}
    no_address = result_of(2, validation_failure_message="no address")
    assert process.run("comms.record_email_failure", no_address) == {"status": "succeeded"}
    assert db.ask("select * from comms.over") == [(1, None)]
    assert db.one("select count(*) from comms.send_email_stopped") == 0


@pytest.mark.requirement("S7", "S10")
def test_a_process_that_has_stopped_stays_stopped_whatever_succeeds_late(db: Database, process: Process) -> None:
    lost(db, process, 3)
    assert process.run("comms.record_email_success", result_of(1)) == {"status": "already_stopped"}
    assert db.ask("select * from comms.over") == [(1, "3 attempts have failed")]
    assert db.one("select count(*) from comms.send_email_attempt_succeeded") == 0
    assert db.one("select comms.is_send_email_stuck(7)") is True


@pytest.mark.requirement("S7", "S10")
@pytest.mark.parametrize(("attempts", "status"), [(1, "already_failed"), (3, "already_stopped")])
def test_an_attempt_that_has_been_given_up_is_not_delivered_beside_the_next(
    db: Database, process: Process, attempts: int, status: str
) -> None:
    lost(db, process, attempts)
    assert process.run("comms.get_email_payload", {"send_email_attempt_id": 1}) == {"status": status}


@pytest.mark.requirement("S7", "S10")
def test_a_process_that_has_succeeded_delivers_nothing_more(db: Database, process: Process) -> None:
    lost(db, process, 1)
    process.run("comms.record_email_success", result_of(1))
    for attempt in (1, 2):  # the first as if its worker had died before it completed the task
        look = {"send_email_attempt_id": attempt}
        assert process.run("comms.get_email_payload", look) == {"status": "already_succeeded"}
    assert set(process.finish()) == {"succeeded"}
    assert process.delivered == []
    assert db.ask("select * from comms.over") == [(1, None)]


@pytest.mark.requirement("S7")
@pytest.mark.parametrize("handler", ["get_email_payload", "record_email_success", "record_email_failure"])
def test_handlers_name_the_outcome_of_a_payload_they_cannot_use(process: Process, handler: str) -> None:
    def wrapped(attempt: object) -> Any:
        inner = {"send_email_attempt_id": attempt}
        return inner if handler == "get_email_payload" else {"original_payload": inner}

    for attempt in (None, "x", "-1", [], "1; drop table comms.over", "9" * 30):
        assert process.run(f"comms.{handler}", wrapped(attempt)) == {"status": "missing_attempt_id"}
    assert process.run(f"comms.{handler}", wrapped(99)) == {"status": "attempt_not_found"}
    assert process.run(f"comms.{handler}", {}) == {"status": "missing_attempt_id"}


@pytest.mark.requirement("S7")
def test_a_supervisor_names_the_outcome_of_a_payload_it_cannot_use(process: Process) -> None:
    assert process.run("comms.send_email_supervisor", {}) == {"status": "missing_task_id"}
    assert process.run("comms.send_email_supervisor", {"send_email_task_id": 99}) == {"status": "task_not_found"}


@pytest.mark.requirement("S7")
def test_work_in_sql_alone_is_done_by_its_supervisor(db: Database) -> None:
    db.do("select queues.create_process('shop.rebuild', _max_attempts => 3)")
    process = Process(db)
    db.do("select shop.kickoff_rebuild(1)")
    assert process.step() == "succeeded"
    assert db.ask("select error_message from shop.rebuild_task_failed") == [
        ("write shop.rebuild_run".replace("rebuild_run", "run_rebuild") + ": it does the work of the process",)
    ]
    db.do("create table shop.answer as select '{}'::jsonb as answer")
    db.do(
        "create or replace function shop.run_rebuild(_rebuild_task_id bigint) returns jsonb language sql security definer "
        "set search_path = shop, pg_temp as $$ select answer from answer $$"
    )
    for answer, attempts, failures in [("waiting", 2, 1), ("waiting", 2, 1), ("broken", 2, 2), ("succeeded", 3, 2)]:
        db.do("update shop.answer set answer = jsonb_build_object('status', %s::text)", answer)
        assert process.step() == "succeeded"
        assert db.ask("select shop.count_rebuild_attempts(1), shop.count_rebuild_failed_attempts(1)") == [
            (attempts, failures)
        ]
    assert process.step() is None
    assert db.one("select count(*) from shop.rebuild_task_succeeded") == 1
    db.do("select shop.kickoff_rebuild(2)")
    db.do("""update shop.answer set answer = '{"validation_failure_message": "no such thing"}'""")
    assert process.finish() == ["validation_failed"]
    process.worker.close()


def test_generating_again_keeps_the_facts_and_what_is_yours(db: Database, process: Process) -> None:
    db.do("select comms.kickoff_send_email(7)")
    db.do("alter table comms.send_email_attempt drop column queue_task_id")  # as it was made before there was one
    db.do(
        "select queues.create_process('comms.send_email', 'comms.email_message.email_message_id', 'email', 'email', 9)"
    )
    assert db.one("select count(*) from comms.send_email_task") == 1
    assert process.finish() == ["succeeded"] * 3
    assert len(process.delivered) == 1


@pytest.mark.requirement("S9")
def test_what_is_generated_is_closed_to_everybody_but_its_owner_and_the_worker(db: Database, process: Process) -> None:
    db.do("select queues.create_process('comms.rebuild')")
    found = db.ask(
        "select p.oid::regprocedure::text from pg_proc p where p.pronamespace = 'comms'::regnamespace and (p.proacl is null "
        "or exists (select from aclexplode(p.proacl) where grantee = 0) or not p.prosecdef "
        "or not exists (select from unnest(p.proconfig) s where s = 'search_path=comms, pg_temp')) order by 1"
    )
    assert found == []
    granted = db.ask(
        "select p.proname::text from pg_proc p, aclexplode(p.proacl) a where p.pronamespace = 'comms'::regnamespace "
        "and a.grantee = 'worker_service_user'::regrole order by 1"
    )
    assert [name for (name,) in granted] == [
        "get_email_payload",
        "rebuild_supervisor",
        "record_email_failure",
        "record_email_success",
        "send_email_supervisor",
    ]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        process.worker.execute("select * from comms.send_email_task")


@pytest.mark.parametrize("column", ["orderId", "order", "task_id", "größe", "the one", "id"])
@pytest.mark.parametrize("channel", ["email", "db_function"])
def test_names_of_any_kind_are_quoted_wherever_they_stand(db: Database, column: str, channel: str) -> None:
    db.do(f"""create schema "Shop"; create table "Shop"."order" ("{column}" bigint primary key)""")
    db.do(f"""insert into "Shop"."order" ("{column}") values (7)""")
    db.do("select queues.create_process('order.group', %s, %s, 'user', 2)", f"Shop.order.{column}", channel)
    body = "language sql security definer set search_path = pg_catalog, pg_temp as"
    made = "build_user_payload" if channel == "email" else "run_group"
    db.do(
        f"""create or replace function "order".{made}(_group_task_id bigint) returns jsonb {body} """
        """$$ select '{"status": "succeeded"}'::jsonb $$"""
    )
    kickoff = 'select "order".kickoff_group(%s::bigint)'
    assert db.one(kickoff, None) == f"{column} is required"
    assert db.one(kickoff, 8) == f'there is no "Shop"."order" with {column} 8'
    for _ in range(2):
        assert db.one(kickoff, 7) is None
    process = Process(db)
    assert process.finish() == ["succeeded"] * (3 if channel == "email" else 1)
    process.worker.close()
    assert db.one('select "order".has_group_succeeded_attempt(1)') is True
    assert db.one('select "order".is_group_stuck(7)') is False
    if channel == "email":
        assert db.one("select payload -> %s from queues.task where task_type = 'email'", column) == 7


@pytest.mark.parametrize(
    ("column", "says"),
    [
        ("it's", "expected names without quotes"),
        ("$body$", "expected names without quotes"),
        ("{foo}", "expected names without quotes"),
        ("100%", "expected names without quotes"),
        ("created_at", "a process has a created_at of its own"),
        ("notes", "a process has a notes of its own"),
        ("x_task_id", "a process has a x_task_id of its own"),
        ("task_type", "a process has a task_type of its own"),
    ],
)
def test_a_subject_that_a_process_has_no_place_for_is_refused(db: Database, column: str, says: str) -> None:
    db.do(f"""create schema shop; create table shop.thing ("{column}" bigint primary key)""")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=re.escape(says)):
        db.do("select queues.create_process('comms.x', %s, 'email')", f"shop.thing.{column}")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("'send_email'", "expected domain.process"),
        ("'comms.Send'", "expected domain.process"),
        ("'comms.x; drop table y'", "expected domain.process"),
        ("'comms.' || repeat('x', 50)", "expected domain.process"),
        ("null", "process null: expected domain.process"),
        *(
            (f"'{schema}.x'", f"the schema {schema} is reserved")
            for schema in ("pg_catalog", "pg_temp", "pg_toast", "information_schema", "queues", "internal", "fairlane")
        ),
        ("'comms.x', 'comms.nothing.id'", "there is no such schema.table.column"),
        ("'comms.x', null, 'e mail'", "expected a task type"),
        ("'comms.x', null, 'email', 'No'", "noun 'No'"),
        ("'comms.x', null, 'email', 'x', 0", "max_attempts 0"),
        ("'comms.x', null, 'email', 'x', 5, 100, 10", "base_s 100"),
    ],
)
def test_a_name_that_is_none_is_refused(db: Database, call: str, says: str) -> None:
    with pytest.raises(psycopg.Error, match=says):
        db.do(f"select queues.create_process({call})")
    assert db.one("select count(*) from pg_namespace where nspname = 'comms'") == 0


@pytest.mark.requirement("S7")
def test_one_command_makes_a_process(db: Database) -> None:
    def run(*words: str) -> str:
        result = CliRunner().invoke(cli, ["supervisor", "new", "comms.send_sms", *words, "--url", db.dsn])
        assert result.exit_code == 0, result.output
        return result.stdout

    script = run("--channel", "sms", "--noun", "sms")
    assert db.one("select count(*) from pg_namespace where nspname = 'comms'") == 0
    for _ in range(2):
        db.do(script)
    assert run("--channel", "sms", "--noun", "sms", "--apply") == ""
    db.do("select comms.kickoff_send_sms(1)")
    process = Process(db)
    assert process.step() == "succeeded"
    with pytest.raises(psycopg.errors.RaiseException, match=r"write comms\.build_sms_payload"):
        process.step()
    process.worker.close()


def test_the_command_says_what_is_missing(db: Database) -> None:
    def run(*words: str) -> str:
        result = CliRunner().invoke(cli, ["supervisors", "new", *words])
        assert result.exit_code != 0
        return result.output + result.stderr

    assert "expected domain.process" in run("Send", "--url", db.dsn)
    assert "there is no such schema.table.column" in run("a.b", "--subject", "a.b.c", "--url", db.dsn)
    assert "a supervisor needs PostgreSQL" in run("a.b", "--url", "sqlite:///x.db")
    assert "fairlane migrate up --with supervisors" in run("a.b", "--url", db.dsn.replace("/supervisors", "/postgres"))
