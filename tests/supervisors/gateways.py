"""Real servers for the providers: a mail server, and a web server that is an SMS gateway, a files service and a storage."""

from __future__ import annotations

import json
import ssl
import threading
from base64 import b64decode
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from tests.servers.ports import free_port

CERTIFICATE = Path(__file__).with_name("localhost.pem")


class MailServer:
    """Takes mail, or answers to recipients and data as told."""

    def __init__(self, *, private: bool = False) -> None:
        self.mails: list[EmailMessage] = []
        self.envelopes: list[tuple[str | None, list[str]]] = []
        """Sender and recipients of each."""
        self.sessions: set[int] = set()
        self.logins: list[bytes] = []
        self.password = b"let me in"
        self.recipient_says = self.data_says = "250 OK"
        self.recipients_say: dict[str, str] = {}
        """Answers by address, instead of `recipient_says`."""
        self.port = free_port()
        options: dict[str, Any] = {}
        if private:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(CERTIFICATE)
            options = {
                "tls_context": context,
                "require_starttls": True,
                "authenticator": self._authenticate,
                "auth_required": True,
            }
        self._controller = Controller(self, hostname="127.0.0.1", port=self.port, **options)
        self._controller.start()

    async def handle_RCPT(self, _: SMTP, session: Session, envelope: Envelope, address: str, __: list[str]) -> str:  # noqa: N802
        self.sessions.add(id(session))
        says = self.recipients_say.get(address, self.recipient_says)
        if says.startswith("250"):
            envelope.rcpt_tos.append(address)
        return says

    async def handle_DATA(self, _: SMTP, __: Session, envelope: Envelope) -> str:  # noqa: N802
        assert isinstance(envelope.content, bytes)
        if self.data_says.startswith("250"):
            mail = message_from_bytes(envelope.content, policy=policy.default)
            assert isinstance(mail, EmailMessage)
            self.mails.append(mail)
            self.envelopes.append((envelope.mail_from, envelope.rcpt_tos))
        return self.data_says

    def _authenticate(self, _server: Any, _session: Any, _envelope: Any, _mechanism: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        self.logins.append(data.login)
        return AuthResult(success=data.password == self.password)

    def close(self) -> None:
        self._controller.stop()


class WebServer:
    """`/sms` takes forms, `/sign` gives addresses under `/bucket`, where DELETE removes objects."""

    def __init__(self) -> None:
        self.messages: list[dict[str, str]] = []
        self.credentials: list[str] = []
        self.objects: set[str] = set()
        self.queries: list[dict[str, list[str]]] = []
        self.status: dict[str, int] = {}
        """Answers by path, instead of doing anything."""
        self.signature = "secret"
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                server.credentials.append(self.headers.get("authorization", ""))
                if self.path in server.status:
                    self.answer(server.status[self.path], {"message": "told to"})
                elif self.path == "/sms":
                    server.messages.append({name: value[0] for name, value in parse_qs(body).items()})
                    self.answer(201, {"sid": f"SM{len(server.messages)}", "status": "queued"})
                else:
                    asked = json.loads(body)
                    assert asked["method"] == "DELETE"
                    self.answer(
                        200,
                        {"url": f"{server.url}/{asked['bucket']}/{asked['object_key']}?signature={server.signature}"},
                    )

            def do_DELETE(self) -> None:
                parts = urlsplit(self.path)
                server.queries.append(parse_qs(parts.query))
                if parts.path in server.status:
                    self.answer(server.status[parts.path], {})
                elif parts.path in server.objects:
                    server.objects.remove(parts.path)
                    self.answer(204, None)
                else:
                    self.answer(404, {})

            def answer(self, status: int, content: object) -> None:
                body = b"" if content is None else json.dumps(content).encode()
                self.send_response(status)
                self.send_header(
                    "location", f"{server.url}{self.path}"
                )  # at DEBUG httpcore logs the headers of answers
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def logins(self) -> list[str]:
        return [b64decode(each.removeprefix("Basic ")).decode() for each in self.credentials]

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
