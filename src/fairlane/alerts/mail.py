"""Sends an alert message as mail."""

from __future__ import annotations

from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime

from fairlane.alerts.notifications import Message
from fairlane.client.settings.alerts import EmailSettings

WITHIN_S = 10.0


async def send_mail(settings: EmailSettings, message: Message, id: str, at: datetime) -> None:
    """Send it under an `id` that is the same for every try: mail programs show a duplicate only once."""
    import aiosmtplib

    await aiosmtplib.send(
        mail_of(settings, message, id, at),
        hostname=settings.host,
        port=settings.port,
        username=settings.username,
        password=settings.password,
        use_tls=settings.security == "tls",
        start_tls=settings.security == "starttls",
        timeout=WITHIN_S,
    )


def mail_of(settings: EmailSettings, message: Message, id: str, at: datetime) -> EmailMessage:
    mail = EmailMessage()
    mail["From"] = settings.sender
    mail["To"] = ", ".join(settings.to)
    mail["Subject"] = message.subject
    mail["Date"] = format_datetime(at)
    mail["Message-ID"] = f"<{id}@fairlane>"
    mail["Auto-Submitted"] = "auto-generated"
    lines = [
        message.text,
        "",
        f"rule       {message.rule}",
        *([f"about      {message.about}"] if message.about else []),
        f"severity   {message.severity}",
        f"value      {message.value:g}",
        f"threshold  {message.threshold:g}",
        f"since      {message.since:%Y-%m-%d %H:%M:%S} UTC",
        f"{message.status:<10} {message.at:%Y-%m-%d %H:%M:%S} UTC",
    ]
    mail.set_content("\n".join(lines) + "\n")
    return mail
