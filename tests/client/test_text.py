"""What is no text, given where people's words belong: one clear error, before any store sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from fairlane import Fairlane, InvalidOption

Act = Callable[..., Any]

NOT_TEXT: tuple[Any, ...] = ({}, 5, 1.5, b"x", ["x"], True, "a\x00b", "half \ud800")
AUDITED = 4
"""What making the things acted on leaves in the audit: a job buried, a limit, a pause, a schedule."""


@pytest.fixture
def busy(app: Fairlane) -> Fairlane:
    @app.task(name="work")
    def work() -> None: ...

    app.jobs.bury(work.using(tenant="acme").enqueue(), "stuck")
    work.enqueue()
    app.limits.set(queue="default", running=1)
    app.queues.pause("bulk")
    app.schedules.add("nightly", work, cron="0 3 * * *")
    return app


ACTS: dict[str, Callable[[Fairlane], Act]] = {
    "cancel": lambda app: lambda **words: app.jobs.cancel(app.jobs.list(status="pending").jobs[0], **words),
    "cancel by its handle": lambda app: (
        lambda **words: app.jobs.handle(app.jobs.list(status="pending").jobs[0]).cancel(**words)
    ),
    "fail": lambda app: (
        lambda reason="wrong", **words: app.jobs.fail(app.jobs.list(status="pending").jobs[0], reason, **words)
    ),
    "bury": lambda app: (
        lambda reason="wrong", **words: app.jobs.bury(app.jobs.list(status="pending").jobs[0], reason, **words)
    ),
    "reset": lambda app: lambda **words: app.jobs.reset(app.jobs.list(status="pending").jobs[0], **words),
    "discard": lambda app: lambda **words: app.dead_letters.discard(app.dead_letters.list().dead_letters[0], **words),
    "resolve": lambda app: lambda **words: app.dead_letters.resolve(app.dead_letters.list().dead_letters[0], **words),
    "acknowledge": lambda app: (
        lambda **words: app.dead_letters.acknowledge(app.dead_letters.list().dead_letters[0], **words)
    ),
    "reprocess": lambda app: (
        lambda **words: app.dead_letters.reprocess(app.dead_letters.list().dead_letters[0], **words)
    ),
    "pause": lambda app: lambda **words: app.queues.pause("default", **words),
    "resume": lambda app: lambda **words: app.queues.resume("bulk", **words),
    "drain": lambda app: lambda **words: app.queues.drain("default", **words),
    "set a limit": lambda app: lambda **words: app.limits.set(queue="bulk", running=2, **words),
    "clear a limit": lambda app: lambda **words: app.limits.clear(queue="default", **words),
    "set a tenant": lambda app: lambda **words: app.tenants.set("acme", weight=2, **words),
    "reset a breaker": lambda app: lambda **words: app.breakers.reset("smtp", **words),
    "force a breaker": lambda app: lambda **words: app.breakers.open("smtp", **words),
    "add a schedule": lambda app: (
        lambda **words: app.schedules.add("hourly", app.tasks["work"], cron="0 * * * *", **words)
    ),
    "remove a schedule": lambda app: lambda **words: app.schedules.remove("nightly", **words),
    "pause a schedule": lambda app: lambda **words: app.schedules.pause("nightly", **words),
    "resume a schedule": lambda app: lambda **words: app.schedules.resume("nightly", **words),
    "run a schedule": lambda app: lambda **words: app.schedules.run("nightly", **words),
}
WORDS = [(act, field) for act in ACTS for field in ("by", "notes")] + [("fail", "reason"), ("bury", "reason")]


@pytest.mark.requirement("L5", "I7")
@pytest.mark.parametrize(("act", "field"), WORDS)
def test_an_act_whose_words_are_no_text_is_refused_and_leaves_no_trace(busy: Fairlane, act: str, field: str) -> None:
    before = busy.statistics.counts()
    for given in (*NOT_TEXT, *([None] if field != "notes" else [])):
        with pytest.raises(InvalidOption, match=field):
            ACTS[act](busy)(**{field: given})
    assert len(busy.audit.list().records) == AUDITED
    assert busy.statistics.counts() == before


READS: dict[str, Callable[[Fairlane, Any], Any]] = {
    "tenants after": lambda app, given: app.tenants.list(after=given),
    "tenants of a tier": lambda app, given: app.tenants.list(tier=given),
    "audit of an action": lambda app, given: app.audit.list(action=given),
    "audit of a target": lambda app, given: app.audit.list(target=given),
    **{
        f"jobs by {field}": lambda app, given, field=field: app.jobs.list(**{field: given})
        for field in ("status", "queue", "type", "category", "correlation_id", "created_by", "idempotency_key")
    },
    **{
        f"dead letters by {field}": lambda app, given, field=field: app.dead_letters.list(**{field: given})
        for field in ("status", "queue", "type", "error_class", "error_type", "fingerprint", "correlation_id")
    },
}


@pytest.mark.parametrize("question", READS)
def test_a_question_whose_words_are_no_text_is_refused(busy: Fairlane, question: str) -> None:
    for given in NOT_TEXT:
        with pytest.raises(InvalidOption):
            READS[question](busy, given)


@pytest.mark.parametrize("question", ["jobs", "dead_letters", "audit"])
def test_a_page_begins_behind_a_number_of_64_bits(busy: Fairlane, question: str) -> None:
    for given in ({}, "5", 1.5, True, 2**63, 10**400):
        with pytest.raises(InvalidOption, match="64 bits"):
            getattr(busy, question).list(before=given)


def test_a_dead_letter_whose_number_no_store_can_hold_is_refused(busy: Fairlane) -> None:
    for act in (
        busy.dead_letters.discard,
        busy.dead_letters.resolve,
        busy.dead_letters.acknowledge,
        busy.dead_letters.reprocess,
    ):
        with pytest.raises(InvalidOption, match="whole number"):
            act(2**63)
    with pytest.raises(InvalidOption, match="64 bits"):
        asyncio.run(busy.dead_letters.aget(2**63))


def test_a_span_beyond_all_numbers_is_refused(busy: Fairlane) -> None:
    with pytest.raises(InvalidOption, match="seconds"):
        busy.limits.pause(10**400, queue="default")


def test_whether_letters_are_acknowledged_is_yes_or_no(busy: Fairlane) -> None:
    with pytest.raises(InvalidOption, match="True or False"):
        busy.dead_letters.list(acknowledged="no")  # type: ignore[arg-type]
