"""Duties: done once in a while, however many processes would do them."""

from __future__ import annotations

import pytest

from fairlane.core.ops import DutyTaken, Purge, TakeDuty
from fairlane.testing.conformance.scene import Scene


def take(scene: Scene, name: str = "alerts", every_s: float = 15.0) -> bool:
    return scene.run(TakeDuty(name=name, every_s=every_s)).taken


def test_a_duty_nobody_took_yet_is_taken(scene: Scene) -> None:
    assert scene.run(TakeDuty(name="alerts", every_s=15.0)) == DutyTaken(taken=True, now=scene.now)


def test_one_of_many_takes_a_duty(scene: Scene) -> None:
    assert [take(scene) for _ in range(4)] == [True, False, False, False]


def test_a_refused_taker_is_told_the_time_too(scene: Scene) -> None:
    take(scene)
    scene.later(3)
    assert scene.run(TakeDuty(name="alerts", every_s=15.0)) == DutyTaken(taken=False, now=scene.now)


def test_a_duty_comes_round_again_after_its_time_and_not_before(scene: Scene) -> None:
    take(scene)
    scene.later(14.999999)
    assert not take(scene)
    scene.later(0.000001)
    assert take(scene)
    assert not take(scene)


def test_being_refused_does_not_put_it_off(scene: Scene) -> None:
    take(scene)
    taken = []
    for _ in range(6):
        scene.later(5)
        taken.append(take(scene))
    assert taken == [False, False, True, False, False, True]


def test_a_duty_taken_late_counts_from_then(scene: Scene) -> None:
    take(scene)
    scene.later(100)
    assert take(scene)
    scene.later(14)
    assert not take(scene)


def test_how_often_is_for_the_taker_to_say(scene: Scene) -> None:
    take(scene, every_s=3600)
    scene.later(15)
    assert not take(scene, every_s=3600)
    assert take(scene, every_s=15)


@pytest.mark.parametrize("every_s", [0.0, 0.5])
def test_a_duty_may_come_round_quickly(scene: Scene, every_s: float) -> None:
    assert take(scene, every_s=every_s)
    scene.later(every_s)
    assert take(scene, every_s=every_s)


def test_duties_do_not_know_each_other(scene: Scene) -> None:
    assert [take(scene, name) for name in ("seal", "alerts", "Seal", "seal")] == [True, True, True, False]


def test_a_purge_forgets_who_did_what(scene: Scene) -> None:
    take(scene)
    scene.run(Purge())
    assert take(scene)


def test_taking_a_duty_is_no_act_of_a_person(scene: Scene) -> None:
    take(scene)
    assert scene.audit() == ()
