"""The enqueue hook: priority and delay computed when a job is enqueued."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from fairlane import Draft, Fairlane, FakeClock, InvalidOption, InvalidPayload


@pytest.mark.requirement("Q13")
def test_a_hook_scores_risk_and_throttles_by_what_it_sees(make_app: Callable[..., Fairlane]) -> None:
    def score(draft: Draft) -> Draft | None:
        if draft.args["clicks"] > 100:
            return draft.change(priority="high")
        if draft.tenant == "low-trust":
            return draft.change(priority=10, delay=60)
        return None

    app = make_app(enqueue_hook=score)

    @app.task(name="report")
    def report(clicks: int) -> None: ...

    urgent = report.enqueue(500).job()
    slow = report.using(tenant="low-trust").enqueue(1).job()
    plain = report.using(priority=7, delay=5).enqueue(1).job()
    assert (urgent.priority, slow.priority, plain.priority) == (0, 10, 7)
    assert slow.run_at - slow.enqueued_at == timedelta(seconds=60)
    assert plain.run_at - plain.enqueued_at == timedelta(seconds=5)
    [many] = app.enqueue_many([report.using(tenant="low-trust").bind(1)])
    assert many.job().priority == 10


@pytest.mark.requirement("Q13")
def test_hooks_follow_each_other_and_a_delay_replaces_a_schedule(app: Fairlane, clock: FakeClock) -> None:
    seen: list[tuple[int, float | None]] = []

    @app.jobs.on_enqueue
    def first(draft: Draft) -> Draft:
        return draft.change(priority=1, delay=10)

    @app.jobs.on_enqueue
    def second(draft: Draft) -> None:
        seen.append((draft.priority, draft.delay_s))

    task = app.task(name="t")(lambda: None)
    job = task.using(run_at=clock.now() + timedelta(days=1)).enqueue().job()
    assert seen == [(1, 10.0)]
    assert job.run_at == clock.now() + timedelta(seconds=10)


def test_a_hook_sends_headers_along(app: Fairlane) -> None:
    seen: list[Draft] = []

    @app.jobs.on_enqueue
    def traced(draft: Draft) -> Draft:
        seen.append(draft)
        return draft.change(headers={"traceparent": f"00-{draft.id.hex}", "mine": "hook"})

    task = app.task(name="t")(lambda: None)
    job = task.using(headers={"mine": "call", "other": "x"}, priority="high").enqueue().job()
    assert job.headers == {
        "mine": "hook",
        "other": "x",
        "traceparent": f"00-{job.id.hex}",
        "fairlane-priority": "high",
    }
    assert (seen[0].id, seen[0].correlation_id, dict(seen[0].headers)) == (
        job.id,
        str(job.id),
        {"mine": "call", "other": "x"},
    )
    assert task.using(correlation_id="c").enqueue().job().correlation_id == seen[1].correlation_id == "c"


def raising(draft: Draft) -> Draft:
    raise ZeroDivisionError("no score")


BAD_HOOKS: list[tuple[Any, type[Exception], str]] = [
    (raising, ZeroDivisionError, "no score"),
    (lambda draft: 5, InvalidOption, "the draft, changed, or None"),
    (lambda draft: draft.change(priority="urgent"), ValueError, "no priority named"),
    (lambda draft: draft.change(priority=-1), InvalidOption, "priority"),
    (lambda draft: draft.change(delay=-1), InvalidOption, "delay"),
    (lambda draft: draft.change(headers={"fairlane-priority": "x"}), InvalidOption, "Fairlane sets those"),
    (lambda draft: draft.change(headers={"n": 1}), InvalidOption, "headers"),
    (lambda draft: draft.change(headers={"password": "hunter2"}), InvalidPayload, r"headers\.password"),
]


@pytest.mark.requirement("Q13")
@pytest.mark.parametrize(("hook", "error", "problem"), BAD_HOOKS)
def test_a_hook_that_fails_is_seen_and_nothing_is_enqueued(
    make_app: Callable[..., Fairlane], hook: Any, error: type[Exception], problem: str
) -> None:
    app = make_app(enqueue_hook=hook)
    with pytest.raises(error, match=problem) as raised:
        app.task(name="t")(lambda: None).enqueue()
    if error is ZeroDivisionError:
        assert "raised by the enqueue hook raising" in raised.value.__notes__[0]
    assert app.jobs.list().jobs == ()
