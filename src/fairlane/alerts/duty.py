"""Evaluates the alert rules: observes, saves changes and sends them, in one process at a time.

The alert about an unreachable store cannot be saved there: each process detects and sends it by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta

from fairlane.alerts.notifications import Message, message_of
from fairlane.alerts.observations import Observer
from fairlane.alerts.sinks import AlertSinks, register_sinks
from fairlane.client.app import Fairlane
from fairlane.client.logs import GuardedLogger, OutageLog
from fairlane.core.alerts import Rule, evaluate
from fairlane.core.ops import Alert, Check, ReadAlerts, SaveAlerts, TakeDuty
from fairlane.errors import StoreError

log = GuardedLogger("fairlane.alerts")

RETRY_S = 1.0


class StoreOutage:
    """Sends the alert about a store that is away as soon as the rule's time has passed, and that it is resolved."""

    def __init__(self, app: Fairlane, outage: OutageLog) -> None:
        rules = app.runtime.settings.alerts.rules_in_force
        self._app, self._outage, self._sinks = app, outage, AlertSinks(app, rules)
        self._rule = next((rule for rule in rules if rule.watches == "store_unreachable_s" and rule.enabled), None)
        self._since_s = 0.0
        self._fired_s: float | None = None

    async def run(self) -> None:
        """Until cancelled."""
        changed = asyncio.Event()
        self._outage.on_change = changed.set
        while True:
            changed.clear()
            pause_s = await self.step()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await changed.wait()

    async def step(self) -> float | None:
        """Send what is due; seconds until more may be, None: not before the store goes away or comes back."""
        if self._rule is None:
            return None
        if not self._outage.is_on:
            return None if self._fired_s is None or await self._resolve(self._rule, self._fired_s) else RETRY_S
        if self._fired_s is not None:
            return None
        left_s = max(self._rule.for_s, self._rule.threshold) - self._outage.lasts_s
        if left_s <= 0:
            await self._fire(self._rule)
        return max(left_s, 0.0) or None

    async def _fire(self, rule: Rule) -> None:
        outage_s, now = self._outage.lasts_s, self._app.runtime.clock.now()
        self._fired_s = self._app.runtime.clock.monotonic()
        self._since_s = self._fired_s - outage_s
        alert = _alert(rule, now - timedelta(seconds=outage_s), now, outage_s, resolved_at=None, version=1)
        message = message_of(alert, rule)
        assert message is not None
        await self._sinks.send_directly(message)

    async def _resolve(self, rule: Rule, fired_s: float) -> bool:
        """Save a resolved alert, which one of all processes sends; whether the store took it."""
        access, now_s = self._app.runtime.access, self._app.runtime.clock.monotonic()
        try:
            now, kept = (await access.arun(Check())).now, await access.arun(ReadAlerts())
            before = next((alert for alert in kept.alerts if alert.rule == rule.name), None)
            since = now - timedelta(seconds=now_s - self._since_s)
            if before is None or before.resolved_at is None or before.resolved_at <= since:
                fired_at, version = (
                    now - timedelta(seconds=now_s - fired_s),
                    1 if before is None else before.version + 1,
                )
                alert = _alert(rule, since, fired_at, now_s - self._since_s, resolved_at=now, version=version)
                saved = (await access.arun(SaveAlerts(alerts=(alert,)))).saved
                if saved and (message := message_of(alert, rule)) is not None:
                    await self._sinks.send((message,))
        except StoreError as error:
            log.warning("the end of the store's outage could not be saved yet: %s", error)
            return False
        self._fired_s = None
        return True


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

    async def step(self) -> float | None:
        """Evaluate the rules unless another process just did; returns seconds to the next step, None if disabled."""
        if not self._rules:
            return None
        taken = await self._app.runtime.access.arun(TakeDuty(name=NAME, every_s=EVERY_S))
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
