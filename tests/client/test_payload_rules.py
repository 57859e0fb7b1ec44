"""Payload rules: sensitive content, size, required fields, versions, rows from elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any
from uuid import UUID

import msgspec
import pytest

from fairlane import Fairlane, FakeClock, InvalidArguments, InvalidOption, InvalidPayload, PayloadValidator, tenant
from fairlane.core.ids import JobId
from fairlane.core.job import JobSpec
from fairlane.core.ops import Enqueue
from fairlane.core.outcome import Snoozed
from fairlane.testing import run_due

CORRELATION = UUID("550e8400-e29b-41d4-a716-446655440000")


@pytest.mark.requirement("W3")
def test_sensitive_content_is_refused_by_default_and_nothing_is_enqueued(app: Fairlane) -> None:
    @app.task(name="login")
    def login(user: dict[str, Any]) -> None: ...

    with pytest.raises(InvalidPayload, match=r"user\.profile\.Pass-Word: .*pass an id instead"):
        login.enqueue({"profile": {"Pass-Word": "hunter2"}})
    assert app.jobs.list().jobs == ()


SPELLINGS = (
    b'{"password" : "hunter2"}',
    b'{"pass\\u0077ord":"hunter2"}',
    b'{"a":"gh\\u0070_0123456789abcdefghijABCDEFGHIJ012345"}',
    b'{"a":"postgres:\\/\\/user:hunter2@host"}',
    b'[ ["password","hunter2"]]',
)


@pytest.mark.requirement("W3")
@pytest.mark.parametrize("padding", [b"", b" " * 100], ids=["short", "long"])
@pytest.mark.parametrize("text", SPELLINGS)
def test_sensitive_content_is_found_however_a_raw_value_spells_it(
    make_app: Callable[..., Fairlane], text: bytes, padding: bytes
) -> None:
    refusing, redacting = make_app(), make_app(sensitive="redact")
    value = msgspec.Raw(padding + text)
    for app in (refusing, redacting):

        @app.task(name="keep")
        def keep(value: msgspec.Raw) -> None: ...

        @app.task(name="any")
        def anything(value: Any) -> None: ...

    for name in ("keep", "any"):
        with pytest.raises(InvalidPayload, match="pass an id instead"):
            refusing.tasks[name].enqueue(value)
        kept = redacting.tasks[name].enqueue(value).job().payload
        assert "hunter2" not in kept
        assert "0123456789" not in kept
    with pytest.raises(InvalidPayload, match="pass an id instead"):
        refusing.signals.emit("paid", value)


def test_arguments_beside_a_raw_value_are_checked(app: Fairlane) -> None:
    @app.task(name="keep")
    def keep(value: msgspec.Raw, n: int) -> None: ...

    with pytest.raises(InvalidArguments, match="n"):
        keep.enqueue(msgspec.Raw(b"{}"), "many")  # type: ignore[arg-type]
    assert keep.enqueue(msgspec.Raw(b"{}"), 1).job().payload == '{"n":1,"value":{}}'


@pytest.mark.requirement("W3")
def test_sensitive_content_is_redacted_or_allowed_by_policy(make_app: Callable[..., Fairlane]) -> None:
    app = make_app(sensitive="redact")

    @app.task(name="login")
    def login(password: str, user_id: int) -> None: ...

    @app.task(name="trusted", sensitive="allow")
    def trusted(password: str) -> None: ...

    payload = login.enqueue("hunter2", 7).job().payload
    assert "hunter2" not in payload
    assert msgspec.json.decode(payload)["user_id"] == 7
    assert "hunter2" in trusted.enqueue("hunter2").job().payload


@pytest.mark.requirement("W3")
def test_a_large_payload_is_warned_about_once_per_crossing(app: Fairlane, caplog: pytest.LogCaptureFixture) -> None:
    @app.task(name="bulky")
    def bulky(text: str) -> None: ...

    with caplog.at_level(logging.WARNING, "fairlane.client"):
        for size in (10, 20_000, 20_000, 10, 20_000):
            bulky.enqueue("x" * size)
    assert [record.message.startswith("bulky: the payload has 20,0") for record in caplog.records] == [True, True]


@pytest.mark.requirement("W3")
def test_the_limits_are_settings(make_app: Callable[..., Fairlane]) -> None:
    app = make_app(payload_max_bytes=50, payload_warn_bytes=40)
    task = app.task(name="t")(lambda text: None)
    with pytest.raises(InvalidPayload, match="more than the 50 allowed"):
        task.enqueue("x" * 60)
    assert task.enqueue("x" * 10).status() == "pending"


@pytest.mark.requirement("W4", "W3")
def test_required_arguments_may_not_be_left_out(app: Fairlane) -> None:
    @app.task(name="fetch", required=("connection_id",))
    def fetch(connection_id: int | None = None) -> None: ...

    for call in ({}, {"connection_id": None}):
        with pytest.raises(InvalidPayload, match="connection_id: required"):
            fetch.enqueue(**call)  # type: ignore[arg-type]
    assert fetch.enqueue(connection_id=4).status() == "pending"


@pytest.mark.requirement("W2")
def test_strict_payloads_demand_every_field_and_list_what_is_missing(make_app: Callable[..., Fairlane]) -> None:
    app = make_app(strict_payload=True)

    @app.task(name="fetch", category="ingestion")
    def fetch(connection_id: int, password: str = "") -> None: ...

    with pytest.raises(InvalidPayload) as raised:
        fetch.enqueue(1, password="hunter2")
    text = str(raised.value)
    assert all(part in text for part in ("tenant_id", "correlation_id", "idempotency_key", "password"))
    with pytest.raises(InvalidPayload, match="UUID"):
        fetch.using(tenant=1, correlation_id="not-a-uuid", idempotency_key="k").enqueue(1)
    with pytest.raises(InvalidPayload, match="idempotency_key"):
        app.enqueue_many([fetch.using(tenant=1, correlation_id=CORRELATION).bind(1)])
    assert app.jobs.list().jobs == ()
    with tenant(1):
        job = fetch.using(correlation_id=CORRELATION, idempotency_key="k").enqueue(1).job()
    assert (job.tenant, job.correlation_id) == ("1", str(CORRELATION))


@pytest.mark.requirement("W2")
def test_strict_payloads_demand_a_reference_to_an_object(make_app: Callable[..., Fairlane]) -> None:
    app = make_app(strict_payload=True)
    given: dict[str, Any] = {"tenant": 1, "correlation_id": CORRELATION}

    def task(name: str, function: Callable[..., None], **options: Any) -> Any:
        return app.task(name=name, category="ingestion", **options)(function).using(**given, idempotency_key=name)

    with pytest.raises(InvalidPayload, match="no object is referred to") as raised:
        task("t.none", lambda number: None).using(idempotency_key=None).enqueue(1)
    assert "idempotency_key is missing" in str(raised.value), "all problems at once"
    for number, value in enumerate((None, "", [])):
        with pytest.raises(InvalidPayload, match="no object is referred to"):
            task(f"t.empty{number}", lambda user_id=None, user_ids=None: None).enqueue(user_ids=value)
    assert app.jobs.list().jobs == ()
    task("t.id", lambda user_id: None).enqueue(7)
    task("t.ids", lambda user_ids: None).enqueue([7, 8])
    task("t.refs", lambda report: None, refs=("report",)).enqueue(7)
    task("t.required", lambda report: None, required=("report",)).enqueue("r7")
    task("t.call", lambda: None).using(refs={"report": 7}).enqueue()
    assert len(app.jobs.list().jobs) == 5


@pytest.mark.requirement("W4")
def test_a_validator_adds_fields_and_schemas_by_category_and_task(make_app: Callable[..., Fairlane]) -> None:
    class Schema(msgspec.Struct):
        connection_id: int
        limit: int = 0

    app = make_app(validator=PayloadValidator(required={"ingestion": ["connection_id"]}, schemas={"fetch": Schema}))
    fetch = app.task(name="fetch", category="ingestion")(lambda connection_id=None, limit=0: None)
    with pytest.raises(InvalidPayload, match="connection_id"):
        fetch.enqueue()
    with pytest.raises(InvalidPayload, match=r"schema of \"fetch\""):
        fetch.enqueue(connection_id=1, limit="many")
    assert fetch.using(refs={"document_id": 4}).enqueue(connection_id=1).status() == "pending"


@pytest.mark.requirement("W2")
def test_arguments_named_as_references_are_kept_with_the_job(app: Fairlane) -> None:
    @app.task(name="fetch", refs=("connection_id", "note_id"))
    def fetch(connection_id: UUID, note_id: int | None = None) -> None: ...

    assert fetch.using(refs={"more": 1}).enqueue(CORRELATION).job().refs == {
        "connection_id": str(CORRELATION),
        "more": 1,
    }


def test_an_argument_too_large_for_a_reference_is_refused(app: Fairlane) -> None:
    @app.task(name="fetch", refs=("number",))
    def fetch(number: int) -> None: ...

    for number in (2**63, -(2**63) - 1, 10**30):
        with pytest.raises(InvalidOption, match="64 bits"):
            fetch.enqueue(number)
    assert fetch.enqueue(2**63 - 1).job().refs == {"number": 2**63 - 1}


@pytest.mark.requirement("W3", "L3")
def test_an_old_job_still_runs_after_its_shape_changed(make_app: Callable[..., Fairlane]) -> None:
    old = make_app()
    old.task(name="greet")(lambda name: None).enqueue("Ada Lovelace")
    new = make_app(store=old.runtime.store)
    seen: list[tuple[str, str]] = []

    @new.task(name="greet", version=3)
    def greet(first: str, last: str) -> None:
        seen.append((first, last))

    @greet.upcast(1)
    def _(payload: dict[str, Any]) -> dict[str, Any]:
        return {"full": payload["name"]}

    @greet.upcast(2)
    def _(payload: dict[str, Any]) -> dict[str, Any]:
        first, last = payload["full"].split()
        return {"first": first, "last": last}

    assert greet.enqueue("Alan", "Turing").job().payload_version == 3
    run_due(new)
    assert seen == [("Ada", "Lovelace"), ("Alan", "Turing")]


BAD_ROWS: list[tuple[str, int, str]] = [
    ('{"a": "x"}', 1, "a: Expected `int`, got `str`"),
    ("{}", 1, "missing required field `a`"),
    ("[1]", 1, "expected one object"),
    ("not json", 1, "expected a value"),
    ("[" * 5000, 1, "nested deeper"),
    ('{"a": 1' + "0" * 5000 + "}", 1, "digits"),
    ('{"a": 1, "a": 2}', 1, "twice"),
    ('{"b": 1', 1, "expected"),
]
NEWER_ROWS: list[tuple[str, int, str]] = [
    ('{"a": 1, "os": "system"}', 1, "it takes no argument 'os'"),
    ('{"b": 1}', 1, "it takes no argument 'b'"),
    ('{"a": 1}', 7, "payload version 7 is newer than 1"),
    ('{"a": {"b": ' + "[" * 100 + "]" * 100 + "}}", 2, "payload version 2 is newer than 1"),
]


@pytest.mark.requirement("L3", "W8")
@pytest.mark.parametrize(("text", "version", "problem"), BAD_ROWS, ids=[problem for _, _, problem in BAD_ROWS])
def test_a_row_that_breaks_the_rules_goes_to_the_dead_letters_uncharged(
    app: Fairlane, text: str, version: int, problem: str
) -> None:
    @app.task(name="t")
    def t(a: int) -> None: ...

    t.enqueue(1)
    foreign = JobSpec(
        id=JobId(CORRELATION), type="t", payload=msgspec.Raw(text.encode()), payload_version=version, priority=0
    )
    app.runtime.store.run(Enqueue(jobs=(foreign,)))
    assert [type(ran.outcome).__name__ for ran in run_due(app)] == ["Died", "Completed"]
    [letter] = app.dead_letters.list().dead_letters
    assert problem in letter.reason
    assert (letter.job.attempts, letter.error_type.rpartition(".")[2]) == (0, "UnreadablePayload")


@pytest.mark.requirement("L17")
@pytest.mark.parametrize("needs_all", [True, False])
@pytest.mark.parametrize(("text", "version", "problem"), NEWER_ROWS, ids=[problem for _, _, problem in NEWER_ROWS])
def test_a_row_of_newer_code_is_put_off_uncharged_and_dead_after_a_day(
    app: Fairlane, clock: FakeClock, text: str, version: int, problem: str, needs_all: bool
) -> None:
    if needs_all:
        app.task(name="t")(lambda a: None)
    else:
        app.task(name="t")(lambda a=0: None)
    foreign = JobSpec(id=JobId(CORRELATION), type="t", payload=msgspec.Raw(text.encode()), payload_version=version)
    app.runtime.store.run(Enqueue(jobs=(foreign,)))
    delays = []
    for _ in range(10):
        [ran] = run_due(app)
        assert isinstance(ran.outcome, Snoozed)
        delays.append(ran.outcome.delay_s)
        job = app.jobs.get(foreign.id)
        assert (job.status, job.attempts, job.error_type) == ("pending", 0, "NeedsNewerCode")
        clock.advance(ran.outcome.delay_s)
    assert delays[:5] == sorted(delays[:5])
    assert 0.5 < delays[0] < 2
    assert 20 < delays[-1] <= 30, "newer code finds it soon"
    [reason, *_] = app.jobs.why(foreign.id).reasons
    assert reason.says.startswith("it needs newer code and has been put off, uncharged, for 3 min: ")
    assert problem in reason.says
    clock.advance(86_400)
    run_due(app)
    [letter] = app.dead_letters.list().dead_letters
    assert problem in letter.reason
    assert (letter.job.attempts, letter.error_type) == (0, "NeedsNewerCode")
    assert [attempt.outcome for attempt in app.jobs.detail(foreign.id).attempts] == ["snoozed", "dead"]


@pytest.mark.requirement("L17")
def test_how_long_a_job_waits_for_newer_code_is_a_setting(make_app: Callable[..., Fairlane], clock: FakeClock) -> None:
    app = make_app(newer_code_wait_s=60.0)
    app.task(name="t")(lambda: None)
    app.runtime.store.run(Enqueue(jobs=(JobSpec(id=JobId(CORRELATION), type="t", payload=msgspec.Raw(b'{"n":1}')),)))
    run_due(app)
    clock.advance(60)
    run_due(app)
    assert app.jobs.get(CORRELATION).status == "dead"


def test_strict_payloads_take_the_key_of_a_node_from_its_workflow(make_app: Callable[..., Fairlane]) -> None:
    app = make_app(strict_payload=True)
    ran: list[int] = []

    @app.task(name="order", category="notifications", refs=("order_id",))
    def order(order_id: int) -> int:
        return order_id + 1

    @app.task(name="ship", category="notifications", refs=("order_id",))
    def ship(order_id: int) -> None:
        ran.append(order_id)

    flow = app.workflow("shop")
    first = flow.add(order.using(tenant="acme").bind(order_id=7))
    second = flow.add(ship.using(tenant="acme").bind(first.result), after=[first])
    handle = flow.enqueue()
    run_due(app)
    assert ran == [8]
    jobs = {node.name: app.jobs.get(node.job_id).refs for node in handle.nodes()}
    assert jobs == {first.name: {"order_id": 7}, second.name: {}}, "a result is no id yet when its job is enqueued"


def test_strict_payloads_demand_of_a_node_what_its_workflow_does_not_have(make_app: Callable[..., Fairlane]) -> None:
    app = make_app(strict_payload=True)

    @app.task(name="order", category="notifications", refs=("order_id",))
    def order(order_id: int | None = None) -> None: ...

    flow = app.workflow("shop")
    flow.add(order.bind())
    with pytest.raises(InvalidPayload) as refused:
        flow.enqueue()
    assert "tenant_id" in str(refused.value)
    assert "idempotency_key" not in str(refused.value)
