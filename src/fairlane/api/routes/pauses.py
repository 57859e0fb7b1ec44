"""Pauses of queues, tasks and tenants."""

from __future__ import annotations

from pydantic import Field

from fairlane.api.auth.rights import Right
from fairlane.api.fields import ActBody, TenantName, many, shape
from fairlane.api.request import Context, RequestContext
from fairlane.api.router import Routes
from fairlane.client.admin.pauses import PausingVerbs
from fairlane.core.ops import Pause, PauseKind

routes = Routes("pauses", "/api/jobs/pauses/")

PAUSES = shape("PauseList", pauses=many(Pause))


class PauseBody(ActBody):
    kind: PauseKind
    name: TenantName = Field(description="Of the queue, the task or the tenant.", examples=["bulk"])

    def verbs(self, ctx: RequestContext) -> PausingVerbs:
        return {"queue": ctx.app.queues, "type": ctx.app.tasks, "tenant": ctx.app.tenants}[self.kind]


@routes.get("", Right.READ, answer=PAUSES)
async def list_pauses(ctx: Context) -> object:
    """List what is paused, by whom and why; for a caller bound to a tenant: whether that tenant is."""
    return await _visible(ctx)


@routes.post("", Right.ACT, answer=PAUSES)
async def pause_claims(ctx: Context, body: PauseBody) -> object:
    """Stop claiming jobs of a queue, a task or a tenant. Who is bound to a tenant may pause that tenant."""
    await body.verbs(ctx).apause(body.name, by=ctx.by, notes=body.notes)
    return await _visible(ctx)


@routes.post("lift/", Right.ACT, answer=PAUSES)
async def resume_claims(ctx: Context, body: PauseBody) -> object:
    """Let a queue, a task or a tenant be claimed again."""
    await body.verbs(ctx).aresume(body.name, by=ctx.by, notes=body.notes)
    return await _visible(ctx)


async def _visible(ctx: RequestContext) -> object:
    # The client shows every tenant which queues are paused, with names of people: they are not for other tenants.
    found = await ctx.app.pauses.alist()
    return {"pauses": [pause for pause in found if ctx.caller.tenant is None or pause.kind == "tenant"]}
