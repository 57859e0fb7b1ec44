"""The channel worker: dispatch, handlers, envelopes, failures, and what a killed worker leaves behind."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Timer
from typing import Any

import psycopg
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from fairlane import Fairlane, NonRetryable
from fairlane.contrib.opentelemetry import instrument
from fairlane.errors import ConfigError, InvalidOption
from fairlane.supervisors.channels import Channels
from fairlane.supervisors.envelope import DBFunctionResult, HandlerFailed, read_result
from fairlane.supervisors.function_check import examine_functions
from fairlane.worker.config import WorkerConfig
from tests.faults.eventually import eventually
from tests.supervisors.conftest import Database

SHOP = """
create schema shop;
create table shop.heard (n bigint generated always as identity, handler text, payload jsonb, role name);
create table shop.answers (handler text primary key, answer jsonb, fails boolean not null default false);
create function shop.answer(_handler text, _payload jsonb) returns jsonb
language plpgsql security definer set search_path = shop, pg_temp
as $$
declare _found answers;
begin
  insert into heard (handler, payload, role) values (_handler, _payload, current_setting('role'));
  select * into _found from answers where handler = _handler;
  if _found.fails then raise exception 'out of order' using hint = 'not shown'; end if;
  return _found.answer;
end $$;
do $do$ declare _name text; begin
foreach _name in array array['supervise', 'before', 'success', 'error'] loop
  execute format('create function shop.%1$I(_payload jsonb) returns jsonb language sql security definer '
    'set search_path = shop, pg_temp as $$ select answer(%1$L, _payload) $$', _name);
  execute format('insert into shop.answers values (%L, $${"status": "succeeded", "payload": {"to": "ann"}}$$)', _name);
end loop; end $do$;
revoke all on all functions in schema shop from public;
grant usage on schema shop to worker_service_user;
grant execute on function shop.supervise, shop.before, shop.success, shop.error to worker_service_user;
"""
HANDLERS = {"before_handler": "shop.before", "success_handler": "shop.success", "error_handler": "shop.error"}


class Postbox:
    """A provider that keeps what it is given, or does what it is told to."""

    answer: Any = None

    def __init__(self) -> None:
        self.delivered: list[dict[str, Any]] = []
        self.act: Callable[[], Any] = lambda: None

    async def deliver(self, payload: dict[str, Any], /) -> dict[str, Any]:
        self.delivered.append(payload)
        done = self.act()
        if asyncio.iscoroutine(done):
            await done
        return self.answer or {"message_id": len(self.delivered)}


class Office:
    """A database with handlers that answer as told, and a worker with one channel."""

    def __init__(self, db: Database, *, strict: bool = False) -> None:
        self.db, self.postbox = db, Postbox()
        self.app = Fairlane(db.dsn, statement_timeout_s=2.0)
        self.channels = Channels(self.app, strict=strict)

    def answers(self, handler: str, answer: object, *, fails: bool = False) -> None:
        self.db.do(
            "update shop.answers set answer = %s, fails = %s where handler = %s", json.dumps(answer), fails, handler
        )

    def process(self, task_type: str = "email", /, **payload: Any) -> int:
        """Enqueue one task and let a worker process all there is; returns its number."""
        self.db.do("select queues.enqueue(%s, %s)", task_type, json.dumps(payload))
        self.drain()
        return int(self.db.one("select max(task_id) from queues.task"))

    def drain(self) -> None:
        """Let a worker process what is due, and what waits for another try as if it were."""
        self.db.do("update fairlane.scheduled set due_at = now()")
        with self.app.running(drain=True):
            pass

    def heard(self) -> list[tuple[str, Any]]:
        return self.db.ask("select handler, payload from shop.heard order by n")

    def errors(self) -> list[str]:
        return [text for (text,) in self.db.ask("select error_message from queues.error order by error_id")]

    def completed(self) -> bool:
        return bool(self.db.one("select count(*) = (select count(*) from queues.task) from queues.task_completed"))

    def result(self, task: int) -> Any:
        return self.db.one("select result from fairlane.done where seq = %s and status = 'completed'", task)


@pytest.fixture
def office(db: Database) -> Iterator[Office]:
    db.do(SHOP)
    found = Office(db)
    yield found
    found.app.close()


@pytest.fixture
def mail(office: Office) -> Office:
    office.channels.add("email", office.postbox, timeout=5)
    return office


def test_tasks_have_a_lane_of_their_own_unless_the_settings_say_otherwise() -> None:
    def slots(**settings: Any) -> dict[str, tuple[int, tuple[str, ...]]]:
        app = Fairlane("postgresql://nobody@127.0.0.1:1/nothing", **settings)
        Channels(app)
        return {lane.name: (lane.slots, lane.queues) for lane in WorkerConfig().completed(app).lanes}

    assert slots()["supervisors"] == (20, ("supervisors",))
    assert "supervisors" not in slots()["general"][1]
    assert slots(queues={"supervisors": {"slots": 7}})["supervisors"][0] == 7
    assert slots(queues={"supervisors": {"timeout_s": 9.0}})["supervisors"][0] == 20
    with pytest.raises(InvalidOption, match="slots of the channels"):
        Channels(Fairlane("postgresql://nobody@127.0.0.1:1/nothing"), slots=0)


@pytest.mark.requirement("S4", "S5")
def test_a_db_function_is_called_with_its_whole_payload_as_the_worker(office: Office) -> None:
    task = office.process("db_function", db_function="shop.supervise", order={"id": 7})
    assert office.heard() == [("supervise", {"db_function": "shop.supervise", "order": {"id": 7}})]
    assert (office.errors(), office.completed(), office.result(task)) == ([], True, {"status": "succeeded"})
    assert office.db.one("select distinct role from shop.heard") == "worker_service_user"


@pytest.mark.requirement("S5", "D10")
@pytest.mark.parametrize("status", ["missing_attempt_id", "attempt_not_found", "max_attempts_reached"])
def test_a_status_other_than_succeeded_is_an_outcome_and_no_failure(
    office: Office, status: str, caplog: pytest.LogCaptureFixture
) -> None:
    office.answers("supervise", {"status": status})
    with caplog.at_level("INFO", "fairlane.supervisors"):
        task = office.process("db_function", db_function="shop.supervise")
    assert (office.errors(), office.completed(), office.result(task)) == ([], True, {"status": status})
    assert [r.levelname for r in caplog.records if status in r.message] == ["INFO"]
    assert stops(office) == [("shop.supervise", status)]


@pytest.mark.requirement("L14")
def test_a_supervisor_that_raises_has_failed_and_stopped_its_process(office: Office) -> None:
    office.answers("supervise", None, fails=True)
    office.process("db_function", db_function="shop.supervise")
    assert stops(office) == [("shop.supervise", "failed")]
    assert office.db.ask("select completed, failed from fairlane.stat_minute") == [(0, 1)]


def stops(office: Office) -> list[tuple[str, str]]:
    """Which supervisors ended their process without success, and how."""
    events = office.db.ask("select data from fairlane.event where kind = 'process_stopped' order by id")
    return [(data["function"], data["status"]) for (data,) in events]


@pytest.mark.requirement("S4", "D10")
@pytest.mark.parametrize(
    ("payload", "says"),
    [
        ({"db_function": 7}, "db_function of the payload is 7, not the name of a function"),
        ({}, "db_function of the payload is None"),
    ],
)
def test_a_payload_that_names_no_function_is_recorded_and_completed(office: Office, payload: Any, says: str) -> None:
    office.process("db_function", **payload)
    [said] = office.errors()
    assert says in said
    assert office.completed()


@pytest.mark.requirement("S3", "S4")
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("shop.nothing", "may not run function 'shop.nothing'"),
        ("shop.answer", "takes one jsonb and returns jsonb"),
        ("x; drop table shop.heard", "not of the form schema.function"),
    ],
)
def test_a_task_whose_function_the_worker_may_not_run_waits_uncharged(office: Office, name: str, says: str) -> None:
    office.process("db_function", db_function=name)
    [said] = office.errors()
    assert says in said
    assert not office.completed()
    [job] = office.app.jobs.list().jobs
    assert (job.status, job.attempts, job.error_type) == ("pending", 0, "HandlerRefused")
    why = office.app.jobs.why(job.id).reasons[0].says
    assert why.startswith("it needs a function that the worker may run and has been put off, uncharged")
    [found] = examine_functions(office.app.runtime.settings)
    assert (found.function, found.state, found.waiting) == (name, "refused", 1)


@pytest.mark.requirement("S3", "S4")
@pytest.mark.parametrize("handler", ["supervise", "before", "success", "error"])
def test_a_refused_function_ends_nothing_and_a_grant_sets_its_task_going(mail: Office, handler: str) -> None:
    mail.answers("supervise", {"status": "succeeded"})
    if handler == "error":
        mail.answers("before", {"status": "attempt_not_found"})
    mail.db.do(f"revoke execute on function shop.{handler} from worker_service_user")
    if handler == "supervise":
        mail.process("db_function", db_function="shop.supervise", error_handler="shop.error")
    else:
        mail.process(**HANDLERS)
    assert (len(mail.errors()), mail.completed()) == (1, False)
    assert not {"error", handler}.intersection(name for name, _ in mail.heard()), "no handler learns of a failure"
    [found] = examine_functions(mail.app.runtime.settings)
    mail.db.do(found.remedy)
    mail.drain()
    assert mail.completed()
    assert [name for name, _ in mail.heard()].count(handler) == 1
    assert len(mail.postbox.delivered) == {"supervise": 0, "error": 0}.get(handler, 1), "a delivery is not made again"


@pytest.mark.requirement("S9")
def test_strict_channels_run_nothing_before_the_check_finds_nothing(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    db.do(SHOP)
    db.do("grant execute on function shop.supervise to public")
    office = Office(db, strict=True)
    office.process("db_function", db_function="shop.supervise")
    assert (office.heard(), office.completed()) == ([], False)
    assert "function shop.supervise(jsonb): everybody may execute it; run: revoke execute" in caplog.text
    db.do("revoke execute on function shop.supervise from public")
    office.drain()
    assert office.completed()
    office.app.close()


@pytest.mark.requirement("S9")
def test_tasks_wait_uncharged_while_the_role_of_the_channels_may_not_call_handlers(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    db.do(SHOP)
    db.do("create role stranger login")
    try:
        app = Fairlane(db.dsn, statement_timeout_s=2.0)
        Channels(app, url=db.dsn.replace("postgres@", "stranger@"))
        db.do("""select queues.enqueue('db_function', '{"db_function": "shop.supervise"}')""")
        for _ in range(3):
            with app.running(drain=True):
                pass
            db.do("update fairlane.scheduled set due_at = now()")
        [job] = app.jobs.list().jobs
        assert (job.status, job.attempts) == ("pending", 0)
        assert 'the role "stranger" may not call handlers as worker_service_user' in caplog.text
        assert 'grant worker_service_user to "stranger"' in app.jobs.why(job.id).reasons[0].says
        db.do("grant worker_service_user to stranger")
        with app.running(drain=True):
            pass
        assert db.ask("select handler from shop.heard") == [("supervise",)]
        app.close()
    finally:
        db.do("drop role stranger")


@pytest.mark.requirement("D10", "S5")
@pytest.mark.parametrize("answer", [None, [], "succeeded", {}, {"payload": {}}, {"status": 7}, {"success": "yes"}])
def test_an_answer_that_is_no_envelope_is_recorded_as_a_failure(office: Office, answer: object) -> None:
    office.answers("supervise", answer)
    office.process("db_function", db_function="shop.supervise")
    assert len(office.errors()) == 1
    assert "shop.supervise: answered" in office.errors()[0]
    assert office.completed()


@pytest.mark.requirement("S4", "S6")
def test_a_delivery_goes_through_before_and_success_handler_with_the_documented_inputs(mail: Office) -> None:
    payload = {**HANDLERS, "task_type": "email", "send_email_attempt_id": 456, "anything": [None, {"ä": 1.5}]}
    task = mail.process(**payload)
    assert mail.postbox.delivered == [{"to": "ann"}]
    assert mail.heard() == [
        ("before", payload),
        ("success", {"original_payload": payload, "worker_payload": {"message_id": 1}}),
    ]
    assert (mail.errors(), mail.completed(), mail.result(task)) == ([], True, {"status": "succeeded"})


@pytest.mark.requirement("S4", "S6")
@pytest.mark.parametrize("handler", ["supervise", "success", "error"])
def test_handlers_get_every_digit_of_the_numbers_in_a_payload(mail: Office, handler: str) -> None:
    numbers = '{"a": 1.10, "b": 12345678901234567890.123, "c": [-0.0, 1e400, 123456789012345678901234567890]}'
    mail.answers("before", {"status": "attempt_not_found" if handler == "error" else "succeeded", "payload": {}})
    names = HANDLERS | {"db_function": "shop.supervise"}
    kind = "db_function" if handler == "supervise" else "email"
    mail.db.do("select queues.enqueue(%s, %s::jsonb || %s)", kind, numbers, json.dumps(names))
    mail.drain()
    assert (mail.errors(), mail.completed()) == (["attempt_not_found"] if handler == "error" else [], True)
    heard = "select coalesce(payload -> 'original_payload', payload)::text from shop.heard order by n"
    [stored] = mail.db.ask("select payload::text from queues.task")
    assert set(mail.db.ask(heard)) == {stored}
    assert len(mail.heard()) == (1 if handler == "supervise" else 2)


@pytest.mark.requirement("S4", "S6")
def test_a_failed_delivery_goes_to_the_error_handler_is_recorded_and_completed_and_never_tried_again(
    mail: Office,
) -> None:
    def refuse() -> None:
        raise NonRetryable("550 no such user")

    mail.postbox.act = refuse
    mail.process(**HANDLERS, send_email_attempt_id=456)
    payload = {**HANDLERS, "send_email_attempt_id": 456}
    assert mail.heard() == [("before", payload), ("error", {"original_payload": payload, "error": "550 no such user"})]
    assert (mail.errors(), mail.completed(), len(mail.postbox.delivered)) == (["550 no such user"], True, 1)
    assert mail.db.one("select count(*) from queues.task_lease") == 1
    mail.postbox.act = lambda: None
    mail.process(**HANDLERS)
    counts = "select type, sum(completed)::int, sum(failed)::int, sum(dead)::int from fairlane.stat_minute group by 1"
    assert mail.db.ask(counts) == [("email", 1, 1, 0)], "what metrics, rates and charts are made of"


@pytest.mark.requirement("D10")
@pytest.mark.parametrize(
    ("answer", "error", "extra"),
    [
        ({"status": "attempt_not_found"}, "attempt_not_found", {}),
        ({"success": False, "error": "no such row"}, "no such row", {}),
        (
            {"success": False, "validation_failure_message": "no address"},
            "no address",
            {"validation_failure_message": "no address"},
        ),
        ({"status": "succeeded"}, "shop.before prepared None, not an object", {}),
        ({}, "shop.before: answered {}, with neither a status nor success", {}),
    ],
)
def test_a_before_handler_that_fails_lets_nothing_be_delivered(
    mail: Office, answer: object, error: str, extra: dict[str, str]
) -> None:
    mail.answers("before", answer)
    mail.process(**HANDLERS)
    assert mail.postbox.delivered == []
    assert mail.heard()[1:] == [("error", {"original_payload": HANDLERS, "error": error, **extra})]
    assert (mail.errors(), mail.completed()) == ([error], True)


def test_the_other_envelope_is_understood_by_every_handler(mail: Office) -> None:
    for handler in ("before", "success", "supervise"):
        mail.answers(handler, {"success": True, "payload": {"to": "bob"}})
    mail.process(**HANDLERS)
    mail.process("db_function", db_function="shop.supervise")
    assert mail.postbox.delivered == [{"to": "bob"}]
    assert mail.errors() == []


@pytest.mark.requirement("S4")
def test_handlers_that_raise_are_recorded_and_the_task_is_completed(mail: Office) -> None:
    mail.answers("before", None, fails=True)
    mail.answers("error", None, fails=True)
    mail.process(**HANDLERS)
    assert mail.errors() == ["shop.before: out of order; then shop.error: out of order"]
    assert mail.completed()


def test_a_success_handler_that_raises_leaves_no_attempt_without_a_fact(mail: Office) -> None:
    mail.answers("success", None, fails=True)
    mail.process(**HANDLERS)
    assert mail.heard() == [
        ("before", HANDLERS),
        ("error", {"original_payload": HANDLERS, "error": "shop.success: out of order"}),
    ]
    assert mail.completed()


REFUND = """
create table shop.purchase (purchase_id bigint primary key);
insert into shop.purchase values (7);
select queues.create_process('shop.refund', 'shop.purchase.purchase_id');
create or replace function shop.run_refund(_refund_task_id bigint) returns jsonb
language sql security definer set search_path = shop, pg_temp as $$ select '{"status": "succeeded"}'::jsonb $$;
select shop.kickoff_refund(7);
"""


@pytest.mark.requirement("S4", "S10")
@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("reset lock_timeout", "canceling statement due to statement timeout"),
        ("set lock_timeout = '50ms'", "canceling statement due to lock timeout"),
    ],
)
def test_a_supervisor_whose_process_is_locked_for_too_long_runs_again_and_ends_it(
    office: Office, setting: str, says: str
) -> None:
    office.db.do(REFUND)
    office.db.do(f"alter function shop.refund_supervisor {setting}")
    with psycopg.connect(office.db.dsn) as other:
        other.execute("select from shop.refund_task for update")
        office.drain()
        [said] = office.errors()
        assert said == f"the postgresql store is busy: shop.refund_supervisor: {says}"
        assert not office.completed()
        assert office.db.one("select attempts from fairlane.scheduled") == 1
    office.drain()
    assert (office.completed(), len(office.errors())) == (True, 1)
    assert office.db.one("select count(*) from shop.refund_attempt_succeeded") == 1


def test_a_supervisor_that_may_enqueue_nothing_for_now_runs_again_and_goes_on(office: Office) -> None:
    office.db.do(PASS_ON)
    office.db.do("select queues.enqueue('db_function', %s)", json.dumps({"db_function": "shop.supervise"}))
    office.app.tasks.pause("pigeon", refuse=True)
    office.drain()
    [said] = office.errors()
    assert "shop.supervise: task of type pigeon is refused" in said
    assert office.db.one("select count(*) from fairlane.done") == 0
    office.app.tasks.resume("pigeon")
    office.drain()
    assert office.db.one("select count(*) from queues.task where task_type = 'pigeon'") == 1


@pytest.mark.parametrize("code", ["53100", "53400", "55006", "58030", "25006"])
def test_a_db_function_that_the_database_has_no_room_for_runs_again(office: Office, code: str) -> None:
    office.db.do(
        "create or replace function shop.supervise(_payload jsonb) returns jsonb language plpgsql security definer "
        f"set search_path = shop, pg_temp as $$ begin raise 'not now' using errcode = '{code}'; end $$"
    )
    office.process("db_function", db_function="shop.supervise", error_handler="shop.error")
    assert office.heard() == []
    assert (len(office.errors()), office.completed()) == (1, False)


def test_a_supervisor_is_held_up_as_often_as_it_may_be_and_never_given_up(office: Office) -> None:
    office.db.do(
        "create or replace function shop.supervise(_payload jsonb) returns jsonb language plpgsql security definer "
        "set search_path = shop, pg_temp as $$ begin raise 'not now' using errcode = '53100'; end $$"
    )
    office.db.do("select queues.enqueue('db_function', %s)", json.dumps({"db_function": "shop.supervise"}))
    office.drain()
    office.db.do("update fairlane.scheduled set attempts = 50")
    office.drain()
    assert (len(office.errors()), office.completed()) == (2, False)


def test_a_success_handler_that_is_held_up_is_called_again_and_nothing_delivered_again(mail: Office) -> None:
    with psycopg.connect(mail.db.dsn) as other:

        def lock() -> None:
            other.execute("lock table shop.heard in exclusive mode")
            Timer(2.5, other.rollback).start()

        mail.postbox.act = lock
        mail.process(**HANDLERS)
    assert [handler for handler, _ in mail.heard()] == ["before", "success"]
    assert (mail.errors(), mail.completed(), len(mail.postbox.delivered)) == ([], True, 1)


@pytest.mark.requirement("S4", "S10")
@pytest.mark.parametrize(("answer", "kept"), [({"id": "ä"}, {"id": "ä"}), ({"said": "x" * 2_000_000}, {})])
def test_what_was_delivered_is_not_delivered_again_however_long_its_success_handler_is_held_up(
    mail: Office, monkeypatch: pytest.MonkeyPatch, answer: object, kept: object
) -> None:
    monkeypatch.setattr("fairlane.supervisors.channels.RECORD_PAUSES_S", (0.0,))
    definition = mail.db.one("select pg_get_functiondef('shop.success'::regproc)")
    mail.db.do(
        "create or replace function shop.success(_payload jsonb) returns jsonb language plpgsql security definer "
        "set search_path = shop, pg_temp as $$ begin raise 'not now' using errcode = '53100'; end $$"
    )
    mail.postbox.answer = answer
    mail.process(**HANDLERS)
    mail.drain()
    assert (len(mail.errors()), mail.completed(), len(mail.postbox.delivered)) == (2, False, 1)
    assert mail.db.one("select attempts from fairlane.scheduled") == 0, "it is never given up"
    [(job, seq)] = mail.db.ask("select id::text, seq from fairlane.job")
    mail.app.jobs.bury(job, reason="enough")
    mail.app.dead_letters.reprocess(seq)
    mail.db.do(definition)
    mail.drain()
    assert mail.heard() == [
        ("before", HANDLERS),
        ("success", {"original_payload": HANDLERS, "worker_payload": kept}),
    ]
    assert (mail.completed(), len(mail.postbox.delivered)) == (True, 1)


def test_a_failure_whose_error_handler_is_held_up_is_recorded_and_runs_again(mail: Office) -> None:
    def refuse() -> None:
        other.execute("lock table shop.heard in exclusive mode")
        raise NonRetryable("550 no such user")

    mail.postbox.act = refuse
    with psycopg.connect(mail.db.dsn) as other:
        mail.process(**HANDLERS)
        [said] = mail.errors()
        assert said.startswith("550 no such user; then the postgresql store is busy: shop.error: canceling statement")
        assert not mail.completed()


@pytest.mark.parametrize("number", ["1e5000", f"{10**400}.5"])
@pytest.mark.parametrize("handler", ["supervise", "before", "success", "error"])
def test_a_handler_that_answers_with_a_number_out_of_range_has_failed(mail: Office, handler: str, number: str) -> None:
    mail.answers("supervise", {})
    answer = f'{{"status": "succeeded", "payload": {{"n": {number}}}}}'
    mail.db.do("update shop.answers set answer = %s where handler = %s", answer, handler)
    if handler in ("supervise", "error"):
        mail.process("db_function", db_function="shop.supervise", error_handler="shop.error")
    else:
        mail.process(**HANDLERS)
    [said] = mail.errors()
    assert f"shop.{handler}: answered what cannot be read" in said
    assert mail.completed()


@pytest.mark.parametrize("text", ["\0", "a\0\0b", "\\\0", "\\u0000", "\\\\u0000"])
def test_what_a_provider_answers_is_kept_but_for_nul(mail: Office, text: str) -> None:
    mail.postbox.answer = {"said": text, text: 1}
    mail.process(**HANDLERS)
    kept = text.replace("\0", "\ufffd")
    assert mail.heard()[1][1]["worker_payload"] == {"said": kept, kept: 1}
    assert (mail.errors(), len(mail.postbox.delivered)) == ([], 1)


@pytest.mark.parametrize("answer", [{"id": object()}, {7: "x"}, object(), {"text": "\ud800"}])
def test_a_provider_that_answers_what_is_no_json_has_delivered(mail: Office, answer: object) -> None:
    mail.postbox.answer = answer
    mail.process(**HANDLERS)
    assert [handler for handler, _ in mail.heard()] == ["before", "success"]
    assert (mail.errors(), len(mail.postbox.delivered)) == ([], 1)


def test_a_delivery_that_takes_too_long_has_failed(office: Office) -> None:
    office.channels.add("email", office.postbox, timeout=0.05)
    office.postbox.act = lambda: asyncio.sleep(60)
    office.process(**HANDLERS)
    assert office.errors() == ["no answer within 0.05 s"]


@pytest.mark.requirement("S6")
def test_new_task_types_are_registered_and_unknown_ones_wait(mail: Office) -> None:
    fax = Postbox()
    mail.channels.add("fax", fax)
    mail.process("fax", **HANDLERS)
    assert fax.delivered == [{"to": "ann"}]
    mail.db.do("select queues.enqueue('pigeon', '{}')")
    with mail.app.running():
        eventually(mail.app.workers.list, 10)
    assert not mail.completed()


def test_a_breaker_spares_a_provider_that_is_down_and_the_task_waits(mail: Office) -> None:
    def down() -> None:
        raise ConnectionRefusedError("down")

    mail.postbox.act = down
    for _ in range(mail.app.runtime.settings.breaker.threshold):
        mail.process(**HANDLERS)
    tried = len(mail.postbox.delivered)
    [breaker] = mail.app.breakers.list()
    assert (breaker.name, breaker.state) == ("email", "open")
    mail.db.do("select queues.enqueue('email', %s)", json.dumps(HANDLERS))
    with mail.app.running():
        eventually(lambda: mail.db.one("select count(*) from fairlane.scheduled") == 1, 10)
    assert len(mail.postbox.delivered) == tried
    assert not mail.completed()


def test_tasks_that_a_handler_enqueues_inherit_tenant_correlation_and_parent(office: Office) -> None:
    office.db.do(
        "create or replace function shop.supervise(_payload jsonb) returns jsonb language sql security definer "
        "set search_path = shop, pg_temp as $$ select queues.enqueue('pigeon', '{}'); select '{\"status\": \"succeeded\"}'::jsonb $$"
    )
    office.db.do("select set_config('fairlane.tenant', 'acme', false)")
    office.process("db_function", db_function="shop.supervise")
    office.db.do("reset fairlane.tenant")
    [(tenant, first, parent, correlation)] = office.db.ask(
        "select c.tenant, p.id, c.parent_id, c.correlation_id from fairlane.job c, fairlane.job p where c.type = 'pigeon' and p.type <> 'pigeon'"
    )
    assert (tenant, parent, correlation) == ("acme", first, str(first))


PASS_ON = """
create or replace function shop.supervise(_payload jsonb) returns jsonb language sql security definer
set search_path = shop, pg_temp as $$ select queues.enqueue('pigeon', '{}'); select '{"status": "succeeded"}'::jsonb $$
"""


def test_tasks_that_a_handler_enqueues_are_of_its_trace(office: Office) -> None:
    office.db.do(PASS_ON)
    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    instrument(office.app, tracer_provider=provider)
    office.process("db_function", db_function="shop.supervise")
    [span] = spans.get_finished_spans()
    provider.shutdown()
    assert span.context is not None
    assert office.db.one("select headers from fairlane.job where type = 'pigeon'") == {
        "traceparent": f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-{span.context.trace_flags:02x}"
    }
    office.db.do("select queues.enqueue('pigeon', '{}')")
    assert office.db.one("select headers from fairlane.job order by seq desc limit 1") is None


def test_a_worker_that_traces_nothing_passes_on_the_trace_of_a_task_and_no_other_header(office: Office) -> None:
    office.db.do(PASS_ON)
    trace = {"traceparent": "00-ab-cd-01", "tracestate": "x=1", "sentry-trace": "ab-cd-1", "baggage": "a=1"}
    office.db.do("select queues.enqueue('db_function', %s)", json.dumps({"db_function": "shop.supervise"}))
    office.db.do("update fairlane.job set headers = %s", json.dumps(trace | {"x-shop": "7"}))
    office.drain()
    assert office.db.one("select headers from fairlane.job where type = 'pigeon'") == trace


def test_channels_are_refused_where_they_cannot_work() -> None:
    for url in ("memory://", "redis://127.0.0.1:1/0", "sqlite:///jobs.db"):
        with Fairlane(url) as app, pytest.raises(ConfigError, match="live in PostgreSQL"):
            Channels(app)
    channels = Channels(Fairlane("postgresql://nobody@127.0.0.1:1/nothing"))
    with pytest.raises(InvalidOption, match="deliver"):
        channels.add("email", object())  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="up to 240 seconds"):
        channels.add("email", Postbox(), timeout=1000)
    channels.add("email", Postbox())
    with pytest.raises(InvalidOption, match="a name of its own"):
        channels.add("email", Postbox())


WORKER = """
import asyncio, sys
from fairlane import Fairlane
from fairlane.supervisors.channels import Channels
class Stuck:
    async def deliver(self, payload):
        if sys.argv[2] == "hang":
            print("delivering", flush=True)
            await asyncio.sleep(600)
        return {"message_id": 1}
app = Fairlane(sys.argv[1])
Channels(app).add("email", Stuck(), timeout=240)
with app.running():
    print("running", flush=True)
    sys.stdin.read()
"""


@pytest.mark.requirement("S10", "S4")
def test_a_task_whose_worker_is_killed_runs_again_and_its_facts_stay_single(mail: Office, tmp_path: Path) -> None:
    program = tmp_path / "worker.py"
    program.write_text(WORKER)
    mail.db.do("create table shop.sent (attempt bigint primary key)")
    mail.db.do(
        "create or replace function shop.success(_payload jsonb) returns jsonb language sql security definer set search_path = shop, pg_temp "
        "as $$ insert into sent values ((_payload->'original_payload'->>'attempt')::bigint) on conflict do nothing; "
        'select \'{"status": "succeeded"}\'::jsonb $$'
    )
    mail.db.do("select queues.enqueue('email', %s)", json.dumps({**HANDLERS, "attempt": 1}))

    def start(how: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, program, mail.db.dsn, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    first = start("hang")
    assert first.stdout is not None
    assert [first.stdout.readline(), first.stdout.readline()] == ["running\n", "delivering\n"]
    first.send_signal(signal.SIGKILL)
    first.communicate()
    mail.db.do("update fairlane.worker set expires_at = now()")  # its heartbeat has lapsed
    second = start("deliver")
    eventually(mail.completed, 60)
    second.communicate("")
    assert mail.db.ask("select attempt from shop.sent") == [(1,)]
    assert mail.db.one("select count(*) from queues.task_lease") == 2
    assert mail.errors() == []


DEADLY = """
import os, signal
from fairlane import Fairlane
from fairlane.supervisors.channels import Channels
class Deadly:
    async def deliver(self, payload):
        os.kill(os.getpid(), signal.SIGKILL)
app = Fairlane()
Channels(app).add("email", Deadly())
"""


@pytest.mark.long
@pytest.mark.requirement("S7", "S10")
def test_a_process_ends_although_its_delivery_kills_every_worker(
    office: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deadly.py").write_text(DEADLY)
    db = office.db
    db.do("select queues.create_process('shop.letter', _channel => 'email', _max_attempts => 2, _base_s => 1)")
    db.do(
        "create or replace function shop.build_letter_payload(_letter_task_id bigint) returns jsonb language sql "
        'security definer set search_path = shop, pg_temp as $$ select \'{"to": "ann"}\'::jsonb $$'
    )
    db.do("select shop.kickoff_letter(7)")
    monkeypatch.setenv("FAIRLANE_URL", db.dsn)
    command = [sys.executable, "-m", "fairlane", "worker", "--app", "deadly:app"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as worker:
        eventually(lambda: db.ask("select status from shop.letter_stopped"), 90)
        worker.terminate()
    assert db.ask("select status from shop.letter_stopped") == [("max_attempts_reached",)]
    said = "no result: its task is dead: its process died 3 times while it ran alone"
    assert db.ask("select error_message from shop.letter_attempt_failed") == [(said,)] * 2


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"status": "succeeded", "success": False}, DBFunctionResult("succeeded")),
        ({"success": True, "payload": 1}, DBFunctionResult("succeeded", 1)),
        ({"success": False}, DBFunctionResult("failed")),
        ({"success": False, "validation_failure_message": "x"}, DBFunctionResult("validation_failed", None, None, "x")),
        ({"status": None, "success": True}, DBFunctionResult("succeeded")),
        ({"status": "late", "error": 7}, DBFunctionResult("late")),
    ],
)
@pytest.mark.requirement("D10")
def test_status_decides_where_it_is_there_else_success(answer: object, expected: DBFunctionResult) -> None:
    assert read_result("shop.f", answer) == expected


def test_an_empty_status_is_no_status() -> None:
    with pytest.raises(HandlerFailed, match="not a word"):
        read_result("shop.f", {"status": "", "success": True})
