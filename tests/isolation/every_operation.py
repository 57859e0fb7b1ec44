"""One value of every operation there is: a new operation is missing here until somebody says how it is isolated."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from msgspec import Raw

from fairlane.core import ops
from fairlane.core.breaker import BreakerPolicy
from fairlane.core.ids import JobId, Seq, WorkerId
from fairlane.core.limits import Limit
from fairlane.core.ops import Op, Scope
from fairlane.core.workflows import NodeSpec, WorkflowId, WorkflowSpec
from fairlane.stores.postgres.store import call_for
from fairlane.testing.conformance.samples import Making

WHEN = datetime(2026, 3, 1, 12, tzinfo=UTC)
CREDENTIAL = UUID("00000000-0000-7000-8000-0000000000c1")

EVERY: tuple[type[Op[Any]], ...] = tuple(
    kind for kind in vars(ops).values() if isinstance(kind, type) and issubclass(kind, Op) and hasattr(kind, "answer")
)
SCOPED = tuple(kind for kind in EVERY if "scope" in kind.__struct_fields__)


def called(op: Op[Any]) -> str | None:
    """The SQL function that answers an operation; None: it asks no table."""
    if isinstance(op, ops.Check):
        return None
    found = re.search(r"\{schema\}\.(\w+)\(", call_for(op).sql)
    assert found, f"{type(op).__name__} goes past the functions"
    return found.group(1)


def samples(
    making: Making, *, scope: Scope, tenant: str, job: JobId, letter: int, worker: WorkerId
) -> dict[type[Op[Any]], Op[Any]]:
    """Each operation aimed at one tenant's things, asked for in `scope`."""
    on_job: dict[str, Any] = {"scope": scope, "id": job, "by": "eve"}
    on_letter: dict[str, Any] = {"scope": scope, "id": Seq(letter), "by": "eve"}
    policy = BreakerPolicy()
    flow = WorkflowId(UUID("00000000-0000-7000-8000-0000000000f1"))
    on_flow: dict[str, Any] = {"scope": scope, "id": flow, "by": "eve"}
    values: list[Op[Any]] = [
        ops.Acknowledge(**on_letter),
        ops.AddEvents(),
        ops.AddNodes(scope=scope, workflow=flow, jobs=(making.job(tenant=tenant),), nodes=(NodeSpec(name="more"),)),
        ops.AddStats(worker=worker, batch=1, rows=()),
        ops.AddTenants(),
        ops.Admit(name="smtp", policy=policy),
        ops.Advance(),
        ops.Age(queue="default", every_s=60),
        ops.BringBack(behind_s=60.0),
        ops.Bury(**on_job, reason="no"),
        ops.Cancel(**on_job),
        ops.CancelWorkflow(**on_flow),
        ops.Check(),
        ops.ClearLimit(kind="tenant", name=tenant, by="eve"),
        ops.DeclareSchedules(schedules=()),
        ops.Deliver(),
        ops.Discard(**on_letter),
        ops.Emit(id=making.job_id(), tenant=tenant, name="paid", data=Raw(b"{}")),
        ops.Enqueue(jobs=(making.job(tenant=tenant),)),
        ops.EnqueueWorkflow(
            workflow=WorkflowSpec(id=WorkflowId(making.job_id()), name="onboard", tenant=tenant),
            jobs=(making.job(tenant=tenant),),
            nodes=(NodeSpec(name="first"),),
        ),
        ops.Fail(**on_job, reason="no"),
        ops.FindCredential(kind="token", hash="00"),
        ops.Fire(name="nightly", expected_at=WHEN, jobs=(), fired_at=WHEN, next_at=None),
        ops.ForceBreaker(name="smtp", by="eve"),
        ops.ForgetOld(),
        ops.FreePlace(**on_job),
        ops.GetDeadLetter(scope=scope, id=Seq(letter)),
        ops.GetJob(scope=scope, id=job),
        ops.GetStats(scope=scope),
        ops.GetStatus(scope=scope, id=job),
        ops.GetTenant(scope=scope, name=tenant),
        ops.GetWorkflow(scope=scope, id=flow),
        ops.GroupDeadLetters(scope=scope),
        ops.HasTenants(),
        ops.IssueCredential(
            id=CREDENTIAL, kind="token", name="eve", prefix="fl_eve", hash="ee", roles=("viewer",), by="eve"
        ),
        ops.Lapse(worker=making.worker_id()),
        ops.ListBreakers(),
        ops.ListCredentials(kind="token"),
        ops.ListGates(scope=scope, workflow=flow),
        ops.ListKeys(scope=scope),
        ops.ListLimits(),
        ops.ListPauses(),
        ops.ListSchedules(),
        ops.ListSignals(scope=scope),
        ops.ListExceptions(scope=scope),
        ops.ListWorkers(),
        ops.Note(worker=making.worker_id(), seq=Seq(1), attempt=1, claim_no=1),
        ops.PageAudit(scope=scope),
        ops.PageDeadLetters(scope=scope),
        ops.PageJobs(scope=scope),
        ops.PageNodes(scope=scope, workflow=flow),
        ops.PageTenants(scope=scope),
        ops.PageWorkflows(scope=scope),
        ops.PauseClaims(kind="tenant", name=tenant, by="eve"),
        ops.PauseLimit(kind="tenant", name=tenant, for_s=1, by="eve"),
        ops.PauseSchedule(name="nightly", by="eve"),
        ops.Promote(),
        ops.Purge(),
        ops.ReadAlerts(),
        ops.ReadAuditChain(),
        ops.ReadEnqueued(),
        ops.ReadEvents(scope=scope),
        ops.ReadResults(scope=scope, workflow=flow, names=("first",)),
        ops.ReadSteps(worker=making.worker_id(), seq=Seq(1), attempt=1, claim_no=1),
        ops.ReadSetBack(),
        ops.ReadStats(since=WHEN, until=WHEN),
        ops.ReadUnsealed(),
        ops.ReadWeights(),
        ops.Reclaim(),
        ops.RecordStep(worker=making.worker_id(), seq=Seq(1), attempt=1, claim_no=1, n=1, name="charge"),
        ops.RedeemLink(hash="00"),
        ops.RemoveSchedule(name="nightly", by="eve"),
        ops.Renew(worker=making.worker_id()),
        ops.Report(name="smtp", policy=policy, failures=0, successes=0),
        ops.ReportExceptions(worker=making.worker_id(), exceptions=()),
        ops.Reprocess(**on_letter, new_job_id=making.job_id()),
        ops.Reset(**on_job),
        ops.ResetBreaker(name="smtp", by="eve"),
        ops.Resolve(**on_letter),
        ops.ResumeClaims(kind="tenant", name=tenant, by="eve"),
        ops.DropResults(type="t", finished_before=WHEN),
        ops.Retain(),
        ops.RetryWorkflow(**on_flow, again=(("first", making.job_id()),)),
        ops.Retire(worker=making.worker_id()),
        ops.RevokeCredential(id=CREDENTIAL, by="eve"),
        ops.RollUpEnqueued(),
        ops.RunSchedule(name="nightly", job=making.job(tenant=tenant), by="eve"),
        ops.SaveAlerts(alerts=()),
        ops.SealAudit(links=()),
        ops.SeeCredentials(ids=()),
        ops.SetLimit(limit=Limit(kind="tenant", name=tenant, running=1), by="eve"),
        ops.SetTenant(name=tenant, weight=2.0, by="eve"),
        ops.SilenceAlerts(rule="depth", for_s=60, by="eve"),
        ops.TakeSignal(worker=making.worker_id(), seq=Seq(1), attempt=1, claim_no=1, n=1, name="paid"),
        ops.TakeDuty(name="sweep", every_s=60),
        ops.TakeTokens(counts={tenant: 1}),
        ops.Turn(worker=making.worker_id(), claim_no=1),
        ops.Unhold(),
        ops.Why(scope=scope, id=job),
    ]
    made = {type(value): value for value in values}
    assert set(made) == set(EVERY), "say here how every operation is isolated"
    return made
