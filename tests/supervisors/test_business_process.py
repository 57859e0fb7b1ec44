"""A process in Python, on every kind of store: attempts until one succeeds, driven by facts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from fairlane import Fairlane, NonRetryable, tenant
from fairlane.errors import InvalidOption
from fairlane.supervisors.business_process import Facts, Process
from fairlane.testing import run_due
from tests.support.stores import Ground, open_at


class Till:
    """A process whose attempts end as told."""

    def __init__(self, app: Fairlane, *, is_async: bool) -> None:
        self.app, self.made = app, list[str]()
        self.act: Callable[[], None] = lambda: None
        self.refund = Process(app, "refund", max_attempts=3, base_s=0.001, cap_s=0.002)

        def pay_back(order: str) -> None:
            self.made.append(order)
            self.act()

        async def pay_back_async(order: str) -> None:
            pay_back(order)

        self.refund.attempt(pay_back_async if is_async else pay_back)

    def finish(self) -> None:
        for _ in range(100):
            run_due(self.app)
            if not any(job.status in ("pending", "failed") for job in self.app.jobs.list().jobs):
                return
        raise AssertionError("the process never ends")

    def outcome(self) -> object:
        """Of the newest look."""
        return self.app.jobs.list(type="refund.supervisor").jobs[0].result

    def fail(self) -> None:
        raise ConnectionError("no answer")

    def refuse(self) -> None:
        raise NonRetryable("no such order")


@pytest.fixture(params=["memory", "sqlite-stdlib", "postgres", "redis"])
def app(request: pytest.FixtureRequest, ground: Ground) -> Iterator[Fairlane]:
    store = open_at(request.param, ground.address(request.param))
    with closing(store), Fairlane(store=store) as found:
        yield found


@pytest.mark.parametrize("is_async", [False, True])
def test_a_process_starts_once_and_ends_with_one_success(app: Fairlane, is_async: bool) -> None:
    till = Till(app, is_async=is_async)
    for _ in range(2):
        till.refund.kickoff("order-7")
    till.finish()
    till.refund.kickoff("order-7")
    till.finish()
    assert till.made == ["order-7"]
    assert till.refund.facts("order-7") == Facts(attempts=1, succeeded=True)
    assert till.outcome() == '"succeeded"'


def test_attempts_that_fail_are_repeated_up_to_the_maximum(app: Fairlane) -> None:
    till = Till(app, is_async=False)
    till.act = till.fail
    till.refund.kickoff(7)
    till.finish()
    assert till.refund.facts(7) == Facts(attempts=3, failures=3, errors=("no answer",) * 3)
    assert till.outcome() == '"max_attempts_reached"'


def test_what_cannot_succeed_ends_the_process(app: Fairlane) -> None:
    till = Till(app, is_async=True)
    till.act = till.refuse
    till.refund.kickoff(7)
    till.finish()
    assert till.refund.facts(7) == Facts(attempts=1, failures=1, refusal="no such order", errors=("no such order",))
    assert till.outcome() == '"validation_failed"'


@pytest.mark.requirement("S7")
def test_a_process_that_has_stopped_is_started_again(app: Fairlane) -> None:
    till = Till(app, is_async=False)
    assert till.refund.restart(7) is False, "nobody has started it"
    till.act = till.fail
    till.refund.kickoff(7)
    assert till.refund.restart(7) is False, "it runs"
    till.finish()
    assert till.refund.restart(7) is True
    assert till.refund.restart(7) is False
    till.act = till.refuse
    till.finish()
    failures = ("no answer",) * 3 + ("no such order",)
    refused = Facts(attempts=4, failures=4, refusal="no such order", errors=failures, failures_before=3)
    assert till.refund.facts(7) == refused
    assert till.refund.restart(7) is True
    assert till.refund.facts(7).decide(3) == "attempt"
    till.act = lambda: None
    till.finish()
    assert till.refund.facts(7) == Facts(attempts=5, failures=4, succeeded=True, errors=failures, failures_before=4)
    assert till.outcome() == '"succeeded"'
    assert till.refund.restart(7) is False
    assert len(till.made) == 5


def test_a_process_is_started_again_for_its_tenant(app: Fairlane) -> None:
    till = Till(app, is_async=False)
    till.act = till.fail
    for name in ("acme", "blue"):
        with tenant(name):
            till.refund.kickoff(7)
    till.finish()
    with pytest.raises(InvalidOption, match="acme, blue"):
        till.refund.restart(7)
    assert till.refund.restart(7, tenant="blue") is True
    till.finish()
    assert till.refund.facts(7, tenant="acme").failures == 3
    assert till.refund.facts(7, tenant="blue") == Facts(
        attempts=6, failures=6, errors=("no answer",) * 6, failures_before=3
    )


def test_subjects_of_two_tenants_are_two_processes(app: Fairlane) -> None:
    till = Till(app, is_async=False)
    for name in ("acme", "blue"):
        with tenant(name):
            till.refund.kickoff(7)
    till.finish()
    assert till.made == ["7", "7"]
    assert till.refund.facts(7, tenant="acme") == Facts(attempts=1, succeeded=True)


@pytest.mark.parametrize(
    ("facts", "decision"),
    [
        (Facts(), "attempt"),
        (Facts(attempts=1), "wait"),
        (Facts(attempts=2, failures=2), "attempt"),
        (Facts(attempts=3, failures=3), "max_attempts_reached"),
        (Facts(attempts=3, failures=3, failures_before=1), "attempt"),
        (Facts(attempts=3, failures=2, succeeded=True), "succeeded"),
        (Facts(attempts=1, failures=1, refusal="no"), "validation_failed"),
    ],
)
def test_what_a_supervisor_decides_follows_from_the_facts(facts: Facts, decision: str) -> None:
    assert facts.decide(3) == decision


def test_a_process_without_an_attempt_or_with_two_is_refused() -> None:
    with Fairlane("memory://") as app:
        process = Process(app, "refund")
        with pytest.raises(InvalidOption, match="decorate a function"):
            process.kickoff(7)
        process.attempt(lambda subject: None)
        with pytest.raises(InvalidOption, match="one function for each process"):
            process.attempt(lambda subject: None)
        with pytest.raises(InvalidOption, match="max_attempts"):
            Process(app, "other", max_attempts=0)
