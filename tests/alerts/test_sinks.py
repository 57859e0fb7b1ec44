"""Mail and webhooks against real receivers: signed, retried by Fairlane itself, once."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import msgspec
import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from fairlane import Fairlane, FakeClock
from fairlane.alerts import AlertDuty, register_sinks
from fairlane.alerts.duty import EVERY_S
from fairlane.alerts.webhooks import is_signed, signed_headers
from fairlane.core.breaker import BreakerPolicy
from fairlane.core.chance import FixedChance
from fairlane.core.ops import ALL_TENANTS, AddEvents, EventDraft, PageJobs, Report
from fairlane.stores.sqlite import MemoryStore
from fairlane.testing import run_due
from fairlane.testing.conformance.samples import NOON
from tests.alerts.test_duty import Flaky, Outage
from tests.servers.ports import free_port

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class Received(NamedTuple):
    headers: dict[str, str]
    body: bytes


class Receiver:
    """A web server that takes requests as it is told to: the next answers are given, then 204."""

    def __init__(self) -> None:
        self.requests: list[Received] = []
        self.answers: list[int] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.requests.append(Received(headers, body))
                status = receiver.answers.pop(0) if receiver.answers else 204
                self.send_response(status)
                self.send_header("location", self.path)  # at DEBUG httpcore logs the headers of answers
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook?x=1"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Mailbox:
    """A mail server: what it took, and how often it says "not now" first."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.recipients: list[list[str]] = []
        self.busy = 0
        self.logins: list[bytes] = []
        self.port = free_port()
        self._controller = Controller(
            self,
            hostname="127.0.0.1",
            port=self.port,
            authenticator=self._authenticate,
            auth_require_tls=False,
        )
        self._controller.start()

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        if self.busy:
            self.busy -= 1
            return "451 come again later"
        assert isinstance(envelope.content, bytes)
        mail = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(mail, EmailMessage)
        self.mails.append(mail)
        self.recipients.append(envelope.rcpt_tos)
        return "250 taken"

    def _authenticate(self, _server: Any, _session: Any, _envelope: Any, _mechanism: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        self.logins.append(data.login)
        return AuthResult(success=data.password == b"let me in")

    def close(self) -> None:
        self._controller.stop()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    mailbox = Mailbox()
    yield mailbox
    mailbox.close()


class Office:
    """An application with sinks; jobs run when the test says so."""

    def __init__(self, store: Any = None, clock: FakeClock | None = None, **alerts: Any) -> None:
        self.clock = clock or FakeClock(NOON)
        self.app = Fairlane(
            store=store or MemoryStore(clock=self.clock), clock=self.clock, chance=FixedChance(), alerts=alerts
        )
        self.duty = AlertDuty(self.app)

    def break_stripe(self) -> None:
        self.app.runtime.store.run(Report(name="stripe", policy=BreakerPolicy(threshold=1), failures=1))

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.clock.advance(EVERY_S)
            asyncio.run(self.duty.step())

    def jobs(self) -> list[tuple[str, str]]:
        return [(job.type, job.status) for job in self.app.runtime.store.run(PageJobs(scope=ALL_TENANTS)).jobs]


def hooks(receiver: Receiver, **options: Any) -> dict[str, Any]:
    return {"pager": {"url": receiver.url, "secret": SECRET, "allow": ["127.0.0.0/8"], **options}}


def mail(mailbox: Mailbox, **options: Any) -> dict[str, Any]:
    given = {"host": "127.0.0.1", "port": mailbox.port, "security": "none", "sender": "fairlane@example.com"}
    return {**given, "to": ["oncall@example.com", "boss@example.com"], **options}


def test_a_webhook_is_signed_and_tells_of_firing_and_of_the_end(receiver: Receiver) -> None:
    office = Office(webhooks=hooks(receiver))
    office.break_stripe()
    office.step()
    assert receiver.requests == [], "nothing is sent before a worker runs the job"
    run_due(office.app)
    [fired] = receiver.requests
    assert is_signed(SECRET, fired.headers, fired.body, office.clock.now())
    assert fired.headers["content-type"] == "application/json"
    assert fired.headers["host"] == receiver.url.split("/")[2]
    told = msgspec.json.decode(fired.body)
    assert (told["status"], told["rule"], told["about"], told["severity"]) == (
        "fired",
        "breaker_open",
        "stripe",
        "warning",
    )
    assert told["text"] == 'breaker_open: breaker "stripe" is open'
    office.app.breakers.reset("stripe")
    office.step(6)
    run_due(office.app)
    [_, resolved] = receiver.requests
    assert msgspec.json.decode(resolved.body)["status"] == "resolved"
    assert resolved.headers["webhook-id"] != fired.headers["webhook-id"]


def test_a_receiver_that_fails_is_tried_again_by_fairlane_itself(receiver: Receiver) -> None:
    office = Office(webhooks=hooks(receiver))
    receiver.answers = [500, 503]
    office.break_stripe()
    office.step()
    for _ in range(3):
        run_due(office.app)
        office.clock.advance(60)
    assert len(receiver.requests) == 3
    assert office.jobs() == [("fairlane.webhook", "completed")]
    assert len({request.headers["webhook-id"] for request in receiver.requests}) == 1, "a receiver can tell repeats"
    stamps = [int(request.headers["webhook-timestamp"]) for request in receiver.requests]
    assert stamps == sorted(set(stamps)), "each try is signed anew"
    assert all(is_signed(SECRET, request.headers, request.body, office.clock.now()) for request in receiver.requests)


def test_a_receiver_that_knows_nothing_of_us_is_not_tried_again(receiver: Receiver) -> None:
    office = Office(webhooks=hooks(receiver))
    receiver.answers = [404]
    office.break_stripe()
    office.step()
    run_due(office.app)
    assert office.jobs() == [("fairlane.webhook", "dead")]
    [letter] = office.app.dead_letters.list().dead_letters
    assert "answered 404" in letter.reason
    assert "hook?x=1" not in letter.reason, "the path of a webhook may be its secret"


def test_an_internal_address_that_was_not_allowed_ends_as_a_dead_letter(receiver: Receiver) -> None:
    office = Office(webhooks=hooks(receiver, allow=[]))
    office.break_stripe()
    office.step()
    run_due(office.app)
    assert receiver.requests == []
    [letter] = office.app.dead_letters.list().dead_letters
    assert letter.error_type == "AddressRefused"
    assert "127.0.0.1 is internal" in letter.reason


def test_no_job_and_no_log_carries_a_secret_or_an_address(
    receiver: Receiver, mailbox: Mailbox, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    office = Office(webhooks=hooks(receiver), email=mail(mailbox, username="me", password="let me in"))
    office.break_stripe()
    office.step()
    payloads = [job.payload for job in office.app.runtime.store.run(PageJobs(scope=ALL_TENANTS)).jobs]
    assert len(payloads) == 2
    for hidden in (SECRET, receiver.url, "let me in", "oncall@example.com"):
        assert not any(hidden in payload for payload in payloads)
    receiver.answers = [500]
    run_due(office.app)
    office.clock.advance(60)
    run_due(office.app)
    assert (len(receiver.requests), len(mailbox.mails)) == (2, 1)
    for hidden in (SECRET, "hook?x=1", "let me in", "bGV0IG1lIGlu"):
        assert hidden not in caplog.text


def test_mail_tells_of_firing_and_of_the_end_and_logs_in(mailbox: Mailbox) -> None:
    office = Office(email=mail(mailbox, username="me", password="let me in"))
    office.break_stripe()
    office.step()
    run_due(office.app)
    [fired] = mailbox.mails
    assert fired["Subject"] == '[warning] breaker_open: breaker "stripe" is open'
    assert fired["From"] == "fairlane@example.com"
    assert mailbox.recipients == [["oncall@example.com", "boss@example.com"]]
    assert "rule       breaker_open" in fired.get_content()
    assert mailbox.logins == [b"me"]
    office.app.breakers.reset("stripe")
    office.step(6)
    run_due(office.app)
    assert [message["Subject"].split()[0] for message in mailbox.mails] == ["[warning]", "[resolved]"]


def test_mail_that_is_not_taken_now_is_sent_later(mailbox: Mailbox) -> None:
    office = Office(email=mail(mailbox))
    mailbox.busy = 1
    office.break_stripe()
    office.step()
    run_due(office.app)
    assert mailbox.mails == []
    office.clock.advance(60)
    run_due(office.app)
    assert len(mailbox.mails) == 1
    assert office.jobs() == [("fairlane.email", "completed")]


@pytest.mark.requirement("I12")
def test_info_is_only_logged_and_each_sink_hears_from_its_severity_on(receiver: Receiver, mailbox: Mailbox) -> None:
    office = Office(webhooks=hooks(receiver, severity="critical"), email=mail(mailbox))
    office.break_stripe()
    happened = (EventDraft(kind="job_limit_warning", tenant="acme"), EventDraft(kind="worker_crashed"))
    office.app.runtime.store.run(AddEvents(events=happened))
    office.step()
    run_due(office.app)
    assert [msgspec.json.decode(request.body)["rule"] for request in receiver.requests] == ["worker_crash"]
    assert sorted(message["Subject"].split()[1] for message in mailbox.mails) == ["breaker_open:", "worker_crash:"]


def test_a_message_is_sent_once_although_it_is_handed_over_again_and_by_others(receiver: Receiver) -> None:
    office = Office(webhooks=hooks(receiver))
    another = Office(office.app.runtime.store, office.clock, webhooks=hooks(receiver))
    office.break_stripe()
    for _ in range(10):
        office.step()
        asyncio.run(another.duty.evaluate(office.clock.now()))
    run_due(office.app)
    assert len(receiver.requests) == 1


def test_what_was_saved_by_a_process_that_died_before_telling_is_told_by_the_next(receiver: Receiver) -> None:
    office = Office(webhooks=hooks(receiver))

    async def die(_: object) -> None:
        raise RuntimeError("killed")

    office.duty._sinks.send = die  # type: ignore[method-assign,assignment]
    office.break_stripe()
    with pytest.raises(RuntimeError, match="killed"):
        office.step()
    another = Office(office.app.runtime.store, office.clock, webhooks=hooks(receiver))
    another.step()
    run_due(another.app)
    assert [msgspec.json.decode(request.body)["status"] for request in receiver.requests] == ["fired"]


@pytest.mark.requirement("I12")
def test_while_the_store_is_away_people_are_told_without_it(receiver: Receiver, mailbox: Mailbox) -> None:
    clock = FakeClock(NOON)
    store = Flaky(clock=clock)
    office, store.is_away = Office(store, clock, webhooks=hooks(receiver), email=mail(mailbox)), True
    outage = Outage(office.app)
    outage.lasts(31)
    [request], [message] = receiver.requests, mailbox.mails
    assert is_signed(SECRET, request.headers, request.body, clock.now())
    assert msgspec.json.decode(request.body)["rule"] == "store_unreachable"
    assert message["Subject"].startswith("[critical] store_unreachable")
    store.is_away = False
    outage.ends()
    run_due(office.app)
    assert [msgspec.json.decode(request.body)["status"] for request in receiver.requests] == ["fired", "resolved"]
    assert len(mailbox.mails) == 2


def test_a_sink_that_cannot_be_reached_then_does_not_keep_the_others_from_hearing(mailbox: Mailbox) -> None:
    clock = FakeClock(NOON)
    closed = {"url": f"http://127.0.0.1:{free_port()}/", "secret": SECRET, "allow": ["127.0.0.0/8"]}
    office = Office(MemoryStore(clock=clock), clock, webhooks={"closed": closed}, email=mail(mailbox))
    Outage(office.app).lasts(31)
    assert len(mailbox.mails) == 1


def test_strict_payloads_and_other_categories_do_not_stop_alerts(receiver: Receiver) -> None:
    clock = FakeClock(NOON)
    app = Fairlane(
        store=MemoryStore(clock=clock),
        clock=clock,
        strict_payload=True,
        categories=("letters",),
        default_category=None,
        alerts={"webhooks": hooks(receiver)},
    )
    app.runtime.store.run(Report(name="stripe", policy=BreakerPolicy(threshold=1), failures=1))
    asyncio.run(AlertDuty(app).step())
    run_due(app)
    assert len(receiver.requests) == 1


def test_tasks_are_registered_where_sinks_are_and_nowhere_else(receiver: Receiver, mailbox: Mailbox) -> None:
    assert [*Office().app.tasks] == []
    both = Office(webhooks=hooks(receiver), email=mail(mailbox)).app
    register_sinks(both)
    assert sorted(both.tasks) == ["fairlane.email", "fairlane.webhook"]


def test_a_signature_holds_for_its_body_its_time_and_its_secret_alone() -> None:
    headers = signed_headers(SECRET, "id", NOON, b"body")
    assert is_signed(SECRET, headers, b"body", NOON)
    assert not is_signed(SECRET, headers, b"body!", NOON)
    for digits in (400, 5_000):
        assert not is_signed(SECRET, {**headers, "webhook-timestamp": "9" * digits}, b"body", NOON)
    assert not is_signed(SECRET + "A", headers, b"body", NOON)
    assert not is_signed(SECRET, {**headers, "webhook-id": "other"}, b"body", NOON)
    late = NOON.replace(minute=6)
    assert not is_signed(SECRET, headers, b"body", late)
    assert not is_signed(SECRET, {**headers, "webhook-timestamp": str(int(late.timestamp()))}, b"body", late)
    assert not is_signed(SECRET, {}, b"body", NOON)
    # The example of the convention's own documentation.
    known = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    example = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": known,
    }
    sent = NOON.fromtimestamp(1614265330, NOON.tzinfo)
    assert is_signed(SECRET, example, b'{"test": 2432232314}', sent)
