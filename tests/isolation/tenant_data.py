"""Two tenants with the same things, so that whatever one of them sees of the other shows."""

from __future__ import annotations

from typing import NamedTuple

from fairlane.core.ids import JobId, Seq, WorkerId
from fairlane.core.job_keys import JobKey
from fairlane.core.limits import Limit
from fairlane.core.ops import (
    AddEvents,
    AddStats,
    AddTenants,
    CaughtException,
    Enqueue,
    EventDraft,
    Note,
    PauseClaims,
    ReportExceptions,
    SetLimit,
    StatRow,
)
from fairlane.core.workflows import WorkflowId
from fairlane.testing.conformance.samples import NOON, retried
from fairlane.testing.conformance.scene import Scene
from fairlane.testing.conformance.workflows import Flow

TENANTS = ("acme", "globex")
HELD = Limit(kind="tenant", name="*", queue="full", waiting=1, when_full="hold")


class TenantData(NamedTuple):
    """What a tenant has, for others to try and reach."""

    running: JobId
    waiting: JobId
    letter: Seq
    worker: WorkerId
    flow: WorkflowId


def add_tenant_data(scene: Scene) -> dict[str, TenantData]:
    """Jobs in every place, with keys, attempts, notes and results; a pause, a limit, figures, events. Queues are named after their tenant."""
    made = {tenant: _add(scene, tenant) for tenant in TENANTS}
    scene.run(AddTenants())
    return made


def _add(scene: Scene, tenant: str) -> TenantData:
    own = {"tenant": tenant, "queue": tenant, "type": f"{tenant}.work"}
    scene.finished(**own)
    letter = scene.dead(**own)
    failing, lease = scene.leased(**own)
    scene.settle(failing, retried(lease, 3600))
    key = JobKey(value=f"{tenant}:1")
    worker, running = scene.leased(**own, key=key, payload=f'{{"secret":"{tenant}"}}')
    scene.put(**own, key=key)
    caught = CaughtException(
        id=running.id,
        task=running.type,
        tenant=tenant,
        attempt=1,
        type="OSError",
        error=f"{tenant} says",
        error_class="transient",
        is_final=False,
        at=scene.now,
    )
    scene.run(ReportExceptions(worker=worker, exceptions=(caught,)))
    scene.run(
        Note(
            worker=worker,
            seq=running.seq,
            attempt=running.attempt,
            claim_no=running.claim_no,
            progress=0.5,
            log=(f"{tenant} says",),
        )
    )
    waiting = scene.put(**own, idempotency_key="same", dedup_key="same")
    scene.put(**own, delay_s=60)
    scene.run(Enqueue(jobs=tuple(scene.job(tenant=tenant, queue="full") for _ in range(2)), limits=(HELD,)))
    scene.run(PauseClaims(kind="tenant", name=tenant, by="olga", notes=tenant))
    scene.run(SetLimit(limit=Limit(kind="tenant", name=tenant, running=3), by="olga"))
    row = StatRow(minute=NOON, type="work", queue=tenant, tenant=tenant, completed=1)
    scene.run(AddStats(worker=worker, batch=1, rows=(row,)))
    scene.run(AddEvents(events=(EventDraft(kind="job_completed", tenant=tenant, data={"of": tenant}),)))
    flow = Flow(scene, {"first": [], "second": ["first"]}, tenant=tenant, job={"queue": tenant}).put()
    return TenantData(running.id, waiting.id, letter.seq, worker, flow.id)
