"""When an alert begins, fires and is over: pure rules over what was observed and what is kept.

            above the threshold          held for `for_s`               right again for `clear_s`
    nothing ───────────────────▶ pending ───────────────▶ firing ─────────────────────────────▶ resolved
       ▲                            │                        │▲                                    │
       └────── (resolved, untold) ◀─┘ right again            └┘ right again for less                └──▶ pending …

A firing alert whose condition no longer holds has `resolved_at` already: since when it is right again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from fairlane.core.alert_rules import Rule, Watched
from fairlane.core.ops.watch import Alert

OTHER = "other"
MOST_ABOUT = 200
"""Things one rule keeps alerts about; what comes beyond is put together as `other`, for what is kept is never removed."""

Told = Literal["fired", "resolved"]


class Observation(Struct, frozen=True, kw_only=True):
    """What was seen of one thing at one moment. What is not observed is as it should be."""

    kind: Watched
    about: str = ""
    value: float
    sample: int | None = None
    """How many things a rate is made of."""
    window_s: float | None = None
    """Counted over so long: only rules with this very window heed it."""


class Change(Struct, frozen=True, kw_only=True):
    """An alert to be written."""

    alert: Alert
    told: Told | None
    """What people should hear of it; None: nothing."""


def evaluate(
    rules: Iterable[Rule], observations: Iterable[Observation], alerts: Iterable[Alert], now: datetime
) -> tuple[Change, ...]:
    """What changes, given all that was observed now. The same again changes nothing; a rule that is gone or off ends its alerts."""
    kept: dict[str, dict[str, Alert]] = {}
    for alert in alerts:
        kept.setdefault(alert.rule, {})[alert.about] = alert
    seen = tuple(observations)
    changes: list[Change] = []
    active = {rule.name: rule for rule in rules if rule.enabled}
    for rule in active.values():
        mine = kept.get(rule.name, {})
        wrong = _bounded(_wrong(rule, seen), mine)
        for about in sorted(wrong.keys() | mine.keys()):
            change = _step(rule, about, wrong.get(about), mine.get(about), now)
            if change is not None:
                changes.append(change)
    for name, mine in kept.items():
        if name not in active:
            changes += [_ended(alert, now) for alert in mine.values() if alert.state != "resolved"]
    return tuple(changes)


def _wrong(rule: Rule, seen: Iterable[Observation]) -> dict[str, float]:
    """What is above the rule's threshold, and how far."""
    return {
        observed.about: observed.value
        for observed in seen
        if observed.kind == rule.watches
        and observed.window_s in (None, rule.window_s)
        and observed.value > rule.threshold
        and (observed.sample is None or observed.sample >= rule.min_sample)
        and fnmatchcase(observed.about, rule.only)
    }


def _bounded(wrong: dict[str, float], mine: Mapping[str, Alert]) -> dict[str, float]:
    new = sorted(wrong.keys() - mine.keys(), key=lambda about: (-wrong[about], about))
    room = MOST_ABOUT - len(mine)
    if len(new) <= room:
        return wrong
    folded = new[max(room, 0) :]
    rest = {about: value for about, value in wrong.items() if about not in set(folded)}
    rest[OTHER] = max([wrong[about] for about in folded] + [rest.get(OTHER, float("-inf"))])
    return rest


def _step(rule: Rule, about: str, value: float | None, kept: Alert | None, now: datetime) -> Change | None:
    if kept is None or kept.state == "resolved":
        return None if value is None else _begun(rule, about, value, kept, now)
    if kept.state == "pending":
        return _ended(kept, now) if value is None else _held_on(rule, value, kept, now)
    if value is not None:
        return _changed(kept, value=value, severity=rule.severity, resolved_at=None)
    if kept.resolved_at is None and rule.clear_s > 0:
        return _changed(kept, resolved_at=now)
    if kept.resolved_at is None or now - kept.resolved_at >= timedelta(seconds=rule.clear_s):
        return _ended(kept, now)
    return None


def _begun(rule: Rule, about: str, value: float, before: Alert | None, now: datetime) -> Change:
    fires = rule.for_s <= 0
    alert = Alert(
        rule=rule.name,
        about=about,
        state="firing" if fires else "pending",
        since=now,
        fired_at=now if fires else None,
        resolved_at=None,
        value=value,
        severity=rule.severity,
        version=1 if before is None else before.version + 1,
    )
    return Change(alert=alert, told="fired" if fires else None)


def _held_on(rule: Rule, value: float, kept: Alert, now: datetime) -> Change | None:
    if now - kept.since < timedelta(seconds=rule.for_s):
        return _changed(kept, value=value, severity=rule.severity)
    fired = replace(kept, state="firing", fired_at=now, value=value, severity=rule.severity, version=kept.version + 1)
    return Change(alert=fired, told="fired")


def _ended(kept: Alert, now: datetime) -> Change:
    over = replace(kept, state="resolved", resolved_at=now, version=kept.version + 1)
    return Change(alert=over, told="resolved" if kept.state == "firing" else None)


def _changed(kept: Alert, **changes: object) -> Change | None:
    changed = replace(kept, **changes)
    return None if changed == kept else Change(alert=replace(changed, version=kept.version + 1), told=None)
