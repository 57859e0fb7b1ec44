"""When an alert begins, fires and is over: pure rules over what was observed and what is kept.

            above the threshold          held for `for_s`               right again for `clear_s`
    nothing ───────────────────▶ pending ───────────────▶ firing ─────────────────────────────▶ resolved
       ▲                            │                        │▲                                    │
       └────── (resolved, unreported) ◀─┘ right again            └┘ right again for less                └──▶ pending …

A firing alert whose condition no longer holds has `resolved_at` already: since when it is right again. One that fires
while its rule is silenced is reported when the silence ends, if it is still wrong then; the end of a reported alert is
reported whatever is silenced.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from fairlane.core.alerts.rules import Rule, Watched
from fairlane.core.ops.alerts import Alert

OTHER = "other"
MOST_ABOUT = 200
"""Things one rule keeps alerts about, those of the last day that are over among them; what comes beyond is put together
as `other`.
"""

Notice = Literal["fired", "resolved"]


class Observation(Struct, frozen=True, kw_only=True):
    """What was seen of one thing at one moment. What is not observed is as it should be."""

    kind: Watched
    about: str = ""
    value: float
    sample: int | None = None
    """How many things a rate is made of."""
    window_s: float | None = None
    """Counted over this long: it concerns only rules with this very window."""


class Change(Struct, frozen=True, kw_only=True):
    """An alert to be written."""

    alert: Alert
    notice: Notice | None
    """What people should hear of it; None: nothing."""


def evaluate(
    rules: Iterable[Rule],
    observations: Iterable[Observation],
    alerts: Iterable[Alert],
    now: datetime,
    silent: Collection[str] = (),
) -> tuple[Change, ...]:
    """What changes, given all that was observed now and the rules that are silent. The same again changes nothing; a
    rule that is gone or off ends its alerts.
    """
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
            before, value = mine.get(about), wrong.get(about)
            after = _step(rule, about, value, before, now)
            if after is not None and value is not None and rule.name not in silent:
                after = _heard_of(after, now)
            if after is not None and after != before:
                changes.append(_change(before, after))
    for name, mine in kept.items():
        if name not in active:
            changes += [_change(alert, _ended(alert, now)) for alert in mine.values() if alert.state != "resolved"]
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


def _step(rule: Rule, about: str, value: float | None, kept: Alert | None, now: datetime) -> Alert | None:
    """The alert as it should be now, whoever was notified of it; None: there is none."""
    if kept is None or kept.state == "resolved":
        return kept if value is None else _begun(rule, about, value, kept, now)
    if kept.state == "pending":
        return _ended(kept, now) if value is None else _held_on(rule, value, kept, now)
    if value is not None:
        return replace(kept, value=value, severity=rule.severity, resolved_at=None)
    if kept.resolved_at is None and rule.clear_s > 0:
        return replace(kept, resolved_at=now)
    if kept.resolved_at is None or now - kept.resolved_at >= timedelta(seconds=rule.clear_s):
        return _ended(kept, now)
    return kept


def _begun(rule: Rule, about: str, value: float, before: Alert | None, now: datetime) -> Alert:
    fires = rule.for_s <= 0
    return Alert(
        rule=rule.name,
        about=about,
        state="firing" if fires else "pending",
        since=now,
        fired_at=now if fires else None,
        resolved_at=None,
        value=value,
        severity=rule.severity,
        version=0 if before is None else before.version,
    )


def _held_on(rule: Rule, value: float, kept: Alert, now: datetime) -> Alert:
    held_on = replace(kept, value=value, severity=rule.severity)
    if now - kept.since < timedelta(seconds=rule.for_s):
        return held_on
    return replace(held_on, state="firing", fired_at=now)


def _ended(kept: Alert, now: datetime) -> Alert:
    return replace(kept, state="resolved", resolved_at=now)


def _heard_of(alert: Alert, now: datetime) -> Alert:
    is_news = alert.state == "firing" and alert.told_at is None
    return replace(alert, told_at=now) if is_news else alert


def _change(before: Alert | None, after: Alert) -> Change:
    notice: Notice | None = None
    was_known = before is not None and before.state == "firing" and before.told_at is not None
    if after.state == "firing" and after.told_at is not None and not was_known:
        notice = "fired"
    elif after.state == "resolved" and was_known:
        notice = "resolved"
    return Change(alert=replace(after, version=after.version + 1), notice=notice)
