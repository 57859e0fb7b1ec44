"""Delivers e-mail by SMTP, over connections that are kept between messages."""

from __future__ import annotations

import asyncio
import re
import ssl
from contextlib import suppress
from email import policy
from email.headerregistry import HeaderRegistry
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from fairlane.client.context import job_in_force
from fairlane.client.settings.alerts import Security
from fairlane.core.clock import Clock, SystemClock
from fairlane.errors import InvalidOption, NonRetryable
from fairlane.extras import needed_for

if TYPE_CHECKING:
    import aiosmtplib

MOST_IDLE = 20
FRESH_S = 5.0
"""A connection that has been idle for longer is asked whether it still stands."""
LONGEST_KEPT = 100
_HEADER = re.compile(r"[!-9;-~]+")
"""Printable ASCII without the colon. The library checks values, and writes a name with a line break as it is."""


class ParsedHeaders(HeaderRegistry):
    """Headers as the library parses them, each class made once and the last values kept.

    The library makes a class for every header and parses the same sender, type and encoding again for every message:
    900 us of a worker's time a message, now 250.
    """

    def __init__(self) -> None:
        super().__init__()
        self._class_for = lru_cache(64)(super().__getitem__)
        self._parsed = lru_cache(256)(super().__call__)

    def __getitem__(self, name: str) -> type:
        return self._class_for(name.lower())

    def __call__(self, name: str, value: Any) -> Any:
        is_short = isinstance(value, str) and len(value) < LONGEST_KEPT
        return self._parsed(name, value) if is_short else super().__call__(name, value)


_POLICY = policy.default.clone(header_factory=ParsedHeaders())


class EmailPayload(Struct, frozen=True):
    """What a before handler prepares for an `email` task."""

    to_address: str | tuple[str, ...]
    subject: str
    text: str | None = None
    html: str | None = None
    """At least one of text and html."""
    from_address: str | None = None
    """The mailer's sender by default."""
    reply_to: str | None = None
    message_id: str | None = None
    """Default: made of the task, the same for every try of it."""
    headers: dict[str, str] = {}

    def __post_init__(self) -> None:
        if self.text is None and self.html is None:
            raise ValueError("neither `text` nor `html` is given")


class SmtpMailer:
    """One mail server. `security` is `starttls`, `tls` from the start, or `none` for a server on this machine.

    `tls` replaces the system's certificates, for a server with one of its own.
    """

    def __init__(
        self,
        host: str,
        port: int = 587,
        *,
        sender: str,
        security: Security = "starttls",
        username: str | None = None,
        password: str | None = None,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = 30.0,
        clock: Clock | None = None,
    ) -> None:
        if (username is None) != (password is None):
            raise InvalidOption("SmtpMailer", "username or password alone", "both, or neither")
        with needed_for("sending e-mail", "alerts"):
            import aiosmtplib  # noqa: F401
        self._host, self._port, self._sender, self._security = host, port, sender, security
        self._login, self._tls, self._timeout_s = (username, password), tls, timeout_s
        self._clock = clock or SystemClock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle: list[tuple[aiosmtplib.SMTP, float]] = []

    def __repr__(self) -> str:
        return f"<SmtpMailer {self._host}:{self._port}>"

    async def deliver(self, payload: dict[str, Any], /) -> dict[str, Any]:
        """Send one message; of several recipients those the server refused are in the answer's `refused`.

        If it refused all of them, nothing was sent, and it raises.
        """
        import aiosmtplib

        message = self._message(payload)
        client = await self._connected()
        try:
            refused, said = await client.send_message(message)
        except aiosmtplib.SMTPRecipientsRefused as error:
            await self._give_back(client)
            worst = max(error.recipients, key=lambda refused: refused.code)
            raise _refusal(worst.code, worst.message) from error
        except aiosmtplib.SMTPResponseException as error:
            await self._give_back(client)
            raise _refusal(error.code, error.message) from error
        except BaseException:
            client.close()
            raise
        await self._give_back(client)
        answer: dict[str, Any] = {"message_id": str(message["Message-ID"]), "response": said}
        if refused:
            answer["refused"] = {address: [each.code, each.message] for address, each in refused.items()}
        return answer

    async def close(self) -> None:
        while self._idle:
            with suppress(Exception):
                await self._idle.pop()[0].quit()

    def _message(self, payload: dict[str, Any]) -> EmailMessage:
        job = job_in_force.get()
        try:
            given = msgspec.convert(payload, EmailPayload)
            to = given.to_address if isinstance(given.to_address, tuple) else (given.to_address,)
            mail = EmailMessage(_POLICY)
            mail["From"] = given.from_address or self._sender
            mail["To"] = ", ".join(to)
            mail["Subject"] = given.subject
            mail["Date"] = format_datetime(self._clock.now())
            mail["Message-ID"] = given.message_id or (f"<{job.id}@fairlane>" if job else make_msgid(domain="fairlane"))
            if given.reply_to is not None:
                mail["Reply-To"] = given.reply_to
            for name, value in given.headers.items():
                if not _HEADER.fullmatch(name):
                    raise ValueError(f"{name!r} is no name of a header")
                mail[name] = value
            mail.set_content(given.text if given.text is not None else given.html)
            if given.text is None:
                mail.set_type("text/html")
            elif given.html is not None:
                mail.add_alternative(given.html, subtype="html")
        except (msgspec.ValidationError, ValueError, IndexError) as error:  # line breaks in headers, no addresses, …
            raise NonRetryable(f"not an e-mail: {error}") from error
        return mail

    async def _connected(self) -> aiosmtplib.SMTP:
        import aiosmtplib

        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # connections of a loop that has ended are of no use
            self._loop, self._idle = loop, []
        while self._idle:
            client, since_s = self._idle.pop()
            if client.is_connected and self._clock.monotonic() - since_s < FRESH_S:
                return client
            try:
                await client.rset()
            except (aiosmtplib.SMTPException, OSError):
                client.close()
            else:
                return client
        username, password = self._login
        client = aiosmtplib.SMTP(
            hostname=self._host,
            port=self._port,
            username=username,
            password=password,
            use_tls=self._security == "tls",
            start_tls=self._security == "starttls",
            tls_context=self._tls,
            timeout=self._timeout_s,
        )
        try:
            await client.connect()
        except BaseException:
            client.close()
            raise
        return client

    async def _give_back(self, client: aiosmtplib.SMTP) -> None:
        if client.is_connected and len(self._idle) < MOST_IDLE:
            self._idle.append((client, self._clock.monotonic()))
        else:
            client.close()


def _refusal(code: int, said: str) -> Exception:
    text = f"{code} {said}"
    return NonRetryable(text) if code >= 500 else ConnectionError(text)
