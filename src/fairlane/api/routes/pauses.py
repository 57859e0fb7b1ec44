"""Pauses of queues, tasks and tenants."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from fairlane.api.auth.rights import Right
from fairlane.api.fields import Act, Seen, TenantName
from fairlane.api.problems import Problem
from fairlane.api.request import Here, Visit
from fairlane.api.router import Routes
from fairlane.core.names import check_queue_name, check_task_name, check_tenant
from fairlane.core.ops import ListPauses, Pause, PauseClaims, PauseKind, ResumeClaims

routes = Routes("pauses", "/api/jobs/pauses/")

_CHECKS = {"queue": check_queue_name, "type": check_task_name, "tenant": check_tenant}


class PauseSeen(Seen):
    kind: PauseKind
    name: str = Field(examples=["bulk"])
    by: str
    at: datetime
    notes: str | None


class PauseList(BaseModel):
    pauses: list[PauseSeen]


class Pausing(Act):
    kind: PauseKind
    name: TenantName = Field(description="Of the queue, the task or the tenant.", examples=["bulk"])


@routes.get("", Right.READ)
async def list_pauses(here: Here) -> PauseList:
    """List what is paused, by whom and why."""
    return _visible(here, (await here.ask(ListPauses())).pauses)


@routes.post("", Right.ACT)
async def pause_claims(here: Here, body: Pausing) -> PauseList:
    """Stop claiming jobs of a queue, a task or a tenant. Who is bound to a tenant may pause that tenant."""
    name = _checked(here, body)
    answer = await here.ask(PauseClaims(kind=body.kind, name=name, by=here.by, notes=body.notes))
    return _visible(here, answer.pauses)


@routes.post("lift/", Right.ACT)
async def resume_claims(here: Here, body: Pausing) -> PauseList:
    """Let a queue, a task or a tenant be claimed again."""
    name = _checked(here, body)
    answer = await here.ask(ResumeClaims(kind=body.kind, name=name, by=here.by, notes=body.notes))
    return _visible(here, answer.pauses)


def _checked(here: Visit, body: Pausing) -> str:
    if here.tenant is not None and (body.kind, body.name) != ("tenant", here.tenant):
        raise Problem(404, "not_found", "nothing of that name is yours; nothing was changed")
    return _CHECKS[body.kind](body.name)


def _visible(here: Visit, pauses: tuple[Pause, ...]) -> PauseList:
    mine = here.tenant
    shown = [pause for pause in pauses if mine is None or (pause.kind, pause.name) == ("tenant", mine)]
    return PauseList(pauses=[PauseSeen.model_validate(pause) for pause in shown])
