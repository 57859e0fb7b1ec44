"""The sealer: records of the audit get their links in the chain that shows any later change."""

from __future__ import annotations

from datetime import datetime

from fairlane.client.store_access import StoreAccess
from fairlane.core.audit_chain import seal
from fairlane.core.ops import ReadUnsealed, SealAudit
from fairlane.worker.duties.report import Report

EVERY_S = 20.0
STEP = 500


class Sealer:
    """Any number may seal at once: the store takes the links of one, the others have sealed nothing."""

    name = "seal"

    def __init__(self, store: StoreAccess) -> None:
        self._store = store

    async def run_once(self, now: datetime) -> Report:
        unsealed = await self._store.arun(ReadUnsealed(limit=STEP))
        if not unsealed.records:
            return Report(next_s=EVERY_S)
        links = seal(unsealed.last, unsealed.records)
        sealed = (await self._store.arun(SealAudit(links=links))).sealed
        return Report(done=len(links) if sealed else 0, next_s=0 if len(links) >= STEP else EVERY_S)
