"""What is said of every tenant is not meant for the application's own jobs, of the tenant `system`; what is said of it by name is."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.core.limits import Limit
from fairlane.core.ops import TakeTokens
from fairlane.testing.conformance.limits import claimed, every_tenant, rate, set_limit, tenant, unhold, why
from fairlane.testing.conformance.scene import Scene

pytestmark = pytest.mark.requirement("I2", "I5")

each_way = pytest.mark.parametrize("by", ["given", "set"])
each_place = pytest.mark.parametrize("queue", ["", "default"], ids=["over all queues", "in one queue"])


def say(scene: Scene, by: str, *limits: Limit) -> tuple[Limit, ...]:
    """What goes with an operation: those the code gives; the others are set."""
    if by == "given":
        return limits
    for limit in limits:
        set_limit(scene, limit)
    return ()


def is_refused(scene: Scene, whose: str, given: tuple[Limit, ...], payload: str = "{}", count: int = 1) -> bool:
    jobs = [scene.job(tenant=whose, payload=payload) for _ in range(count)]
    return scene.enqueue(*jobs, limits=given).refused is not None


@each_way
@each_place
def test_its_jobs_that_wait_are_not_counted(scene: Scene, by: str, queue: str) -> None:
    given = say(scene, by, every_tenant(queue, waiting=1, when_full="reject"))
    assert is_refused(scene, "acme", given, count=2)
    assert not is_refused(scene, "system", given, count=2)
    given += say(scene, by, tenant("system", queue, waiting=2, when_full="reject"))
    assert is_refused(scene, "system", given)


@each_way
@each_place
def test_its_payloads_are_not_measured(scene: Scene, by: str, queue: str) -> None:
    given = say(scene, by, every_tenant(queue, payload_bytes=9))
    long = '{"text":"of twenty bytes"}'
    assert is_refused(scene, "acme", given, long)
    assert not is_refused(scene, "system", given, long)
    given += say(scene, by, tenant("system", queue, payload_bytes=9))
    assert is_refused(scene, "system", given, long)


@each_way
def test_its_held_jobs_go_on_although_every_tenant_has_a_limit(scene: Scene, by: str) -> None:
    own = tenant("system", waiting=0, when_full="hold")
    assert scene.enqueue(scene.job(tenant="system"), limits=(own,)).receipts[0].held
    given = say(scene, by, every_tenant(waiting=0, when_full="hold"))
    assert unhold(scene, own, *given) == 0
    assert unhold(scene, *given) == 1


@each_way
def test_its_enqueues_need_no_tokens(scene: Scene, by: str) -> None:
    given = say(scene, by, every_tenant(enqueue_rate=rate(0)))
    assert not scene.run(TakeTokens(counts={"acme": 1}, limits=given)).granted
    taken = scene.run(TakeTokens(counts={"system": 1}, limits=given))
    assert (taken.granted, taken.rate) == (True, None)
    given += say(scene, by, tenant("system", enqueue_rate=rate(1)))
    assert scene.run(TakeTokens(counts={"system": 1}, limits=given)).granted
    assert not scene.run(TakeTokens(counts={"system": 1}, limits=given)).granted


@each_way
@each_place
def test_no_limit_of_every_tenant_is_shown_for_its_jobs(scene: Scene, by: str, queue: str) -> None:
    job, other = scene.put(tenant="system"), scene.put(tenant="acme")
    given = say(scene, by, every_tenant(queue, running=1, rate=rate(2), waiting=3))
    shown = why(scene, other.id, *given)
    assert ([state.running for state in shown.limits], shown.waiting_limit) == ([1], 3)
    shown = why(scene, job.id, *given)
    assert (shown.limits, shown.waiting_limit) == ((), None)
    given += say(scene, by, tenant("system", queue, running=4, waiting=5))
    shown = why(scene, job.id, *given)
    assert ([state.running for state in shown.limits], shown.waiting_limit) == ([4], 5)


@each_way
@each_place
@pytest.mark.parametrize("figure", ["running", "rate"])
def test_its_claims_are_not_counted(scene: Scene, by: str, queue: str, figure: str) -> None:
    def allowing(count: int) -> dict[str, Any]:
        return {figure: count if figure == "running" else rate(count)}

    given = say(scene, by, every_tenant(queue, **allowing(1)))
    own, others = ([scene.put(tenant=whose).id for _ in range(3)] for whose in ("system", "acme"))
    assert sorted(claimed(scene, *given)) == sorted([*own, others[0]])
    given += say(scene, by, tenant("system", queue, **allowing(4)))
    own = [scene.put(tenant="system").id for _ in range(6)]
    if figure == "running":
        assert claimed(scene, *given) == own[:1]
    else:
        assert claimed(scene, *given) == own[:4]
