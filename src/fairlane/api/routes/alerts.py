"""Alerts: what is wrong now, and silencing a rule for a while."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from fairlane.api.auth.rights import Right
from fairlane.api.fields import Act, Name, Seen
from fairlane.api.request import Here
from fairlane.api.router import Routes
from fairlane.core.alerts.rules import require_silenceable
from fairlane.core.ops import Alerts, ReadAlerts, SilenceAlerts
from fairlane.core.ops.alerts import AlertState

routes = Routes("alerts", "/api/jobs/alerts/")


class AlertSeen(Seen):
    rule: str = Field(examples=["queue_backlog"])
    about: str = Field(description="What of: a queue, a task, a tenant, a breaker.")
    state: AlertState
    since: datetime
    fired_at: datetime | None
    resolved_at: datetime | None
    told_at: datetime | None = Field(description="When people were told that it fires; null: nobody was.")
    value: float
    severity: str


class SilenceSeen(Seen):
    rule: str
    until: datetime
    by: str
    notes: str | None


class AlertList(Seen):
    alerts: list[AlertSeen]
    silences: list[SilenceSeen]


class Silencing(Act):
    for_s: Annotated[float, Field(ge=0, le=30 * 86_400, allow_inf_nan=False)] = Field(
        description="Seconds; 0 ends a silence.", examples=[3600]
    )


@routes.get("", Right.READ, house_wide=True)
async def list_alerts(here: Here) -> AlertList:
    """List alerts and silences."""
    return _seen(await here.ask(ReadAlerts()))


@routes.post("{rule}/silence/", Right.ACT, house_wide=True)
async def silence_alerts(here: Here, rule: Name, body: Silencing) -> AlertList:
    """Tell nobody of a rule's alerts for a while.

    What still fires when the silence ends is told then; the end of what people were told before is told at once.
    """
    if body.for_s > 0:
        require_silenceable(rule, here.app.runtime.settings.alerts.rules_in_force)
    return _seen(await here.ask(SilenceAlerts(rule=rule, for_s=body.for_s, by=here.by, notes=body.notes)))


def _seen(found: Alerts) -> AlertList:
    return AlertList(
        alerts=[AlertSeen.model_validate(alert) for alert in found.alerts],
        silences=[SilenceSeen.model_validate(silence) for silence in found.silences],
    )
