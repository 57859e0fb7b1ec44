"""Workers: who is at work."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import BaseModel, Field

from fairlane.api.auth.rights import Right
from fairlane.api.fields import Seen
from fairlane.api.request import Here
from fairlane.api.router import Routes

routes = Routes("workers", "/api/jobs/workers/")


class WorkerSeen(Seen):
    id: UUID
    name: str
    registered_at: datetime
    renewed_at: datetime
    expires_at: datetime
    queues: list[str] = Field(description="Empty: every queue.")
    types: list[str]
    waiting: bool
    leases: int
    figures: dict[str, float] = Field(description="What it last said of itself: memory, lane utilisation, …")


class WorkerList(BaseModel):
    now: datetime
    workers: list[WorkerSeen]


@routes.get("", Right.READ, house_wide=True)
async def list_workers(here: Here) -> WorkerList:
    """List every registered worker."""
    found = await here.app.workers.alist()
    return WorkerList(now=found.now, workers=[WorkerSeen.model_validate(worker) for worker in found.workers])
