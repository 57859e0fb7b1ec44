"""Routes for alerts: list them and what else is wrong, and silence a rule for a while."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fairlane.api.fields import ActBody, Name
from fairlane.api.request import Context
from fairlane.api.router import Routes
from fairlane.client.admin.alerts import LONGEST_SILENCE_S, AlertAdmin
from fairlane.client.admin.concerns import Concerns
from fairlane.core.ops import Alerts

routes = Routes("alerts", "/api/jobs/alerts/")


class SilenceBody(ActBody):
    for_s: Annotated[float, Field(ge=0, le=LONGEST_SILENCE_S, allow_inf_nan=False)] = Field(
        description="Seconds; 0 ends a silence.", examples=[3600]
    )


@routes.get("", AlertAdmin.alist, all_tenants=True)
async def list_alerts(ctx: Context) -> Alerts:
    """List alerts and silences."""
    return await ctx.app.alerts.alist()


@routes.get("concerns/", AlertAdmin.aconcerns, all_tenants=True)
async def list_concerns(ctx: Context) -> Concerns:
    """List what is wrong now, the most urgent first: since when, how much it concerns, and the command that helps."""
    return await ctx.app.alerts.aconcerns()


@routes.post("{rule}/silence/", AlertAdmin.asilence, all_tenants=True)
async def silence_alerts(ctx: Context, rule: Name, body: SilenceBody) -> Alerts:
    """Send no messages about a rule's alerts for a while.

    An alert that still fires when the silence ends is sent then. The end of an alert sent before is sent at once.
    """
    return await ctx.app.alerts.asilence(rule, body.for_s, by=ctx.by, notes=body.notes)
