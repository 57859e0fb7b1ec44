"""Job types find their queues, and queues have their figures."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.core.profiles import PROFILES
from fairlane.core.queues import CATEGORIES, QueuePolicy, Router
from fairlane.errors import ConfigError, InvalidOption

QUEUES = PROFILES["production"].queues


@pytest.mark.requirement("I1", "I14")
def test_a_fax_job_goes_to_the_critical_queue_and_an_unknown_type_to_default() -> None:
    router = Router({"fax.send": "critical", "reports.*": "bulk"}, QUEUES)
    assert router.queue_for("fax.send") == "critical"
    assert router.queue_for("reports.generate") == "bulk"
    assert router.queue_for("reports") == "default"
    assert router.queue_for("never.heard.of") == "default"


def test_an_exact_route_wins_over_a_pattern_and_the_first_pattern_over_the_next() -> None:
    router = Router({"mail.*": "bulk", "mail.s*": "critical", "mail.send": "default"}, QUEUES)
    assert router.queue_for("mail.send") == "default"
    assert router.queue_for("mail.sort") == "bulk"


@pytest.mark.requirement("W1")
def test_every_job_type_can_be_given_a_category() -> None:
    router = Router(categories={"email_ingestion_*": "ingestion", "firm_export": "export"})
    assert router.category_for("email_ingestion_fetch") == "ingestion"
    assert router.category_for("firm_export") == "export"
    assert router.category_for("other") is None
    assert len(CATEGORIES) == 8


def test_a_route_to_a_queue_that_is_not_there_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match='Nearest: "critical"'):
        Router({"fax.send": "critcal"}, QUEUES)


def test_a_queue_nobody_configured_limits_nothing() -> None:
    assert Router(queues=QUEUES).policy_for("mine") == QueuePolicy(name="mine")
    assert Router(queues=QUEUES).policy_for("bulk") is QUEUES["bulk"]


@pytest.mark.requirement("L2", "D8")
def test_a_fast_type_without_a_route_joins_the_fast_queue() -> None:
    router = Router({"mail.*": "bulk"}, QUEUES)
    assert router.queue_for("sms.send", is_fast=True) == "critical"
    assert router.queue_for("mail.send", is_fast=True) == "bulk"
    assert Router().queue_for("sms.send", is_fast=True) == "default"


@pytest.mark.parametrize(
    "options",
    [
        {"name": "no spaces"},
        {"timeout_s": 0},
        {"slots": -1},
        {"fast": 1},
        {"max_per_tenant": True},
        {"rate_per_minute": float("nan")},
        {"priority_scope": "galaxy"},
        {"retain_days": 0},
        {"retain_days": 36_501},
    ],
    ids=str,
)
def test_a_queue_policy_out_of_range_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        QueuePolicy(**{"name": "mine"} | options)
