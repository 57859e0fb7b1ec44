"""Providers against real servers: what arrives, what is told apart as final, and what errors never show."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Coroutine, Iterator
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import httpx
import msgspec
import pytest
from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given, settings, strategies as st
from moto.server import ThreadedMotoServer

from fairlane import NonRetryable
from fairlane.errors import InvalidOption
from fairlane.supervisors.providers import FileDeleter, FilesService, S3Signer, SmsGateway, SmtpMailer
from fairlane.supervisors.providers.sms import FormFields
from fairlane.supervisors.providers.storage import StoredFile
from tests.servers.ports import free_port
from tests.supervisors.gateways import CERTIFICATE, MailServer, WebServer

T = TypeVar("T")
pytestmark = pytest.mark.requirement("S6")

MAIL = {"to_address": "ann@example.com", "subject": "Grüße", "text": "Hello"}
FILE = {"bucket": "photos", "object_key": "a b/ü.jpg"}


@pytest.fixture
def mail() -> Iterator[MailServer]:
    server = MailServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def web_server() -> Iterator[WebServer]:
    server = WebServer()
    yield server
    server.close()


@pytest.fixture
def web(web_server: WebServer) -> WebServer:
    for kept in (
        web_server.messages,
        web_server.credentials,
        web_server.objects,
        web_server.queries,
        web_server.status,
    ):
        kept.clear()
    return web_server


def run(*deliveries: Coroutine[Any, Any, T], closing: Any) -> list[T]:
    """One after the other, on one event loop."""

    async def all_() -> list[T]:
        try:
            return [await each for each in deliveries]
        finally:
            await closing.close()
            await asyncio.sleep(0.05)  # a connection whose TLS failed is closed once its last bytes are out

    return asyncio.run(all_())


def mailer(server: MailServer, **options: Any) -> SmtpMailer:
    return SmtpMailer("127.0.0.1", server.port, sender="shop@example.com", **{"security": "none", **options})


def test_mail_arrives_over_one_connection(mail: MailServer) -> None:
    postman = mailer(mail)
    html = {
        **MAIL,
        "html": "<p>Hello</p>",
        "reply_to": "help@example.com",
        "headers": {"X-Order": "7"},
        "message_id": "<7@shop>",
    }
    answers = run(
        postman.deliver(MAIL), postman.deliver(html), postman.deliver({**html, "text": None}), closing=postman
    )
    first, second, third = mail.mails
    assert (first["From"], first["To"], first["Subject"]) == ("shop@example.com", "ann@example.com", "Grüße")
    assert first.get_content().splitlines() == ["Hello"]
    assert (second["Reply-To"], second["X-Order"], second["Message-ID"]) == ("help@example.com", "7", "<7@shop>")
    assert [part.get_content_type() for part in second.iter_parts()] == ["text/plain", "text/html"]
    assert third.get_content_type() == "text/html"
    assert len(mail.sessions) == 1
    assert json.loads(json.dumps(answers)) == answers
    assert [answer["message_id"] for answer in answers] == [mail["Message-ID"] for mail in mail.mails]


def test_a_private_mail_server_gets_name_and_password_under_tls() -> None:
    server = MailServer(private=True)
    try:
        trust = ssl.create_default_context(cafile=str(CERTIFICATE))
        postman = mailer(server, security="starttls", username="shop", password="let me in", tls=trust)
        run(postman.deliver(MAIL), closing=postman)
        assert (server.logins, len(server.mails)) == ([b"shop"], 1)
        stranger = mailer(server, security="starttls", username="shop", password="let me in", timeout_s=2)
        with pytest.raises(Exception, match=r"certificate|CERTIFICATE"):
            run(stranger.deliver(MAIL), closing=stranger)
        wrong = mailer(server, security="starttls", username="shop", password="guess", tls=trust, timeout_s=2)
        with pytest.raises(Exception) as caught:
            run(wrong.deliver(MAIL), closing=wrong)
        assert "guess" not in str(caught.value)
        assert len(server.mails) == 1
    finally:
        server.close()


def test_recipients_that_are_refused_beside_others_are_in_the_answer(mail: MailServer) -> None:
    postman = mailer(mail)
    mail.recipients_say = {"bob@example.com": "550 no such user", "cid@example.com": "450 greylisted"}
    everybody = {**MAIL, "to_address": ["ann@example.com", "bob@example.com", "cid@example.com"]}
    to_all, to_one = run(postman.deliver(everybody), postman.deliver(MAIL), closing=postman)
    assert to_all["refused"] == {"bob@example.com": [550, "no such user"], "cid@example.com": [450, "greylisted"]}
    assert "refused" not in to_one
    assert len(mail.mails) == 2
    mail.recipients_say["ann@example.com"] = "550 no such user"
    with pytest.raises(NonRetryable, match="550 no such user"):
        run(postman.deliver(everybody), closing=postman)


def test_what_a_mail_server_refuses_for_good_is_told_apart_from_not_now(mail: MailServer) -> None:
    postman = mailer(mail)
    mail.recipient_says = "550 no such user"
    with pytest.raises(NonRetryable, match="550 no such user"):
        run(postman.deliver(MAIL), closing=postman)
    mail.recipient_says = "450 greylisted"
    with pytest.raises(ConnectionError, match="450 greylisted"):
        run(postman.deliver(MAIL), closing=postman)
    mail.recipient_says, mail.data_says = "250 OK", "554 spam"
    with pytest.raises(NonRetryable, match="554 spam"):
        run(postman.deliver(MAIL), closing=postman)
    mail.data_says = "250 OK"
    run(postman.deliver(MAIL), closing=postman)
    nobody = SmtpMailer("127.0.0.1", free_port(), sender="shop@example.com", security="none")
    with pytest.raises(Exception) as caught:
        run(nobody.deliver(MAIL), closing=nobody)
    assert not isinstance(caught.value, NonRetryable)


@pytest.mark.parametrize(
    "wrong",
    [
        {"subject": "x\nBcc: everybody@example.com"},
        {"to_address": "ann@example.com\r\nBcc: all@example.com"},
        {"headers": {"X-A": "1\nX-B: 2"}},
        {"headers": {"X A: 1\nBcc": "all@example.com"}},
        {"headers": {"X-A": "=?utf-8?q?=0ABcc:_all@example.com?="}},
        {"subject": "=?utf-8?q?=0ABcc:_all@example.com=0A=0ABody?="},
        {"reply_to": "=?utf-8?b?CkJjYzogYWxsQGV4YW1wbGUuY29t?= <a@example.com>"},
        {"to_address": "ann@example.com, all@example.com"},
        {"to_address": "everybody: ann@example.com, all@example.com;"},
        {"from_address": "shop@example.com, all@example.com"},
        *({"headers": {name: "all@example.com"}} for name in ("Bcc", "cc", "To", "Resent-To", "Resent-Bcc", "Sender")),
        {"text": None},
        {"to_address": 7},
        {"to_address": []},
        {"subject": None},
    ],
)
def test_what_is_no_mail_is_refused_before_it_is_sent(mail: MailServer, wrong: dict[str, Any]) -> None:
    postman = mailer(mail)
    with pytest.raises(NonRetryable, match="not an e-mail"):
        run(postman.deliver({**MAIL, **wrong}), closing=postman)
    assert mail.mails == []


hostile = st.lists(
    st.sampled_from(("=?utf-8?q?", "=?utf-8?b?", "CkJjYzogeEB5Lno=", "=0A", "=0D=0A", "?=", "=2C", " ", "\r\n", "\n", "\t", "\u2028", "\0",
                     "Bcc:", "x@y.z", "X-A:", ",", ";", ":", "<", ">", '"', "\\", "(", ")", "[", "a", "ü", "\udc80"))
    | st.text(st.characters(), max_size=3), max_size=9,
).map("".join)  # fmt: skip
fields = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("subject", "message_id", "reply_to"), hostile),
        "from_address": hostile.map(lambda name: f"{name} <shop@example.com>"),
        "to_address": hostile.map(lambda name: f"{name} <ann@example.com>"),
        "headers": st.dictionaries(
            st.sampled_from(("X-A", "List-Id", "Reply-To", "Content-ID")) | hostile, hostile, max_size=2
        ),
    },
)


def test_no_value_of_a_mail_adds_a_header_or_a_recipient(mail: MailServer) -> None:
    postman, sent = mailer(mail, timeout_s=5), 0
    meant = {"from", "to", "subject", "date", "message-id", "mime-version", "content-type", "content-transfer-encoding"}

    with asyncio.Runner() as runner:

        @settings(max_examples=150)
        @given(fields)
        def send(hostile: dict[str, Any]) -> None:
            nonlocal sent
            try:
                runner.run(postman.deliver({**MAIL, **hostile}))
            except NonRetryable:
                return
            sent += 1
            (received, (sender, recipients)) = mail.mails.pop(), mail.envelopes.pop()
            named = {"reply-to", *map(str.lower, hostile.get("headers", ()))}
            assert {name.lower() for name in received} <= meant | named
            assert (sender, recipients) == ("shop@example.com", ["ann@example.com"])
            assert received.get_content().splitlines() == ["Hello"]

        send()
        runner.run(postman.close())
    assert (sent > 0, mail.mails) == (True, [])


def test_a_connection_that_the_server_has_ended_is_replaced(mail: MailServer) -> None:
    postman = mailer(mail)

    async def both() -> None:
        await postman.deliver(MAIL)
        postman._idle[0][0].close()
        await postman.deliver(MAIL)
        await postman.close()

    asyncio.run(both())
    assert len(mail.mails) == 2


def test_sms_go_to_a_gateway_as_a_form(web: WebServer) -> None:
    gateway = SmsGateway(f"{web.url}/sms", username="AC1", password="token", sender="+491")
    [answer] = run(gateway.deliver({"to_number": "+492", "body": "Code 42 & ä"}), closing=gateway)
    assert web.messages == [{"To": "+492", "From": "+491", "Body": "Code 42 & ä"}]
    assert web.logins() == ["AC1:token"]
    assert answer == {"message_id": "SM1", "response": {"sid": "SM1", "status": "queued"}}
    other = SmsGateway(
        f"{web.url}/sms", username="a", password="b", sender="+491", fields=FormFields("dst", "src", "text", "status")
    )
    [answer] = run(other.deliver({"to_number": "+492", "body": "Hi", "from_number": "shop"}), closing=other)
    assert web.messages[1:] == [{"dst": "+492", "src": "shop", "text": "Hi"}]
    assert answer["message_id"] == "queued"


@pytest.mark.parametrize(
    ("status", "final"), [(400, True), (401, True), (404, True), (302, True), (429, False), (500, False), (503, False)]
)
def test_what_a_gateway_refuses_for_good_is_told_apart_from_not_now(web: WebServer, status: int, final: bool) -> None:
    web.status["/sms"] = status
    gateway = SmsGateway(f"{web.url}/sms", username="AC1", password="token", sender="+491")
    with pytest.raises(
        NonRetryable if final else ConnectionError, match=f"the SMS gateway answered {status}: .*told to"
    ):
        run(gateway.deliver({"to_number": "+492", "body": "Hi"}), closing=gateway)


def test_what_is_no_sms_is_refused(web: WebServer) -> None:
    gateway = SmsGateway(f"{web.url}/sms", username="AC1", password="token", sender="+491")
    with pytest.raises(NonRetryable, match="not an SMS"):
        run(gateway.deliver({"body": "Hi"}), closing=gateway)
    assert web.messages == []


def test_a_file_is_deleted_at_the_address_that_a_files_service_signs(web: WebServer) -> None:
    web.objects.add("/photos/cat.jpg")
    deleter = FileDeleter(FilesService(f"{web.url}/sign", token="t"))
    file = {"bucket": "photos", "object_key": "cat.jpg"}
    answers = run(deleter.deliver(file), deleter.deliver(file), closing=deleter)
    assert [answer["was_missing"] for answer in answers] == [False, True], "what is gone is deleted"
    assert web.objects == set()
    assert web.credentials == ["Bearer t"] * 2
    assert web.queries == [{"signature": ["secret"]}] * 2


def test_no_error_and_no_log_shows_the_signed_address_of_a_file(
    web: WebServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    deleter = FileDeleter(FilesService(f"{web.url}/sign"))
    run(deleter.deliver({"bucket": "photos", "object_key": "cat.jpg"}), closing=deleter)
    web.status["/photos/cat.jpg"] = 403
    with pytest.raises(NonRetryable, match="the storage answered 403") as refused:
        run(deleter.deliver({"bucket": "photos", "object_key": "cat.jpg"}), closing=deleter)
    web.status["/sign"] = 500
    with pytest.raises(ConnectionError, match="the files service answered 500") as failed:
        run(deleter.deliver({"bucket": "photos", "object_key": "cat.jpg"}), closing=deleter)
    gone = FileDeleter(S3Signer(f"http://127.0.0.1:{free_port()}", region="r", access_key="AK", secret_key="s3cret"))
    with pytest.raises(ConnectionError, match="the storage cannot be reached") as unreachable:
        run(gone.deliver(FILE), closing=gone)
    for caught in (refused, failed, unreachable):
        assert "secret" not in str(caught.value)
        assert "Signature" not in str(caught.value)
    assert "httpcore" in {record.name.partition(".")[0] for record in caplog.records}
    assert "secret" not in caplog.text
    assert "Signature" not in caplog.text


@pytest.mark.parametrize(
    "wrong",
    [
        {"bucket": "photos"},
        *({"bucket": bucket, "object_key": "x"} for bucket in
          ("", "ab", "a" * 64, "evil.example/", "x@evil.example/", "evil.example:8080/", "evil.example#", "Ü-bucket", "a..b", "-ab", "photos\n", "10.0.0.1?")),
        *({"bucket": "photos", "object_key": key} for key in ("", ".", "..", "../other/k", "a/../b", "a/./b", "a/..", "./a")),
    ],
)  # fmt: skip
def test_what_is_no_file_is_refused_before_anything_is_asked(web: WebServer, wrong: dict[str, Any]) -> None:
    for signer in (FilesService(f"{web.url}/sign"), S3Signer(web.url, region="r", access_key="AK", secret_key="k")):
        deleter = FileDeleter(signer)
        with pytest.raises(NonRetryable, match="not a file"):
            run(deleter.deliver(wrong), closing=deleter)
    assert (web.credentials, web.queries) == ([], [])


bucket_names = st.text(st.sampled_from("ab0-.@/:#?%[]\\_Ü\n "), min_size=1, max_size=8)


@given(
    bucket=bucket_names, key=st.text(st.sampled_from("ab./%?#\\ü\t "), min_size=1, max_size=9), by_host=st.booleans()
)
def test_no_file_leads_to_another_host_or_object(bucket: str, key: str, by_host: bool) -> None:
    """As httpx reads the address: it takes dots out of a path."""
    signer = S3Signer("https://storage.example/s3", region="r", access_key="AK", secret_key="k", by_host=by_host)
    try:
        file = StoredFile(bucket, key)
    except ValueError:
        return
    url = httpx.URL(signer.presigned("DELETE", file, datetime.now(UTC)))
    place = "" if by_host else f"{bucket}/"
    assert (url.host, url.port) == (f"{bucket}.storage.example" if by_host else "storage.example", None)
    assert url.path == f"/s3/{place}{key}"


def test_signatures_are_those_that_aws_publishes() -> None:
    """The example of "Authenticating Requests: Using Query Parameters (AWS Signature Version 4)"."""
    signer = S3Signer(
        "https://s3.amazonaws.com",
        region="us-east-1",
        access_key="AKIAIOSFODNN7EXAMPLE",
        secret_key="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        by_host=True,
    )
    url = signer.presigned("GET", StoredFile("examplebucket", "test.txt"), datetime(2013, 5, 24, tzinfo=UTC), 86_400)
    assert url.startswith(
        "https://examplebucket.s3.amazonaws.com/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIA"
    )
    assert url.endswith("&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404")


def test_a_locally_signed_delete_reaches_the_object_of_an_odd_name(web: WebServer) -> None:
    web.objects.add("/photos/a%20b/%C3%BC.jpg")
    deleter = FileDeleter(S3Signer(web.url, region="eu-central-1", access_key="AK", secret_key="s3cret"))
    run(deleter.deliver(FILE), closing=deleter)
    assert web.objects == set()
    [query] = web.queries
    assert (query["X-Amz-Expires"], query["X-Amz-SignedHeaders"]) == (["300"], ["host"])
    assert query["X-Amz-Credential"][0].startswith("AK/")


@pytest.fixture(scope="module")
def storage() -> Iterator[S3Signer]:
    """A signer for an S3-compatible server with a bucket."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    assert httpx.put(f"http://127.0.0.1:{port}/photos").status_code == 200
    yield S3Signer(f"http://127.0.0.1:{port}", region="eu-central-1", access_key="AK", secret_key="s3cret")
    server.stop()


def test_a_file_of_an_s3_compatible_server_is_deleted_and_its_neighbour_stays(storage: S3Signer) -> None:
    now = datetime.now(UTC)
    file, neighbour = msgspec.convert(FILE, StoredFile), StoredFile("photos", "a b")
    for kept in (file, neighbour):
        assert httpx.put(storage.presigned("PUT", kept, now), content=b"cat").status_code == 200
    assert httpx.get(storage.presigned("GET", file, now)).content == b"cat"
    deleter = FileDeleter(storage)
    run(deleter.deliver(FILE), deleter.deliver(FILE), closing=deleter)
    assert httpx.get(storage.presigned("GET", file, now)).status_code == 404
    assert httpx.get(storage.presigned("GET", neighbour, now)).content == b"cat"


@given(
    method=st.sampled_from(["DELETE", "GET"]),
    key=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30).filter(
        lambda key: {".", ".."}.isdisjoint(key.split("/"))
    ),
    secret=st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=1, max_size=40),
)
def test_signatures_are_those_of_botocore(method: str, key: str, secret: str) -> None:
    signer = S3Signer("https://storage.example", region="eu-central-1", access_key="AK", secret_key=secret)
    file = StoredFile("photos", key)
    address, _ = signer.presigned(method, file, datetime.now(UTC)).split("?")
    request = AWSRequest(method, address)
    S3SigV4QueryAuth(Credentials("AK", secret), "s3", "eu-central-1", expires=300).add_auth(request)
    [signed_at] = parse_qs(urlsplit(request.url).query)["X-Amz-Date"]
    at = datetime.strptime(signed_at, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    assert signer.presigned(method, file, at) == request.url


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(InvalidOption, match="both, or neither"):
        SmtpMailer("mail", sender="a@b", username="x")
    with pytest.raises(InvalidOption, match="an address such as"):
        S3Signer("s3.amazonaws.com", region="r", access_key="a", secret_key="b")
