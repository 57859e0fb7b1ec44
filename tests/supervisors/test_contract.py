"""The queue contract from any SQL session: enqueue, dequeue, complete, fail, renew, and what the tables then say."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from fairlane import Fairlane
from tests.supervisors.conftest import Database
from tests.support.stores import Ground

Worker = psycopg.Connection[Any]


@pytest.fixture
def worker(db: Database) -> Iterator[Worker]:
    with db.worker() as conn:
        yield conn


def dequeue(worker: Worker) -> tuple[int, str, dict[str, Any]] | None:
    row = worker.execute("select task_id, task_type, payload from queues.dequeue_next_available_task()").fetchone()
    assert row is not None
    return None if row[0] is None else row


def lapse(db: Database) -> None:
    """As if every lease had been taken six minutes earlier."""
    db.do("update fairlane.worker set expires_at = expires_at - interval '6 minutes'")
    db.do(
        "update fairlane.lease set deadline_at = deadline_at - interval '6 minutes', leased_at = leased_at - interval '6 minutes'"
    )


@pytest.mark.requirement("S1", "S2")
def test_psql_alone_enqueues_dequeues_and_completes(db: Database, ground: Ground) -> None:
    script = """
      select queues.enqueue('email', '{"send_email_attempt_id": 456}');
      begin;
      set local role worker_service_user;
      select task_id, task_type, payload->>'send_email_attempt_id' as attempt from queues.dequeue_next_available_task() \\gset
      select queues.fail_task(:task_id, 'mailbox full');
      select queues.complete_task(:task_id);
      select queues.complete_task(:task_id);
      commit;
      select task_type, payload, scheduled_at <= now() from queues.task;
      select expires_at - leased_at from queues.task_lease;
      select task_id = :task_id from queues.task_completed;
      select task_id = :task_id, error_message from queues.error;
    """
    ran = subprocess.run(
        [ground.server.programs / "psql", "-XqAt", "-v", "ON_ERROR_STOP=1", db.dsn],
        input=script, text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert ran.stderr == ""
    assert [line for line in ran.stdout.splitlines() if line] == [
        'email|{"send_email_attempt_id": 456}|t',
        "00:05:00",
        "t",
        "t|mailbox full",
    ]


@pytest.mark.requirement("S1")
def test_the_tables_have_the_columns_of_the_document(db: Database) -> None:
    found = db.ask(
        "select c.relname, array_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod) order by a.attnum) from pg_class c "
        "join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 where c.relnamespace = 'queues'::regnamespace "
        "and c.relname in ('task', 'task_lease', 'task_completed', 'error') group by 1"
    )
    instant = "timestamp with time zone"
    assert dict(found) == {
        "task": ["task_id bigint", "task_type text", "payload jsonb", f"enqueued_at {instant}", f"scheduled_at {instant}"],
        "task_lease": ["task_lease_id bigint", "task_id bigint", f"leased_at {instant}", f"expires_at {instant}"],
        "task_completed": ["task_id bigint", f"completed_at {instant}"],
        "error": ["error_id bigint", "task_id bigint", "error_message text", f"created_at {instant}"],
    }  # fmt: skip


@pytest.mark.requirement("S2")
def test_tasks_come_in_the_order_of_their_time_then_their_number_over_all_tenants(db: Database, worker: Worker) -> None:
    for n, (ago, tenant) in enumerate([(1, "b"), (3, "a"), (2, "c"), (3, "b"), (-60, "a")]):
        db.do("select set_config('fairlane.tenant', %s, false)", tenant)
        db.do(
            "select queues.enqueue('email', jsonb_build_object('n', %s::int), now() - %s * interval '1 minute')", n, ago
        )
    order = [task[2]["n"] for task in iter(lambda: dequeue(worker), None)]
    assert order == [1, 3, 2, 0]  # 4 is not due


@pytest.mark.requirement("S2")
@pytest.mark.parametrize("tenants", ["aaaa", "abab", "bbaa"])
def test_tasks_of_one_instant_come_in_the_order_of_their_numbers(db: Database, worker: Worker, tenants: str) -> None:
    with db.owner.transaction():  # one transaction, one now()
        for n, tenant in enumerate(tenants):
            db.do("select set_config('fairlane.tenant', %s, true)", tenant)
            db.do("select queues.enqueue('email', jsonb_build_object('n', %s::int))", n)
    assert db.one("select count(distinct scheduled_at) from queues.task") == 1
    assert [task[2]["n"] for task in iter(lambda: dequeue(worker), None)] == [0, 1, 2, 3]


@pytest.mark.requirement("S2")
def test_two_sessions_never_hold_one_task(db: Database, worker: Worker) -> None:
    db.do("select queues.enqueue('sms', jsonb_build_object('n', n)) from generate_series(1, 60) n")
    held: list[int] = []

    def work() -> None:
        with db.worker() as mine:
            while (task := dequeue(mine)) is not None:
                held.append(task[0])
                mine.execute("select queues.complete_task(%s)", (task[0],))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # A claim passes over what others are taking just now: whatever is left is there for the next.
    while (task := dequeue(worker)) is not None:
        held.append(task[0])
    assert len(held) == len(set(held)) == 60


@pytest.mark.requirement("S10", "S2", "D13")
def test_a_task_whose_worker_is_gone_comes_back_when_its_lease_has_expired_and_every_claim_is_on_record(
    db: Database, worker: Worker
) -> None:
    db.do("select queues.enqueue('email', '{}')")
    first = dequeue(worker)
    assert first is not None
    assert dequeue(worker) is None, "it is leased"
    lapse(db)
    assert dequeue(worker) == first
    assert db.one("select count(*) from queues.task_lease where task_id = %s", first[0]) == 2
    assert db.one("select count(*) from queues.task_lease where expires_at > now()") == 1
    worker.execute("select queues.complete_task(%s)", (first[0],))
    lapse(db)
    assert dequeue(worker) is None, "completed tasks are never processed again"
    assert db.one("select count(*) from fairlane.worker") == 0


def test_a_task_that_keeps_losing_its_worker_is_never_given_up(db: Database, worker: Worker) -> None:
    db.do("select queues.enqueue('email', '{}')")
    for _ in range(6):
        assert dequeue(worker) is not None
        lapse(db)
    assert dequeue(worker) is not None


@pytest.mark.requirement("D14")
def test_a_renewed_task_is_held_five_minutes_from_then(db: Database, worker: Worker) -> None:
    db.do("select queues.enqueue('email', '{}')")
    task = dequeue(worker)
    assert task is not None
    lapse(db)
    [(until,)] = worker.execute("select queues.renew_task(%s) - now()", (task[0],)).fetchall()
    assert timedelta(minutes=4, seconds=58) < until <= timedelta(minutes=5, seconds=2)
    assert dequeue(worker) is None
    worker.execute("select queues.complete_task(%s)", (task[0],))
    assert worker.execute("select queues.renew_task(%s)", (task[0],)).fetchone() == (None,)


@pytest.mark.requirement("S2")
@pytest.mark.parametrize("place", ["ready", "scheduled", "lapsed", "held by another"])
def test_completing_ends_a_task_wherever_it_is(db: Database, worker: Worker, place: str) -> None:
    db.do("select queues.enqueue('email', '{}', now() + %s * interval '1 hour')", int(place == "scheduled"))
    task = db.one("select task_id from queues.task")
    if place == "lapsed":
        dequeue(worker)
        lapse(db)
    if place == "held by another":
        with db.worker() as other:
            dequeue(other)
    for _ in range(2):
        worker.execute("select queues.complete_task(%s)", (task,))
    assert db.one("select count(*) from queues.task_completed where task_id = %s", task) == 1
    lapse(db)
    assert dequeue(worker) is None
    assert db.one("select (select count(*) from fairlane.lease) + (select count(*) from fairlane.worker)") == 0


@pytest.mark.requirement("S2")
def test_many_sessions_complete_one_task_and_none_fails(db: Database, worker: Worker) -> None:
    db.do("select queues.enqueue('email', '{}')")
    task = dequeue(worker)
    assert task is not None
    failed: list[Exception] = []

    def complete() -> None:
        try:
            with db.worker() as mine:
                mine.execute("select queues.complete_task(%s)", (task[0],))
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=complete) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert db.one("select count(*) from queues.task_completed") == 1


@pytest.mark.requirement("S1", "S2")
def test_a_failure_is_recorded_and_ends_nothing(db: Database, worker: Worker) -> None:
    db.do("select queues.enqueue('email', '{}')")
    task = dequeue(worker)
    assert task is not None
    worker.execute("select queues.fail_task(%s, 'no route')", (task[0],))
    worker.execute("select queues.fail_task(%s, %s)", (task[0], "x" * 5000))
    assert db.ask("select error_message from queues.error order by error_id") == [("no route",), ("x" * 2000,)]
    assert db.one("select count(*) from queues.task_completed") == 0
    assert dequeue(worker) is None, "it is still leased"


@pytest.mark.requirement("S2")
def test_a_failure_is_recorded_whatever_has_become_of_the_task(db: Database, worker: Worker) -> None:
    db.do("select queues.enqueue('email', '{}')")
    task = dequeue(worker)
    assert task is not None
    lapse(db)
    worker.execute("select queues.fail_task(%s, 'late')", (task[0],))
    assert dequeue(worker) == task, "it comes back as if nothing had been said"
    for _ in range(2):
        worker.execute("select queues.fail_task(%s, 'again')", (task[0],))
    worker.execute("select queues.complete_task(%s)", (task[0],))
    worker.execute("select queues.fail_task(%s, null)", (task[0],))
    assert [text for (text,) in db.ask("select error_message from queues.error order by error_id")] == [
        "late", "again", "again", "",
    ]  # fmt: skip
    assert db.one("select count(*) from queues.task_completed") == 1
    assert dequeue(worker) is None
    db.do("select fairlane.retain_v1(json_build_object('finished_before', now() + interval '1 hour', 'limit', 100))")
    with pytest.raises(psycopg.errors.NoDataFound, match=f"there is no task {task[0]}") as refused:
        worker.execute("select queues.fail_task(%s, 'too late')", (task[0],))
    assert refused.value.diag.message_hint == "It was never enqueued, or retention has removed it."


def test_errors_of_removed_tasks_leave_although_older_ones_stay(db: Database, worker: Worker) -> None:
    db.do("select queues.enqueue('email', '{}') from generate_series(1, 2)")
    stays, gone = (task for (task,) in db.ask("select task_id from queues.task order by 1"))
    for task in (stays, gone):
        db.do(
            "insert into queues.error (task_id, error_message) select %s, 'no route' from generate_series(1, 150)", task
        )
    worker.execute("select queues.complete_task(%s)", (gone,))
    db.do("select fairlane.retain_v1(json_build_object('finished_before', now() + interval '1 hour', 'limit', 100))")
    db.do("select setseed(0.5)")
    db.do("select queues.fail_task(%s, 'again') from generate_series(1, 60)", stays)
    assert db.ask("select task_id, count(*) from queues.error group by 1") == [(stays, 210)]


def test_errors_leave_with_their_task(db: Database, worker: Worker) -> None:
    db.do("select queues.enqueue('email', '{}') from generate_series(1, 2)")
    gone, stays = (dequeue(worker), dequeue(worker))
    assert gone is not None
    assert stays is not None
    for task in (gone, stays):
        worker.execute("select queues.fail_task(%s, 'first')", (task[0],))
    worker.execute("select queues.complete_task(%s)", (gone[0],))
    db.do("select fairlane.retain_v1(json_build_object('finished_before', now() + interval '1 hour', 'limit', 100))")
    worker.execute("select queues.fail_task(%s, 'second')", (stays[0],))
    assert db.ask("select task_id, error_message from queues.error order by 2") == [
        (stays[0], "first"),
        (stays[0], "second"),
    ]


@pytest.mark.requirement("S1")
@pytest.mark.parametrize(
    "change",
    [
        "update queues.task set payload = '{}'",
        "update queues.task set scheduled_at = now()",
        "delete from queues.task",
        "insert into queues.task (task_type) values ('email')",
        "delete from queues.task_lease",
        "update queues.task_lease set expires_at = now()",
        "delete from queues.task_completed",
        "update queues.task_completed set completed_at = now()",
        "update queues.error set error_message = 'nothing happened'",
        "delete from queues.error",
        "truncate queues.error",
    ],
)
def test_what_was_written_stays_even_for_the_owner(db: Database, worker: Worker, change: str) -> None:
    db.do("select queues.enqueue('email', '{}') from generate_series(1, 2)")
    task = dequeue(worker)
    assert task is not None
    worker.execute("select queues.fail_task(%s, 'no route')", (task[0],))
    worker.execute("select queues.complete_task(%s)", (task[0],))
    dequeue(worker)
    with pytest.raises(psycopg.errors.RestrictViolation, match=r"immutable|append-only"):
        db.do(change)


@pytest.mark.requirement("S2")
@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("select queues.enqueue(null, '{}')", "task type null: expected a name"),
        ("select queues.enqueue('', '{}')", "task type '': expected a name"),
        ("select queues.enqueue('drop table x', '{}')", "expected a name such as email"),
        ("select queues.enqueue('email', null)", "expected a JSON object, got null"),
        ("select queues.enqueue('email', '[1]')", "expected a JSON object, got a JSON array"),
        ("select queues.enqueue('email', '{}', 'infinity')", "expected an instant of the years 2 to 9998"),
        ("select queues.complete_task(42)", "there is no task 42"),
        ("select queues.complete_task(null)", "there is no task null"),
        ("select queues.fail_task(42, 'why')", "there is no task 42"),
        ("select queues.fail_task(null, 'why')", "there is no task null"),
    ],
)
def test_bad_input_gets_an_error_that_names_it_and_changes_nothing(db: Database, call: str, says: str) -> None:
    with pytest.raises(psycopg.Error, match=says):
        db.do(call)
    assert db.one("select count(*) from queues.task") == 0


@pytest.mark.parametrize("limited", [False, True])
def test_the_number_of_a_new_task_is_known_to_its_transaction(db: Database, limited: bool) -> None:
    if limited:
        with Fairlane(db.dsn) as app:
            app.limits.set(tenant="*", waiting=5)
    with psycopg.connect(db.dsn) as conn:
        for _ in range(2):
            conn.execute("select queues.enqueue('email', '{}')")
            assert conn.execute(
                "select current_setting('fairlane.task_id') = max(task_id)::text from queues.task"
            ).fetchone() == (True,)


def test_an_enqueue_is_part_of_its_transaction(db: Database) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        db.do("do $$ begin perform queues.enqueue('email', '{}'); perform 1 / 0; end $$")
    assert db.one("select count(*) from queues.task") == 0


def test_jobs_of_other_queues_are_out_of_reach(db: Database, worker: Worker) -> None:
    db.do("""select fairlane.enqueue_v1('[{"type": "mail.send", "payload": {}}]')""")
    job = db.one("select seq from fairlane.job")
    assert dequeue(worker) is None
    for call in ("complete_task(%s)", "fail_task(%s, 'mine')"):
        with pytest.raises(psycopg.errors.NoDataFound):
            worker.execute(f"select queues.{call}".encode(), (job,))
    assert worker.execute("select queues.renew_task(%s)", (job,)).fetchone() == (None,)
    assert db.one("select count(*) from queues.task") == 0
    assert db.one("select count(*) from fairlane.ready") == 1


def test_pauses_and_limits_that_people_set_hold_for_those_who_dequeue(db: Database, worker: Worker) -> None:
    db.do("select queues.enqueue('email', '{}')")
    db.do("select queues.enqueue('sms', '{}')")
    db.do("insert into fairlane.pause (kind, name, by, at) values ('type', 'email', 'ann', now())")
    task = dequeue(worker)
    assert task is not None
    assert task[1] == "sms"
    assert dequeue(worker) is None
    db.do("delete from fairlane.pause")
    db.do("insert into fairlane.pause (kind, name, by, at) values ('queue', 'supervisors', 'ann', now())")
    assert dequeue(worker) is None
    db.do("delete from fairlane.pause")
    assert dequeue(worker) is not None
