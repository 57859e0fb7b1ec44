"""Alert rules as values, and when an alert fires and ends: pure functions of observations and stored alerts.

A rule names what is observed, the value above which it is wrong, and for how long. Settings change the default rules
one by one, and add rules of their own over the same observations.

            above the threshold          held for `for_s`               right again for `clear_s`
    nothing ───────────────────▶ pending ───────────────▶ firing ─────────────────────────────▶ resolved
       ▲                            │                        │▲                                    │
       └── (resolved, unreported) ◀─┘ right again            └┘ right again for less               └──▶ pending …

A firing alert whose condition no longer holds has `resolved_at` already: since when it is right again. One that fires
while its rule is silenced is reported when the silence ends, if it is still wrong then; the end of a reported alert is
reported whatever is silenced.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple, get_args

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict, replace

from fairlane.core.names import check_rule_name
from fairlane.core.ops.alerts import Alert
from fairlane.errors import InvalidOption, nearest

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")
"""From the least to the gravest."""

Watched = Literal[
    "queue_depth",
    "pending_jobs",
    "dead_letters",
    "oldest_pending_s",
    "error_rate",
    "lane_utilisation",
    "breakers_open",
    "stuck_jobs",
    "stopped_processes",
    "worker_crashes",
    "tenant_limit_hits",
    "spool_jobs",
    "store_unreachable_s",
]
"""queue_depth          jobs waiting in a queue, retries among them
pending_jobs         jobs waiting in all queues
dead_letters         dead letters pending review
oldest_pending_s     how long a queue's oldest ready job has been due
error_rate           failed attempts of a task among all that ended, 0 to 1, over the rule's window
lane_utilisation     how busy a lane's slots are, 0 to 1, over all workers
breakers_open        1 for a breaker that is open
stuck_jobs           jobs buried because they ran past twice their timeout, over the window
stopped_processes    processes of supervisors in SQL that ended without success, over the window, by supervisor
worker_crashes       worker processes that died or were lost, over the window
tenant_limit_hits    times a tenant met its limit, over the window
spool_jobs           jobs kept beside the store until it can be reached again
store_unreachable_s  how long a process has not reached the store
"""
WATCHED: tuple[Watched, ...] = get_args(Watched)


class Seen(NamedTuple):
    """What people are told of one thing watched."""

    says: str
    helps: str
    """The command that leads to its cause."""


SEEN: Mapping[Watched, Seen] = {
    "queue_depth": Seen('queue "{about}" has {value:,.0f} jobs waiting', "fairlane queues"),
    "pending_jobs": Seen("{value:,.0f} jobs are pending", "fairlane queues"),
    "dead_letters": Seen("{value:,.0f} dead letters are pending review", "fairlane dead-letters groups"),
    "oldest_pending_s": Seen(
        'the oldest ready job of queue "{about}" has been due for {value:,.0f} s', "fairlane jobs list queue:{about}"
    ),
    "error_rate": Seen('{value:.0%} of the attempts of "{about}" failed', "fairlane dead-letters groups"),
    "lane_utilisation": Seen('lane "{about}" is {value:.0%} busy', "fairlane workers list"),
    "breakers_open": Seen('breaker "{about}" is open', "fairlane breakers list"),
    "stuck_jobs": Seen(
        "jobs that ran past twice their timeout and were buried: {value:,.0f}", "fairlane dead-letters groups"
    ),
    "stopped_processes": Seen(
        'processes of "{about}" that ended without success: {value:,.0f}', "fairlane supervisors list"
    ),
    "worker_crashes": Seen("worker processes that died: {value:,.0f}", "fairlane workers list"),
    "tenant_limit_hits": Seen('tenant "{about}" is at its limit of jobs', "fairlane limits list"),
    "spool_jobs": Seen("{value:,.0f} jobs wait beside the store until it can be reached", "fairlane doctor"),
    "store_unreachable_s": Seen("the store could not be reached for {value:,.0f} s", "fairlane healthcheck"),
}


class Rule(Struct, frozen=True, kw_only=True):
    """Wrong is what lies above the threshold."""

    name: str
    watches: Watched
    threshold: float
    for_s: float = 0.0
    """How long it has to be wrong before anybody is notified."""
    clear_s: float = 60.0
    """How long it has to be right again before it counts as resolved: what flaps is one alert."""
    severity: Severity = "warning"
    window_s: float = 300.0
    """How long the span is, for observations that are counted over one."""
    min_sample: int = 0
    """A rate over fewer things than this is not evaluated."""
    only: str = "*"
    """Which queues, tasks, lanes, … it is about; `*` stands for anything."""
    enabled: bool = True

    def __post_init__(self) -> None:
        check_rule_name(self.name)
        of = f'of alert rule "{self.name}"'
        if not math.isfinite(self.threshold):
            raise InvalidOption(f"threshold {of}", self.threshold, "a number")
        for option, longest_s in (("for_s", 86_400.0), ("clear_s", 86_400.0), ("window_s", 3_600.0)):
            if not 0 <= getattr(self, option) <= longest_s:
                raise InvalidOption(f"{option} {of}", getattr(self, option), f"seconds from 0 to {longest_s:g}")
        if self.min_sample < 0:
            raise InvalidOption(f"min_sample {of}", self.min_sample, "a whole number from 0 on")


class RuleChange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What settings say of a rule; what they leave out stays as it is."""

    watches: Watched | UnsetType = UNSET
    threshold: float | UnsetType = UNSET
    for_s: float | UnsetType = UNSET
    clear_s: float | UnsetType = UNSET
    severity: Severity | UnsetType = UNSET
    window_s: float | UnsetType = UNSET
    min_sample: int | UnsetType = UNSET
    only: str | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET


DEFAULT_RULES: tuple[Rule, ...] = (
    Rule(name="queue_backlog", watches="queue_depth", threshold=1000, for_s=900),
    Rule(name="dead_letters", watches="dead_letters", threshold=50),
    Rule(name="stuck_job", watches="stuck_jobs", threshold=0, window_s=900, severity="critical"),
    Rule(name="tenant_limit", watches="tenant_limit_hits", threshold=0, severity="info"),
    Rule(name="worker_crash", watches="worker_crashes", threshold=0, severity="critical"),
    Rule(name="store_unreachable", watches="store_unreachable_s", threshold=0, for_s=30, severity="critical"),
    Rule(name="spool_not_empty", watches="spool_jobs", threshold=0),
    Rule(name="pending_jobs", watches="pending_jobs", threshold=500, for_s=300),
    Rule(name="error_rate", watches="error_rate", threshold=0.1, min_sample=20),
    Rule(name="fast_lane_busy", watches="lane_utilisation", threshold=0.9, for_s=120, only="fast"),
    Rule(name="oldest_pending", watches="oldest_pending_s", threshold=3600),
    Rule(name="breaker_open", watches="breakers_open", threshold=0),
    Rule(name="process_stopped", watches="stopped_processes", threshold=0, window_s=900),
)


def seen(alert: Alert, rule: Rule) -> str:
    """What an alert is about, in words."""
    return SEEN[rule.watches].says.format(about=alert.about, value=alert.value)


def asked(rule: Rule) -> str:
    """From which value on, and for how long, a rule finds something wrong; empty: at once."""
    held = f" for {rule.for_s:g} s" if rule.for_s and rule.watches != "store_unreachable_s" else ""
    return f" (more than {rule.threshold:g}{held})" if rule.threshold else ""


def require_silenceable(name: str, rules: Iterable[Rule]) -> str:
    """Returns the name of a rule that can be silenced.

    Refuses a mistyped name, and a rule that reports while the store cannot be reached: neither would silence anything.
    """
    watched = {rule.name: rule.watches for rule in rules}
    if name not in watched:
        raise InvalidOption("alert rule", name, f"one of {', '.join(watched)}.{nearest(name, watched)}")
    if watched[name] == "store_unreachable_s":
        raise InvalidOption(
            "alert rule",
            name,
            "another: silences are kept in the store that is away then. Settings switch it off: enabled = false",
        )
    return name


def rules_in_force(changes: Mapping[str, RuleChange]) -> tuple[Rule, ...]:
    """The default rules as settings change them, then the settings' own rules in their order.

    A rule of the settings' own needs an observation and a threshold.
    """
    rules = {rule.name: rule for rule in DEFAULT_RULES}
    for name, change in changes.items():
        given = {option: value for option, value in asdict(change).items() if value is not UNSET}
        if name in rules:
            rules[name] = replace(rules[name], **given)
            continue
        if not {"watches", "threshold"} <= given.keys():
            expected = f"a rule there is, or `watches` and `threshold` for a new one.{nearest(name, rules)}"
            raise InvalidOption("alert rule", name, expected)
        rules[name] = Rule(name=name, **given)
    return tuple(rules.values())


OTHER = "other"
MOST_ABOUT = 200
"""How many things one rule keeps alerts about, including those resolved within the last day; further ones share one
alert about `other`."""

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
    """What changes, given all that was observed now and the rules that are silent.

    The same observations again change nothing. The alerts of a rule that is gone or off end.
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
