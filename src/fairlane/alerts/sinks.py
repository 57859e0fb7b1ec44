"""Tells people of alerts: in the log, as events, by mail and by webhook."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any

from fairlane.alerts import tasks
from fairlane.alerts.messages import Message, reaches
from fairlane.client.app import Fairlane
from fairlane.core.alerts.rules import Rule
from fairlane.core.ops import AddEvents, EventDraft
from fairlane.errors import FairlaneError

log = logging.getLogger("fairlane.alerts")

_LEVELS = {"critical": logging.CRITICAL, "warning": logging.WARNING}


class Teller:
    def __init__(self, app: Fairlane, rules: Iterable[Rule]) -> None:
        self._app = app
        self._about_dead_letters = {rule.name for rule in rules if rule.watches == "dead_letters"}

    async def tell(self, messages: Iterable[Message]) -> None:
        """Log and events at once, mail and webhooks as jobs. A sink that fails keeps none of the others from hearing."""
        messages = tuple(messages)
        for message in messages:
            write_down(message)
        await self.hand_over(messages)
        if events := [event for message in messages for event in self._events(message)]:
            await self._app.runtime.access.arun(AddEvents(events=tuple(events)))

    async def hand_over(self, messages: Iterable[Message]) -> None:
        """Make a job of each message for every sink; what is a job already stays one."""
        for message in messages:
            try:
                await tasks.enqueue(self._app, message)
            except FairlaneError as error:
                log.error("nobody is told by mail or webhook of %s: %s", message.rule, error)  # noqa: TRY400

    async def tell_directly(self, message: Message) -> None:
        """Without the store: one try for every sink."""
        write_down(message)
        alerts, sent = self._app.runtime.settings.alerts, list[Coroutine[Any, Any, None]]()
        if alerts.email is not None and reaches(message.severity, alerts.email.severity):
            sent.append(tasks.send_email(self._app, message, message.key))
        sent += [
            tasks.send_webhook(self._app, name, message, f"{message.key}-{name}")
            for name, webhook in alerts.webhooks.items()
            if reaches(message.severity, webhook.severity)
        ]
        for outcome in await asyncio.gather(*sent, return_exceptions=True):
            if isinstance(outcome, BaseException):
                log.error("somebody could not be told of %s: %s", message.rule, outcome)

    def _events(self, message: Message) -> Iterable[EventDraft]:
        data = {
            "rule": message.rule,
            "about": message.about,
            "severity": message.severity,
            "value": message.value,
            "threshold": message.threshold,
            "text": message.text,
        }
        yield EventDraft(kind=f"alert_{message.told}", data=data)
        if message.told == "fired" and message.rule in self._about_dead_letters:
            yield EventDraft(kind="dlq_alert", data={"count": int(message.value), "threshold": int(message.threshold)})


def write_down(message: Message) -> None:
    level = logging.INFO if message.told == "resolved" else _LEVELS.get(message.severity, logging.INFO)
    extra = {"alert_rule": message.rule, "alert_about": message.about, "alert_told": message.told}
    log.log(level, "%s", message.subject, extra=extra)
