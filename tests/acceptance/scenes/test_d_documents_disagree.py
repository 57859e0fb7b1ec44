"""What holds where the documents disagree, as somebody finds out who tries it: through the client, commands, the API and psql."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from fairlane import DuplicateJob, Fairlane, Handle, InvalidPayload, NonRetryable, RateLimited, Retry
from tests.acceptance.scenes.channel_shell import Shell
from tests.acceptance.scenes.served import Served
from tests.faults.eventually import eventually
from tests.supervisors.conftest import Database
from tests.support.stores import Ground

KINDS = ("sqlite-apsw", "postgres", "redis")


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, ground: Ground) -> str:
    address = ground.address(request.param)
    if request.param == "redis":
        server, _, prefix = address.partition(" ")
        return f"{server}?{prefix}"
    return f"sqlite:///{address}" if request.param.startswith("sqlite") else address


def opened(url: str, **settings: object) -> Fairlane:
    address, _, prefix = url.partition("?")
    return Fairlane(address, **({"key_prefix": prefix} if prefix else {}), **settings)  # type: ignore[arg-type]


@pytest.fixture
def app(url: str) -> Iterator[Fairlane]:
    with opened(url) as app:
        yield app


@pytest.mark.requirement("D1")
@pytest.mark.parametrize(
    ("named", "delays"),
    [
        ("plain", [2, 4, 8, 16]),
        ("limited", [60, 120, 240, 300]),
        ("in queue reports", [300, 900]),
        ("of the task", [7, 7]),
        ("of the call", [5]),
        ("by the other side", [33]),
    ],
)
def test_attempts_are_charged_runs_and_the_delay_is_that_of_who_stands_nearest(named: str, delays: list[int]) -> None:
    with Fairlane("memory://", queues={"reports": {"retry": Retry(max_attempts=3, delays=(300, 900))}}) as app:

        @app.task(name="fails")
        def fails(how: str = "") -> None:
            if how:
                raise RateLimited("slowly", retry_after=33 if how == "by the other side" else None)
            raise ConnectionError("no")

        @app.task(name="fails.of_the_task", queue="reports", retry=Retry(max_attempts=3, delays=(7,)))
        def own() -> None:
            raise ConnectionError("no")

        made = {
            "plain": fails.enqueue,
            "limited": lambda: fails.enqueue("limited"),
            "in queue reports": lambda: fails.using(queue="reports").enqueue(),
            "of the task": own.enqueue,
            "of the call": lambda: own.using(retry=Retry(max_attempts=2, delays=(5,))).enqueue(),
            "by the other side": lambda: fails.using(max_attempts=2).enqueue("by the other side"),
        }
        with app.testing() as jobs:
            handle = made[named]()
            jobs.run_due(raising=False)
            detail = app.jobs.detail(handle.id)
    assert (detail.job.status, detail.job.attempts) == ("dead", len(delays) + 1)
    waited = [(later.leased_at - one.ended_at).total_seconds() for one, later in pairwise(detail.attempts)]
    spread = {"plain": 0.21, "limited": 0.21, "by the other side": 0.11}.get(named, 0.01)
    assert waited == pytest.approx(delays, rel=spread)


@pytest.mark.requirement("D2", "D3", "D4", "D12")
def test_who_says_nothing_gets_a_tenant_keys_a_priority_and_an_id_and_strictness_is_a_setting(url: str) -> None:
    with opened(url) as app:
        fetch = app.task(name="fetch")(lambda connection_id: None)
        first, second = fetch.enqueue(1).job(), fetch.enqueue(2).job()
        assert (first.tenant, first.priority, first.id.version) == ("system", 5, 7)
        assert first.correlation_id == first.idempotency_key == str(first.id)
        assert (first.id, first.seq) < (second.id, second.seq)
        text = fetch.using(correlation_id="user-action-123").enqueue(3).job()
        assert text.correlation_id == "user-action-123"
    with opened(url, strict_payload=True) as app:
        fetch = app.task(name="fetch", category="ingestion")(lambda connection_id: None)
        with pytest.raises(InvalidPayload) as refused:
            fetch.using(correlation_id="user-action-123").enqueue(4)
        assert re.findall(r"tenant_id|correlation_id|idempotency_key", str(refused.value.problems)) == [
            "tenant_id", "idempotency_key", "correlation_id"
        ]  # fmt: skip


@pytest.mark.requirement("D6")
def test_every_claim_has_a_number_and_only_what_failed_is_charged(app: Fairlane) -> None:
    fetch = app.task(name="fetch")(lambda: None).enqueue()
    seen = []
    for end in ("release", "fail", "lose", "lose", "lose"):
        claim = eventually(lambda: app.jobs.claim("default", lease=1), 30)
        seen.append((claim.attempt, claim.attempts))
        if end == "fail":
            claim.fail("no", retry_after=0)
        elif end == "release":
            claim.release()
    eventually(lambda: app.jobs.claim("default") is None and fetch.status() == "dead", 30)
    assert seen == [(1, 0), (2, 0), (3, 1), (4, 1), (5, 1)]
    assert (fetch.job().error_type, fetch.job().attempts, fetch.job().crashes) == ("Crashed", 1, 3)


@pytest.mark.requirement("D11")
def test_an_idempotency_key_lasts_as_its_job_does_and_a_dedup_key_until_it_has_ended(app: Fairlane) -> None:
    fetch = app.task(name="fetch")(lambda: None)
    keyed = fetch.using(tenant="acme", idempotency_key="k", dedup_key="d")
    first = keyed.enqueue()
    assert (keyed.enqueue().id, keyed.enqueue().duplicate) == (first.id, True)
    assert fetch.using(tenant="acme", dedup_key="d").enqueue().id == first.id
    assert fetch.using(tenant="globex", idempotency_key="k", dedup_key="d").enqueue().id != first.id
    with pytest.raises(DuplicateJob) as raised:
        keyed.using(on_duplicate="raise").enqueue()
    assert str(first.id) in str(raised.value)
    app.jobs.cancel(first, by="ada")
    assert keyed.enqueue().id == first.id, "its job is kept"
    assert fetch.using(tenant="acme", dedup_key="d").enqueue().id != first.id


FIGURES = {
    "development": """
        retry.max_attempts 5; retry.base_s 2; retry.cap_s 60; breaker.threshold 3; breaker.cooldown_s 30
        worker.lanes.fast.slots 1; worker.lanes.general.slots 2; worker.batch 5; worker.poll_s 2""",
    "production": """
        retry.max_attempts 5; retry.base_s 2; retry.cap_s 300; breaker.threshold 5; breaker.cooldown_s 60
        fast_timeout_s 120; slow_timeout_s 1200; worker.lanes.fast.slots 3; worker.lanes.general.slots 5; worker.batch 20; worker.poll_s 1""",
    "isolation": """
        queues.critical.timeout_s 60; queues.default.timeout_s 300; queues.bulk.timeout_s 600
        queues.default.max_per_tenant 500; queues.bulk.max_per_tenant 100; queues.bulk.rate_per_minute 50
        queues.critical.retry.delays 10, 30, 60; queues.default.retry.delays 60, 300, 900
        queues.bulk.retry.delays 300, 900; worker.lanes.critical.slots 4; worker.lanes.default.slots 8; worker.lanes.bulk.slots 2""",
}


@pytest.mark.requirement("D17")
@pytest.mark.parametrize("profile", FIGURES)
def test_a_profile_is_shown_with_the_figures_of_its_document(profile: str, tmp_path: Path) -> None:
    (tmp_path / "fairlane.toml").write_text(f'profile = "{profile}"\n')
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FAIRLANE_", "WORKER_"))}
    command = [sys.executable, "-m", "fairlane", "config", "--wide"]
    shown = subprocess.run(command, cwd=tmp_path, env=kept, capture_output=True, text=True, check=True).stdout
    for figure in re.split(r"\s*[;\n]\s*", FIGURES[profile].strip()):
        name, _, value = figure.partition(" ")
        assert re.search(rf"^{re.escape(name)} +{re.escape(value)}(  |$)", shown, re.MULTILINE), f"{figure}\n{shown}"


@pytest.mark.requirement("D18")
def test_contents_are_for_operators_and_what_is_dead_for_staff_managers(ground: Ground, tmp_path: Path) -> None:
    url = ground.address("postgres")
    with Fairlane(url) as app, Served(url, tmp_path) as served, httpx.Client(base_url=served.address) as http:

        @app.task(name="fetch", max_attempts=1)
        def fetch(mailbox: str) -> None:
            raise NonRetryable(f"no mailbox {mailbox}")

        dead = fetch.enqueue("ann")
        with app.running(drain=True):
            pass
        live = fetch.enqueue("bob")
        roles = {"viewer": ["viewer"], "operator": ["operator"], "manager": ["staff", "manager"]}
        tokens = {name: app.tokens.create(name, given, by="ada").secret for name, given in roles.items()}

        def ask(name: str, method: str, path: str) -> tuple[int, str]:
            answer = http.request(method, f"/api/jobs/{path}", headers={"Authorization": f"Bearer {tokens[name]}"})
            return answer.status_code, answer.text

        for name, is_shown in (("viewer", False), ("operator", True)):
            status, text = ask(name, "GET", f"{live.id}/")
            assert (status, "bob" in text) == (200, is_shown)
            assert "ann" not in ask(name, "GET", f"{dead.id}/")[1]
            for method, path in (
                ("GET", "admin/dlq/"),
                ("POST", f"{dead.id}/retry/"),
                ("POST", "admin/dlq/1/reprocess/"),
            ):
                assert ask(name, method, path)[0] == 403
            assert ask(name, "GET", "statistics/")[0] == 200
        assert ask("viewer", "POST", f"{live.id}/cancel/")[0] == 403
        assert ask("operator", "POST", f"{live.id}/cancel/")[0] == 200
        assert "no mailbox ann" in ask("manager", "GET", "admin/dlq/")[1]
        assert ask("manager", "POST", f"{dead.id}/retry/")[0] == 200


@pytest.mark.requirement("D19")
def test_a_job_that_newer_code_wrote_waits_uncharged_for_a_worker_that_has_it(ground: Ground) -> None:
    url = ground.address("postgres")
    with (
        Fairlane(url) as new,
        Fairlane(url) as old,
        Fairlane(url, newer_code_wait_s=1) as impatient,
        psycopg.connect(url, autocommit=True) as sql,
    ):
        order = new.task(name="order", version=2)(lambda number, gift=False: f"{number} {gift}")
        for app in (old, impatient):
            app.task(name="order")(lambda number: f"{number}")
        ordered, mailed = order.enqueue(7, gift=True), new.task(name="mail")(lambda: None).enqueue()
        with old.running():
            eventually(lambda: "needs newer code" in str(new.jobs.why(ordered)), 30)
        assert (ordered.job().attempts, mailed.status()) == (0, "pending")

        def ended(handle: Handle[Any], status: str) -> bool:
            """Due at once, however often it is put off meanwhile."""
            sql.execute("update fairlane.scheduled set due_at = now()")
            return handle.status() == status

        with new.running():
            eventually(lambda: ended(ordered, "completed"), 60)
        assert ordered.result() == "7 True"
        assert ordered.job().attempts == 0
        late = order.enqueue(8, gift=True)
        with impatient.running():
            eventually(lambda: "needs newer code" in str(new.jobs.why(late)), 30)
        eventually(lambda: datetime.now(UTC) - late.job().enqueued_at > timedelta(seconds=1))
        with impatient.running():
            eventually(lambda: ended(late, "dead"), 60)


@pytest.mark.requirement("D20")
def test_retention_runs_all_day_or_in_the_hours_that_are_set(ground: Ground) -> None:
    url, now = ground.address("postgres"), datetime.now(UTC)
    later, around_now = (f"{now + timedelta(hours=at):%H:%M}-{now + timedelta(hours=at + 2):%H:%M}" for at in (5, -1))
    with Fairlane(url) as app, psycopg.connect(url, autocommit=True) as sql:
        mail = app.task(name="mail")(lambda: None)

        def ended_long_ago() -> str:
            job = mail.enqueue()
            with app.running(drain=True):
                pass
            sql.execute("update fairlane.done set finished_at = finished_at - interval '8 days'")
            sql.execute("delete from fairlane.duty")  # the next worker need not wait for its ten minutes
            return str(job.id)

        def is_there(job: str) -> bool:
            return app.jobs.get(job) is not None

        old = ended_long_ago()
        with Fairlane(url, retain_between=later) as other, other.running():
            eventually(lambda: sql.execute("select from fairlane.duty where name = 'retention'").rowcount == 1, 60)
        assert is_there(old)
        sql.execute("delete from fairlane.duty")
        with Fairlane(url, retain_between=around_now) as other, other.running():
            eventually(lambda: not is_there(old), 60)
        old = ended_long_ago()
        with app.running():
            eventually(lambda: not is_there(old), 60)


ANSWERS = """
create schema team;
create function team.answers(_payload jsonb) returns jsonb language sql security definer set search_path = team, pg_temp
as $$ select _payload->'answer' $$;
revoke all on function team.answers from public;
grant usage on schema team to worker_service_user;
grant execute on function team.answers to worker_service_user;
select queues.enqueue('db_function', jsonb_build_object('db_function', 'team.answers', 'answer', answer))
from unnest(array['{"status": "succeeded"}', '{"success": true}', '{"status": "attempt_not_found", "success": true}',
                  '{"success": false, "error": "no such file"}', '{"payload": {}}']::jsonb[]) answer;
"""
LEASES = r"""
select task_id from queues.dequeue_next_available_task() \gset
select expires_at as first_until from queues.task_lease where task_id = :task_id \gset
select queues.renew_task(:task_id) > :'first_until';
select expires_at > :'first_until' from queues.task_lease where task_id = :task_id;
select queues.complete_task(:task_id);
select queues.renew_task(:task_id) is null;
select count(*) = 1 and bool_and(leased_at < expires_at) from queues.task_lease where task_id = :task_id;
"""


@pytest.fixture
def db(ground: Ground) -> Iterator[Database]:
    name = "scenes_of_decisions"
    found = Database(ground.server.create_database(name))
    yield found
    found.owner.close()
    ground.server.drop_database(name)


@pytest.fixture
def shell(db: Database, tmp_path: Path) -> Shell:
    shell = Shell(tmp_path, db.dsn, 25)
    shell.run("migrate", "up", "--with", "supervisors")
    return shell


@pytest.mark.requirement("D10", "S5")
def test_status_decides_then_success_and_an_answer_with_neither_is_an_error(db: Database, shell: Shell) -> None:
    db.do(ANSWERS)
    with shell.worker():
        eventually(lambda: db.one("select count(*) from queues.task_completed") == 5, 60)
        said = re.findall(r"task \d+ \(db_function\) (ended|failed): (.*)", shell.log.read_text())
    neither = "team.answers: answered {'payload': {}}, with neither a status nor success"
    assert sorted(said) == [("ended", "attempt_not_found"), ("ended", "no such file"), ("failed", neither)]
    assert db.ask("select error_message from queues.error") == [(neither,)]


@pytest.mark.requirement("D13", "D14")
def test_a_lease_is_renewed_by_hand_and_stays_on_record(db: Database, shell: Shell, ground: Ground) -> None:
    db.do("select queues.enqueue('fax', '{}')")
    ran = subprocess.run(
        [ground.server.programs / "psql", "-XAtq", "-v", "ON_ERROR_STOP=1", db.dsn],
        input=LEASES, text=True, capture_output=True, check=True,
    )  # fmt: skip
    assert [line for line in ran.stdout.splitlines() if line] == ["t"] * 4


@pytest.mark.requirement("D15")
def test_a_process_has_the_tables_of_the_recipe_the_views_of_the_checklist_and_both_ids(
    db: Database, shell: Shell
) -> None:
    db.do("create schema comms; create table comms.email_message (email_message_id bigserial primary key)")
    command = "supervisors new comms.send_email --subject comms.email_message.email_message_id --channel email --apply"
    shell.run(*command.split())
    db.do("insert into comms.email_message default values; select comms.kickoff_send_email(1)")
    payload = db.one("select payload from queues.dequeue_next_available_task()")
    db.do("select internal.run_function('comms.send_email_supervisor', %s::jsonb)", json.dumps(payload))
    [task] = db.ask("select payload from queues.task where task_type = 'email'")
    assert {name: task[0][name] for name in ("send_email_task_id", "send_email_attempt_id")} == {
        "send_email_task_id": 1, "send_email_attempt_id": 1
    }  # fmt: skip
    for table in ("task", "attempt", "attempt_succeeded", "attempt_failed", "task_succeeded", "task_failed"):
        assert db.one(f"select count(*) from comms.send_email_{table}") == (1 if table in ("task", "attempt") else 0)


@pytest.mark.requirement("D24")
def test_each_customer_has_one_job_at_a_time_while_others_run_beside_it(app: Fairlane) -> None:
    together, running, ran = threading.Barrier(2), list[int](), list[tuple[int, int]]()

    @app.task(name="sync", key="customer_id")
    def sync(customer_id: int, n: int) -> int:
        running.append(customer_id)
        together.wait(30)  # the other customer's job runs, too
        at_once = running.count(customer_id)
        together.wait(30)
        running.remove(customer_id)
        ran.append((customer_id, n))
        return at_once

    handles = [sync.using(tenant="acme").enqueue(customer_id, n) for n in range(5) for customer_id in (42, 43)]
    last = app.jobs.why(handles[-1]).reasons[0]
    assert (last.code, last.says) == ("key_free", "it is 5th of 5 at customer:43: a live worker lets it in")
    with app.running(drain=True, slots=8):
        pass
    assert [handle.result(timeout=0) for handle in handles] == [1] * 10
    assert [n for customer, n in ran if customer == 42] == [n for customer, n in ran if customer == 43] == [*range(5)]
    assert app.limits.keys() == ()
