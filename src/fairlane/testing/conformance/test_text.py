"""Whatever text people put in comes out bit by bit the same."""

from __future__ import annotations

import pytest

from fairlane.core.ops import only
from fairlane.testing.conformance.samples import cancelled, completed, died, failure, retried
from fairlane.testing.conformance.scene import Scene

ODD_JSON = {
    "quotes": r'{"a":"she said \"no\" and it' 's \u0027fine\u0027"}',
    "apostrophes": "{\"a\":\"it's '' ''' \"}",
    "backslashes": r'{"a":"C:\\new\\table\\\\x"}',
    "escaped NUL": r'{"a":"\u0000","\u0000":1}',
    "escaped lone surrogate": r'{"a":"\ud800 \udfff"}',
    "four-byte characters": '{"a":"\U0001f680 \U0010ffff","\U0001d4b5":1}',
    "line breaks and tabs between": '{ "a" :\n\t[ 1 ,\r\n 2 ] }',
    "unusual separators": '{"a":"\u2028\u2029\u0085\ufeff\u00a0\u200b"}',
    "control characters escaped": r'{"a":"\u0001\u001f\b\f\n\r\t\/"}',
    "duplicate and empty keys": '{"a":1,"a":2,"":3}',
    "numbers kept as written": '{"a":[1.0,1.50,1e3,-0,0.1000,123456789012345678901234567890,1e400]}',
    "percent and dollar signs": '{"a":"%s %(x)s %% $1 $$ {} {0} :x ?1 @p"}',
    "sql": '{"a":"\'); drop table job; --"}',
    "nested": '{"a":' + "[" * 60 + "]" * 60 + "}",
    "an array of braces": '{"a":"{},{\\"b\\",null}"}',
}
ODD_TEXT = {
    "empty": "",
    "blank": "  \t ",
    "quotes": "she said \"no\" 'yes' `maybe` ''",
    "backslashes": "C:\\new\\table\\ \\x00 \\u0000 \\",
    "four-byte characters": "\U0001f680\U0010ffff\U0001d4b5",
    "combining": "e\u0301 \u00e9 \u1e9b\u0323",
    "line breaks": "a\r\nb\nc\rd\u2028e\u0085",
    "control characters": "".join(map(chr, range(1, 32))) + "\x7f",
    "percent and dollar signs": "%s %(x)s %% $1 $$ {} :x ?1",
    "sql": "'); drop table job; --",
    "null words": "null",
    "list": '{a,"b",NULL}',
    "json": '{"a": [1, "\\u0000"]}',
}
odd_json = pytest.mark.parametrize("text", ODD_JSON.values(), ids=ODD_JSON)
odd_text = pytest.mark.parametrize("text", ODD_TEXT.values(), ids=ODD_TEXT)


@odd_json
def test_a_payload_and_a_result_survive_bit_by_bit(scene: Scene, text: str) -> None:
    worker, lease = scene.leased(payload=text)
    assert lease.payload == text
    scene.settle(worker, completed(lease, text))
    job = scene.see(lease.id)
    assert (job.payload, job.result) == (text, text)
    assert scene.enqueue(scene.job(id=lease.id, payload=text)).receipts[0].disposition == "replayed"


@odd_json
def test_a_reprocessed_payload_survives_bit_by_bit(scene: Scene, text: str) -> None:
    lease = scene.dead(payload=text)
    new = scene.reprocess(lease.seq).new_job
    assert new is not None
    assert new.payload == text
    assert scene.claim(scene.hire())[0].payload == text


@odd_text
def test_every_name_and_key_survives_and_finds_its_job(scene: Scene, text: str) -> None:
    name = text or "x"
    options = {
        "type": name,
        "tenant": name,
        "queue": name,
        "category": text,
        "idempotency_key": text,
        "dedup_key": text,
        "correlation_id": text,
        "created_by": text,
        "refs": {name: text, "n": 2**53},
        "headers": {name: text},
    }
    _, lease = scene.leased(**options)
    job = scene.see(lease.id)
    assert {field: getattr(job, field) for field in options} == options
    assert (lease.refs, lease.headers, lease.lane) == (options["refs"], options["headers"], "general")
    for field in ("type", "queue", "category", "idempotency_key", "correlation_id", "created_by"):
        assert scene.list_jobs(only(name), **{field: options[field]}) == [lease.id]
    for key in ("idempotency_key", "dedup_key"):
        [receipt] = scene.enqueue(scene.job(name, tenant=name, **{key: text})).receipts
        assert (receipt.disposition, receipt.id) == ("duplicate", lease.id)


@odd_text
def test_every_error_survives(scene: Scene, text: str) -> None:
    because = failure(text, error_type=text or "E", fingerprint=text or "f", traceback=text)
    worker, lease = scene.leased()
    scene.settle(worker, retried(lease, 0, because))
    [lease] = scene.claim(worker)
    scene.settle(worker, died(lease, because))
    job, letter = scene.see(lease.id), scene.letter(lease.seq)
    assert (job.last_error, job.error_type) == (text, because.error_type)
    assert (letter.reason, letter.fingerprint) == (text, because.fingerprint)
    for attempt in scene.attempts(lease.id):
        assert (attempt.error_message, attempt.traceback) == (text, text)


@odd_text
def test_what_people_write_survives(scene: Scene, text: str) -> None:
    by = text or "ada"
    job, lease = scene.put(queue="elsewhere"), scene.dead()
    scene.fail(job.id, text, by=by, notes=text)
    scene.reprocess(lease.seq, by=by, notes=text)
    assert scene.see(job.id).last_error == text
    assert scene.letter(lease.seq).resolution_notes == text
    assert {(record.by, record.notes) for record in scene.audit()} == {(by, text)}


def test_a_reason_to_stop_is_kept_with_the_attempt(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.settle(worker, cancelled(lease, 'the "user" left \\ '))
    assert [attempt.error_message for attempt in scene.attempts(lease.id)] == ['the "user" left \\ ']


def test_very_long_texts_survive(scene: Scene) -> None:
    long = "é\\\"'\U0001f680" * 100_000
    payload = '{"a":"' + "é\U0001f680" * 200_000 + '"}'
    worker, lease = scene.leased(payload=payload)
    assert lease.payload == payload
    scene.settle(worker, retried(lease, 0, failure(long, traceback=long)))
    [lease] = scene.claim(worker)
    scene.settle(worker, completed(lease, payload))
    job, attempts = scene.see(lease.id), scene.attempts(lease.id)
    assert job.result == payload
    assert (job.last_error, attempts[0].error_message, attempts[0].traceback) == (long, long, long)


def test_instants_are_exact_to_the_microsecond(scene: Scene) -> None:
    scene.later(0.123457)
    job = scene.put(run_at=scene.at(0.000001))
    scene.later(0.000001)
    worker = scene.hire()
    [lease] = scene.claim(worker)
    scene.later(0.000003)
    scene.settle(worker, completed(lease))
    seen = scene.see(job.id)
    assert (seen.run_at, seen.started_at, seen.finished_at) == (scene.at(-0.000003), scene.at(-0.000003), scene.now)
    assert {instant.utcoffset() for instant in (seen.run_at, seen.enqueued_at, lease.deadline_at)} == {
        scene.now.utcoffset()
    }


@pytest.mark.parametrize("number", [0, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)])
def test_numbers_among_the_refs_are_exact(scene: Scene, number: int) -> None:
    job = scene.put(refs={"n": number})
    assert scene.see(job.id).refs == {"n": number}
    assert scene.claim(scene.hire())[0].refs == {"n": number}
