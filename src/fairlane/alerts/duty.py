"""The duty behind alerts: look, decide, save, tell. Any process may call it; one at a time does anything."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta

from fairlane.alerts.messages import Message, message_of
from fairlane.alerts.observations import Observer
from fairlane.alerts.sinks import Teller
from fairlane.alerts.store_outage import Absence
from fairlane.alerts.tasks import register_sinks
from fairlane.client.app import Fairlane
from fairlane.core.alerts.evaluation import evaluate
from fairlane.core.ops import Alert, ReadAlerts, SaveAlerts, TakeDuty
from fairlane.errors import StoreError

NAME = "alerts"
EVERY_S = 15.0
ANSWER_S = 10.0
"""A store that has not answered by then counts as away."""
TOLD_AGAIN = timedelta(seconds=60)
"""So long after people were told that an alert fires or has ended it is handed over again: whoever saved it may have died before it told anybody."""


class AlertDuty:
    def __init__(self, app: Fairlane) -> None:
        register_sinks(app)
        self._app = app
        rules = app.runtime.settings.alerts.rules_in_force
        self._rules = {rule.name: rule for rule in rules}
        self._observer, self._teller = Observer(app, rules), Teller(app, rules)
        away = next((rule for rule in rules if rule.watches == "store_unreachable_s" and rule.enabled), None)
        self._absence = Absence(app, away, self._teller)

    async def step(self) -> float | None:
        """One look, if it is our turn; seconds until the next. None: alerts are switched off."""
        if not self._rules:
            return None
        try:
            async with asyncio.timeout(ANSWER_S):
                taken = await self._app.runtime.access.arun(TakeDuty(name=NAME, every_s=EVERY_S))
        except (StoreError, TimeoutError):
            await self._absence.noticed()
            raise
        await self._absence.over(taken.now)
        if taken.taken:
            await self.look(taken.now)
        return EVERY_S

    async def look(self, now: datetime) -> tuple[Message, ...]:
        """Observe, decide and save; what people were told. `now` is the store's."""
        store = self._app.runtime.access
        seen = await self._observer.look(now)
        kept = await store.arun(ReadAlerts())
        silent = {silence.rule for silence in kept.silences}
        changes = evaluate(self._rules.values(), seen, kept.alerts, now, silent)
        told: list[Message] = []
        if changes:
            saved = set((await store.arun(SaveAlerts(alerts=tuple(change.alert for change in changes)))).saved)
            # Who lost the race tells nothing: somebody else saw the same, and tells it.
            told = self._messages(
                c.alert for c in changes if c.told is not None and (c.alert.rule, c.alert.about) in saved
            )
        await self._teller.tell(told)
        await self._teller.hand_over(self._messages(alert for alert in kept.alerts if _is_fresh(alert, now)))
        return tuple(told)

    def _messages(self, alerts: Iterable[Alert]) -> list[Message]:
        found = [message_of(alert, self._rules.get(alert.rule)) for alert in alerts]
        return [message for message in found if message is not None]


def _is_fresh(alert: Alert, now: datetime) -> bool:
    """Told lately; what nobody was told of does not count."""
    at = alert.told_at if alert.state == "firing" else alert.resolved_at
    return alert.told_at is not None and at is not None and now - at <= TOLD_AGAIN
