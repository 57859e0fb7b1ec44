"""Routes for pauses of queues, tasks and tenants."""

from __future__ import annotations

from pydantic import Field

from fairlane.api.fields import ActBody, PausingBody, TenantName, many, shape
from fairlane.api.request import Context, RequestContext
from fairlane.api.router import Routes
from fairlane.client.admin.pauses import PauseAdmin, PausingVerbs
from fairlane.core.ops import Pause, PauseKind

routes = Routes("pauses", "/api/jobs/pauses/")

PAUSES = shape("PauseList", pauses=many(Pause))


class PausableBody(ActBody):
    kind: PauseKind
    name: TenantName = Field(description="Name of the queue, the task or the tenant.", examples=["bulk"])

    def verbs(self, ctx: RequestContext) -> PausingVerbs:
        return {"queue": ctx.app.queues, "type": ctx.app.tasks, "tenant": ctx.app.tenants}[self.kind]


class PauseBody(PausableBody, PausingBody):
    """A pause to make."""


@routes.get("", PauseAdmin.alist, answer=PAUSES)
async def list_pauses(ctx: Context) -> object:
    """List pauses, by whom and why; a caller bound to a tenant sees only that tenant's pause."""
    return await _visible(ctx)


@routes.post("", PausingVerbs.apause, answer=PAUSES)
async def pause_claims(ctx: Context, body: PauseBody) -> object:
    """Stop claiming jobs of a queue, a task or a tenant. A caller bound to a tenant may pause that tenant."""
    await body.verbs(ctx).apause(body.name, refuse=body.refuse, by=ctx.by, notes=body.notes)
    return await _visible(ctx)


@routes.post("lift/", PausingVerbs.aresume, answer=PAUSES)
async def resume_claims(ctx: Context, body: PausableBody) -> object:
    """Resume claims of a queue, a task or a tenant."""
    await body.verbs(ctx).aresume(body.name, by=ctx.by, notes=body.notes)
    return await _visible(ctx)


async def _visible(ctx: RequestContext) -> object:
    # The client returns every pause with names of people, which other tenants must not see.
    found = await ctx.app.pauses.alist()
    return {"pauses": [pause for pause in found if ctx.caller.tenant is None or pause.kind == "tenant"]}
