"""Which tasks of which tenants run isolated, because they crash processes."""

from __future__ import annotations

import signal

import pytest

from fairlane.worker.foreman.crashes import FORGET_S, KEPT, MOST, SUCCESS, Crashes, culprits_of
from fairlane.worker.foreman.messages import JobKind
from tests.worker.conftest import Ahead

BAD, GOOD, OTHER = (JobKind("mail.send", tenant) for tenant in ("acme", "globex", "initech"))


def test_two_crashes_among_others_isolate_a_kind_and_so_does_one_alone() -> None:
    crashes = Crashes(Ahead())
    assert crashes.add((BAD, GOOD), alone=False) == ()
    assert crashes.add((BAD,), alone=False) == (BAD,)
    assert crashes.add((BAD, OTHER), alone=False) == (), "known already"
    assert crashes.suspects().isolated == (BAD,)
    assert set(crashes.suspects().watched) == {BAD, GOOD, OTHER}
    assert crashes.add((GOOD,), alone=False) == (GOOD,)
    assert Crashes(Ahead()).add((BAD,), alone=True) == (BAD,)


@pytest.mark.parametrize(
    ("code", "kinds", "culprits"),
    [
        (3, (BAD,), {BAD}),
        (-signal.SIGSEGV, (BAD,), {BAD}),
        (-signal.SIGKILL, (BAD,), set()),
        (3, (BAD, GOOD), set()),
        (3, (BAD, OTHER), {OTHER}),
        (-signal.SIGKILL, (BAD, OTHER), {OTHER}),
    ],
)
def test_who_crashed_a_process_is_known_if_one_kind_ran_there_or_another_foreman_knows_it(
    code: int, kinds: tuple[JobKind, ...], culprits: set[JobKind]
) -> None:
    known = Crashes(Ahead())
    known.add((OTHER,), alone=True)
    assert culprits_of(kinds, code, [known.figures(), {"memory_mb": 1.0}]) == culprits


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
