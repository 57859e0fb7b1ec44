"""When an alert begins, fires and is over: every default rule, and what flaps."""

from __future__ import annotations

from datetime import datetime, timedelta

import hypothesis.strategies as st
import pytest
from hypothesis import given
from msgspec.structs import replace

from fairlane.client.settings.alerts import AlertSettings
from fairlane.client.settings.load import load
from fairlane.core.alerts import (
    DEFAULT_RULES,
    MOST_ABOUT,
    OTHER,
    Change,
    Observation,
    Rule,
    RuleChange,
    Watched,
    evaluate,
    rules_in_force,
)
from fairlane.core.ops import Alert
from fairlane.errors import ConfigError, InvalidOption
from fairlane.testing.conformance.samples import NOON

RULES = {rule.name: rule for rule in DEFAULT_RULES}


class Watch:
    """The store's part in the story: keeps what evaluate changes, at a time the test sets."""

    def __init__(self, *rules: Rule) -> None:
        self.rules, self.now = rules, NOON
        self.kept: dict[tuple[str, str], Alert] = {}

    def see(self, *seen: Observation, after_s: float = 0.0) -> list[str]:
        """Look once; what was told."""
        self.now += timedelta(seconds=after_s)
        changes = evaluate(self.rules, seen, self.kept.values(), self.now)
        for change in changes:
            self._keep(change)
        return [f"{change.notice} {change.alert.about}".strip() for change in changes if change.notice is not None]

    def _keep(self, change: Change) -> None:
        key = change.alert.rule, change.alert.about
        before = self.kept.get(key)
        assert change.alert.version == (1 if before is None else before.version + 1)
        self.kept[key] = change.alert

    def state(self, about: str = "") -> str:
        [rule, *_] = self.rules
        return self.kept[rule.name, about].state


def seen(rule: Rule, value: float, about: str = "", sample: int | None = None) -> Observation:
    window_s = rule.window_s if rule.watches in WINDOWED else None
    return Observation(kind=rule.watches, value=value, about=about, sample=sample, window_s=window_s)


WINDOWED: set[Watched] = {"error_rate", "stuck_jobs", "stopped_processes", "worker_crashes", "tenant_limit_hits"}
DOCUMENTED = [
    # name, threshold, for, severity, about
    ("queue_backlog", 1000, 900, "warning", "mail"),
    ("dead_letters", 50, 0, "warning", ""),
    ("stuck_job", 0, 0, "critical", ""),
    ("tenant_limit", 0, 0, "info", "acme"),
    ("worker_crash", 0, 0, "critical", ""),
    ("store_unreachable", 0, 30, "critical", ""),
    ("spool_not_empty", 0, 0, "warning", ""),
    ("pending_jobs", 500, 300, "warning", ""),
    ("error_rate", 0.1, 0, "warning", "mail.send"),
    ("fast_lane_busy", 0.9, 120, "warning", "fast"),
    ("oldest_pending", 3600, 0, "warning", "mail"),
    ("breaker_open", 0, 0, "warning", "stripe"),
    ("process_stopped", 0, 0, "warning", "comms.send_email_supervisor"),
]


@pytest.mark.requirement("I12", "L14", "I8")
@pytest.mark.parametrize(("name", "threshold", "for_s", "severity", "about"), DOCUMENTED)
def test_each_default_rule_fires_above_its_threshold_after_its_time_and_is_over_again(
    name: str, threshold: float, for_s: float, severity: str, about: str
) -> None:
    rule = RULES[name]
    assert (rule.threshold, rule.for_s, rule.severity) == (threshold, for_s, severity)
    watch, sample = Watch(rule), max(rule.min_sample, 1)
    assert watch.see(seen(rule, threshold, about, sample)) == [], "at the threshold is not above it"
    above = seen(rule, threshold + 0.05, about, sample)
    if for_s:
        assert watch.see(above) == []
        assert watch.state(about) == "pending"
        assert watch.see(above, after_s=for_s - 1) == []
        assert watch.see(above, after_s=1) == [f"fired {about}".strip()]
    else:
        assert watch.see(above) == [f"fired {about}".strip()]
    alert = watch.kept[name, about]
    assert (alert.state, alert.severity, alert.fired_at) == ("firing", severity, watch.now)
    assert watch.see(above, after_s=3600) == [], "people are told once"
    assert watch.see(after_s=15) == []
    assert watch.see(after_s=rule.clear_s) == [f"resolved {about}".strip()]
    assert watch.see(after_s=3600) == []


def test_the_table_above_knows_every_default_rule() -> None:
    assert [row[0] for row in DOCUMENTED] == list(RULES)


def test_what_is_wrong_for_less_than_its_time_is_told_to_nobody() -> None:
    rule = RULES["queue_backlog"]
    watch = Watch(rule)
    for _ in range(10):
        assert watch.see(seen(rule, 2000, "mail")) == []
        assert watch.see(seen(rule, 2000, "mail"), after_s=899) == []
        assert watch.see(seen(rule, 10, "mail"), after_s=0.5) == []
        assert watch.state("mail") == "resolved"


def test_what_flaps_is_one_alert() -> None:
    rule = RULES["breaker_open"]
    watch, told = Watch(rule), []
    for _ in range(40):
        told += watch.see(seen(rule, 1, "stripe"), after_s=15)
        told += watch.see(after_s=15)
    assert told == ["fired stripe"]
    told += watch.see(after_s=44)
    assert told == ["fired stripe"]
    told += watch.see(after_s=16)
    assert told == ["fired stripe", "resolved stripe"]


def test_things_of_one_rule_are_alerts_of_their_own() -> None:
    rule = RULES["queue_backlog"]
    watch = Watch(replace(rule, for_s=0))
    assert watch.see(seen(rule, 2000, "mail"), seen(rule, 5, "sms")) == ["fired mail"]
    assert watch.see(seen(rule, 2000, "mail"), seen(rule, 5000, "sms")) == ["fired sms"]
    watch.see(seen(rule, 5000, "sms"))
    assert watch.see(seen(rule, 5000, "sms"), after_s=60) == ["resolved mail"]


def test_a_rate_of_few_things_says_nothing() -> None:
    rule = RULES["error_rate"]
    watch = Watch(rule)
    assert watch.see(seen(rule, 1.0, "mail.send", sample=19)) == []
    assert watch.see(seen(rule, 0.11, "mail.send", sample=20)) == ["fired mail.send"]


def test_another_window_is_another_rule() -> None:
    rule = RULES["error_rate"]
    watch = Watch(rule)
    assert watch.see(replace(seen(rule, 1.0, "mail.send", sample=99), window_s=60)) == []


def test_the_fast_lanes_rule_leaves_other_lanes_alone() -> None:
    rule = replace(RULES["fast_lane_busy"], for_s=0)
    watch = Watch(rule)
    assert watch.see(seen(rule, 1.0, "general"), seen(rule, 0.95, "fast")) == ["fired fast"]


def test_a_rule_that_is_switched_off_ends_its_alerts() -> None:
    rule = RULES["breaker_open"]
    watch = Watch(rule)
    watch.see(seen(rule, 1, "stripe"))
    watch.rules = (replace(rule, enabled=False),)
    assert watch.see(seen(rule, 1, "stripe"), after_s=15) == ["resolved stripe"]
    watch.rules = ()
    assert watch.see(seen(rule, 1, "stripe"), after_s=15) == []


def test_thousands_of_tenants_at_their_limit_are_kept_as_a_bounded_number() -> None:
    rule = RULES["tenant_limit"]
    watch = Watch(rule)
    for round_ in range(5):
        watch.see(*(seen(rule, 1 + n, f"t{round_}-{n}") for n in range(1000)), after_s=15)
    assert len(watch.kept) == MOST_ABOUT + 1
    assert watch.kept[rule.name, OTHER].state == "firing"
    assert watch.kept[rule.name, "t0-999"].value == 1000, "the gravest have names"


def test_it_goes_on_where_it_was_after_a_restart() -> None:
    rule = RULES["pending_jobs"]
    watch = Watch(rule)
    watch.see(seen(rule, 600))
    again = Watch(rule)  # another process: it knows what is kept, and nothing else
    again.kept, again.now = watch.kept, watch.now
    assert again.see(seen(rule, 600), after_s=300) == ["fired"]
    third = Watch(rule)
    third.kept, third.now = again.kept, again.now
    assert third.see(seen(rule, 600), after_s=15) == []


looks = st.lists(st.tuples(st.floats(0, 200), st.booleans(), st.booleans()), max_size=40)


@given(looks, st.sampled_from([0.0, 30.0, 120.0]), st.sampled_from([0.0, 60.0]))
def test_people_hear_fired_and_resolved_in_turn_whatever_happens(
    story: list[tuple[float, bool, bool]], for_s: float, clear_s: float
) -> None:
    rule = Rule(name="any", watches="queue_depth", threshold=10, for_s=for_s, clear_s=clear_s)
    watch, told = Watch(rule), list[str]()
    fired_at: datetime | None = None
    for after_s, is_wrong, twice in story:
        observed = [seen(rule, 11, "q")] if is_wrong else []
        told += watch.see(*observed, after_s=after_s)
        if twice:
            before = dict(watch.kept)
            told += watch.see(*observed)
            settled = for_s > 0 and clear_s > 0
            assert not settled or watch.kept == before, "the same seen again changes nothing"
        kept = watch.kept.get(("any", "q"))
        if kept is not None and kept.state == "firing":
            assert kept.fired_at is not None
            assert (kept.fired_at - kept.since).total_seconds() >= for_s
            fired_at = kept.fired_at
    assert told == (["fired q", "resolved q"] * 40)[: len(told)]
    assert bool(told) == (fired_at is not None)


def test_settings_change_rules_and_add_some() -> None:
    changes = {
        "queue_backlog": RuleChange(threshold=5000, severity="critical"),
        "tenant_limit": RuleChange(enabled=False),
        "mail_waits": RuleChange(watches="oldest_pending_s", only="mail", threshold=120),
    }
    rules = {rule.name: rule for rule in rules_in_force(changes)}
    assert rules["queue_backlog"] == replace(RULES["queue_backlog"], threshold=5000, severity="critical")
    assert not rules["tenant_limit"].enabled
    watch = Watch(rules["mail_waits"])
    late = Observation(kind="oldest_pending_s", about="mail", value=121)
    assert watch.see(replace(late, about="sms"), late) == ["fired mail"]


@pytest.mark.parametrize(
    ("alerts", "complaint"),
    [
        ({"rules": {"queue_backlogs": {"threshold": 1}}}, 'Nearest: "queue_backlog"'),
        ({"rules": {"queue_backlog": {"treshold": 1}}}, "treshold"),
        ({"rules": {"queue_backlog": {"for_s": -1}}}, "for_s"),
        ({"rules": {"queue_backlog": {"severity": "awful"}}}, "severity"),
        ({"rules": {"new one": {"watches": "queue_depth", "threshold": 1}}}, "alert rule"),
        ({"email": {"host": "smtp.test", "sender": "a@b", "to": []}}, "to"),
        ({"email": {"host": "smtp.test", "sender": "a@b", "to": ["nobody"]}}, "address"),
        ({"webhooks": {"pager": {"url": "ftp://x/", "secret": "s" * 16}}}, "url of a webhook"),
        ({"webhooks": {"pager": {"url": "https://u:hunter2@x.test/", "secret": "s" * 16}}}, "user name"),
        ({"webhooks": {"pager": {"url": "https://x.test/", "secret": "hunter2"}}}, "secret"),
        ({"webhooks": {"pager": {"url": "https://x.test/", "secret": "s" * 16, "allow": ["local"]}}}, "network"),
    ],
)
def test_bad_settings_are_refused_and_no_secret_is_shown(alerts: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as refused:
        load({"alerts": alerts}, environ={})
    assert "hunter2" not in str(refused.value)


def test_shown_settings_hold_no_password_and_no_secret() -> None:
    settings = load(
        environ={
            "FAIRLANE_ALERTS": '{"email": {"host": "smtp.test", "sender": "a@b.test", "to": ["c@d.test"], "username": "u", '
            '"password": "hunter2"}, "webhooks": {"pager": {"url": "https://hooks.test/hunter2", "secret": "hunter2hunter2!!"}}}'
        }
    )
    assert settings.alerts.email is not None
    assert settings.alerts.email.password == "hunter2"
    shown = {name: value for name, value, _ in settings.shown()}["alerts"]
    assert "hunter2" not in repr(settings) + repr(shown) + repr(settings.alerts)
    assert "hooks.test" in repr(shown)


def test_switched_off_altogether_there_are_no_rules() -> None:
    assert AlertSettings(enabled=False).rules_in_force == ()
    with pytest.raises(InvalidOption):
        rules_in_force({"x": RuleChange(threshold=1)})
