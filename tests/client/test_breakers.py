"""Breakers in an application: guards around calls, lists, and what people do to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fairlane import Breaker, BreakerOpen, Fairlane, FakeClock, InvalidOption, NonRetryable, RateLimited
from fairlane.core.ops import Op
from fairlane.errors import StoreUnavailable
from fairlane.stores.base import Store

SMTP = Breaker("smtp", threshold=3, cooldown=30, probes=1)


class Counted:
    """A store that counts what it is asked, and can be cut off."""

    def __init__(self, store: Store) -> None:
        self._store, self.asked, self.is_away = store, 0, False

    def run(self, op: Op[Any], *, on: object | None = None) -> Any:
        self.asked += 1
        if self.is_away:
            raise StoreUnavailable("test", "it is away")
        return self._store.run(op, on=on)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def fail(app: Fairlane, error: BaseException, times: int = 1, breaker: str | Breaker = SMTP) -> None:
    for _ in range(times):
        with pytest.raises(type(error)), app.breakers.guard(breaker):
            raise error


def state(app: Fairlane, name: str = "smtp") -> str:
    return next(breaker.state for breaker in app.breakers.list() if breaker.name == name)


@contextmanager
def refused(app: Fairlane) -> Iterator[None]:
    """A call that may not begin."""
    with pytest.raises(BreakerOpen), app.breakers.guard(SMTP):
        raise AssertionError("it began")
    yield


@pytest.mark.requirement("Q10", "L8")
def test_failures_in_a_row_open_a_breaker_and_a_probe_closes_it(app: Fairlane, clock: FakeClock) -> None:
    fail(app, ConnectionError(), times=3)
    assert state(app) == "open"
    with pytest.raises(BreakerOpen, match=r'breaker "smtp" is open until 00:00:30 UTC; nothing was called') as refusal:
        app.breakers.guard(SMTP).__enter__()
    assert 30 <= refusal.value.seconds <= 33
    clock.advance(30)
    with app.breakers.guard(SMTP):
        assert state(app) == "half_open"
    assert state(app) == "closed"


@pytest.mark.requirement("Q10")
def test_a_failing_probe_opens_it_for_another_cooldown(app: Fairlane, clock: FakeClock) -> None:
    fail(app, ConnectionError(), times=3)
    clock.advance(30)
    fail(app, TimeoutError())
    assert state(app) == "open"
    clock.advance(29)
    with refused(app):
        assert state(app) == "open"


@pytest.mark.requirement("Q10")
def test_only_so_many_probes_are_let_through_at_once(app: Fairlane, clock: FakeClock) -> None:
    fail(app, ConnectionError(), times=3)
    clock.advance(30)

    async def probe() -> None:
        async with app.breakers.guard(SMTP):
            with pytest.raises(BreakerOpen):
                await asyncio.create_task(another())

    async def another() -> None:
        # A call of its own, not one inside the probe.
        from fairlane.client.admin.breakers import permits_in_force

        permits_in_force.set(())
        async with app.breakers.guard(SMTP):
            raise AssertionError("it began")

    asyncio.run(probe())
    assert state(app) == "closed"


@pytest.mark.requirement("Q10")
def test_a_success_resets_the_count(app: Fairlane) -> None:
    fail(app, ConnectionError(), times=2)
    with app.breakers.guard(SMTP):
        pass
    fail(app, ConnectionError(), times=2)
    assert state(app) == "closed"


@pytest.mark.requirement("Q10")
def test_rate_limits_count_and_errors_of_our_own_do_not(app: Fairlane) -> None:
    fail(app, NonRetryable("no such address"), times=5)
    fail(app, InvalidOption("x", 1, "y"), times=5)
    assert state(app) == "closed"
    fail(app, RateLimited(retry_after=5), times=3)
    assert state(app) == "open"


def test_a_healthy_dependency_costs_no_question(make_app: Callable[..., Fairlane], clock: FakeClock) -> None:
    store = Counted(make_app().runtime.store)
    app = make_app(store=store)
    for _ in range(1000):
        with app.breakers.guard("smtp"):
            pass
    assert store.asked == 1
    clock.advance(3)
    with app.breakers.guard("smtp"):
        pass
    assert store.asked == 2


def test_an_open_breaker_costs_one_question_in_two_seconds(make_app: Callable[..., Fairlane], clock: FakeClock) -> None:
    store = Counted(make_app().runtime.store)
    app = make_app(store=store)
    fail(app, ConnectionError(), times=3)
    store.asked = 0
    for _ in range(50):
        with refused(app):
            clock.advance(0.1)
    assert store.asked <= 3


@pytest.mark.requirement("L8")
def test_every_process_sees_the_same_breaker(make_app: Callable[..., Fairlane], clock: FakeClock) -> None:
    here = make_app()
    there = make_app(store=here.runtime.store)
    fail(here, ConnectionError(), times=2)
    fail(there, ConnectionError())
    with refused(there):
        clock.advance(2)
    with refused(here):
        pass
    clock.advance(30)
    with there.breakers.guard(SMTP):
        pass
    with here.breakers.guard(SMTP):
        pass


@pytest.mark.requirement("L8")
def test_people_open_and_reset_breakers_under_their_name(app: Fairlane, clock: FakeClock) -> None:
    opened = app.breakers.open("smtp", by="ada", notes="maintenance")
    assert (opened.state, opened.retry_at) == ("open", None)
    with pytest.raises(BreakerOpen, match="until somebody resets it"), app.breakers.guard("smtp"):
        raise AssertionError
    clock.advance(86_400)
    assert asyncio.run(app.breakers.alist())[0].state == "open"
    assert asyncio.run(app.breakers.areset("smtp", by="bob")).state == "closed"
    clock.advance(2)
    with app.breakers.guard("smtp"):
        pass
    acts = [(record.by, record.action, record.target, record.notes) for record in app.audit.list().records]
    assert acts == [
        ("bob", "breaker_reset", "breaker:smtp", None),
        ("ada", "breaker_force_open", "breaker:smtp", "maintenance"),
    ]


def test_a_guard_inside_one_of_the_same_breaker_does_nothing(app: Fairlane, clock: FakeClock) -> None:
    fail(app, ConnectionError(), times=3)
    clock.advance(30)
    with app.breakers.guard(SMTP), app.breakers.guard(SMTP), app.breakers.guard("other"):
        pass
    assert state(app) == "closed"
    for _ in range(2):
        with pytest.raises(ConnectionError), app.breakers.guard(SMTP), app.breakers.guard(SMTP):
            raise ConnectionError
    assert [breaker.failures for breaker in app.breakers.list()] == [0, 2]


def test_one_guard_may_surround_many_calls_at_once(app: Fairlane) -> None:
    guard = app.breakers.guard(SMTP)

    async def call(number: int) -> None:
        async with guard:
            await asyncio.sleep(0)
            if number % 2:
                raise ConnectionError

    async def all_of_them() -> list[BaseException | None]:
        return await asyncio.gather(*(call(n) for n in range(6)), return_exceptions=True)

    assert [type(result) for result in asyncio.run(all_of_them())] == [type(None), ConnectionError] * 3
    assert [breaker.name for breaker in app.breakers.list()] == ["smtp"]


def test_a_cancelled_call_speaks_neither_for_nor_against(app: Fairlane) -> None:
    async def call(has_begun: asyncio.Event) -> None:
        async with app.breakers.guard(SMTP):
            has_begun.set()
            await asyncio.Event().wait()

    async def cancelled() -> None:
        for _ in range(5):
            has_begun = asyncio.Event()
            task = asyncio.create_task(call(has_begun))
            await has_begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(cancelled())
    assert state(app) == "closed"


def test_calls_go_on_while_the_store_is_away(make_app: Callable[..., Fairlane]) -> None:
    store = Counted(make_app().runtime.store)
    app = make_app(store=store)
    store.is_away = True
    with app.breakers.guard("smtp"):
        pass
    fail(app, ConnectionError(), times=10)
    with app.breakers.guard("smtp"):
        pass


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Breaker("smtp", threshold=0), "whole numbers from 1"),
        (lambda: Breaker("smtp", cooldown=0), "above 0"),
        (lambda: Breaker("smtp", cooldown="soon"), "seconds"),  # type: ignore[arg-type]
        (lambda: Breaker("smtp", probes=0), "whole numbers from 1"),
        (lambda: Breaker("s m t p"), "breaker"),
    ],
)
def test_a_bad_breaker_is_refused(make: Callable[[], object], problem: str) -> None:
    with pytest.raises(InvalidOption, match=problem):
        make()


def test_one_breaker_has_one_set_of_figures(app: Fairlane) -> None:
    app.task(name="a", breaker=SMTP)(lambda: None)
    app.task(name="b", breaker="smtp")(lambda: None)
    app.breakers.guard(SMTP)
    with pytest.raises(InvalidOption, match="the same figures everywhere"):
        app.breakers.guard(Breaker("smtp", threshold=4))
    with pytest.raises(InvalidOption, match="a name, or Breaker"):
        app.task(name="c", breaker=5)(lambda: None)  # type: ignore[call-overload]


def test_the_profile_gives_the_figures_of_a_breaker_that_names_none(make_app: Callable[..., Fairlane]) -> None:
    development, production = make_app(), make_app(profile="production")
    fail(development, ConnectionError(), times=3, breaker="a")
    assert state(development, "a") == "open"
    fail(production, ConnectionError(), times=4, breaker="b")
    assert state(production, "b") == "closed"
    fail(production, ConnectionError(), breaker="b")
    assert state(production, "b") == "open"
