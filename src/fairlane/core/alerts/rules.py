"""Rules of alerts as values: what is watched, from where on it is wrong, and for how long it has to be.

The defaults are the documents'. Settings change them rule by rule, and add rules of their own over the same things.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Literal, get_args

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict, replace

from fairlane.core.names import check_rule_name
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
worker_crashes       worker processes that died or were lost, over the window
tenant_limit_hits    times a tenant met its limit, over the window
spool_jobs           jobs kept beside the store until it can be reached again
store_unreachable_s  how long a process has not reached the store
"""
WATCHED: tuple[Watched, ...] = get_args(Watched)


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
    """Where things are counted over a span: how long it is."""
    min_sample: int = 0
    """Rates of fewer things than this say nothing."""
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
)


def require_silenceable(name: str, rules: Iterable[Rule]) -> str:
    """The name of a rule that can be silenced: a mistyped one would silence nothing, nor would one that reports while
    the store is away.
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
    """The default rules as settings change them, then the settings' own, in their order. A rule of one's own says what
    it watches, and a threshold.
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
