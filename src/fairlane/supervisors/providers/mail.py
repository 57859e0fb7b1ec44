"""Delivers `email` tasks by SMTP."""

from __future__ import annotations

from email.utils import make_msgid
from typing import Any

import msgspec
from msgspec import Struct

from fairlane.client.context import job_in_force
from fairlane.errors import NonRetryable
from fairlane.smtp import SmtpServer, compose


class EmailPayload(Struct, frozen=True):
    """What a before handler prepares for an `email` task."""

    to_address: str | tuple[str, ...]
    """One address, or several."""
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
    """Others than those above; none that would change who sends or receives, such as Bcc."""


class SmtpMailer(SmtpServer):
    """Delivers `email` tasks through one mail server."""

    async def deliver(self, payload: dict[str, Any], /) -> dict[str, Any]:
        """Send one message; of several recipients those the server refused are in the answer's `refused`."""
        job = job_in_force.get()
        try:
            given = msgspec.convert(payload, EmailPayload)
            reply_to = {} if given.reply_to is None else {"Reply-To": given.reply_to}
            mail = compose(
                sender=given.from_address or self.sender,
                to=given.to_address if isinstance(given.to_address, tuple) else (given.to_address,),
                subject=given.subject,
                at=self.clock.now(),
                message_id=given.message_id or (f"<{job.id}@fairlane>" if job else make_msgid(domain="fairlane")),
                text=given.text,
                html=given.html,
                headers={**reply_to, **given.headers},
            )
        except (msgspec.ValidationError, ValueError, IndexError) as error:  # line breaks in headers, no addresses, …
            raise NonRetryable(f"not an e-mail: {error}") from error
        sent = await self.send(mail)
        answer: dict[str, Any] = {"message_id": str(mail["Message-ID"]), "response": sent.response}
        if sent.refused:
            answer["refused"] = {address: list(said) for address, said in sent.refused.items()}
        return answer
