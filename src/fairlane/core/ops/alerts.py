"""Alerts as they are kept, and silences."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Literal

from msgspec import Struct
from msgspec.structs import replace

from fairlane.core.ops.base import Act, Op

AlertState = Literal["pending", "firing", "resolved"]
"""pending   the condition holds, but not for long enough
firing    it has held for as long as the rule asks
resolved  it held, and does not any more
"""


RESOLVED_KEPT_S = 86_400.0
"""How long an alert is kept after it was resolved."""


class Alert(Struct, frozen=True, kw_only=True):
    rule: str
    about: str
    """What of: a queue, a task, a tenant, a breaker; empty where there is only one."""
    state: AlertState
    since: datetime
    """When the condition began to hold."""
    fired_at: datetime | None
    resolved_at: datetime | None
    value: float
    severity: str
    told_at: datetime | None = None
    """When people were notified that it fires; None: nobody was, as while its rule is silenced."""
    version: int
    """Grows with every change."""

    def begun_by(self, now: datetime) -> Alert:
        """The alert after the clock was set back to `now`: what began in the future begins now."""
        names = ("since", "fired_at", "resolved_at", "told_at")
        return replace(self, **{name: at and min(at, now) for name in names for at in [getattr(self, name)]})


class Silence(Struct, frozen=True, kw_only=True):
    rule: str
    until: datetime
    by: str
    notes: str | None


class Alerts(Struct, frozen=True, kw_only=True):
    alerts: tuple[Alert, ...]
    """By rule, then what about."""
    silences: tuple[Silence, ...]
    """Those not over yet, by rule."""


class ReadAlerts(Op[Alerts], frozen=True, kw_only=True):
    """The kept alerts of every rule, except those resolved `RESOLVED_KEPT_S` ago or longer."""


class AlertsSaved(Struct, frozen=True, kw_only=True):
    saved: tuple[tuple[str, str], ...]
    """(rule, about) of those that were written, in the order given."""


class SaveAlerts(Op[AlertsSaved], frozen=True, kw_only=True):
    """Write alerts whose `version` is one above the kept one (1: there is none).

    The others lost a race and are not written.
    What `ReadAlerts` no longer returns counts as not kept, and is removed.
    """

    repeatable: ClassVar[bool] = False

    alerts: tuple[Alert, ...]


class SilenceAlerts(Act[Alerts], frozen=True, kw_only=True):
    """Notify nobody of what one rule finds, for `for_s`; 0 ends a silence.

    Where there is no silence to end, nothing is written.
    Audit: `alert_silence`, target `alert:<rule>`, no tenant, before None, after {"until"}: an instant as in
    `AuditRecord`, None once ended.
    """

    rule: str
    for_s: float
