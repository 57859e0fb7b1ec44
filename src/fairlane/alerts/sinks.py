"""Sends alert messages: to the log and the event stream at once, by mail and webhook as jobs.

Mail and webhooks are Fairlane's own tasks, so that a message that cannot be delivered is retried like any job. A job
carries the message and the name of its sink; addresses, passwords and secrets stay in the settings of the worker that
runs it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from datetime import datetime
from email.message import EmailMessage
from typing import Any

import msgspec

from fairlane.alerts.notifications import Message, reaches
from fairlane.client.app import Fairlane
from fairlane.client.context import job_in_force
from fairlane.client.enqueue.options import EnqueueOptions
from fairlane.client.logs import GuardedLogger
from fairlane.client.settings.alerts import EmailSettings
from fairlane.client.task import TaskOptions
from fairlane.core.alerts import Rule
from fairlane.core.ids import SYSTEM
from fairlane.core.names import EMAIL_TASK as EMAIL, WEBHOOK_TASK as WEBHOOK
from fairlane.core.ops import AddEvents, EventDraft
from fairlane.core.retry import Retry
from fairlane.core.text import header_text, one_line
from fairlane.errors import FairlaneError, NonRetryable
from fairlane.smtp import SmtpServer, compose

log = GuardedLogger("fairlane.alerts")

TIMEOUT_S = 30.0
RETRY = Retry(max_attempts=10, base_s=5.0, factor=3.0, cap_s=3_600.0)

_LEVELS = {"critical": logging.CRITICAL, "warning": logging.WARNING}


class AlertSinks:
    """The sinks of one application. A failing sink does not affect the others."""

    def __init__(self, app: Fairlane, rules: Iterable[Rule]) -> None:
        self._app = app
        self._dead_letter_rules = {rule.name for rule in rules if rule.watches == "dead_letters"}

    async def send(self, messages: Iterable[Message]) -> None:
        """Log messages, enqueue their mail and webhooks, and add their events."""
        messages = tuple(messages)
        for message in messages:
            log_message(message)
        await self.enqueue(messages)
        if events := [event for message in messages for event in self._events(message)]:
            await self._app.runtime.access.arun(AddEvents(events=tuple(events)))

    async def enqueue(self, messages: Iterable[Message]) -> None:
        """Enqueue one job for each message and sink. Repeated for the same message it enqueues nothing."""
        for message in messages:
            try:
                await self._enqueue(message)
            except FairlaneError as error:
                log.error("mail and webhooks about %s could not be enqueued: %s", message.rule, error)  # noqa: TRY400

    async def send_directly(self, message: Message) -> None:
        """Send without the store: one try for every sink."""
        log_message(message)
        alerts, sent = self._app.runtime.settings.alerts, list[Coroutine[Any, Any, None]]()
        if alerts.email is not None and reaches(message.severity, alerts.email.severity):
            sent.append(send_email(self._app, message, message.key))
        sent += [send_webhook(self._app, name, message, f"{message.key}-{name}") for name in self._webhooks(message)]
        for outcome in await asyncio.gather(*sent, return_exceptions=True):
            if isinstance(outcome, BaseException):
                log.error("a message about %s could not be sent: %s", message.rule, outcome)

    async def _enqueue(self, message: Message) -> None:
        app = self._app
        email = app.runtime.settings.alerts.email
        if email is not None and reaches(message.severity, email.severity):
            await app.tasks[EMAIL].using(**_enqueue_options(app, message.key)).aenqueue(message=message)
        for name in self._webhooks(message):
            task = app.tasks[WEBHOOK].using(**_enqueue_options(app, f"{message.key}-{name}"))
            await task.aenqueue(sink=name, message=message)

    def _webhooks(self, message: Message) -> list[str]:
        webhooks = self._app.runtime.settings.alerts.webhooks
        return [name for name, webhook in webhooks.items() if reaches(message.severity, webhook.severity)]

    def _events(self, message: Message) -> Iterable[EventDraft]:
        data = {
            "rule": message.rule,
            "about": message.about,
            "severity": message.severity,
            "value": message.value,
            "threshold": message.threshold,
            "text": message.text,
        }
        yield EventDraft(kind=f"alert_{message.status}", data=data)
        if message.status == "fired" and message.rule in self._dead_letter_rules:
            yield EventDraft(kind="dlq_alert", data={"count": int(message.value), "threshold": int(message.threshold)})


def log_message(message: Message) -> None:
    level = logging.INFO if message.status == "resolved" else _LEVELS.get(message.severity, logging.INFO)
    extra = {"alert_rule": message.rule, "alert_about": message.about, "alert_status": message.status}
    log.log(level, "%s", message.subject, extra=extra)


def register_sinks(app: Fairlane) -> None:
    """Register the tasks that the settings' sinks need, once; raises `MissingExtra` if one could not send."""
    alerts = app.runtime.settings.alerts
    alerts.require_extra()
    if alerts.email is not None and EMAIL not in app.tasks:

        async def email(message: Message) -> None:
            await send_email(app, message, _job_id())

        app.task(**_task_options(app, EMAIL))(email)
    if alerts.webhooks and WEBHOOK not in app.tasks:

        async def webhook(sink: str, message: Message) -> None:
            await send_webhook(app, sink, message, _job_id())

        app.task(**_task_options(app, WEBHOOK))(webhook)


async def send_email(app: Fairlane, message: Message, id: str) -> None:

    if (settings := app.runtime.settings.alerts.email) is None:
        raise NonRetryable("alerts.email is not set here any more")
    await send_mail(settings, message, id, app.runtime.clock.now())


async def send_webhook(app: Fairlane, sink: str, message: Message, id: str) -> None:
    from fairlane.alerts.webhooks import post

    settings = app.runtime.settings.alerts.webhooks.get(sink)
    if settings is None:
        raise NonRetryable(f'alerts.webhooks has no "{sink}" here any more')
    await post(settings, id, msgspec.json.encode(message), app.runtime.clock.now())


def _enqueue_options(app: Fairlane, key: str) -> EnqueueOptions:
    return EnqueueOptions(
        tenant=SYSTEM, correlation_id=app.runtime.new_job_id(), created_by="fairlane", idempotency_key=key
    )


def _job_id() -> str:
    job = job_in_force.get()
    assert job is not None
    return str(job.id)


def _task_options(app: Fairlane, name: str) -> TaskOptions:
    options = TaskOptions(name=name, timeout=TIMEOUT_S, retry=RETRY, sensitive="allow", required=("message",))
    if (category := _category(app)) is not None:
        options["category"] = category
    return options


def _category(app: Fairlane) -> str | None:
    """Any existing category: an application may rename all of them, and require one on every job."""
    settings = app.runtime.settings
    if "notifications" in settings.categories:
        return "notifications"
    return settings.default_category or next(iter(settings.categories), None)


WITHIN_S = 10.0


async def send_mail(settings: EmailSettings, message: Message, id: str, at: datetime) -> None:
    """Send it under an `id` that is the same for every try: mail programs show a duplicate only once."""
    server = SmtpServer(
        settings.host,
        settings.port,
        sender=settings.sender,
        security=settings.security,
        username=settings.username,
        password=settings.password,
        timeout_s=WITHIN_S,
    )
    try:
        await server.send(mail_of(settings, message, id, at))
    finally:
        await server.close()


def mail_of(settings: EmailSettings, message: Message, id: str, at: datetime) -> EmailMessage:
    lines = [
        one_line(message.text),
        "",
        f"rule       {message.rule}",
        *([f"about      {one_line(message.about)}"] if message.about else []),
        f"severity   {message.severity}",
        f"value      {message.value:g}",
        f"threshold  {message.threshold:g}",
        f"since      {message.since:%Y-%m-%d %H:%M:%S} UTC",
        f"{message.status:<10} {message.at:%Y-%m-%d %H:%M:%S} UTC",
    ]
    return compose(
        sender=settings.sender,
        to=settings.to,
        subject=header_text(message.subject),
        at=at,
        message_id=f"<{id}@fairlane>",
        text="\n".join(lines) + "\n",
        headers={"Auto-Submitted": "auto-generated"},
    )
