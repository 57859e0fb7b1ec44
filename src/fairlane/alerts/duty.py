"""Evaluates the alert rules: observes, saves changes and sends them, in one process at a time.

The alert about an unreachable store cannot be saved there: each process detects and sends it by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta

from fairlane.alerts.notifications import Message, message_of
from fairlane.alerts.observations import Observer
from fairlane.alerts.sinks import AlertSinks, register_sinks
from fairlane.client.app import Fairlane
from fairlane.core.alerts import Rule, evaluate
from fairlane.core.ops import Alert, ReadAlerts, SaveAlerts, TakeDuty
from fairlane.errors import StoreError


class StoreOutage:
    """Detects outages of the store, one after another."""

    def __init__(self, app: Fairlane, rule: Rule | None, sinks: AlertSinks) -> None:
        self._app, self._rule, self._sinks = app, rule, sinks
        self._since_s: float | None = None
        self._fired_s: float | None = None

    async def store_failed(self) -> None:
        """The store did not answer; sends the alert once the rule's time has passed."""
        if self._rule is None:
            return
        now_s = self._app.runtime.clock.monotonic()
        if self._since_s is None:
            self._since_s = now_s
        outage_s = now_s - self._since_s
        if self._fired_s is None and outage_s > self._rule.threshold and outage_s >= self._rule.for_s:
            self._fired_s = now_s
            now = self._app.runtime.clock.now()
            alert = _alert(self._rule, now - timedelta(seconds=outage_s), now, outage_s, resolved_at=None, version=1)
            message = message_of(alert, self._rule)
            assert message is not None
            await self._sinks.send_directly(message)

    async def store_answered(self, now: datetime) -> None:
        """The store answers, `now` by its clock. Saves a resolved alert; only one process sends it."""
        since_s, self._since_s = self._since_s, None
        fired_s, self._fired_s = self._fired_s, None
        if since_s is None or fired_s is None or self._rule is None:
            return
        kept = await self._app.runtime.access.arun(ReadAlerts())
        before = next((alert for alert in kept.alerts if alert.rule == self._rule.name), None)
        now_s = self._app.runtime.clock.monotonic()
        since = now - timedelta(seconds=now_s - since_s)
        if before is not None and before.resolved_at is not None and before.resolved_at > since:
            return
        fired_at, version = now - timedelta(seconds=now_s - fired_s), 1 if before is None else before.version + 1
        alert = _alert(self._rule, since, fired_at, now_s - since_s, resolved_at=now, version=version)
        saved = (await self._app.runtime.access.arun(SaveAlerts(alerts=(alert,)))).saved
        if saved and (message := message_of(alert, self._rule)) is not None:
            await self._sinks.send((message,))


def _alert(
    rule: Rule, since: datetime, fired_at: datetime, value_s: float, *, resolved_at: datetime | None, version: int
) -> Alert:
    return Alert(
        rule=rule.name,
        about="",
        state="firing" if resolved_at is None else "resolved",
        since=since,
        fired_at=fired_at,
        told_at=fired_at,
        resolved_at=resolved_at,
        value=round(value_s, 1),
        severity=rule.severity,
        version=version,
    )


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
        """Evaluate the rules unless another process just did; returns seconds to the next step, None if disabled."""
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
    """Whether its message was sent recently; False for an alert without one."""
    at = alert.told_at if alert.state == "firing" else alert.resolved_at
    return alert.told_at is not None and at is not None and now - at <= ENQUEUED_AGAIN
