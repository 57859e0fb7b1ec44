"""The message that people receive about an alert."""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256

from msgspec import Struct

from fairlane.core.alerts import SEVERITIES, Notice, Rule, Severity, asked, seen
from fairlane.core.ops import Alert


class Message(Struct, frozen=True, kw_only=True):
    """One alert that fired or was resolved. The body of a webhook is its JSON."""

    status: Notice
    rule: str
    about: str
    severity: str
    value: float
    threshold: float
    since: datetime
    at: datetime
    """When it fired or was resolved."""
    text: str
    """One line for people."""

    @property
    def subject(self) -> str:
        return f"[{'resolved' if self.status == 'resolved' else self.severity}] {self.text}"

    @property
    def key(self) -> str:
        """The same for the same change of an alert, whichever process sends it."""
        what = f"{self.rule}\n{self.about}\n{self.status}\n{self.at.isoformat()}"
        return f"alert-{sha256(what.encode()).hexdigest()[:32]}"


def message_of(alert: Alert, rule: Rule | None) -> Message | None:
    """The message about an alert in its present state; None: it has not fired."""
    at = alert.fired_at if alert.state == "firing" else alert.resolved_at
    if alert.state == "pending" or alert.fired_at is None or at is None:
        return None
    status: Notice = "fired" if alert.state == "firing" else "resolved"
    return Message(
        status=status,
        rule=alert.rule,
        about=alert.about,
        severity=alert.severity,
        value=alert.value,
        threshold=0.0 if rule is None else rule.threshold,
        since=alert.since,
        at=at,
        text=_text(alert, rule, status),
    )


def reaches(severity: str, least: Severity) -> bool:
    """Whether a sink with the minimum severity `least` receives this severity."""
    known: tuple[str, ...] = SEVERITIES
    return severity not in known or known.index(severity) >= known.index(least)


def _text(alert: Alert, rule: Rule | None, status: Notice) -> str:
    if rule is None:
        return f"{alert.rule} {alert.about}".strip()
    if status == "resolved":
        return f"{alert.rule} is resolved; it was: {seen(alert, rule)}"
    return f"{alert.rule}: {seen(alert, rule)}{asked(rule)}"
