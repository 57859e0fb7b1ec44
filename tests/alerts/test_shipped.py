"""The dashboard and the alert rules we ship speak only of metrics there are; the pages name every metric and every rule."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlane.client.store_access import SpoolState
from fairlane.core.alerts import DEFAULT_RULES, WATCHED
from fairlane.core.breaker import BreakerPolicy
from fairlane.core.ops import Alert, Health, Report, SaveAlerts
from fairlane.metrics import families as metrics
from fairlane.testing.conformance.samples import NOON
from tests.metrics.shop import Shop

ROOT = Path(__file__).parents[2]
BOARD = json.loads((ROOT / "deploy/grafana/fairlane.json").read_text())
RULES = [rule for group in yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())["groups"] for rule in group["rules"]]  # fmt: skip
EXPRESSIONS = [rule["expr"] for rule in RULES] + [
    target["expr"] for panel in BOARD["panels"] for target in panel["targets"]
]
FUNCTIONS = {"sum", "max", "min", "count", "rate", "increase", "histogram_quantile", "absent", "vector", "by", "or", "and"}  # fmt: skip


def names_in(expression: str) -> set[str]:
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|by \([^)]*\)", " ", expression)
    return set(re.findall(r"[a-z_][a-z0-9_]*", bare)) - FUNCTIONS


def labels_in(expression: str) -> set[str]:
    grouped = [label.strip() for found in re.findall(r"by \(([^)]*)\)", expression) for label in found.split(",")]
    return {*grouped, *re.findall(r"[{,]\s*([a-z_]+)=", expression)}


@pytest.fixture(scope="module")
def families() -> dict[str, Any]:
    """Everything that can be scraped, with something in it."""
    shop = Shop(metrics_tenants=1)
    shop.scrape()
    shop.add(enqueued=1, completed=1, run_us=1, run_buckets={1: 1}, wait_us=1, wait_buckets={1: 1})
    shop.say(memory_mb=1, lane__fast__slots=1, lane__fast__utilisation=1, payload__under_2=1)
    shop.store.run(Report(name="stripe", policy=BreakerPolicy(threshold=1), failures=1))

    @shop.app.task(name="mail.send", queue="mail")
    def send() -> None: ...

    send.enqueue()
    alert = Alert(rule="r", about="", state="firing", since=NOON, fired_at=NOON, resolved_at=None, value=1, severity="critical", version=1)  # fmt: skip
    shop.store.run(SaveAlerts(alerts=(alert,)))
    return shop.scrape()


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_names_only_metrics_and_labels_there_are(expression: str, families: dict[str, Any]) -> None:
    samples: dict[str, set[str]] = {}
    for family in families.values():
        for sample in family.samples:
            samples.setdefault(sample.name, set()).update(sample.labels)
    names = names_in(expression)
    assert names, "an expression without any metric"
    assert names <= samples.keys()
    assert labels_in(expression) <= set().union(*(samples[name] for name in names))


def test_every_alert_says_how_grave_it_is_and_what_it_means() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"]["summary"]


@pytest.mark.requirement("I12", "L14")
def test_the_documents_figures_are_in_the_shipped_rules() -> None:
    by_name = {rule["alert"]: (rule["expr"], rule.get("for")) for rule in RULES}
    assert by_name["FairlaneQueueBacklog"] == ("max by (queue) (queue_depth) > 1000", "15m")
    assert by_name["FairlaneDeadLetters"] == ("max(dlq_depth) > 50", None)
    assert by_name["FairlanePendingJobs"] == ("sum(max by (queue) (queue_depth)) > 500", "5m")
    assert by_name["FairlaneFastLaneBusy"][1] == "2m"


def test_panels_do_not_lie_on_each_other() -> None:
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in BOARD["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def test_the_page_on_metrics_names_every_metric_and_no_other(families: dict[str, Any]) -> None:
    page = (ROOT / "docs/operate/metrics.md").read_text()
    there_are = {name + ("_total" if family.type == "counter" else "") for name, family in families.items()}
    on_redis = Health(now=NOON, store="redis", server="", schema_version=1, durable=True, memory_bytes=1)
    a_spool = SpoolState(reachable=False, jobs=1, refused=0, age_s=1.0)
    there_are |= {family.name for family in (*metrics.store(on_redis, "redis"), *metrics.spool(a_spool))}
    named = set(re.findall(r"^\| `([a-z_]+)`", page, re.MULTILINE))
    assert named == there_are


def test_the_page_on_alerts_names_every_rule_and_all_that_can_be_watched() -> None:
    page = (ROOT / "docs/operate/alerts.md").read_text()
    rules = {
        name: (watches, float(threshold), float(for_s or 0), severity)
        for name, watches, threshold, for_s, severity in re.findall(
            r"^\| `([a-z_]+)` \| `([a-z_]+)` \| ([\d.]+) \| ([\d.]*) ?\| (\w+) \|", page, re.MULTILINE
        )
    }
    assert rules == {rule.name: (rule.watches, rule.threshold, rule.for_s, rule.severity) for rule in DEFAULT_RULES}
    assert all(f"`{watched}`" in page for watched in WATCHED)
