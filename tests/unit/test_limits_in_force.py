"""What the code gives and what people set, put together: who wins, and what a job is counted under."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fairlane.core.ids import EVERY_TENANT
from fairlane.core.limits import LIMIT_KINDS, NO_LIMIT, Limit, LimitKey, LimitsInForce, Rate, StoredLimit, TenantTerms

pytestmark = pytest.mark.requirement("I2", "I5")

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def stored(limit: Limit, paused_until: datetime | None = None) -> StoredLimit:
    return StoredLimit(limit=limit, by="ada", at=NOON, paused_until=paused_until)


def tenant(name: str = "acme", queue: str = "", **said: Any) -> Limit:
    return Limit(kind="tenant", name=name, queue=queue, **said)


ACME, ACME_BULK = LimitKey("tenant", "acme"), LimitKey("tenant", "acme", "bulk")


def test_where_nothing_is_said_nothing_is_limited() -> None:
    force = LimitsInForce(())
    for kind in LIMIT_KINDS:
        key = LimitKey(kind, "x")
        assert (force.running(key), force.rate(key), force.paused_until(key)) == (None, None, None)
    assert force.enqueue_rate("acme") is None
    assert force.terms("acme", "bulk") == TenantTerms(waiting=None, when_full="warn", payload_bytes=None)
    assert force.named("mail.send") == []


@pytest.mark.parametrize("kind", LIMIT_KINDS)
def test_what_a_person_set_wins_field_by_field(kind: Any) -> None:
    key = LimitKey(kind, "x")
    code = Limit(kind=kind, name="x", running=5, rate=Rate(9, 60))
    force = LimitsInForce([code], [stored(Limit(kind=kind, name="x", running=7))])
    assert (force.running(key), force.rate(key)) == (7, Rate(9, 60))
    force = LimitsInForce([code], [stored(Limit(kind=kind, name="x", rate=Rate(NO_LIMIT, 1)))])
    assert (force.running(key), force.rate(key)) == (5, None)


@pytest.mark.parametrize("by", ["given", "set"])
def test_what_is_said_of_every_tenant_is_not_meant_for_the_applications_own_jobs(by: str) -> None:
    figures = {"running": 1, "rate": Rate(1, 60), "enqueue_rate": Rate(1, 60), "waiting": 1, "payload_bytes": 9}
    said = [tenant(EVERY_TENANT, queue, **figures, when_full="reject") for queue in ("", "bulk")]
    own = tenant("system", "bulk", running=3, waiting=4)

    def force(*limits: Limit) -> LimitsInForce:
        return LimitsInForce(limits) if by == "given" else LimitsInForce((), map(stored, limits))

    for queue in ("", "bulk"):
        key = LimitKey("tenant", "system", queue)
        assert (force(*said).running(key), force(*said).rate(key)) == (None, None)
    assert force(*said).enqueue_rate("system") is None
    assert force(*said).terms("system", "bulk") == TenantTerms(waiting=None, when_full="warn", payload_bytes=None)
    assert force(*said, own).running(LimitKey("tenant", "system", "bulk")) == 3
    assert force(*said, own).terms("system", "bulk") == TenantTerms(waiting=4, when_full="warn", payload_bytes=None)


def test_nothing_at_all_is_a_limit_and_no_limit_is_none() -> None:
    assert LimitsInForce([tenant(running=0, rate=Rate(0, 1))]).running(ACME) == 0
    assert LimitsInForce([tenant(rate=Rate(0, 1))]).rate(ACME) == Rate(0, 1)
    assert LimitsInForce([tenant(running=NO_LIMIT)]).running(ACME) is None


def test_a_tenants_own_wins_over_every_tenants_even_where_that_was_set_by_a_person() -> None:
    force = LimitsInForce([tenant(running=5)], [stored(tenant(EVERY_TENANT, running=1))])
    assert (force.running(ACME), force.running(LimitKey("tenant", "bolt"))) == (5, 1)
    force = LimitsInForce([tenant(EVERY_TENANT, running=1)], [stored(tenant(running=NO_LIMIT))])
    assert (force.running(ACME), force.running(LimitKey("tenant", "bolt"))) == (None, 1)


def test_over_all_queues_and_in_one_are_two_limits() -> None:
    force = LimitsInForce([tenant(running=5), tenant(EVERY_TENANT, "bulk", running=2)])
    assert (force.running(ACME), force.running(ACME_BULK)) == (5, 2)
    assert force.running(LimitKey("tenant", "acme", "default")) is None


def test_every_tenant_is_no_queue_and_no_task() -> None:
    force = LimitsInForce([tenant(EVERY_TENANT, running=1), Limit(kind="queue", name=EVERY_TENANT, running=2)])
    assert force.running(LimitKey("queue", "bulk")) is None
    assert force.running(LimitKey("type", "mail.send")) is None


def test_terms_are_found_from_the_particular_to_the_general() -> None:
    rising = [
        tenant(EVERY_TENANT, waiting=1, payload_bytes=1, when_full="warn"),
        tenant(EVERY_TENANT, "bulk", waiting=2, payload_bytes=2, when_full="reject"),
        tenant(waiting=3, payload_bytes=3, when_full="hold"),
        tenant("acme", "bulk", waiting=4, payload_bytes=4, when_full="reject"),
    ]
    for count in range(1, 5):
        terms = LimitsInForce(rising[:count]).terms("acme", "bulk")
        assert (terms.waiting, terms.payload_bytes) == (count, count)
        assert terms.when_full == rising[count - 1].when_full


def test_terms_are_put_together_field_by_field() -> None:
    given_ = [tenant(EVERY_TENANT, waiting=100, when_full="reject"), tenant(payload_bytes=NO_LIMIT)]
    force = LimitsInForce(given_, [stored(tenant("acme", "bulk", waiting=NO_LIMIT))])
    assert force.terms("acme", "bulk") == TenantTerms(waiting=None, when_full="reject", payload_bytes=None)
    assert force.terms("acme", "default") == TenantTerms(waiting=100, when_full="reject", payload_bytes=None)


def test_the_enqueue_rate_is_the_tenants_or_every_tenants() -> None:
    given_ = [tenant(EVERY_TENANT, enqueue_rate=Rate(10, 60)), tenant("bolt", enqueue_rate=Rate(NO_LIMIT, 60))]
    force = LimitsInForce(given_, [stored(tenant(enqueue_rate=Rate(3, 1)))])
    assert [force.enqueue_rate(name) for name in ("acme", "bolt", "core")] == [Rate(3, 1), None, Rate(10, 60)]


def test_a_pause_is_of_the_very_thing_that_was_paused() -> None:
    force = LimitsInForce((), [stored(tenant(), NOON), stored(tenant("acme", "bulk"))])
    assert (force.paused_until(ACME), force.paused_until(ACME_BULK)) == (NOON, None)
    assert force.paused_until(LimitKey("queue", "acme")) is None


def test_named_limits_are_found_by_the_tasks_a_person_listed_else_by_the_codes() -> None:
    given_ = [Limit(kind="named", name="z", types=("a", "b")), Limit(kind="named", name="k", types=("a",))]
    set_ = [stored(Limit(kind="named", name="k", types=("b", "c"))), stored(Limit(kind="named", name="z", running=1))]
    force = LimitsInForce(given_, set_)
    named = {task: [key.name for key in force.named(task)] for task in "abcd"}
    assert named == {"a": ["z"], "b": ["k", "z"], "c": ["k"], "d": []}


def test_a_job_is_counted_under_its_queue_tenant_task_and_names_in_that_order() -> None:
    force = LimitsInForce([Limit(kind="named", name=name, types=("mail.send",)) for name in ("z", "a")])
    assert force.keys_of("bulk", "acme", "mail.send") == [
        ("queue", "bulk", ""),
        ("tenant", "acme", ""),
        ("tenant", "acme", "bulk"),
        ("type", "mail.send", ""),
        ("named", "a", ""),
        ("named", "z", ""),
    ]


numbers = st.none() | st.integers(NO_LIMIT, 3)
some_limits = st.lists(
    st.builds(
        tenant,
        st.sampled_from(("acme", EVERY_TENANT)),
        st.sampled_from(("", "bulk")),
        running=numbers,
        waiting=numbers,
    ),
    max_size=4,
    unique_by=lambda limit: limit.key,
)


@given(code=some_limits, set_=some_limits)
def test_whatever_is_in_force_was_said_by_somebody_and_is_never_negative(code: list[Limit], set_: list[Limit]) -> None:
    force = LimitsInForce(code, map(stored, set_))
    said = {limit.running for limit in (*code, *set_)} | {None}
    assert {force.running(ACME), force.running(ACME_BULK)} <= said - {NO_LIMIT}
    assert force.terms("acme", "bulk").waiting in {limit.waiting for limit in (*code, *set_)} - {NO_LIMIT} | {None}


@given(code=some_limits, set_=some_limits)
def test_what_the_code_says_changes_nothing_where_a_person_said_it_all(code: list[Limit], set_: list[Limit]) -> None:
    said = [limit for limit in set_ if limit.running is not None]
    silent = [limit for limit in code if limit.key not in {other.key for other in said}]
    for key in (ACME, ACME_BULK):
        assert LimitsInForce(code, map(stored, said)).running(key) == LimitsInForce(silent, map(stored, said)).running(
            key
        )
