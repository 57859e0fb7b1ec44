"""Sends e-mail by SMTP, over connections that are kept between messages.

No value of a header adds a line or a recipient: the envelope is made of the addresses that were given as such, and a
header that decodes to a line break is refused. (tests/supervisors/test_providers.py)
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from email import policy
from email.headerregistry import HeaderRegistry
from email.message import EmailMessage
from email.utils import format_datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from fairlane.client.settings.alerts import Security
from fairlane.core.clock import Clock, SystemClock
from fairlane.core.tracebacks import without_frames
from fairlane.errors import InvalidOption, NonRetryable
from fairlane.extras import needed_for

if TYPE_CHECKING:
    import aiosmtplib

MOST_IDLE = 20
FRESH_S = 5.0
"""A connection that has been idle for longer is asked whether it still stands."""
LONGEST_KEPT = 100
_NAME = re.compile(r"[!-9;-~]+")
"""Printable ASCII without the colon. The library checks values, and writes a name with a line break as it is."""
_DELIVERY = re.compile(r"to|cc|bcc|sender|return-path|resent-.*", re.IGNORECASE)
"""Headers from which mail programs take who sends and who receives."""
_ONE_HEADER = re.compile(r"(?:[\t -~]|\r\n(?=[\t ]))*\r\n")
"""Printable ASCII, where every line but the first begins with a blank."""


class ParsedHeaders(HeaderRegistry):
    """Headers as the library parses them, each class made once and the last values kept.

    The library makes a class for every header and parses the same sender, type and encoding again for every message:
    900 us of a worker's time a message, now 250.
    """

    def __init__(self) -> None:
        super().__init__()
        self._class_for = lru_cache(64)(super().__getitem__)
        self._parsed = lru_cache(256)(self._parse)

    def __getitem__(self, name: str) -> type:
        return self._class_for(name.lower())

    def __call__(self, name: str, value: Any) -> Any:
        is_short = isinstance(value, str) and len(value) < LONGEST_KEPT
        return self._parsed(name, value) if is_short else self._parse(name, value)

    def _parse(self, name: str, value: Any) -> Any:
        # An encoded word (`=?utf-8?q?=0ABcc:…?=`) may hold a line break, which the library writes as it is
        # (CVE-2024-6923); so what will be written is looked at, not what was given.
        try:
            parsed = super().__call__(name, value)
            is_plain = value.isascii() and value.isprintable() and "=" not in value
            is_one = is_plain or _ONE_HEADER.fullmatch(parsed.fold(policy=policy.SMTP)) is not None
        except Exception as error:  # the library's parser fails on odd values in many ways
            raise ValueError(f"{name} cannot be read: {value!r}") from error
        if not is_one:
            raise ValueError(f"{name} has a line break or another control character in it: {value!r}")
        return parsed


_POLICY = policy.default.clone(header_factory=ParsedHeaders())


def compose(
    *,
    sender: str,
    to: Iterable[str],
    subject: str,
    at: datetime,
    message_id: str,
    text: str | None = None,
    html: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> EmailMessage:
    """A message to these addresses and no other; raises ValueError for what is none, or has no text."""
    mail = EmailMessage(_POLICY)
    mail["From"] = _address("From", sender)
    if not (recipients := [_address("To", address) for address in to]):
        raise ValueError("it has no recipient")
    mail["To"] = ", ".join(recipients)
    mail["Subject"] = subject
    mail["Date"] = format_datetime(at)
    mail["Message-ID"] = message_id
    for name, value in (headers or {}).items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a header")
        if _DELIVERY.fullmatch(name):
            raise ValueError(f"the header {name} would change who sends or receives; recipients stand in `to_address`")
        mail[name] = value
    if text is not None:
        mail.set_content(text)
        if html is not None:
            mail.add_alternative(html, subtype="html")
    elif html is not None:
        mail.set_content(html, subtype="html")
    else:
        raise ValueError("neither `text` nor `html` is given")
    return mail


def _address(name: str, text: str) -> str:
    if len(found := _POLICY.header_factory(name, text).addresses) != 1 or not found[0].domain:
        raise ValueError(f"{text!r} is not one address, such as ann@example.com or Ann <ann@example.com>")
    return text


class Sent(NamedTuple):
    response: str
    refused: dict[str, tuple[int, str]]
    """Recipients that the server refused beside others, and what it said of them."""


class SmtpServer:
    """One mail server, and the sender of its messages.

    `security` is `starttls`, `tls` from the start, or `none` for a server on this machine.
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
            raise InvalidOption(type(self).__name__, "username or password alone", "both, or neither")
        with needed_for("sending e-mail", "alerts"):
            import aiosmtplib  # noqa: F401
        self.sender, self.clock = sender, clock or SystemClock()
        self._host, self._port, self._security = host, port, security
        self._login, self._tls, self._timeout_s = (username, password), tls, timeout_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle: list[tuple[aiosmtplib.SMTP, float]] = []

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._host}:{self._port}>"

    async def send(self, mail: EmailMessage) -> Sent:
        """Send one message; if the server refused all recipients nothing was sent, and it raises.

        Raises `NonRetryable` for what the server refuses for good (5xx), ConnectionError for what it does not take now.
        """
        import aiosmtplib

        client = await self._connected()
        try:
            # Given here, senders and recipients are not read from headers.
            [sender], recipients = ([each.addr_spec for each in mail[name].addresses] for name in ("From", "To"))
            refused, response = await client.send_message(mail, sender=sender, recipients=recipients)
        except aiosmtplib.SMTPRecipientsRefused as error:
            await self._give_back(client)
            worst = max(error.recipients, key=lambda refused: refused.code)
            raise _refusal(worst.code, worst.message) from without_frames(error)
        except aiosmtplib.SMTPResponseException as error:
            await self._give_back(client)
            raise _refusal(error.code, error.message) from without_frames(error)
        except (aiosmtplib.SMTPException, OSError) as error:
            client.close()
            raise without_frames(error) from error.__cause__
        except BaseException:
            client.close()
            raise
        await self._give_back(client)
        return Sent(response, {address: (each.code, each.message) for address, each in refused.items()})

    async def close(self) -> None:
        while self._idle:
            with suppress(Exception):
                await self._idle.pop()[0].quit()

    async def _connected(self) -> aiosmtplib.SMTP:
        import aiosmtplib

        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # connections of a loop that has ended are of no use
            self._loop, self._idle = loop, []
        while self._idle:
            client, since_s = self._idle.pop()
            if client.is_connected and self.clock.monotonic() - since_s < FRESH_S:
                return client
            try:
                await client.rset()
            except (aiosmtplib.SMTPException, OSError):
                client.close()
            else:
                return client
        client = aiosmtplib.SMTP(
            hostname=self._host,
            port=self._port,
            username=self._login[0],
            password=self._login[1],
            use_tls=self._security == "tls",
            start_tls=self._security == "starttls",
            tls_context=self._tls,
            timeout=self._timeout_s,
        )
        try:
            await client.connect()
        except (aiosmtplib.SMTPException, OSError) as error:
            client.close()
            raise without_frames(error) from error.__cause__
        except BaseException:
            client.close()
            raise
        return client

    async def _give_back(self, client: aiosmtplib.SMTP) -> None:
        if client.is_connected and len(self._idle) < MOST_IDLE:
            self._idle.append((client, self.clock.monotonic()))
        else:
            client.close()


def _refusal(code: int, said: str) -> Exception:
    text = f"{code} {said}"
    return NonRetryable(text) if code >= 500 else ConnectionError(text)
