"""Surveys: which tenants have jobs left where a claim took from last."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.core.ops import PauseClaims, Survey, Take
from fairlane.testing.conformance.limits import queue, task, tenant
from fairlane.testing.conformance.scene import Scene, wanting

pytestmark = pytest.mark.requirement("I3", "W14")


def put(scene: Scene, tenants: str, count: int = 1, **options: Any) -> None:
    for name in tenants:
        scene.put_many(count, tenant=name, **options)


def surveyed(scene: Scene, limit: int = 1, *limits: Any, survey: int = 100, **want: Any) -> tuple[Survey, ...]:
    return scene.turn(scene.hire(), wanting(limit, survey=survey, **want), limits=limits).surveys


def at(tenants: str, band: int = 5, queue: str = "default", lane: str = "general") -> Survey:
    return Survey(lane=lane, queue=queue, band=band, tenants=tuple(tenants))


def test_nobody_is_told_unless_asked(scene: Scene) -> None:
    put(scene, "abc")
    assert surveyed(scene, survey=0) == ()


def test_tenants_with_jobs_left_are_told_from_behind_the_one_served_last(scene: Scene) -> None:
    put(scene, "abcd", 3)
    assert surveyed(scene, cursor="a") == (at("cdab"),)
    assert surveyed(scene, 2, cursor="c") == (at("bcda"),)


def test_a_tenant_served_to_the_last_job_is_not_told(scene: Scene) -> None:
    put(scene, "ac", 2)
    put(scene, "b")
    assert surveyed(scene, cursor="a") == (at("ca"),)
    assert surveyed(scene, 9) == (at(""),)


def test_no_more_are_told_than_asked_for(scene: Scene) -> None:
    put(scene, "abcd", 3)
    assert surveyed(scene, cursor="b", survey=2) == (at("da"),)
    assert surveyed(scene, cursor="b", survey=4) == (at("dabc"),)


def test_only_the_queue_and_band_claimed_from_last_are_told(scene: Scene) -> None:
    put(scene, "ab", priority=1)
    put(scene, "cd", 2, priority=5)
    put(scene, "e", 2, queue="bulk")
    assert surveyed(scene, 3) == (at("dc"),)
    assert surveyed(scene, 4, queues=("default", "bulk")) == (at("e", queue="bulk"),)


def test_where_nothing_was_claimed_by_discovery_nothing_is_told(scene: Scene) -> None:
    put(scene, "ab", 3)
    take = Take(queue="default", band=5, tenant="a", limit=1)
    assert surveyed(scene, takes=(take,)) == ()
    assert surveyed(scene, takes=(take,), discover=False) == ()
    assert surveyed(scene, types=("nothing",)) == ()
    assert surveyed(scene, limit=0) == ()


def test_jobs_of_whatever_type_are_told_and_paused_tenants_are_not(scene: Scene) -> None:
    put(scene, "a", 2)
    put(scene, "b", type="unknown")
    put(scene, "cd")
    scene.run(PauseClaims(kind="tenant", name="c", by="ada"))
    assert surveyed(scene, types=("mail.send",)) == (at("bda"),)


def test_tenants_without_room_are_told_too(scene: Scene) -> None:
    put(scene, "abc", 2)
    limits = (tenant("b", running=0), task("other", running=0), queue("default", running=1))
    assert surveyed(scene, 9, *limits) == (at("bca"),)


def test_scheduled_and_leased_jobs_are_not_told(scene: Scene) -> None:
    put(scene, "a", 2)
    put(scene, "b", delay_s=60)
    put(scene, "c")
    assert surveyed(scene, cursor="b") == (at("a"),)


def test_each_want_that_asks_is_told_in_their_order(scene: Scene) -> None:
    put(scene, "ab", 3)
    put(scene, "cd", 3, queue="bulk")
    put(scene, "e", queue="third")
    wants = (
        wanting(1, lane="x", queues=("bulk",), survey=9),
        wanting(1, lane="y", queues=("third",)),
        wanting(1, lane="z", queues=("default",), survey=9),
    )
    surveys = scene.turn(scene.hire(), *wants).surveys
    assert surveys == (at("dc", queue="bulk", lane="x"), at("ba", lane="z"))


def test_a_repeated_turn_tells_of_no_tenants(scene: Scene) -> None:
    put(scene, "ab", 3)
    worker, want = scene.hire(), wanting(1, survey=9)
    first = scene.turn(worker, want, claim_no=7)
    again = scene.turn(worker, want, claim_no=7)
    assert (first.surveys, again.surveys, again.leases) == ((at("ba"),), (), first.leases)


def test_an_unregistered_worker_is_told_nothing(scene: Scene) -> None:
    put(scene, "ab", 3)
    result = scene.turn(scene.making.worker_id(), wanting(1, survey=9))
    assert (result.registered, result.surveys) == (False, ())
