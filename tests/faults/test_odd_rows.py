"""Rows an older version, another language or a person with psql put in: they hurt nobody else, and end before a person."""

from __future__ import annotations

import json
from collections.abc import Iterator

import psycopg
import pytest

from fairlane import Fairlane
from fairlane.core.ops import ALL_TENANTS, GetJob, GetStats, PageAudit, PageJobs, PauseClaims
from fairlane.core.outcome import Completed, Died, Snoozed
from fairlane.errors import StoreRefused
from fairlane.stores.postgres import PostgresStore
from fairlane.testing import run_due
from fairlane.testing.conformance.scene import Scene
from tests.faults.places import Place

DEEP = 5_000
ODD_PAYLOADS = {
    "deeply nested": '{"user_id":' + "[" * DEEP + "]" * DEEP + "}",
    "an escaped NUL": r'{"user_id":"\u0000"}',
    "half a surrogate pair": r'{"user_id":"\ud800"}',
    "a scalar": "7",
    "a list": "[7]",
    "null": "null",
    "a missing argument": "{}",
    "an ill-typed argument": '{"user_id":"seven"}',
    "a number out of reach": '{"user_id":1e400}',
    "one name twice": '{"user_id":7,"user_id":"seven"}',
    "4 MB of blanks and no argument": "{" + " " * 4_000_000 + "}",
}


def insert(
    place: Place, payload: str = '{"user_id":7}', *, type: str = "mail.send", version: int = 1, **columns: str
) -> int:
    """Put a ready job in without Fairlane, column by column; returns its seq."""
    names = "".join(f", {name}" for name in columns)
    values = ", %s" * len(columns)
    seq = place.number(
        "insert into fairlane.job (id, type, tenant, queue, band, rank, payload, payload_version, max_attempts, enqueued_at, due_at"
        f"{names}) values (gen_random_uuid(), %s, 'system', 'default', 5, 0, %s, %s, 5, now(), now(){values}) returning seq",
        type,
        payload,
        version,
        *columns.values(),
    )
    place.rows(
        "insert into fairlane.ready select seq, queue, band, tenant, rank, due_at, type, 0, 0, 0, false, false from fairlane.job "
        "where seq = %s",
        seq,
    )
    return seq


def test_a_refusal_without_its_pause_refuses_nothing_and_joins_no_later_pause(
    place: Place, store: PostgresStore
) -> None:
    place.rows("insert into fairlane.refusal values ('queue', 'default')")
    [pause] = store.run(PauseClaims(kind="queue", name="default", by="ada")).pauses
    assert not pause.refuse
    [record] = store.run(PageAudit(scope=ALL_TENANTS)).records
    assert (record.before, record.after) == ({"paused": False}, {"paused": True})
    assert place.number("select count(*) from fairlane.refusal") == 0


@pytest.fixture
def app(place: Place) -> Iterator[Fairlane]:
    with Fairlane(place.dsn) as app:

        @app.task(name="mail.send")
        def send(user_id: int) -> int:
            return user_id

        yield app


@pytest.mark.requirement("L3", "W3")
def test_payloads_nobody_can_read_are_claimed_with_the_others_and_dead_lettered_with_the_reason(
    place: Place, app: Fairlane
) -> None:
    odd = {insert(place, payload): name for name, payload in ODD_PAYLOADS.items()}
    newer = {insert(place, version=999), insert(place, '{"user_id":7,"colour":"red"}')}
    good = insert(place)
    ran = {ran.lease.seq: ran.outcome for ran in run_due(app)}
    assert set(ran) == {*odd, *newer, good}
    assert isinstance(ran[good], Completed)
    for seq, name in odd.items():
        outcome = ran[seq]
        assert isinstance(outcome, Died), name
        assert outcome.failure.error_type == "UnreadablePayload"
    assert all(isinstance(ran[seq], Snoozed) for seq in newer), "newer code can read these"
    letters = place.rows("select seq, status, reason from fairlane.dead_letter")
    assert {seq for seq, *_ in letters} == set(odd)
    assert all(status == "pending_review" and "mail.send" in reason for _, status, reason in letters)


@pytest.mark.parametrize("field", ["refs", "headers"])
def test_a_nul_that_no_worker_could_read_is_refused_of_one_job_as_of_many(
    place: Place, app: Fairlane, field: str
) -> None:
    scene = Scene(app.runtime.store)
    odd = scene.job(**{field: {"name": "a\x00b"}})
    for jobs in ((odd,), (odd, scene.job())):
        with pytest.raises(StoreRefused):
            scene.enqueue(*jobs)
    assert place.jobs() == 0
    scene.put(**{field: {"name": "a\\u0000b"}})
    assert getattr(scene.claim(scene.hire())[0], field) == {"name": "a\\u0000b"}


@pytest.mark.requirement("L1", "W8")
def test_people_can_look_at_every_odd_row(place: Place, app: Fairlane) -> None:
    seqs = [insert(place, payload) for payload in list(ODD_PAYLOADS.values())[:-1]]
    scene = Scene(app.runtime.store)
    assert {job.seq for job in app.runtime.store.run(PageJobs(scope=ALL_TENANTS)).jobs} == set(seqs)
    for job in scene.list_jobs():
        assert scene.find(job) is not None
    run_due(app)
    assert len(scene.stats().dead_letters) == 1
    for seq in seqs:
        assert scene.letter(seq).job.seq == seq
    for view in ("jobs", "dead_letter_jobs", "job_metrics", "job_queue_health", "circuit_breakers"):
        place.rows(f"select length(v::text) from fairlane.{view} v")


def test_a_type_no_worker_knows_stays_where_it_is_and_holds_nobody_up(place: Place, app: Fairlane) -> None:
    unknown = insert(place, type="no.such.task")
    good = insert(place)
    assert [ran.lease.seq for ran in run_due(app)] == [good]
    [job] = app.runtime.store.run(PageJobs(scope=ALL_TENANTS)).jobs[1:]
    assert (job.seq, job.status) == (unknown, "pending")


ODD_COLUMNS = {
    "refs": [
        "[1]",
        "7",
        '{"a":1.5}',
        '{"a":{"b":1}}',
        '{"a":null}',
        r'{"a":"\u0000"}',
        r'{"a":"\ud800"}',
        '{"a":true}',
    ],
    "headers": ["[1]", '{"a":1.5}', '{"a":["b"]}', '{"a":' + "[" * DEEP + "]" * DEEP + "}"],
    "retry": ["[1]", "7", '{"base":"soon"}', r'{"a":"\u0000"}', '{"a":' + "[" * DEEP + "]" * DEEP + "}"],
}


def test_odd_refs_headers_and_retries_read_as_none_and_the_job_runs(place: Place, app: Fairlane) -> None:
    seqs = [insert(place, **{column: value}) for column, values in ODD_COLUMNS.items() for value in values]
    fine = insert(
        place, refs=r'{"order":9223372036854775807,"na\u00efve \"x\"":"\ud83d\ude00"}', headers='{ "a" : "b" }'
    )
    scene = Scene(app.runtime.store)
    assert len(scene.list_jobs()) == len(seqs) + 1
    ran = run_due(app)
    assert {ran.lease.seq for ran in ran} == {*seqs, fine}
    assert all(isinstance(ran.outcome, Completed) for ran in ran)
    assert [ran.lease.refs for ran in ran if ran.lease.seq == fine] == [
        {"order": 9223372036854775807, 'naïve "x"': "\U0001f600"}
    ]
    assert [ran.lease.headers for ran in ran if ran.lease.seq == fine] == [{"a": "b"}]


UNUSABLE = {
    "due_at": ["infinity", "-infinity", "0001-01-01 BC", "20000-01-01"],
    "timeout_s": ["NaN", "Infinity", "1e15", "0"],
    "max_attempts": ["0"],
    "tenant": [""],
    "band": ["-1"],
}


def test_what_would_stop_every_claim_is_refused_at_the_door(place: Place) -> None:
    insert(place)
    for column, values in UNUSABLE.items():
        for table in ("job", "ready") if column in ("due_at", "timeout_s") else ("job",):
            for value in values:
                with pytest.raises(psycopg.errors.CheckViolation):
                    place.rows(f"update fairlane.{table} set {column} = %s", value)


def test_any_language_can_enqueue_with_a_type_alone(place: Place, app: Fairlane) -> None:
    [[answer]] = place.rows(
        """select fairlane.enqueue_v1('[{"type": "mail.send"}, {"type": "mail.send", "payload": {"user_id": 3}}]')"""
    )
    first, second = answer["receipts"]
    assert {first["disposition"], second["disposition"]} == {"created"}
    job = app.runtime.store.run(GetJob(scope=ALL_TENANTS, id=second["id"])).job  # type: ignore[union-attr]
    assert (job.tenant, job.queue, job.priority, job.payload_version, job.max_attempts) == (
        "system",
        "default",
        5,
        1,
        5,
    )
    assert [type(ran.outcome) for ran in run_due(app)] == [Died, Completed]


@pytest.mark.requirement("W6")
def test_sql_alone_can_use_keys_delays_and_tenants(place: Place, app: Fairlane) -> None:
    jobs = [
        {"type": "mail.send", "payload": {"user_id": 1}, "tenant": "acme", "idempotency_key": "k"},
        {"type": "mail.send", "payload": {"user_id": 1}, "tenant": "acme", "idempotency_key": "k"},
        {"type": "mail.send", "payload": {"user_id": 1}, "dedup_key": "d", "delay_s": 60, "priority": 0},
        {"type": "mail.send", "payload": {"user_id": 1}, "run_at": "2020-01-01T00:00:00Z", "priority_scope": "tenant"},
    ]
    [[answer]] = place.rows("select fairlane.enqueue_v1(%s)", json.dumps(jobs))
    assert [receipt["disposition"] for receipt in answer["receipts"]] == ["created", "duplicate", "created", "created"]
    assert answer["receipts"][0]["id"] == answer["receipts"][1]["id"]
    [queue] = app.runtime.store.run(GetStats(scope=ALL_TENANTS)).queues
    assert (queue.ready, queue.scheduled) == (2, 1)


UNTAKEABLE = [
    "{}",
    "7",
    "[7]",
    "[{}]",
    '[{"type": "a", "priority": -1}]',
    '[{"type": "a", "run_at": "infinity"}]',
    '[{"type": "a", "timeout_s": 1e300}]',
    '[{"type": "a", "delay_s": 1e300}]',
    '[{"type": "a", "tenant": ""}]',
    '[{"type": "a", "payload_text": "{"}]',
    '[{"type": "a"}, {"type": "a", "idempotency_key": "k", "tenant": ""}]',
]


def test_a_call_by_sql_that_cannot_be_taken_leaves_nothing(place: Place) -> None:
    for call in UNTAKEABLE:
        with pytest.raises(psycopg.Error):
            place.rows("select fairlane.enqueue_v1(%s)", call)
    assert place.jobs() == 0
    assert place.number("select count(*) from fairlane.idempotency_key") == 0
