"""Sentry, with its real SDK and a transport that keeps what it is given: errors, traces, check-ins."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from fairlane import Cancel, Fairlane, FakeClock, Retry, current_job
from fairlane.contrib.sentry import instrument
from fairlane.errors import StoreUnavailable
from fairlane.testing import run_due
from tests.servers.ports import free_port

PASSWORD = "canary-4711"


class Kept(Transport):
    """Sends nothing anywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.envelopes: list[Envelope] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        self.envelopes.append(envelope)

    def items(self, kind: str) -> list[dict[str, Any]]:
        return [item.payload.json for envelope in self.envelopes for item in envelope.items if item.type == kind]


@pytest.fixture
def sentry() -> Iterator[Kept]:
    transport = Kept()
    sentry_sdk.init(
        dsn="https://key@sentry.example.com/1", transport=transport, traces_sample_rate=1.0, auto_enabling_integrations=False,
    )  # fmt: skip
    yield transport
    sentry_sdk.get_client().close()
    sentry_sdk.init()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def app(sentry: Kept, clock: FakeClock) -> Iterator[Fairlane]:
    with Fairlane("memory://", clock=clock) as app:
        yield app


def test_a_dead_job_is_reported_once_with_what_is_known_of_it(app: Fairlane, sentry: Kept) -> None:
    instrument(app)

    @app.task(name="mail.send", queue="mail", retry=Retry(max_attempts=2, delays=(0,)))
    def send(order_id: int) -> None:
        logging.getLogger("shop").warning("about to send")
        raise LookupError("no such order")

    handle = send.using(tenant="acme", correlation_id="order 7", refs={"order_id": 7}).enqueue(7)
    run_due(app)
    [event] = sentry.items("event")
    [error] = event["exception"]["values"]
    assert (error["type"], error["value"], error["mechanism"]) == (
        "LookupError",
        "no such order",
        {"type": "fairlane", "handled": False},
    )
    assert error["stacktrace"]["frames"][-1]["function"] == "send"
    assert (event["level"], event["transaction"]) == ("error", "mail.send")
    assert event["contexts"]["fairlane_job"] == {
        "id": str(handle.id),
        "task": "mail.send",
        "queue": "mail",
        "tenant": "acme",
        "attempt": 2,
        "max_attempts": 2,
        "correlation_id": "order 7",
        "refs": {"order_id": 7},
    }
    tags = {"fairlane.task": "mail.send", "fairlane.tenant": "acme", "fairlane.is_dead": "true"}
    assert tags.items() <= event["tags"].items()


def test_failed_attempts_are_reported_as_warnings_if_asked_for(app: Fairlane, sentry: Kept) -> None:
    instrument(app, retries=True)

    @app.task(name="flaky", retry=Retry(max_attempts=2, delays=(0,)))
    def flaky() -> None:
        raise LookupError("no such order")

    flaky.enqueue()
    run_due(app)
    assert [event["level"] for event in sentry.items("event")] == ["warning", "error"]


def test_an_error_that_the_task_reports_itself_has_the_job_on_it(app: Fairlane, sentry: Kept) -> None:
    instrument(app)

    @app.task(name="tries")
    def tries() -> None:
        sentry_sdk.capture_message("could not reach them")

    tries.using(tenant="acme").enqueue()
    run_due(app)
    [event] = sentry.items("event")
    assert (event["message"], event["tags"]["fairlane.tenant"]) == ("could not reach them", "acme")
    sentry_sdk.capture_message("outside")
    assert "fairlane_job" not in sentry.items("event")[-1]["contexts"]


@pytest.mark.parametrize("wanted", [False, True])
def test_arguments_are_sent_only_if_asked_for(app: Fairlane, sentry: Kept, wanted: bool) -> None:
    instrument(app, arguments=wanted)

    @app.task(name="fails", max_attempts=1)
    def fails(name: str) -> None:
        raise ValueError

    fails.enqueue("Ada")
    run_due(app)
    [event] = sentry.items("event")
    assert event["contexts"]["fairlane_job"].get("arguments") == ({"name": "Ada"} if wanted else None)


class Order(msgspec.Struct):
    email: str
    lines: list[int]


class Payment(msgspec.Struct):
    order: Order
    card: str
    amount: int


PAYMENT: dict[str, Any] = {"order": Order("ada@shop.example", [4711, 4712]), "card": "4242 4242", "amount": 987_654}
SECRETS = ("ada@", "4711", "4712", "4242", "987654")
"""Up here, because the lines around a call are sent, too."""


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def charge(them: Order, card: str, amount: int) -> None:
    greeting = f"Dear {them.email}"
    settings = {"url": "https://pay.example", "card": [card]}
    attempt = 3
    raise LookupError(greeting[:4], settings["url"], attempt)


@pytest.mark.requirement("W3")
@pytest.mark.parametrize("kind", ["sync", "async", "batch", "message"])
def test_no_local_variable_of_any_frame_holds_an_argument(app: Fairlane, sentry: Kept, kind: str) -> None:
    instrument(app)
    sentry_sdk.get_client().options["attach_stacktrace"] = True

    if kind == "batch":

        @app.task(name="pay", max_attempts=1, batch=5)
        def pay(orders: list[Payment]) -> None:
            for order in orders:
                charge(order.order, order.card, order.amount)
    elif kind == "async":

        @app.task(name="pay", max_attempts=1)
        async def pay(order: Order, card: str, amount: int) -> None:
            charge(order, card, amount)
    else:

        @app.task(name="pay", max_attempts=1)
        @wrapped
        def pay(order: Order, card: str, amount: int) -> None:
            if kind == "message":
                sentry_sdk.capture_message("about to charge")
            charge(order, card, amount)

    task: Any = app.tasks["pay"]
    task.enqueue(Payment(**PAYMENT)) if kind == "batch" else task.enqueue(**PAYMENT)
    run_due(app)
    events = sentry.items("event")
    assert len(events) == (2 if kind == "message" else 1)
    for event in events:
        sent = json.dumps(event)
        assert [secret for secret in SECRETS if secret in sent] == []
    frames = events[-1]["exception"]["values"][0]["stacktrace"]["frames"]
    assert {frame["module"].partition(".")[0] for frame in frames if "vars" not in frame} == {"fairlane"}
    last = frames[-1]["vars"]
    assert (last["attempt"], last["settings"]["url"]) == ("3", "'https://pay.example'"), "what is no argument stays"


def test_a_job_continues_the_trace_of_whoever_enqueued_it(app: Fairlane, sentry: Kept) -> None:
    instrument(app)

    @app.task(name="works")
    def works() -> None:
        with sentry_sdk.start_span(op="function", name="inside"):
            pass

    @app.task(name="fails", max_attempts=1)
    async def fails() -> None:
        raise ValueError

    with sentry_sdk.start_transaction(name="request") as request:
        works.enqueue()
        fails.enqueue()
    run_due(app)
    found = {item["transaction"]: item for item in sentry.items("transaction")}
    for name, status in (("works", "ok"), ("fails", "internal_error")):
        about = found[name]["contexts"]["trace"]
        assert (about["trace_id"], about["parent_span_id"]) == (request.trace_id, request.span_id)
        assert (about["op"], about["status"], about["origin"]) == ("queue.process", status, "auto.queue.fairlane")
        assert about["data"]["messaging.destination.name"] == "default"
    assert [span["description"] for span in found["works"]["spans"]] == ["inside"]
    [event] = sentry.items("event")
    assert event["contexts"]["trace"]["trace_id"] == request.trace_id


def test_a_running_job_has_the_headers_for_what_is_enqueued_in_sql(app: Fairlane, sentry: Kept) -> None:
    instrument(app)
    carried: list[dict[str, str] | None] = []

    @app.task(name="works")
    def works() -> None:
        carried.append(current_job().trace)

    works.enqueue()
    run_due(app)
    [found] = [item["contexts"]["trace"] for item in sentry.items("transaction")]
    [headers] = carried
    assert headers is not None
    assert headers["sentry-trace"] == f"{found['trace_id']}-{found['span_id']}-1"
    assert "sentry-trace_id" in headers["baggage"]


def test_runs_of_a_schedule_check_in(app: Fairlane, sentry: Kept) -> None:
    instrument(app)
    failing = [True, False]

    @app.task(name="shop.Nightly", cron="0 3 * * *", tz="Europe/Berlin", retry=Retry(max_attempts=2, delays=(0,)))
    def nightly() -> None:
        if failing and failing.pop(0):
            raise ConnectionError

    app.schedules.add("by-hand", nightly.bind(), cron="0 4 * * *", by="ada")
    nightly.enqueue()
    run_due(app)
    assert sentry.items("check_in") == [], "no run of a schedule"

    nightly.using(created_by="schedule:shop.Nightly").enqueue()  # as the duty of a worker does
    run_due(app)
    app.schedules.run("by-hand", by="ada")
    run_due(app)
    seen = [(item["monitor_slug"], item["status"], item["check_in_id"]) for item in sentry.items("check_in")]
    assert [(slug, status) for slug, status, _ in seen] == [
        ("shop-nightly", "in_progress"),
        ("shop-nightly", "ok"),
        ("by-hand", "in_progress"),
        ("by-hand", "ok"),
    ]
    assert len({check_in for _, _, check_in in seen}) == 2
    config = {"schedule": {"type": "crontab", "value": "0 3 * * *"}, "timezone": "Europe/Berlin"}
    assert [item.get("monitor_config") for item in sentry.items("check_in")] == [config, config, None, None]


def test_a_run_that_dies_checks_in_as_an_error(app: Fairlane, sentry: Kept) -> None:
    instrument(app)

    @app.task(name="nightly", retry=Retry(max_attempts=2, delays=(0,)))
    def nightly() -> None:
        raise ConnectionError

    nightly.using(created_by="schedule:nightly").enqueue()
    run_due(app)
    items = sentry.items("check_in")
    assert [item["status"] for item in items] == ["in_progress", "in_progress", "error"]
    assert len({item["check_in_id"] for item in items}) == 1


def test_a_run_that_cancels_itself_checks_in_as_done(app: Fairlane, sentry: Kept) -> None:
    instrument(app)

    @app.task(name="nightly")
    def nightly() -> None:
        raise Cancel("nothing to do today")

    nightly.using(created_by="schedule:nightly").enqueue()
    run_due(app)
    items = sentry.items("check_in")
    assert [item["status"] for item in items] == ["in_progress", "ok"]
    assert len({item["check_in_id"] for item in items}) == 1


@pytest.mark.parametrize("store", ["postgresql", "redis"])
def test_an_outage_sends_no_password_of_the_store(sentry: Kept, store: str) -> None:
    """Of the variables of a driver's frames one is the address that it connects to."""
    with Fairlane(f"{store}://app:{PASSWORD}@127.0.0.1:{free_port()}/1") as app:
        instrument(app)

        @app.task(name="send")
        def send() -> None: ...

        try:
            send.enqueue()
        except StoreUnavailable as error:
            assert error.__cause__ is not None, "what the driver said stays"
            sentry_sdk.capture_exception(error)
    [event] = sentry.items("event")
    assert PASSWORD not in json.dumps(event)
    assert event["exception"]["values"][-1]["type"] == "StoreUnavailable"
