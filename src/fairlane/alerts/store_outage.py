"""The store cannot be reached: the one alert that cannot be kept in it. Each process notices and tells by itself."""

from __future__ import annotations

from datetime import datetime, timedelta

from fairlane.alerts.messages import message_of
from fairlane.alerts.sinks import Teller
from fairlane.client.app import Fairlane
from fairlane.core.alerts.rules import Rule
from fairlane.core.ops import Alert, ReadAlerts, SaveAlerts


class Absence:
    def __init__(self, app: Fairlane, rule: Rule | None, teller: Teller) -> None:
        self._app, self._rule, self._teller = app, rule, teller
        self._since_s: float | None = None
        self._fired_s: float | None = None

    async def noticed(self) -> None:
        """The store did not answer, once more."""
        if self._rule is None:
            return
        now_s = self._app.runtime.clock.monotonic()
        if self._since_s is None:
            self._since_s = now_s
        away_s = now_s - self._since_s
        if self._fired_s is None and away_s > self._rule.threshold and away_s >= self._rule.for_s:
            self._fired_s = now_s
            message = message_of(self._alert(self._app.runtime.clock.now(), now_s, self._rule), self._rule)
            assert message is not None
            await self._teller.tell_directly(message)

    async def over(self, now: datetime) -> None:
        """The store answers, `now` by its clock. Kept as an alert that is over; of all processes that noticed, one tells so."""
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
        fired_at = now - timedelta(seconds=now_s - fired_s)
        alert = Alert(
            rule=self._rule.name,
            about="",
            state="resolved",
            since=since,
            fired_at=fired_at,
            told_at=fired_at,
            resolved_at=now,
            value=round(now_s - since_s, 1),
            severity=self._rule.severity,
            version=1 if before is None else before.version + 1,
        )
        saved = (await self._app.runtime.access.arun(SaveAlerts(alerts=(alert,)))).saved
        if saved and (message := message_of(alert, self._rule)) is not None:
            await self._teller.tell((message,))

    def _alert(self, now: datetime, now_s: float, rule: Rule) -> Alert:
        away_s = now_s - (self._since_s or now_s)
        return Alert(
            rule=rule.name,
            about="",
            state="firing",
            since=now - timedelta(seconds=away_s),
            fired_at=now,
            told_at=now,
            resolved_at=None,
            value=round(away_s, 1),
            severity=rule.severity,
            version=1,
        )
