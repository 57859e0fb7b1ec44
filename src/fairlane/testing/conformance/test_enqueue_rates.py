"""Rates of enqueues: tokens that a call takes before, for all its tenants or for none."""

from __future__ import annotations

from datetime import datetime

import pytest

from fairlane.core.limits import NO_LIMIT, Limit
from fairlane.core.ops import TakeTokens, TokensTaken
from fairlane.testing.conformance.limits import (
    clear_limit,
    every_tenant,
    got,
    pause_limit,
    put,
    rate,
    set_limit,
    tenant,
)
from fairlane.testing.conformance.scene import Scene

pytestmark = pytest.mark.requirement("I5")

TWO = rate(2, 10)


def take(scene: Scene, *limits: Limit, count: int = 1, name: str = "acme") -> TokensTaken:
    return scene.run(TakeTokens(counts={name: count}, limits=limits))


def retry_at(scene: Scene, *limits: Limit, count: int = 1) -> datetime | None:
    told = take(scene, *limits, count=count)
    assert not told.granted
    return told.retry_at


FIVE = rate(5, 10)


@pytest.mark.requirement("Q15")
def test_without_an_enqueue_rate_tokens_are_always_granted(scene: Scene) -> None:
    others = (tenant("acme", rate=rate(0)), tenant("acme", "bulk", running=0), tenant("bolt", enqueue_rate=rate(0)))
    assert take(scene, *others, count=10_000) == TokensTaken(granted=True)


@pytest.mark.requirement("Q15")
@pytest.mark.parametrize("limit", [tenant("acme", enqueue_rate=FIVE), every_tenant(enqueue_rate=FIVE)])
@pytest.mark.parametrize("by", ["given", "set"])
def test_tokens_are_granted_up_to_the_rate_and_then_again_when_the_period_is_over(
    scene: Scene, limit: Limit, by: str
) -> None:
    given = (limit,) if by == "given" else ()
    if by == "set":
        set_limit(scene, limit)
    assert take(scene, *given, count=5) == TokensTaken(granted=True)
    assert take(scene, *given) == TokensTaken(granted=False, tenant="acme", rate=FIVE, retry_at=scene.at(10))
    scene.later(9.999999)
    assert not take(scene, *given).granted
    scene.later(0.000001)
    assert take(scene, *given).granted


@pytest.mark.requirement("Q15")
def test_tokens_are_taken_all_or_none(scene: Scene) -> None:
    limit = tenant("acme", enqueue_rate=FIVE)
    take(scene, limit, count=3)
    assert not take(scene, limit, count=3).granted
    assert take(scene, limit, count=2).granted


@pytest.mark.requirement("Q15")
def test_tokens_for_several_tenants_are_taken_for_all_of_them_or_for_none(scene: Scene) -> None:
    limits = (
        tenant("acme", enqueue_rate=FIVE),
        tenant("bolt", enqueue_rate=rate(1, 5)),
        tenant("coop", enqueue_rate=FIVE),
    )

    def take_all(**counts: int) -> TokensTaken:
        return scene.run(TakeTokens(counts=counts, limits=limits))

    assert take_all(bolt=1, nobody=50).granted
    refused = TokensTaken(granted=False, tenant="bolt", rate=rate(1, 5), retry_at=scene.at(5))
    assert take_all(acme=5, bolt=1, coop=5) == take_all(coop=6, bolt=1, acme=1) == refused
    assert take_all(coop=5, acme=5).granted
    assert take_all(coop=1, acme=1).tenant == "acme"
    scene.later(5)
    assert take_all(coop=1, bolt=1).tenant == "coop"
    assert take_all(bolt=1).granted


@pytest.mark.requirement("Q15")
def test_a_refusal_says_when_so_many_will_be_there(scene: Scene) -> None:
    limit, noon = tenant("acme", enqueue_rate=FIVE), scene.now
    take(scene, limit, count=2)
    scene.later(1)
    take(scene, limit, count=2)
    scene.later(1)
    take(scene, limit)
    after = [(at - noon).total_seconds() for at in (retry_at(scene, limit, count=n) for n in range(1, 6)) if at]
    assert after == [10, 10, 11, 11, 12]


@pytest.mark.requirement("Q15")
def test_more_tokens_than_the_rate_allows_are_never_there(scene: Scene) -> None:
    limit = tenant("acme", enqueue_rate=FIVE)
    assert take(scene, limit, count=6) == TokensTaken(granted=False, tenant="acme", rate=FIVE)
    none = tenant("acme", enqueue_rate=rate(0))
    assert take(scene, none) == TokensTaken(granted=False, tenant="acme", rate=rate(0))


@pytest.mark.requirement("Q15")
def test_each_tenant_takes_tokens_of_its_own(scene: Scene) -> None:
    limit = every_tenant(enqueue_rate=FIVE)
    assert take(scene, limit, count=5).granted
    assert take(scene, limit, count=5, name="bolt").granted


@pytest.mark.requirement("Q15")
def test_what_people_set_for_a_tenant_wins(scene: Scene) -> None:
    given = every_tenant(enqueue_rate=rate(1))
    set_limit(scene, tenant("acme", enqueue_rate=rate(NO_LIMIT)))
    assert take(scene, given, count=9) == TokensTaken(granted=True)
    set_limit(scene, tenant("acme", enqueue_rate=rate(2)))
    assert take(scene, given, count=2).granted
    assert not take(scene, given).granted
    clear_limit(scene, tenant("acme"))
    assert take(scene, given).rate == rate(1)


def test_enqueueing_tokens_and_claims_are_counted_apart(scene: Scene) -> None:
    jobs = put(scene, 3)
    limit = tenant("acme", enqueue_rate=TWO, rate=TWO)
    assert take(scene, limit, count=2).granted
    assert got(scene, limit) == jobs[:2]
    assert not take(scene, limit).granted


def test_a_paused_limit_does_not_stop_enqueueing(scene: Scene) -> None:
    limit = tenant("acme", enqueue_rate=TWO)
    pause_limit(scene, "tenant", "acme", 60)
    assert take(scene, limit).granted
