"""Document W, sections 3.1, 4.1 and 7.2: a job claimed, completed and failed by code that is no worker of ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from fairlane import Fairlane
from fairlane.core.ids import WorkerId
from fairlane.core.ops import Renew, Turn, Want
from fairlane.core.outcome import Completed
from fairlane.errors import ClaimLost
from tests.acceptance.scenes.served import Served, answer_of, has_the_fields_of, printed
from tests.support.stores import Ground, ground

__all__ = ["ground"]

pytestmark = pytest.mark.requirement("W7", "D28")

PAGE = "guides/by-hand.md"
Row = dict[str, Any]


@pytest.fixture
def app(ground: Ground) -> Iterator[Fairlane]:
    with Fairlane(ground.address("postgres"), queues={"legacy": {}}) as app:

        @app.task(name="email_ingestion_fetch", category="ingestion", queue="legacy")
        def email_ingestion_fetch(connection_id: int) -> None: ...

        yield app


def enqueued(app: Fairlane, number: int = 1) -> None:
    for _ in range(number):
        app.tasks["email_ingestion_fetch"].using(tenant=123).enqueue(connection_id=456)


def execute_email_fetch(payload: Row) -> Row:
    if payload["connection_id"] == 0:
        raise ValueError("Validation error: invalid payload")
    return {"fetched_count": 10}


def classify_error(error: Exception) -> Any:
    return "non_retryable" if isinstance(error, ValueError) else "transient"


def process_next(app: Fairlane) -> None:
    """The document's own worker, line by line."""
    job = app.jobs.claim("legacy", worker="worker-1")
    if job:
        try:
            result = execute_email_fetch(job.arguments)
            job.complete(result)
        except Exception as e:
            error_class = classify_error(e)
            job.fail(str(e)[:500], error_class=error_class, retry=(error_class != "non_retryable"))


def test_the_documents_own_worker(app: Fairlane) -> None:
    fetch = app.tasks["email_ingestion_fetch"].using(tenant=123)
    good, bad = fetch.enqueue(connection_id=456), fetch.enqueue(connection_id=0)
    process_next(app)
    process_next(app)
    process_next(app)
    assert (good.job().status, good.job().result) == ("completed", '{"fetched_count":10}')
    [letter] = app.dead_letters.list().dead_letters
    assert (letter.job.id, letter.error_class, letter.reason, letter.job.attempts) == (
        bad.id,
        "non_retryable",
        "Validation error: invalid payload",
        1,
    )


def test_the_calls_of_the_page_with_curl(app: Fairlane, tmp_path: Path) -> None:
    made, claim, *calls = printed(PAGE, "HTTP")
    with Served(app.runtime.settings.url, tmp_path, "http://127.0.0.1:8650") as served:
        served.names["TOKEN"] = served.type(made[1])
        served.names["CLAIM"] = ""
        statuses = []
        example = answer_of(calls.pop(0)[1])
        for _, command in calls:
            if not served.names["CLAIM"]:
                enqueued(app)
                answer = answer_of(served.type(claim[1]))
                assert has_the_fields_of({"claim": {**answer["claim"], "tenant": "acme"}}, example)
                served.names["CLAIM"] = spent = answer["claim"]["token"]
            answer = answer_of(served.type(command))
            if "/renew/" in command:
                assert answer.keys() == {"lease_until"}
            else:
                served.names["CLAIM"] = ""
                statuses.append((answer["status"], answer["error_class"], answer["attempts"]))
        assert statuses == [("completed", None, 0), ("failed", "transient", 1), ("pending", None, 0)]
        assert answer_of(served.type(claim[1]))["claim"]["attempt"] == 2
        assert answer_of(served.type(claim[1])) == {"claim": None}
        served.names["CLAIM"] = spent
        for _, command in calls:
            assert answer_of(served.type(f"{command} || true"))["code"] == "claim_lost"


def test_the_statements_of_the_page_at_a_prompt(app: Fairlane, ground: Ground) -> None:
    claim, renew, complete, fail, release = (statement for _, statement in printed(PAGE, "SQL"))
    enqueued(app, 3)
    with psycopg.connect(app.runtime.settings.url, autocommit=True, row_factory=dict_row) as prompt:

        def run(statement: str, token: object = None) -> Row | None:
            return prompt.execute(statement.replace(":'claim'", f"'{token}'").encode()).fetchone()

        first, second, third = (run(claim) for _ in range(3))
        assert first is not None
        assert second is not None
        assert third is not None
        assert run(claim) is None
        assert (first["type"], first["tenant"], first["payload"]) == (
            "email_ingestion_fetch",
            "123",
            {"connection_id": 456},
        )
        assert [worker.name for worker in app.workers.list().workers] == ["worker-1"] * 3
        run(renew, first["token"])
        run(complete, first["token"])
        assert run(fail, second["token"]) == {"fail_claim_v1": pytest.approx(2, rel=0.21)}
        run(release, third["token"])
        jobs = [app.jobs.get(str(row["id"])) for row in (first, second, third)]
        assert [(job.status, job.attempts, job.error_class) for job in jobs if job] == [
            ("completed", 0, None),
            ("failed", 1, "transient"),
            ("pending", 0, None),
        ]
        for late in (renew, complete, fail, release):
            with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="holds no job any more"):
                run(late, first["token"])
    assert app.workers.list().workers == ()


def test_a_workers_own_number_is_no_claim(app: Fairlane) -> None:
    """It stands in listings: given by mistake it would settle that worker's job, and take all others from it."""
    enqueued(app)
    worker, store = WorkerId(app.runtime.new_job_id()), app.runtime.store
    store.run(Renew(worker=worker, lease_s=60, name="shop", queues=("legacy",)))
    want = Want(lane="general", queues=("legacy",), limit=1, cursor="")
    [lease] = store.run(Turn(worker=worker, claim_no=1, wants=(want,))).leases
    with psycopg.connect(app.runtime.settings.url, autocommit=True) as prompt:
        for _, statement in list(printed(PAGE, "SQL"))[1:]:
            with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="holds no job"):
                prompt.execute(statement.replace(":'claim'", f"'{worker}'").encode())
    with pytest.raises(ClaimLost):
        app.jobs.claimed(worker)
    [found] = app.workers.list().workers
    assert (found.name, found.queues, found.leases) == ("shop", ("legacy",), 1)
    done = Completed(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no)
    assert store.run(Turn(worker=worker, claim_no=2, outcomes=(done,))).refused == ()


@pytest.mark.parametrize(
    ("given", "delay_s"),
    [
        ("error_class => 'transient'", 2),
        ("error_class => 'rate_limited'", 60),
        ("error_class => 'rate_limited', retry_after_s => 20", 20),
        ("error_class => 'non_retryable'", None),
        ("retry => false", None),
    ],
)
@pytest.mark.requirement("W9")
def test_delays_and_ends_at_a_prompt(app: Fairlane, given: str, delay_s: float | None) -> None:
    enqueued(app)
    with psycopg.connect(app.runtime.settings.url, autocommit=True) as prompt:
        [(token,)] = prompt.execute("select token from fairlane.claim_v1('{legacy}')").fetchall()
        fail = f"select fairlane.fail_claim_v1('{token}', 'no', {given})"
        [(waits_s,)] = prompt.execute(fail.encode()).fetchall()
    assert waits_s == (None if delay_s is None else pytest.approx(delay_s, rel=0.21))
    [job] = app.jobs.list().jobs
    assert job.status == ("dead" if delay_s is None else "failed")
