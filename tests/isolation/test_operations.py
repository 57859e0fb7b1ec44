"""Every operation there is, tried by one tenant on another's things, on every store: refused or empty, and nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
import pytest

from fairlane import Fairlane, FakeClock, PermissionDenied, tenant
from fairlane.core import ops
from fairlane.core.chance import FixedChance
from fairlane.core.ops import ALL_TENANTS, Op, Purge, only
from fairlane.core.schedules import ScheduleSpec
from fairlane.errors import NotFound, ResultTimeout
from fairlane.testing.conformance.scene import Scene
from tests.isolation.every_operation import EVERY, SCOPED, WHEN, samples
from tests.isolation.tenant_data import TenantData, add_tenant_data
from tests.support.stores import Face, Ground, open_at

pytestmark = pytest.mark.requirement("I10")

KINDS = (pytest.param("memory", marks=pytest.mark.long), "sqlite-apsw", "postgres")
OWN, FOREIGN = "acme", "globex"


class Place(NamedTuple):
    """A store with two tenants' things, and an application over it."""

    scene: Scene
    app: Fairlane
    things: dict[str, TenantData]


@pytest.fixture(scope="module", params=KINDS)
def face(request: pytest.FixtureRequest, ground: Ground) -> Iterator[Face]:
    face = Face(open_at(request.param, ground.address(request.param)), "sync")
    yield face
    face.close()


@pytest.fixture(scope="module")
def kept(face: Face) -> list[Place]:
    """The place that tests which change nothing hand to each other."""
    return []


@pytest.fixture
def place(face: Face, kept: list[Place]) -> Place:
    """One of its own, for a test that changes it."""
    kept.clear()
    return furnished(face)


@pytest.fixture
def undisturbed(face: Face, kept: list[Place]) -> Iterator[Place]:
    """One in which nothing may have changed when the test ends."""
    place = kept.pop() if kept else furnished(face)
    before = everything(place.scene)
    yield place
    assert everything(place.scene) == before
    kept.append(place)


def furnished(face: Face) -> Place:
    face.run(Purge())
    scene = Scene(face)
    things = add_tenant_data(scene)
    for name in (OWN, FOREIGN):
        spec = ScheduleSpec(name=f"of-{name}", type="work", cron="0 3 * * *", tenant=name, queue=name)
        scene.run(ops.DeclareSchedules(schedules=(ops.Planned(spec=spec, next_at=WHEN),), source="person", by="olga"))
    app = Fairlane(store=face.store, clock=FakeClock(scene.now), chance=FixedChance(1), profile="development")
    app.task(name="work")(lambda: None)
    return Place(scene, app, things)


def everything(scene: Scene) -> list[object]:
    """All that anybody could see, by everyone's eyes."""
    jobs = scene.list_jobs()
    questions: list[Op[Any]] = [
        ops.PageJobs(scope=ALL_TENANTS, limit=200),
        ops.PageDeadLetters(scope=ALL_TENANTS, limit=200),
        ops.PageAudit(scope=ALL_TENANTS, limit=200),
        ops.PageTenants(scope=ALL_TENANTS, limit=200),
        ops.GetStats(scope=ALL_TENANTS),
        ops.ReadEvents(scope=ALL_TENANTS),
        *(ops.ListPauses(), ops.ListLimits(), ops.ListSchedules(), ops.ListBreakers(), ops.ListWorkers()),
    ]
    return [*(scene.run(question) for question in questions), *(scene.find(job) for job in jobs)]


def text(answer: object) -> str:
    return msgspec.json.encode(answer).decode()


@pytest.mark.parametrize("kind", SCOPED, ids=lambda kind: kind.__name__)
def test_a_store_asked_in_one_tenants_scope_neither_shows_nor_changes_anothers(
    undisturbed: Place, kind: type[Op[Any]]
) -> None:
    scene, things = undisturbed.scene, undisturbed.things[FOREIGN]
    for job in (things.running, things.waiting):
        aimed = {"tenant": FOREIGN, "job": job, "letter": things.letter, "worker": things.worker}
        op = samples(scene.making, scope=only(OWN), **aimed)[kind]  # type: ignore[arg-type]
        answer = scene.run(op)
        assert FOREIGN not in text(answer)
        if "by" in kind.__struct_fields__:
            assert answer.refused == "not_found"


Try = Callable[[Fairlane, TenantData], object]


def read_result(app: Fairlane, its: TenantData) -> object:
    """Of a node that has none yet: whoever may see it is told so."""
    with suppress(ResultTimeout):
        app.workflows.handle(its.flow).result("first", timeout=0)
    return True


def retried_after_cancel(app: Fairlane, its: TenantData) -> object:
    """What can be run again has ended first."""
    app.workflows.cancel(its.flow)
    return app.workflows.retry(its.flow)


# What an application can ask for inside a tenant's context, by the operation it leads to: named, or by the id of a foreign thing.
CLIENT: dict[type[Op[Any]], list[Try]] = {
    ops.GetJob: [
        lambda app, its: app.jobs.get(its.running, tenant=FOREIGN),
        lambda app, its: app.jobs.get(its.running),
        lambda app, its: app.jobs.detail(its.running),
        lambda app, its: app.jobs.handle(its.running).job(),
        lambda app, its: app.jobs.handle(its.running, tenant=FOREIGN).job(),
    ],
    ops.GetStatus: [
        lambda app, its: app.jobs.handle(its.running).status(),
        lambda app, its: app.jobs.handle(its.running, tenant=FOREIGN).status(),
    ],
    ops.PageJobs: [lambda app, its: app.jobs.list(tenant=FOREIGN), lambda app, its: app.jobs.list(queue=FOREIGN).jobs],
    ops.Why: [lambda app, its: app.jobs.why(its.waiting, tenant=FOREIGN), lambda app, its: app.jobs.why(its.waiting)],
    ops.GetDeadLetter: [
        lambda app, its: app.dead_letters.get(its.letter, tenant=FOREIGN),
        lambda app, its: app.dead_letters.get(its.letter),
    ],
    ops.PageDeadLetters: [
        lambda app, its: app.dead_letters.list(tenant=FOREIGN),
        lambda app, its: app.dead_letters.list(queue=FOREIGN).dead_letters,
    ],
    ops.GetStats: [
        lambda app, its: app.statistics.counts(tenant=FOREIGN),
        lambda app, its: [queue for queue in app.statistics.counts().queues if queue.queue == FOREIGN],
    ],
    ops.PageAudit: [
        lambda app, its: app.audit.list(tenant=FOREIGN),
        lambda app, its: app.audit.list(target=f"tenant:{FOREIGN}").records,
    ],
    ops.GetTenant: [lambda app, its: app.tenants.get(FOREIGN)],
    ops.PageTenants: [lambda app, its: [record for record in app.tenants.list().tenants if record.name != OWN]],
    ops.Cancel: [
        lambda app, its: app.jobs.cancel(its.waiting, tenant=FOREIGN),
        lambda app, its: app.jobs.cancel(its.waiting),
        lambda app, its: app.jobs.handle(its.running).cancel(),
    ],
    ops.Fail: [
        lambda app, its: app.jobs.fail(its.running, "no", tenant=FOREIGN),
        lambda app, its: app.jobs.fail(its.running, "no"),
    ],
    ops.Bury: [
        lambda app, its: app.jobs.bury(its.waiting, "no", tenant=FOREIGN),
        lambda app, its: app.jobs.bury(its.waiting, "no"),
    ],
    ops.Reset: [
        lambda app, its: app.jobs.reset(its.running, tenant=FOREIGN),
        lambda app, its: app.jobs.reset(its.running),
    ],
    ops.FreePlace: [
        lambda app, its: app.jobs.free_place(its.running, tenant=FOREIGN),
        lambda app, its: app.jobs.free_place(its.running),
    ],
    ops.ListKeys: [
        lambda app, its: app.limits.keys(tenant=FOREIGN),
        lambda app, its: app.limits.keys(key=f"{FOREIGN}:1"),
    ],
    ops.Reprocess: [
        lambda app, its: app.dead_letters.reprocess(its.letter, tenant=FOREIGN),
        lambda app, its: app.dead_letters.reprocess(its.letter),
    ],
    ops.Discard: [
        lambda app, its: app.dead_letters.discard(its.letter, tenant=FOREIGN),
        lambda app, its: app.dead_letters.discard(its.letter),
    ],
    ops.Resolve: [
        lambda app, its: app.dead_letters.resolve(its.letter, tenant=FOREIGN),
        lambda app, its: app.dead_letters.resolve(its.letter),
    ],
    ops.Acknowledge: [
        lambda app, its: app.dead_letters.acknowledge(its.letter, tenant=FOREIGN),
        lambda app, its: app.dead_letters.acknowledge(its.letter),
    ],
    ops.SetTenant: [lambda app, its: app.tenants.set(FOREIGN, weight=9)],
    ops.PauseClaims: [
        lambda app, its: app.tenants.pause(FOREIGN),
        lambda app, its: app.queues.pause(FOREIGN),
        lambda app, its: app.tasks.pause("work"),
        lambda app, its: app.tenants.drain(FOREIGN),
    ],
    ops.ResumeClaims: [lambda app, its: app.tenants.resume(FOREIGN), lambda app, its: app.queues.resume("default")],
    ops.ListPauses: [lambda app, its: [pause for pause in app.pauses.list() if pause.name == FOREIGN]],
    ops.ListExceptions: [
        lambda app, its: [one for one in app.workers.exceptions() if one.caught.tenant == FOREIGN],
        lambda app, its: app.workers.exceptions(tenant=FOREIGN),
    ],
    ops.ListSignals: [
        lambda app, its: app.signals.list(tenant=FOREIGN),
        lambda app, its: [signal for signal in app.signals.list().signals if signal.tenant != OWN],
    ],
    ops.SetLimit: [
        lambda app, its: app.limits.set(tenant=FOREIGN, running=1),
        lambda app, its: app.limits.set(tenant="*", running=1),
        lambda app, its: app.limits.set(queue="default", running=1),
    ],
    ops.ClearLimit: [
        lambda app, its: app.limits.clear(tenant=FOREIGN),
        lambda app, its: app.limits.clear(queue=FOREIGN),
    ],
    ops.PauseLimit: [lambda app, its: app.limits.pause(5, tenant=FOREIGN)],
    ops.ListLimits: [lambda app, its: [kept for kept in app.limits.list() if kept.limit.name == FOREIGN]],
    ops.ListSchedules: [
        lambda app, its: [schedule for schedule in app.schedules.list() if schedule.spec.tenant != OWN]
    ],
    ops.DeclareSchedules: [
        lambda app, its: app.schedules.add(f"of-{FOREIGN}", app.tasks["work"], cron="1 1 * * *"),
        lambda app, its: app.schedules.add("new", app.tasks["work"].using(tenant=FOREIGN).bind(), cron="1 1 * * *"),
    ],
    ops.PauseSchedule: [
        lambda app, its: app.schedules.pause(f"of-{FOREIGN}"),
        lambda app, its: app.schedules.resume(f"of-{FOREIGN}"),
    ],
    ops.RunSchedule: [lambda app, its: app.schedules.run(f"of-{FOREIGN}")],
    ops.RemoveSchedule: [lambda app, its: app.schedules.remove(f"of-{FOREIGN}")],
    ops.ForceBreaker: [lambda app, its: app.breakers.open("smtp")],
    ops.ResetBreaker: [lambda app, its: app.breakers.reset("smtp")],
    ops.Purge: [lambda app, its: app.jobs.purge()],
    ops.GetWorkflow: [
        lambda app, its: app.workflows.get(its.flow),
        lambda app, its: app.workflows.get(its.flow, tenant=FOREIGN),
        lambda app, its: app.workflows.handle(its.flow).status(),
    ],
    ops.PageWorkflows: [
        lambda app, its: app.workflows.list(tenant=FOREIGN),
        lambda app, its: [found for found in app.workflows.list().workflows if found.tenant == FOREIGN],
    ],
    ops.PageNodes: [lambda app, its: app.workflows.handle(its.flow).nodes()],
    ops.ListGates: [lambda app, its: app.workflows.graph(its.flow)],
    ops.ReadResults: [read_result],
    ops.AddNodes: [lambda app, its: app.workflows.batch(its.flow).add(app.tasks["work"].bind())],
    ops.CancelWorkflow: [
        lambda app, its: app.workflows.cancel(its.flow),
        lambda app, its: app.workflows.cancel(its.flow, tenant=FOREIGN),
        lambda app, its: app.workflows.handle(its.flow).cancel(),
    ],
    ops.RetryWorkflow: [retried_after_cancel],
}


# Operations of which no tenant is a side: an application has no verb that leads to them with another tenant's name or id.
WORKERS_OWN = {
    *(
        ops.Turn,
        ops.Renew,
        ops.Retire,
        ops.Lapse,
        ops.Reclaim,
        ops.Promote,
        ops.Note,
        ops.ReportExceptions,
        ops.AddStats,
        ops.Unhold,
        ops.Advance,
        ops.Age,
        ops.DropResults,
    ),
    *(ops.RecordStep, ops.ReadSteps, ops.TakeSignal, ops.Deliver, ops.BringBack),
    *(ops.AddTenants, ops.ReadWeights, ops.Fire, ops.Retain, ops.ForgetOld, ops.TakeDuty, ops.SaveAlerts),
    *(ops.RollUpEnqueued, ops.ReadEnqueued, ops.ReadUnsealed, ops.SealAudit, ops.AddEvents),
}
EVERYBODYS = {ops.Check, ops.ReadSetBack, ops.Admit, ops.Report, ops.ListBreakers, ops.ListWorkers}
BY_THE_ENQUEUE_CALL = {ops.Enqueue, ops.EnqueueWorkflow, ops.Emit, ops.TakeTokens, ops.HasTenants}
"""Inside a job refused for another tenant (below); outside, `using(tenant=…)` is how an application says for whom it enqueues."""
OF_THE_API = {
    *(ops.IssueCredential, ops.FindCredential, ops.RedeemLink, ops.RevokeCredential, ops.SeeCredentials),
    *(ops.ListCredentials, ops.ReadAlerts, ops.SilenceAlerts, ops.ReadAuditChain, ops.ReadStats),
    *(ops.ReadEvents, ops.GroupDeadLetters),
}
"""Reached through the HTTP API alone, whose own matrix is tests/api/test_matrix.py; those with a scope are tried on the store above."""


def test_the_matrix_knows_every_operation() -> None:
    sides = [set(CLIENT), WORKERS_OWN, EVERYBODYS, BY_THE_ENQUEUE_CALL, OF_THE_API]
    assert set().union(*sides) == set(EVERY)
    assert sum(map(len, sides)) == len(EVERY)
    assert set(SCOPED) <= set(CLIENT) | OF_THE_API


@pytest.mark.parametrize(
    ("kind", "nth"),
    [(kind, nth) for kind, tries in CLIENT.items() for nth in range(len(tries))],
    ids=lambda given: getattr(given, "__name__", str(given)),
)
def test_an_application_in_one_tenants_context_neither_sees_nor_changes_anothers(
    undisturbed: Place, kind: type[Op[Any]], nth: int
) -> None:
    theirs = undisturbed.things[FOREIGN]
    with tenant(OWN):
        try:
            answer = CLIENT[kind][nth](undisturbed.app, theirs)
        except (PermissionDenied, NotFound) as refusal:
            assert theirs.letter is not None
            assert "secret" not in str(refusal)
        else:
            assert answer in (None, [], ())


@pytest.mark.parametrize(
    ("kind", "nth"),
    [(kind, nth) for kind, tries in CLIENT.items() for nth in range(len(tries))],
    ids=lambda given: getattr(given, "__name__", str(given)),
)
def test_the_same_calls_are_answered_where_they_are_allowed(place: Place, kind: type[Op[Any]], nth: int) -> None:
    """So that a call which is refused for another reason, or never reaches its operation, cannot pass for isolated."""
    place.app.limits.set(queue=FOREIGN, running=5)
    place.app.queues.pause(FOREIGN)
    place.app.signals.emit("paid", tenant=FOREIGN)
    sent: list[type[Op[Any]]] = []
    run = place.app.runtime.access.run

    def noted(op: Op[Any], **options: Any) -> Any:
        sent.append(type(op))
        return run(op, **options)

    place.app.runtime.access.run = noted  # type: ignore[method-assign]
    if kind is ops.PauseClaims and nth == 3:
        place.app.tenants.pause(FOREIGN)  # draining waits for the clock; it begins with this very call
    else:
        answer = CLIENT[kind][nth](place.app, place.things[FOREIGN])
        assert kind in (ops.ResumeClaims,) or answer not in (None, [], ())
    assert kind in sent


def test_a_job_enqueues_for_no_other_tenant(place: Place) -> None:
    from fairlane.testing import run_due

    app = place.app
    app.task(name="child")(lambda: None)

    @app.task(name="parent", max_attempts=1)
    def parent() -> None:
        app.tasks["child"].using(tenant=FOREIGN).enqueue()

    handle = parent.using(tenant="initech", queue="parents").enqueue()
    before = len(place.scene.list_jobs(type="child"))
    run_due(app)
    assert handle.job().error_type == "PermissionDenied"
    assert len(place.scene.list_jobs(type="child")) == before == 0
