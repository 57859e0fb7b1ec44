"""Durable steps: a job that continues finds behind it what it has done."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from fairlane import (
    Fairlane,
    FakeClock,
    InvalidOption,
    NonRetryable,
    Retry,
    SignalTimedOut,
    asleep,
    astep,
    await_for,
    current_job,
    sleep,
    step,
    wait_for,
)
from fairlane.core.ops import ALL_TENANTS, Reset
from fairlane.core.outcome import Completed, Died, Outcome, Released, Retried, Snoozed
from fairlane.errors import NoCurrentJob
from fairlane.testing import run_due

pytestmark = pytest.mark.requirement("L18")


class Till:
    """What was really done, outside of any store."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def charge(self, cents: int) -> dict[str, int]:
        self.done.append(f"charge {cents}")
        return {"cents": cents}

    async def acharge(self, cents: int) -> dict[str, int]:
        return self.charge(cents)

    def ship(self) -> None:
        self.done.append("ship")


class Sleeper:
    """Advances the clock instead of waiting."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.slept = clock, 0.0

    def sleep(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.slept += seconds

    async def asleep(self, seconds: float) -> None:
        self.sleep(seconds)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def app(clock: FakeClock) -> Fairlane:
    return Fairlane("memory://", clock=clock, sleeper=Sleeper(clock), retry=Retry(base_s=0.0, max_attempts=3))


@pytest.fixture
def till() -> Till:
    return Till()


def outcomes(app: Fairlane) -> list[Outcome]:
    return [ran.outcome for ran in run_due(app)]


def kinds(app: Fairlane) -> list[type[Outcome]]:
    return [type(outcome) for outcome in outcomes(app)]


def test_a_job_that_failed_continues_behind_its_last_step(app: Fairlane, till: Till) -> None:
    @app.task
    def order() -> int:
        charged = step("charge", till.charge, 300)
        if current_job().attempt == 1:
            raise ConnectionError("no carrier")
        step("ship", till.ship)
        return charged["cents"]

    handle = order.enqueue()
    assert kinds(app) == [Retried, Completed]
    assert (till.done, handle.result()) == (["charge 300", "ship"], 300)


def test_an_async_job_that_failed_continues_behind_its_last_step(app: Fairlane, till: Till) -> None:
    @app.task
    async def order() -> int:
        first, second = await asyncio.gather(astep("one", till.acharge, 1), astep("two", till.charge, 2))
        if current_job().attempt == 1:
            raise ConnectionError("no carrier")
        return first["cents"] + second["cents"]

    handle = order.enqueue()
    assert kinds(app) == [Retried, Completed]
    assert (sorted(till.done), handle.result()) == (["charge 1", "charge 2"], 3)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_job_does_not_sleep_while_a_step_side_by_side_still_runs(app: Fairlane, till: Till, is_first: bool) -> None:
    async def charge() -> None:
        till.done.append("begin")
        await asyncio.sleep(0.05)
        till.done.append("end")

    @app.task
    async def order() -> None:
        pause, charged = asleep(0), astep("charge", charge)
        await asyncio.gather(*((charged, pause) if is_first else (pause, charged)))

    order.enqueue()
    assert kinds(app) == [Snoozed, Completed]
    assert till.done == ["begin", "end"]


def test_a_second_step_in_a_branch_is_refused_before_the_job_continues(app: Fairlane, till: Till) -> None:
    async def charge(cents: int) -> None:
        await asyncio.sleep(0.01)
        till.charge(cents)

    @app.task
    async def order(steps: int) -> int:
        async def branch(cents: int) -> int:
            for _ in range(steps):
                await astep("charge", charge, cents)
            return cents

        first = await asyncio.gather(branch(1), branch(2), astep("three", charge, 3))
        for _ in range(2):
            await branch(4)  # by itself again
        await asyncio.shield(branch(5))
        if current_job().attempt == 1:
            raise ConnectionError
        return first[0]

    one, two = order.enqueue(1), order.enqueue(2)
    assert kinds(app) == [Retried, Completed, Died]
    assert (one.result(), two.status()) == (1, "dead")
    assert "side by side" in str(two.job().last_error)


@dataclass
class Receipt:
    number: int
    lines: tuple[str, ...]


def test_a_step_returns_the_same_in_the_attempt_that_ran_it_and_in_a_later_one(app: Fairlane) -> None:
    seen: list[Any] = []

    def print_receipt() -> Receipt:
        return Receipt(7, ("tea", "milk"))

    @app.task
    def order() -> None:
        seen.append(step("print", print_receipt))
        seen.append(step("plain", lambda: (1, 2)))
        if current_job().attempt == 1:
            raise ConnectionError

    order.enqueue()
    outcomes(app)
    assert seen == [Receipt(7, ("tea", "milk")), [1, 2]] * 2


def test_a_sleep_is_uncharged_and_over_when_the_job_runs_again(app: Fairlane, till: Till, clock: FakeClock) -> None:
    @app.task
    def order() -> int:
        step("charge", till.charge, 300)
        sleep(days=3)
        sleep(timedelta(hours=1), minutes=30)
        return current_job().attempts

    handle = order.enqueue()
    assert kinds(app) == [Snoozed]
    clock.advance(3 * 86_400 - 1)
    assert kinds(app) == []
    clock.advance(1)
    assert kinds(app) == [Snoozed]
    clock.advance(5_400)
    assert kinds(app) == [Completed]
    assert (till.done, handle.result()) == (["charge 300"], 0)


def test_what_interrupts_a_job_is_not_swallowed_by_except_exception(app: Fairlane, till: Till) -> None:
    @app.task
    def order() -> None:
        try:
            sleep(1)
        except Exception:
            till.ship()

    order.enqueue()
    assert (kinds(app), till.done) == ([Snoozed], [])


def test_a_job_that_swallows_it_all_the_same_gets_no_further_step(app: Fairlane, till: Till) -> None:
    @app.task
    def order() -> None:
        with contextlib.suppress(BaseException):
            sleep(1)
        step("ship", till.ship)

    order.enqueue()
    assert (kinds(app), till.done) == ([Snoozed], [])


@pytest.mark.parametrize("is_async", [False, True])
def test_a_signal_wakes_the_job_that_waits_for_it(app: Fairlane, is_async: bool) -> None:
    @app.task
    def order() -> str:
        return str(wait_for("paid", key=7, timeout=60)["how"])

    @app.task
    async def aorder() -> str:
        paid: dict[str, str] = await await_for("paid", key=7, timeout=60)
        return paid["how"]

    handle = (aorder if is_async else order).using(tenant="acme").enqueue()
    assert kinds(app) == [Snoozed]
    assert app.signals.emit("paid", {"how": "card"}, tenant="globex", key=7).delivered == 0
    assert app.signals.emit("paid", {"how": "card"}, tenant="acme", key="7").delivered == 1
    assert kinds(app) == [Completed]
    assert handle.result() == "card"


def test_a_signal_emitted_before_anybody_waits_is_taken_without_giving_the_slot_back(app: Fairlane) -> None:
    @app.task
    def order() -> Receipt:
        return wait_for("printed", timeout=60, type=Receipt)

    app.signals.emit("printed", Receipt(7, ("tea",)))
    handle = order.enqueue()
    assert kinds(app) == [Completed]
    assert handle.result() == Receipt(7, ("tea",))


def test_a_wait_that_is_over_returns_the_default_or_fails_for_good(app: Fairlane, clock: FakeClock) -> None:
    @app.task
    def patient() -> str:
        return str(wait_for("paid", timeout=60, default="never"))

    @app.task
    def strict() -> None:
        wait_for("paid", timeout=60)

    first, _ = patient.enqueue(), strict.enqueue()
    assert kinds(app) == [Snoozed, Snoozed]
    clock.advance(60)
    ended = {ran.lease.type: ran.outcome for ran in run_due(app)}
    assert first.result() == "never"
    died = ended[strict.name]
    assert isinstance(died, Died)
    assert (died.failure.error_type, died.failure.error_class) == ("SignalTimedOut", "non_retryable")
    assert issubclass(SignalTimedOut, TimeoutError)


def test_a_wait_in_a_loop_gets_one_signal_after_the_other(app: Fairlane) -> None:
    @app.task
    def collect() -> list[int]:
        return [wait_for("part", timeout=60) for _ in range(3)]

    handle = collect.enqueue()
    for number in range(3):
        assert kinds(app) == [Snoozed]
        app.signals.emit("part", number)
    assert kinds(app) == [Completed]
    assert handle.result() == [0, 1, 2]


def test_a_webhook_sent_twice_is_one_signal(app: Fairlane) -> None:
    assert not app.signals.emit("paid", key="o1", idempotency_key="evt_1").repeated
    assert app.signals.emit("paid", key="o1", idempotency_key="evt_1").repeated
    assert not app.signals.emit("paid", key="o2", idempotency_key="evt_1").repeated
    assert len(app.signals.list(name="paid").signals) == 2


def changed_code(app: Fairlane, till: Till, *names: str) -> None:
    """Deploys an order whose steps have these names."""

    def order() -> None:
        for name in names:
            if name == "sleep":
                sleep(1)
            else:
                step(name, till.done.append, name)
        if current_job().attempt == 1:
            raise ConnectionError

    app.runtime.tasks.pop("order", None)
    app.task(name="order")(order)


@pytest.mark.parametrize(
    ("names", "was", "is_now"),
    [
        (("ship", "charge"), '"charge"', '"ship"'),
        (("ship",), '"charge"', '"ship"'),
        (("charge", "sleep"), '"ship"', "a sleep"),
        (("charge", "refund", "ship"), '"ship"', '"refund"'),
    ],
)
def test_a_step_in_the_place_of_another_is_an_error_that_names_both(
    app: Fairlane, till: Till, names: tuple[str, ...], was: str, is_now: str
) -> None:
    changed_code(app, till, "charge", "ship")
    app.tasks.enqueue("order", {})
    assert [type(ran.outcome) for ran in run_due(app, 1)] == [Retried]
    changed_code(app, till, *names)
    [died] = outcomes(app)
    assert isinstance(died, Died)
    assert died.failure.error_type == "StepMismatch"
    assert f"was recorded as {was} and is now {is_now}" in died.failure.message
    assert till.done == ["charge", "ship"]


def test_new_code_may_add_steps_behind_those_that_are_recorded(app: Fairlane, till: Till) -> None:
    changed_code(app, till, "charge", "ship")
    app.tasks.enqueue("order", {})
    run_due(app, 1)
    changed_code(app, till, "charge", "ship", "thank")
    assert kinds(app) == [Completed]
    assert till.done == ["charge", "ship", "thank"]


def test_a_dead_job_that_is_reprocessed_continues_behind_its_last_step(app: Fairlane, till: Till) -> None:
    changed_code(app, till, "charge", "ship")
    handle = app.tasks.enqueue("order", {})
    run_due(app, 1)
    changed_code(app, till, "ship")
    outcomes(app)
    changed_code(app, till, "charge", "ship", "thank")
    app.jobs.retry(handle)
    assert kinds(app) == [Completed]
    assert till.done == ["charge", "ship", "thank"]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_step_with_a_retry_policy_is_tried_again_in_its_slot(
    app: Fairlane, clock: FakeClock, till: Till, is_async: bool
) -> None:
    policy = Retry(max_attempts=3, delays=[5.0])

    def flaky() -> str:
        till.done.append("try")
        if len(till.done) < 3:
            raise ConnectionError
        return "ok"

    @app.task
    def order() -> str:
        return step.using(retry=policy)("call", flaky)

    @app.task
    async def aorder() -> str:
        return await astep.using(retry=policy)("call", flaky)

    before = clock.now()
    handle = (aorder if is_async else order).enqueue()
    assert kinds(app) == [Completed]
    assert (handle.result(), len(till.done), clock.now() - before) == ("ok", 3, timedelta(seconds=10))


@pytest.mark.parametrize("error", [NonRetryable("no such card"), PermissionError("closed")])
def test_a_step_is_not_tried_again_where_that_cannot_help(app: Fairlane, till: Till, error: Exception) -> None:
    def refused() -> None:
        till.ship()
        raise error

    @app.task
    def order() -> None:
        step.using(retry=Retry(max_attempts=3, base_s=0.0))("call", refused)

    order.enqueue()
    assert (kinds(app), till.done) == ([Died], ["ship"])


def test_a_result_that_cannot_be_stored_ends_the_job_instead_of_running_the_step_again(
    app: Fairlane, till: Till
) -> None:
    def call() -> object:
        till.ship()
        return object()

    @app.task
    def order() -> None:
        step("call", call)

    order.enqueue()
    [died] = outcomes(app)
    assert isinstance(died, Died)
    assert 'step 1 "call" ran, but its result cannot be stored' in died.failure.message
    assert till.done == ["ship"]


def test_a_worker_that_lost_its_lease_records_nothing_and_stops(app: Fairlane, till: Till) -> None:
    def lose() -> None:
        job = current_job()
        if job.attempt == 1:
            app.runtime.store.run(Reset(scope=ALL_TENANTS, id=job.id, by="ada"))
        till.done.append(f"lose {job.attempt}")

    @app.task
    def order() -> None:
        step("lose", lose)
        step("ship", till.ship)

    handle = order.enqueue()
    assert kinds(app) == [Released, Completed]
    assert till.done == ["lose 1", "lose 2", "ship"]
    detail = app.jobs.detail(handle)
    assert detail is not None
    assert [(one.name, one.attempt) for one in detail.steps] == [("lose", 2), ("ship", 2)]


def test_a_step_inside_a_step_is_refused(app: Fairlane, till: Till) -> None:
    @app.task
    def order() -> None:
        step("outer", lambda: step("inner", till.ship))

    order.enqueue()
    [died] = outcomes(app)
    assert isinstance(died, Died)
    assert "no other step inside it" in died.failure.message


def test_a_blocking_step_in_async_code_is_refused(app: Fairlane, till: Till) -> None:
    @app.task
    async def order() -> None:
        step("charge", till.charge, 1)

    order.enqueue()
    [died] = outcomes(app)
    assert isinstance(died, Died)
    assert "await astep" in died.failure.message
    assert till.done == []


def test_steps_need_a_job(app: Fairlane, till: Till) -> None:
    with pytest.raises(NoCurrentJob):
        step("charge", till.charge, 1)
    with pytest.raises(NoCurrentJob):
        sleep(1)
    with pytest.raises(NoCurrentJob):
        wait_for("paid", timeout=1)


def test_async_steps_need_a_job_too(till: Till) -> None:
    async def call() -> None:
        with pytest.raises(NoCurrentJob):
            await astep("charge", till.acharge, 1)
        with pytest.raises(NoCurrentJob):
            await asleep(1)
        with pytest.raises(NoCurrentJob):
            await await_for("paid", timeout=1)

    asyncio.run(call())


def test_bad_names_and_spans_are_refused(app: Fairlane) -> None:
    problems: list[str] = []

    @app.task
    def order() -> None:
        for call in (
            lambda: step("", print),
            lambda: sleep(-1),
            lambda: sleep(days=-1),
            lambda: wait_for("no spaces", timeout=1),
            lambda: wait_for("paid", timeout=-1),
            lambda: wait_for("paid", timeout=1, key="\0"),
        ):
            try:
                call()
            except InvalidOption as error:
                problems.append(error.option)

    order.enqueue()
    outcomes(app)
    assert problems == ["step", "seconds", "days", "signal", "timeout", "key"]


def test_a_job_has_a_bounded_number_of_steps(app: Fairlane) -> None:
    @app.task
    def order() -> None:
        for _ in range(1_001):
            step("again", int)

    order.enqueue()
    [died] = outcomes(app)
    assert isinstance(died, Died)
    assert "at most 1000 durable steps" in died.failure.message


@pytest.mark.parametrize("data", [object(), float("nan"), "\0"])
def test_a_signal_whose_data_cannot_be_stored_is_refused(app: Fairlane, data: object) -> None:
    with pytest.raises(ValueError, match="paid"):
        app.signals.emit("paid", data)
    assert app.signals.list().signals == ()
