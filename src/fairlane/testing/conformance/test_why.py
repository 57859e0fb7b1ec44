"""Why a job waits: its place in line, pauses, limits and who could run it."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.core.ids import JobId
from fairlane.core.limits import NO_LIMIT
from fairlane.core.ops import TENANT_COUNT_CAP, Age, LimitState, PauseClaims, Renew, Why, only
from fairlane.testing.conformance.limits import (
    claimed,
    every_tenant,
    named,
    pause_limit,
    queue,
    rate,
    set_limit,
    task,
    tenant,
    why,
)
from fairlane.testing.conformance.samples import completed
from fairlane.testing.conformance.scene import Scene

pytestmark = pytest.mark.requirement("I2", "I5")


def put(scene: Scene, **options: Any) -> JobId:
    return scene.put(**{"tenant": "acme", **options}).id


def state(kind: Any, name: str, queue: str = "", **said: Any) -> LimitState:
    nothing: dict[str, Any] = {"running": None, "leases": 0, "rate": None, "starts": 0, "free_at": None}
    return LimitState(kind=kind, name=name, queue=queue, **nothing | said)


def test_a_job_alone_has_nothing_before_it(scene: Scene) -> None:
    told = why(scene, put(scene))
    assert (told.now, told.place, told.ahead, told.more_urgent, told.tenants) == (scene.now, "ready", 0, 0, 0)
    assert (told.pauses, told.limits, told.waiting_limit, told.workers, told.knowing) == ((), (), None, 0, 0)


def test_the_job_is_told_as_everybody_sees_it(scene: Scene) -> None:
    job = put(scene, payload='{"a":"é"}', delay_s=5)
    assert why(scene, job).job == scene.see(job)


def test_a_ready_job_is_told_its_place_in_line(scene: Scene) -> None:
    put(scene, priority=1)
    put(scene, priority=1, tenant="bolt")
    put(scene, tenant="bolt")
    put(scene, tenant="core")
    before = [put(scene), put(scene, run_at=scene.at(-5))]
    job = put(scene)
    put(scene)
    put(scene, priority=9, tenant="zed")
    put(scene, queue="bulk", priority=0, tenant="zed")
    told = why(scene, job)
    assert (told.ahead, told.more_urgent, told.tenants) == (len(before), 2, 2)


def test_the_place_in_line_is_by_rank_due_time_and_number(scene: Scene) -> None:
    own = {"priority_scope": "tenant"}
    job = put(scene, priority=5, **own)
    put(scene, priority=6, run_at=scene.at(-50), **own)
    assert why(scene, job).ahead == 0
    put(scene, priority=4, **own)
    put(scene, priority=5, run_at=scene.at(-1), **own)
    put(scene, priority=0, tenant="bolt", **own)
    told = why(scene, job)
    assert (told.ahead, told.more_urgent, told.tenants) == (2, 0, 1)


def test_an_aged_job_stands_where_it_has_come_to(scene: Scene) -> None:
    job = put(scene, priority=5)
    put(scene, priority=3, tenant="bolt")
    assert why(scene, job).more_urgent == 1
    scene.later(20)
    put(scene, priority=3)
    scene.run(Age(queue="default", every_s=10.0))
    told = why(scene, job)
    assert (told.ahead, told.more_urgent, told.tenants) == (0, 1, 0)
    assert told.job.priority == 5


def test_counts_of_what_a_job_waits_behind_stop_at_the_cap(scene: Scene) -> None:
    for _ in range(2):
        scene.enqueue(*(scene.job(tenant="acme") for _ in range(TENANT_COUNT_CAP // 2 + 1)))
    last = put(scene)
    urgent_later = put(scene, priority=9, tenant="bolt")
    assert (why(scene, last).ahead, why(scene, urgent_later).more_urgent) == (TENANT_COUNT_CAP, TENANT_COUNT_CAP)


def test_every_place_is_named(scene: Scene) -> None:
    leased = put(scene)
    worker = scene.hire(6000)
    scene.claim(worker)
    completed_job = put(scene)
    [lease] = scene.claim(worker)
    scene.settle(worker, completed(lease))
    scheduled = put(scene, delay_s=60)
    dead, cancelled = put(scene), put(scene)
    scene.bury(dead)
    scene.cancel(cancelled)
    full = (tenant("acme", waiting=0, when_full="hold"),)
    held = scene.enqueue(scene.job(tenant="acme"), limits=full).receipts[0].id
    ready = put(scene)
    jobs = (ready, scheduled, held, leased, completed_job, dead, cancelled)
    places = [why(scene, job).place for job in jobs]
    assert places == ["ready", "scheduled", "held", "leased", "completed", "dead", "cancelled"]


@pytest.mark.parametrize("place", ["scheduled", "held", "leased"])
def test_only_a_ready_job_has_a_place_in_line(scene: Scene, place: str) -> None:
    if place == "scheduled":
        job = put(scene, delay_s=60)
    elif place == "held":
        full = (tenant("acme", waiting=0, when_full="hold"),)
        job = scene.enqueue(scene.job(tenant="acme"), limits=full).receipts[0].id
    else:
        job = put(scene)
        assert claimed(scene) == [job]
    put(scene, run_at=scene.at(-5))
    put(scene, priority=1)
    put(scene, tenant="bolt")
    told = why(scene, job)
    assert (told.place, told.ahead, told.more_urgent, told.tenants) == (place, 0, 0, 0)


def test_pauses_that_concern_it_are_told_by_kind(scene: Scene) -> None:
    job = put(scene, type="mail.send", queue="bulk")
    for kind, name in (("type", "mail.send"), ("queue", "bulk"), ("tenant", "acme"), ("tenant", "bolt")):
        scene.run(PauseClaims(kind=kind, name=name, by="ada", notes="n"))  # type: ignore[arg-type]
    told = why(scene, job).pauses
    assert [(pause.kind, pause.name, pause.by, pause.notes) for pause in told] == [
        ("queue", "bulk", "ada", "n"),
        ("tenant", "acme", "ada", "n"),
        ("type", "mail.send", "ada", "n"),
    ]


def test_limits_it_is_under_are_told_in_the_order_they_count(scene: Scene) -> None:
    job = put(scene, type="mail.send", queue="bulk")
    limits = (
        named("z", "mail.send", running=5),
        named("a", "mail.send", "x", running=4),
        named("other", "x", running=1),
        task("mail.send", running=3),
        tenant("acme", "bulk", running=2),
        every_tenant(running=9),
        tenant("bolt", running=1),
        queue("bulk", running=7),
        queue("default", running=1),
        tenant("acme", waiting=6),
    )
    assert why(scene, job, *limits).limits == (
        state("queue", "bulk", running=7),
        state("tenant", "acme", running=9),
        state("tenant", "acme", "bulk", running=2),
        state("type", "mail.send", running=3),
        state("named", "a", running=4),
        state("named", "z", running=5),
    )


def test_no_limit_is_none(scene: Scene) -> None:
    job = put(scene)
    set_limit(scene, queue(running=NO_LIMIT, rate=rate(NO_LIMIT)))
    assert why(scene, job, queue(running=1, rate=rate(1)), tenant("acme", waiting=NO_LIMIT)).limits == ()


def test_running_leases_are_counted_under_each_limit(scene: Scene) -> None:
    for _ in range(3):
        put(scene)
    scene.put(tenant="bolt")
    limits = (queue(running=3), every_tenant(running=2), named("smtp", "mail.send", running=9))
    assert len(claimed(scene, *limits)) == 3
    waiting = scene.list_jobs(only("acme"), statuses=("pending",))
    assert why(scene, waiting[0], *limits).limits == (
        state("queue", "default", running=3, leases=3),
        state("tenant", "acme", running=2, leases=2),
        state("named", "smtp", running=9, leases=3),
    )


def test_a_rate_is_told_with_its_starts_and_when_it_lets_the_next_one_through(scene: Scene) -> None:
    for _ in range(3):
        put(scene)
    job = put(scene)
    two = rate(2, 10)
    limits = (queue(rate=two), task(running=9))
    noon = scene.now

    def told() -> LimitState:
        return why(scene, job, *limits).limits[0]

    assert told() == state("queue", "default", rate=two)
    claimed(scene, *limits, limit=1)
    assert told() == state("queue", "default", rate=two, starts=1)
    scene.later(4)
    claimed(scene, *limits, limit=1)
    free_at = noon + (scene.at(10) - scene.now)
    assert told() == state("queue", "default", rate=two, starts=2, free_at=free_at)
    scene.later(6)
    assert told() == state("queue", "default", rate=two, starts=1)


def test_a_paused_limit_is_told_until_its_pause_is_over(scene: Scene) -> None:
    job = put(scene)
    until = pause_limit(scene, "type", "mail.send", 30).until
    pause_limit(scene, "type", "other", 30)
    assert why(scene, job).limits == (state("type", "mail.send", free_at=until),)
    scene.later(30)
    assert why(scene, job).limits == ()


def test_of_a_rate_and_a_pause_the_later_is_told(scene: Scene) -> None:
    put(scene)
    job = put(scene)
    limit, noon = task(rate=rate(1, 60)), scene.now
    claimed(scene, limit)
    pause_limit(scene, "type", "mail.send", 30)
    [told] = why(scene, job, limit).limits
    assert told.free_at == noon + (scene.at(60) - scene.now)
    pause_limit(scene, "type", "mail.send", 90)
    [told] = why(scene, job, limit).limits
    assert (told.free_at, told.starts) == (scene.at(90), 1)


def test_a_finished_job_is_under_no_limit_any_more(scene: Scene) -> None:
    lease = scene.finished(tenant="acme")
    assert why(scene, lease.id, queue(running=3), task(rate=rate(3))).limits == ()


def test_the_waiting_limit_of_its_tenant_is_told(scene: Scene) -> None:
    job = put(scene, queue="bulk")
    assert why(scene, job, every_tenant(waiting=7)).waiting_limit == 7
    set_limit(scene, tenant("acme", "bulk", waiting=3))
    assert why(scene, job, every_tenant(waiting=7)).waiting_limit == 3


def test_live_workers_of_its_queue_that_know_its_type_are_counted(scene: Scene) -> None:
    job = put(scene, type="mail.send", queue="bulk")
    for queues, types in (
        (("bulk",), ("mail.send", "x")),
        (("default", "bulk"), ()),
        ((), ("mail.send",)),
        ((), ()),
        (("bulk",), ("x",)),
        (("default",), ("mail.send",)),
    ):
        worker = scene.making.worker_id()
        scene.run(Renew(worker=worker, lease_s=10, name="w", queues=queues, types=types))
    told = why(scene, job)
    assert (told.workers, told.knowing) == (5, 4)
    scene.later(10)
    told = why(scene, job)
    assert (told.workers, told.knowing) == (0, 0)


@pytest.mark.parametrize("foreign", ["bolt", "", "ACME", "acme%", "*"])
def test_a_foreign_tenants_job_is_not_there(scene: Scene, foreign: str) -> None:
    job = put(scene)
    assert scene.run(Why(scope=only(foreign), id=job)) is None
    told = scene.run(Why(scope=only("acme"), id=job))
    assert told is not None
    assert told.job.id == job
    assert scene.run(Why(scope=only("acme"), id=scene.making.job_id())) is None
