"""What operators change at a PostgreSQL prompt: done by the audited function, or refused with what to use instead."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from fairlane.core.breaker import BreakerPolicy
from fairlane.core.job import Attempt
from fairlane.core.ops import Admit, ListBreakers, Report
from fairlane.testing.conformance.samples import completed, retried
from fairlane.testing.conformance.scene import Scene
from tests.acceptance.test_sql_views import Prompt, database, prompt, scene
from tests.faults.eventually import eventually
from tests.isolation.house import House
from tests.support.stores import Ground, ground

__all__ = ["database", "ground", "prompt", "scene"]
pytestmark = pytest.mark.requirement("L20")

STUCK = """
    -- Reset stuck jobs to pending
    UPDATE jobs
    SET status = 'pending', started_at = null
    WHERE status = 'processing'
      AND started_at < NOW() - INTERVAL '1 hour';"""
"""As the document prints it."""
RESET = """
    UPDATE circuit_breakers
    SET state = 'closed', failure_count = 0, success_count = 0, opened_at = NULL, half_opened_at = NULL, updated_at = NOW()
    WHERE service_name = 'email-service'"""
OPEN = "UPDATE circuit_breakers SET state = 'open', opened_at = NOW() WHERE service_name = 'email-service'"
ACKNOWLEDGE = """
    UPDATE dead_letter_jobs SET acknowledged = true, acknowledged_by = 'admin@lipas.fi', acknowledged_at = NOW()
    WHERE id = %s"""
"""What stands behind the document's `reset-circuit-breaker!`, `update-circuit-breaker!` and `acknowledge-dead-letter!`."""


def acts(scene: Scene) -> list[tuple[str, str]]:
    return [(record.action, record.by) for record in reversed(scene.audit())]


def last(scene: Scene, **where: object) -> Attempt:
    [*_, attempt] = scene.attempts(**where)  # type: ignore[arg-type]
    return attempt


@pytest.mark.requirement("L15")
def test_the_document_resets_its_stuck_jobs_as_printed(scene: Scene, prompt: Prompt) -> None:
    worker = scene.hire(lease_s=1e6)
    scene.put_many(2, type="analysis")
    stuck, also = scene.claim(worker, 2)
    scene.now = datetime.now(UTC)
    scene.put(type="young")
    [young] = scene.claim(worker)
    assert prompt.execute(STUCK).rowcount == 2
    assert [scene.status(lease.id) for lease in (stuck, also, young)] == ["pending", "pending", "processing"]
    assert (scene.see(stuck.id).attempts, last(scene, job=stuck.id).outcome) == (0, "released"), "uncharged"
    assert acts(scene) == [("job_reset", "postgres")] * 2
    assert scene.settle(worker, completed(stuck)).refused, "the attempt that hung is fenced off"
    assert prompt.execute(STUCK).rowcount == 0
    assert {lease.id for lease in scene.claim(worker, 5)} == {stuck.id, also.id}


def test_a_job_that_ends_while_the_statement_runs_is_left_out_of_it(
    scene: Scene, prompt: Prompt, database: str
) -> None:
    worker = scene.hire(lease_s=1e6)
    scene.put_many(2)
    ends, hangs = scene.claim(worker, 2)
    counts: list[int] = []

    def reset() -> None:
        with psycopg.connect(database, autocommit=True) as other:
            other.execute("set search_path = fairlane, public")
            statement = (
                "update jobs set status = 'pending' where status = 'processing' and pg_advisory_lock(7) is not null"
            )
            counts.append(other.execute(statement).rowcount)

    prompt.execute("select pg_advisory_lock(7)")
    thread = threading.Thread(target=reset)
    thread.start()
    eventually(lambda: prompt.execute("select from pg_locks where locktype = 'advisory' and not granted").rowcount)
    scene.settle(worker, completed(ends))
    prompt.execute("select pg_advisory_unlock(7)")
    thread.join(30)
    assert counts == [1]
    assert (scene.status(ends.id), scene.status(hangs.id)) == ("completed", "pending")
    assert [record.target for record in scene.audit()] == [f"job:{hangs.id}"]


@pytest.mark.requirement("L5")
def test_jobs_are_failed_buried_and_cancelled_by_their_status(scene: Scene, prompt: Prompt) -> None:
    scene.now = datetime.now(UTC)
    failed, dead, cancelled, running = (scene.put(type=name).id for name in ("failed", "dead", "cancelled", "running"))
    scene.claim(scene.hire(), types=("running",))
    in_an_hour = scene.at(3600)
    [row] = prompt.execute(
        "UPDATE jobs SET status = 'failed', last_error = 'External service unavailable', last_error_at = NOW(), "
        "run_at = %s WHERE job_id = %s RETURNING status, attempts, last_error",
        (in_an_hour, failed),
    )
    assert row == {"status": "failed", "attempts": 1, "last_error": "External service unavailable"}
    assert abs(scene.see(failed).run_at - in_an_hour) < timedelta(seconds=1)
    prompt.execute(
        "UPDATE jobs SET status = 'dead', error_message = 'Permanent validation error' WHERE job_id = %s", (dead,)
    )
    assert scene.letter(scene.see(dead).seq).reason == "Permanent validation error"
    prompt.execute("UPDATE jobs SET status = 'cancelled' WHERE job_id = any(%s)", ([cancelled, running],))
    assert scene.status(cancelled) == "cancelled"
    assert scene.see(running).cancel_requested
    assert acts(scene) == [(f"job_{act}", "postgres") for act in ("fail", "bury", "cancel", "cancel")]


@pytest.mark.requirement("L10")
def test_dead_letters_are_acknowledged_closed_and_tried_again(scene: Scene, prompt: Prompt) -> None:
    first, second, third = (scene.dead(type=name).seq for name in ("first", "second", "third"))
    prompt.execute(ACKNOWLEDGE.encode(), (first,))
    letter = scene.letter(first)
    assert (letter.acknowledged_by, letter.status) == ("admin@lipas.fi", "pending_review")
    assert scene.audit()[0].notes == "update of dead_letter_jobs by postgres", (
        "who typed it is named beside who is said to have"
    )
    for seq, status in ((first, "resolved"), (second, "discarded"), (third, "retried")):
        prompt.execute(f"UPDATE dead_letter_jobs SET status = '{status}' WHERE id = {seq}".encode())
        assert scene.letter(seq).status == status
    again = scene.letter(third).reprocessed_as
    assert again is not None
    assert scene.see(again).status == "pending"
    assert acts(scene)[:3] == [
        ("job_dlq_acknowledge", "admin@lipas.fi"), ("job_dlq_resolve", "postgres"), ("job_dlq_discard", "postgres"),
    ]  # fmt: skip


@pytest.mark.requirement("L8")
def test_breakers_are_reset_and_opened_with_an_audit_record(scene: Scene, prompt: Prompt) -> None:
    policy = BreakerPolicy(threshold=1, cooldown_s=60)
    scene.run(Report(name="email-service", policy=policy, failures=1))
    assert not scene.run(Admit(name="email-service", policy=policy)).admitted
    assert prompt.execute(RESET.encode()).rowcount == 1
    assert scene.run(Admit(name="email-service", policy=policy)).admitted
    assert prompt.execute(OPEN.encode()).rowcount == 1
    scene.later(7200)
    assert not scene.run(Admit(name="email-service", policy=policy)).admitted, "until somebody resets it"
    prompt.execute(
        "INSERT INTO circuit_breakers (service_name, state, opened_at) VALUES ('external-api', 'open', NOW())"
    )
    [email, external] = scene.run(ListBreakers()).breakers
    assert (email.state, external.name, external.state) == ("open", "external-api", "open")
    assert acts(scene) == [
        ("breaker_reset", "postgres"), ("breaker_force_open", "postgres"), ("breaker_force_open", "postgres"),
    ]  # fmt: skip


REFUSED = {
    "UPDATE jobs SET status = 'paused' WHERE status = 'pending'": "fairlane tasks pause",
    "UPDATE jobs SET status = 'completed' WHERE status = 'pending'": "failed, dead, cancelled",
    "UPDATE jobs SET status = null WHERE status = 'pending'": "failed, dead, cancelled",
    "UPDATE jobs SET status = 'pending' WHERE status = 'failed'": "runs again by itself",
    "UPDATE jobs SET status = 'pending' WHERE status = 'dead'": "dead_letter_jobs set status = 'retried'",
    "UPDATE jobs SET status = 'cancelled' WHERE status = 'completed'": "failed, dead, cancelled",
    "UPDATE jobs SET priority = 0 WHERE status = 'pending'": "failed, dead, cancelled",
    "UPDATE jobs SET status = 'pending', run_at = NOW() + INTERVAL '1 hour' WHERE status = 'processing'": "the status alone",
    "UPDATE jobs SET status = 'pending', started_at = NOW() WHERE status = 'processing'": "the status alone",
    "UPDATE jobs SET status = 'pending', attempts = 3 WHERE status = 'processing'": "the status alone",
    "UPDATE jobs SET status = 'pending', completed_at = NOW() WHERE status = 'processing'": "the status alone",
    "UPDATE jobs SET status = 'dead', payload = '{}' WHERE status = 'pending'": "the status alone",
    "INSERT INTO jobs (type, payload) VALUES ('email', '{}')": "select enqueue_v1(",
    "DELETE FROM jobs WHERE status = 'completed'": "Cancel it",
    "UPDATE dead_letter_jobs SET error_message = 'none'": "acknowledged = true",
    "UPDATE dead_letter_jobs SET status = null": "acknowledged = true",
    "UPDATE dead_letter_jobs SET status = 'gone'": "'resolved', 'discarded' or 'retried'",
    "UPDATE dead_letter_jobs SET acknowledged = true, died_at = NOW()": "acknowledged = true",
    "DELETE FROM dead_letter_jobs": "status = 'discarded'",
    "INSERT INTO dead_letter_jobs (error_message) VALUES ('x')": "set status = 'dead'",
    "UPDATE circuit_breakers SET failure_count = 0 WHERE state = 'open'": "state = 'closed'",
    "UPDATE circuit_breakers SET state = 'half_open'": "state = 'closed'",
    "UPDATE circuit_breakers SET opened_at = NOW() - INTERVAL '1 hour'": "state = 'closed'",
    "UPDATE circuit_breakers SET opened_at = NOW(), updated_at = NOW() WHERE state = 'open'": "state = 'closed'",
    "UPDATE circuit_breakers SET state = 'closed', failure_count = 3": "state = 'closed'",
    "UPDATE circuit_breakers SET state = 'closed', service_name = 'other'": "state = 'closed'",
    "DELETE FROM circuit_breakers": "set state = 'closed'",
    "INSERT INTO circuit_breakers (state) VALUES ('open')": "state = 'closed'",
    "UPDATE job_metrics SET status = 'completed'": "leave with retention",
    "DELETE FROM job_metrics": "leave with retention",
    "DELETE FROM job_queue_health": "leave with retention",
    "UPDATE job_queue_health SET count = 0": "leave with retention",
    "INSERT INTO job_metrics (job_type) VALUES ('x')": "leave with retention",
}  # fmt: skip
"""Changes that no act stands for, and what their error says to use."""
FACTS = (
    "select (select json_agg(j) from job j) as jobs, (select json_agg(l) from lease l) as leases, "
    "(select json_agg(d) from done d) as done, (select json_agg(d) from dead_letter d) as letters, "
    "(select json_agg(b) from breaker b) as breakers, (select count(*) from audit) as acts, "
    "(select json_agg(r) from ready r) as ready, (select json_agg(s) from scheduled s) as scheduled"
)


@pytest.fixture
def everything(scene: Scene) -> None:
    """A job in every status, and an open breaker."""
    scene.now = datetime.now(UTC)
    scene.finished(type="completed")
    scene.dead(type="dead")
    worker, lease = scene.leased(type="failed")
    scene.settle(worker, retried(lease, delay_s=600))
    scene.leased(type="processing")
    scene.put(type="pending")
    scene.run(Report(name="search", policy=BreakerPolicy(threshold=2), failures=2))


@pytest.mark.usefixtures("everything")
def test_every_other_change_is_refused_with_what_to_use_instead_and_changes_nothing(prompt: Prompt) -> None:
    before = prompt.execute(FACTS).fetchall()
    for statement, helps in REFUSED.items():
        with pytest.raises(psycopg.errors.FeatureNotSupported) as refused:
            prompt.execute(statement.encode())
        assert helps in (refused.value.diag.message_hint or ""), statement
        assert prompt.execute(FACTS).fetchall() == before, statement


@pytest.mark.requirement("I10")
def test_with_separated_roles_who_acts_changes_the_rows_of_its_tenant_alone(ground: Ground) -> None:
    house = House(ground.server, ground.address("postgres").rpartition("/")[2])
    with house.connect("api", autocommit=True) as api:
        api.execute("set search_path = fairlane, public")
        api.execute(
            """select enqueue_v1('[{"type": "email", "payload": {"to": 7}, "tenant": "acme"}, {"type": "email", "tenant": "globex"}]')"""
        )
        assert api.execute("update jobs set status = 'dead'").rowcount == 0, "no tenant is set"
        api.execute("set fairlane.tenant = 'acme'")
        assert api.execute("""select id from jobs where payload @> '{"to": 7}'""").rowcount == 1
        assert api.execute("update jobs set status = 'dead'").rowcount == 1
        assert api.execute("update dead_letter_jobs set acknowledged = true").rowcount == 1
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="its priority cannot be set"):
            api.execute("update jobs set priority = 0")
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="takes no delete"):
            api.execute("delete from jobs")
        assert api.execute("select action, by from audit order by id").fetchall() == [
            ("job_bury", house.login("api")), ("job_dlq_acknowledge", house.login("api")),
        ]  # fmt: skip
    with house.connect("read", autocommit=True) as reader:
        reader.execute("set fairlane.tenant = 'acme'")
        assert reader.execute("select jsonb_pretty(payload) from fairlane.jobs").rowcount == 1
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reader.execute("update fairlane.jobs set status = 'cancelled'")
