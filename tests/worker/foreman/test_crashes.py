"""Which tasks of which tenants run isolated, because they crash processes."""

from __future__ import annotations

from fairlane.worker.foreman.crashes import FORGET_S, KEPT, MOST, SUCCESS, Crashes
from fairlane.worker.foreman.messages import JobKind
from tests.worker.conftest import Ahead

BAD, GOOD = JobKind("mail.send", "acme"), JobKind("mail.send", "globex")


def test_three_crashes_among_others_isolate_a_kind_and_one_alone_counts_twice() -> None:
    crashes = Crashes(Ahead())
    assert crashes.add((BAD, GOOD), alone=False) == ()
    assert crashes.add((BAD,), alone=True) == (BAD,)
    assert crashes.add((BAD, GOOD), alone=False) == (), "known already"
    assert crashes.suspects().isolated == (BAD,)
    assert set(crashes.suspects().watched) == {BAD, GOOD}
    assert crashes.add((GOOD,), alone=False) == (GOOD,)


def test_a_kind_that_succeeds_between_crashes_is_never_isolated() -> None:
    crashes = Crashes(Ahead())
    for _ in range(50):
        crashes.add((BAD, GOOD), alone=False)
        crashes.succeed(GOOD, 10)
    assert crashes.suspects().isolated == (BAD,)


def test_an_isolated_kind_is_trusted_after_its_successes() -> None:
    crashes = Crashes(Ahead())
    for _ in range(20):
        crashes.add((BAD,), alone=True)
    needed = round(MOST / SUCCESS)
    assert not crashes.succeed(BAD, needed - 2)
    assert crashes.succeed(BAD, 3)
    assert crashes.suspects().isolated == crashes.suspects().watched == ()
    assert not crashes.succeed(BAD, 1)


def test_what_has_crashed_nothing_for_long_is_forgotten() -> None:
    clock = Ahead()
    crashes = Crashes(clock)
    crashes.add((BAD,), alone=True)
    crashes.add((BAD,), alone=True)
    clock.ahead_s = FORGET_S / 2
    assert crashes.forget_old() == ()
    crashes.add((GOOD,), alone=False)
    clock.ahead_s = FORGET_S + 1
    assert crashes.forget_old() == (BAD,)
    assert crashes.suspects().watched == (GOOD,)


def test_no_more_kinds_are_remembered_than_fit() -> None:
    crashes = Crashes(Ahead())
    crashes.add((JobKind("mail.send", str(n)) for n in range(KEPT + 10)), alone=False)
    assert len(crashes.suspects().watched) == KEPT
