"""The alert about an unreachable store, which cannot be kept there: each process notices and sends it by itself."""

from __future__ import annotations

from datetime import datetime, timedelta

from fairlane.alerts.notifications import message_of
from fairlane.alerts.sinks import AlertSinks
from fairlane.client.app import Fairlane
from fairlane.core.alerts.rules import Rule
from fairlane.core.ops import Alert, ReadAlerts, SaveAlerts


class StoreOutage:
    """Notices one outage after another."""

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
        """The store answers, `now` by its clock. Saves a resolved alert; of all that noticed, one process sends it."""
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
