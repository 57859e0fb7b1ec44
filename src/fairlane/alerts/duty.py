"""Evaluates the alert rules: observes, saves changes and sends them. Any process may call it; one at a time works."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta

from fairlane.alerts.notifications import Message, message_of
from fairlane.alerts.observations import Observer
from fairlane.alerts.sinks import AlertSinks, register_sinks
from fairlane.alerts.store_outage import StoreOutage
from fairlane.client.app import Fairlane
from fairlane.core.alerts.evaluation import evaluate
from fairlane.core.ops import Alert, ReadAlerts, SaveAlerts, TakeDuty
from fairlane.errors import StoreError

NAME = "alerts"
EVERY_S = 15.0
ANSWER_S = 10.0
"""A store that has not answered by then counts as unreachable."""
ENQUEUED_AGAIN = timedelta(seconds=60)
"""For this long after an alert fired or was resolved its message is enqueued again: the process that saved it may
have died before that."""


class AlertDuty:
    """The alerts of one application in one process."""

    def __init__(self, app: Fairlane) -> None:
        register_sinks(app)
        self._app = app
        rules = app.runtime.settings.alerts.rules_in_force
        self._rules = {rule.name: rule for rule in rules}
        self._observer, self._sinks = Observer(app, rules), AlertSinks(app, rules)
        outage = next((rule for rule in rules if rule.watches == "store_unreachable_s" and rule.enabled), None)
        self._outage = StoreOutage(app, outage, self._sinks)

    async def step(self) -> float | None:
        """Evaluate the rules unless another process just did; seconds until the next step. None: alerts are off."""
        if not self._rules:
            return None
        try:
            async with asyncio.timeout(ANSWER_S):
                taken = await self._app.runtime.access.arun(TakeDuty(name=NAME, every_s=EVERY_S))
        except (StoreError, TimeoutError):
            await self._outage.store_failed()
            raise
        await self._outage.store_answered(taken.now)
        if taken.taken:
            await self.evaluate(taken.now)
        return EVERY_S

    async def evaluate(self, now: datetime) -> tuple[Message, ...]:
        """Observe, evaluate, save and send; returns the messages sent. `now` is the store's."""
        store = self._app.runtime.access
        seen = await self._observer.observe(now)
        kept = await store.arun(ReadAlerts())
        silent = {silence.rule for silence in kept.silences}
        changes = evaluate(self._rules.values(), seen, kept.alerts, now, silent)
        messages: list[Message] = []
        if changes:
            saved = set((await store.arun(SaveAlerts(alerts=tuple(change.alert for change in changes)))).saved)
            # A process that lost the race sends nothing: the one whose changes were saved sends them.
            messages = self._messages(
                c.alert for c in changes if c.notice is not None and (c.alert.rule, c.alert.about) in saved
            )
        await self._sinks.send(messages)
        await self._sinks.enqueue(self._messages(alert for alert in kept.alerts if _is_fresh(alert, now)))
        return tuple(messages)

    def _messages(self, alerts: Iterable[Alert]) -> list[Message]:
        found = [message_of(alert, self._rules.get(alert.rule)) for alert in alerts]
        return [message for message in found if message is not None]


def _is_fresh(alert: Alert, now: datetime) -> bool:
    """Whether its message was sent lately; False for an alert that sent none."""
    at = alert.told_at if alert.state == "firing" else alert.resolved_at
    return alert.told_at is not None and at is not None and now - at <= ENQUEUED_AGAIN
