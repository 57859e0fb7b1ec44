"""Limits as an application declares and sets them, and what its enqueues run into."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from fairlane import (
    EnqueueRateReached,
    Fairlane,
    FakeClock,
    InvalidOption,
    Limit,
    QueueFull,
    QueuePolicy,
    Rate,
    StoreUnavailable,
    TenantLimitReached,
)
from fairlane.alerts import AlertDuty
from fairlane.client.enqueue.quotas import TenantQuotas
from fairlane.core.ops import ALL_TENANTS, AddEvents, Enqueue, EnqueueResult, LimitHit, ReadEvents
from fairlane.testing import run_due

Make = Callable[..., Fairlane]


@pytest.fixture
def small(make_app: Make) -> Fairlane:
    """Two jobs of a tenant may be in `default`, one in `held`, one in `strict`, a hundred in `wide`."""
    app = make_app(
        queues={
            "default": QueuePolicy(name="default", max_per_tenant=2),
            "strict": QueuePolicy(name="strict", max_per_tenant=1, when_full="reject"),
            "held": QueuePolicy(name="held", max_per_tenant=1, when_full="hold"),
            "wide": QueuePolicy(name="wide", max_per_tenant=100),
        }
    )

    @app.task(name="work")
    def work(n: int = 0) -> int:
        return n

    return app


@pytest.mark.requirement("I2", "I13")
def test_at_the_limit_a_job_is_queued_and_a_warning_logged_and_published(
    small: Fairlane, caplog: pytest.LogCaptureFixture
) -> None:
    work = small.tasks["work"].using(tenant="acme")
    work.enqueue()
    work.enqueue()
    assert not caplog.records
    with caplog.at_level(logging.WARNING, "fairlane.client"):
        third = work.enqueue()
        work.enqueue()
    [record] = caplog.records
    assert "at its limit of 2 jobs" in record.message
    assert third.status() == "pending"
    [event] = small.runtime.store.run(ReadEvents(scope=ALL_TENANTS)).events
    assert (event.kind, event.tenant) == ("job_limit_warning", "acme")
    assert (event.data["organization"], event.data["queue"]) == ("acme", "default")


@pytest.mark.requirement("I2", "D23")
def test_a_limit_that_only_warns_is_counted_where_a_call_could_pass_it(
    small: Fairlane, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Counting costs more than an enqueue, so it is done rarely; and never too late."""
    store, counted = small.runtime.store, []
    monkeypatch.setattr(store, "run", lambda op, **given: _noted(op, counted) or type(store).run(store, op, **given))
    work = small.tasks["work"].using(tenant="acme")
    for queue, passes, counts in (("wide", 101, [*range(1, 9), 101]), ("default", 3, [1, 2, 3])):
        for n in range(1, 120):
            work.using(queue=queue).enqueue()
            assert bool(caplog.records) is (n >= passes)
        assert [n for n, warns in enumerate(counted, 1) if warns] == counts
        counted.clear()
        caplog.clear()
    clock.advance(1)
    work.enqueue()
    work.using(tenant="bolt").enqueue()
    small.enqueue_many([work.bind(), work.using(tenant="cone").bind()])
    assert counted == [True, True, True]


@pytest.mark.requirement("I2", "D23")
def test_jobs_that_ended_make_room_again_and_a_call_of_many_is_counted_as_many(
    small: Fairlane, caplog: pytest.LogCaptureFixture
) -> None:
    wide = small.tasks["work"].using(tenant="acme", queue="wide")
    for _ in range(95):
        wide.enqueue()
    run_due(small)
    small.enqueue_many([wide.bind() for _ in range(100)])
    assert not caplog.records
    small.enqueue_many([wide.bind() for _ in range(2)])
    assert len(caplog.records) == 1


def _noted(op: object, counted: list[bool]) -> None:
    if isinstance(op, Enqueue):
        counted.append(op.warns)


@pytest.mark.requirement("I2", "Q6")
def test_a_queue_that_rejects_enqueues_nothing_of_the_call(small: Fairlane) -> None:
    work = small.tasks["work"].using(tenant="acme", queue="strict")
    with pytest.raises(TenantLimitReached) as error:
        small.enqueue_many([work.bind(), work.bind()])
    assert (error.value.limit, error.value.queue, error.value.tenant) == (1, "strict", "acme")
    assert isinstance(error.value, QueueFull)
    assert not small.jobs.list().jobs
    work.enqueue()
    with pytest.raises(TenantLimitReached):
        work.enqueue()
    work.using(tenant="globex").enqueue()
    assert len(small.jobs.list().jobs) == 2


@pytest.mark.requirement("I2", "I12")
@pytest.mark.parametrize(("queue", "further"), [("default", "queued"), ("strict", "refused"), ("held", "held")])
def test_whatever_the_policy_a_tenant_at_its_limit_is_logged_published_and_alerted_once_a_minute(
    small: Fairlane, clock: FakeClock, caplog: pytest.LogCaptureFixture, queue: str, further: str
) -> None:
    work = small.tasks["work"].using(tenant="acme", queue=queue)
    for _ in range(5):
        with suppress(TenantLimitReached):
            work.enqueue()
    [record] = caplog.records
    assert record.getMessage().endswith(f'in queue "{queue}"; further ones are {further}')
    [event] = small.runtime.store.run(ReadEvents(scope=ALL_TENANTS)).events
    assert (event.kind, event.tenant, event.data["queue"]) == ("job_limit_warning", "acme", queue)
    [alert] = asyncio.run(AlertDuty(small).evaluate(clock.now()))
    assert (alert.rule, alert.severity) == ("tenant_limit", "info")
    clock.advance(61)
    with suppress(TenantLimitReached):
        work.enqueue()
    assert len(caplog.records) == 2


@pytest.mark.requirement("I2")
def test_a_refusal_stays_a_refusal_where_its_event_cannot_be_written(
    small: Fairlane, caplog: pytest.LogCaptureFixture
) -> None:
    quotas = TenantQuotas(small.runtime.limits, small.runtime.clock)
    refused = LimitHit(tenant="acme", queue="strict", cause="waiting", limit=1, found=1, policy="reject")
    steps = quotas.after(EnqueueResult(refused=refused), may_tell=True)
    assert isinstance(next(steps), AddEvents)
    with pytest.raises(TenantLimitReached):
        steps.throw(StoreUnavailable("sqlite", "gone"))
    assert "could not be written" in caplog.text


@pytest.mark.requirement("I2")
def test_a_held_job_waits_and_says_why(small: Fairlane) -> None:
    work = small.tasks["work"].using(tenant="acme", queue="held")
    work.enqueue()
    held = work.enqueue()
    explanation = small.jobs.why(held)
    assert explanation.waiting.place == "held"
    assert any("at its limit of 1 jobs" in reason.says for reason in explanation.reasons)
    assert held.status() == "pending"


@pytest.mark.requirement("Q15")
def test_a_tenant_that_enqueues_too_fast_is_refused_until_its_time_comes(make_app: Make, clock: FakeClock) -> None:
    app = make_app(tenant_enqueue_rate="2/min")

    @app.task(name="work")
    def work() -> None: ...

    one = work.using(tenant="acme")
    app.enqueue_many([one.bind(), one.bind()])
    with pytest.raises(EnqueueRateReached) as error:
        one.enqueue()
    assert 0 < error.value.retry_after_s <= 60
    work.using(tenant="globex").enqueue()
    with pytest.raises(EnqueueRateReached, match="fewer at once"):
        app.enqueue_many([one.bind()] * 3)
    clock.advance(60)
    one.enqueue()
    assert len(app.jobs.list().jobs) == 4


@pytest.mark.requirement("Q15")
def test_a_call_refused_for_one_tenant_costs_the_others_of_it_nothing(make_app: Make) -> None:
    app = make_app(tenant_enqueue_rate="2/min")

    @app.task(name="work")
    def work() -> None: ...

    acme, globex = work.using(tenant="acme"), work.using(tenant="globex")
    globex.enqueue()
    for _ in range(3):
        with pytest.raises(EnqueueRateReached, match="globex"):
            app.enqueue_many([acme.bind(), globex.bind(), globex.bind()])
    app.enqueue_many([acme.bind(), acme.bind(), globex.bind()])


@pytest.mark.requirement("Q15")
def test_an_enqueue_rate_set_by_a_person_is_heeded_within_seconds(small: Fairlane, clock: FakeClock) -> None:
    work = small.tasks["work"].using(tenant="acme")
    work.enqueue()
    small.limits.set(tenant="acme", enqueue_rate="1/min", by="olga")
    clock.advance(5)
    work.enqueue()
    with pytest.raises(EnqueueRateReached, match="1/min"):
        work.enqueue()


def test_a_payload_may_be_too_large_for_one_tenant(small: Fairlane) -> None:
    small.limits.set(tenant="acme", payload_bytes=10)
    work = small.tasks["work"]
    with pytest.raises(TenantLimitReached, match="more than the 10 allowed"):
        work.using(tenant="acme").enqueue(n=12345678)
    work.using(tenant="globex").enqueue(n=12345678)


@pytest.mark.requirement("I1", "I5")
def test_the_code_s_limits_are_those_of_its_queues_tasks_and_names(make_app: Make) -> None:
    extra = QueuePolicy(name="extra", running=3, tenant_running=1)
    app = make_app(profile="isolation", tenant_running=7, queues={"extra": extra})
    smtp = app.limits.declare("smtp", rate="100/min")

    @app.task(name="mail.send", limit=smtp, running=2)
    def send() -> None: ...

    @app.task(name="mail.digest", limit=("smtp", "other"), rate="10/s")
    def digest() -> None: ...

    found = {limit.key: limit for limit in app.limits.declared}
    assert found["queue", "bulk", ""].rate == Rate(50, 60.0)
    assert found["tenant", "*", "default"] == Limit(
        kind="tenant", name="*", queue="default", waiting=500, when_full="warn"
    )
    assert found["tenant", "*", "extra"].running == 1
    assert found["queue", "extra", ""].running == 3
    assert found["tenant", "*", ""].running == 7
    assert found["type", "mail.send", ""].running == 2
    assert found["type", "mail.digest", ""].rate == Rate(10, 1.0)
    assert found["named", "smtp", ""].types == ("mail.digest", "mail.send")
    assert found["named", "smtp", ""].rate == Rate(100, 60.0)
    assert found["named", "other", ""].types == ("mail.digest",)


def test_a_named_limit_has_one_meaning(make_app: Make) -> None:
    app = make_app()
    app.limits.declare("smtp", rate="100/min")
    assert app.limits.declare("smtp").limit.rate == Rate(100, 60.0)
    with pytest.raises(InvalidOption, match="the same figures everywhere"):
        app.limits.declare("smtp", rate="5/s")


@pytest.mark.requirement("I5")
def test_a_job_may_pause_the_limit_it_is_under(make_app: Make, clock: FakeClock) -> None:
    app = make_app()
    smtp = app.limits.declare("smtp")
    ran = []

    @app.task(name="send", limit=smtp)
    def send() -> None:
        ran.append(clock.now())
        smtp.pause_for(30)

    send.enqueue()
    later = send.enqueue()
    run_due(app)
    assert len(ran) == 1
    assert any('limit "smtp" is paused for 30.0 s' in reason.says for reason in app.jobs.why(later).reasons)
    clock.advance(30)
    run_due(app)
    assert later.status() == "completed"


@pytest.mark.requirement("I2")
def test_what_a_person_set_is_listed_cleared_and_audited(small: Fairlane) -> None:
    [kept] = small.limits.set(tenant="acme", queue="default", waiting=9, when_full="reject", by="olga", notes="trial")
    assert (kept.limit.waiting, kept.limit.when_full, kept.by) == (9, "reject", "olga")
    assert small.limits.list() == (kept,)
    assert small.limits.clear(tenant="acme", queue="default", by="olga")
    assert not small.limits.clear(tenant="acme", queue="default", by="olga")
    assert [record.action for record in small.audit.list().records] == ["limit_clear", "limit_set"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "exactly one"),
        ({"queue": "a", "task": "b", "running": 1}, "exactly one"),
        ({"tenant": "a", "task": "b", "running": 1}, "alone or with a queue"),
        ({"queue": "a"}, "at least one figure"),
        ({"queue": "a", "waiting": 1}, "only a tenant's limit"),
        ({"queue": "a", "running": -2}, "no limit"),
        ({"queue": "a", "running": True}, "whole number"),
        ({"queue": "a", "rate": "many"}, "50/min"),
        ({"queue": "a", "rate": "5/fortnight"}, "50/min"),
        ({"queue": "a", "rate": "5/2d"}, "period"),
        ({"queue": "no such!", "running": 1}, "characters"),
        ({"tenant": "a", "queue": "b", "enqueue_rate": "1/s"}, "over all queues"),
        ({"tenant": "a", "waiting": 1, "when_full": "panic"}, "warn"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(small: Fairlane, given: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        small.limits.set(**given)  # type: ignore[arg-type]
    assert not small.limits.list()


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("50/min", Rate(50, 60.0)),
        ("10 per s", Rate(10, 1.0)),
        ("3/5min", Rate(3, 300.0)),
        ("1/0.5s", Rate(1, 0.5)),
        ("5/s spread", Rate(1, 0.2)),
        ("6/min spread", Rate(6, 60, spread=True)),
        ("-1", Rate(-1, 60.0)),
        ("no limit", Rate(-1, 60.0)),
    ],
)
def test_rates_are_read_as_people_write_them(make_app: Make, text: str, rate: Rate) -> None:
    assert make_app().limits.declare("x", rate=text).limit.rate == rate


def test_a_pause_is_of_one_thing(small: Fairlane, clock: FakeClock) -> None:
    assert small.limits.pause(30, tenant="acme", queue="default") == clock.now() + timedelta(seconds=30)
    with pytest.raises(InvalidOption, match="one tenant"):
        small.limits.pause(30, tenant="*")


@pytest.mark.parametrize(
    "about", [{"queue": 5}, {"task": "a b"}, {"name": "a\0"}, {"tenant": "a\0"}, {"tenant": "a", "queue": 5}]
)
def test_what_cannot_have_a_limit_is_neither_paused_nor_cleared(small: Fairlane, about: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        small.limits.pause(30, **about)
    with pytest.raises(InvalidOption):
        small.limits.clear(**about)
    assert small.limits.list() == ()


@pytest.mark.requirement("I2")
def test_the_application_s_own_jobs_are_no_tenant_s(small: Fairlane, caplog: pytest.LogCaptureFixture) -> None:
    work = small.tasks["work"].using(queue="strict")
    small.enqueue_many([work.bind()] * 5)
    assert not caplog.records
    with pytest.raises(TenantLimitReached):
        small.enqueue_many([work.bind(), *[work.using(tenant="acme").bind()] * 2])
    assert len(small.jobs.list().jobs) == 5
