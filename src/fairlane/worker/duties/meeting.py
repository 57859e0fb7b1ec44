"""The meeter: tenants that have jobs become known, so that people find them in listings."""

from __future__ import annotations

from datetime import datetime

from fairlane.client.store_access import StoreAccess
from fairlane.core.ops import AddTenants
from fairlane.worker.duties.report import Report

EVERY_S = 20.0
STEP = 500


class TenantMeeter:
    """Goes through the names in steps, from the first to the last and again."""

    name = "tenants"

    def __init__(self, store: StoreAccess) -> None:
        self._store, self._after = store, ""

    async def run_once(self, now: datetime) -> Report:
        met = await self._store.arun(AddTenants(after=self._after, limit=STEP))
        self._after = met.next or ""
        return Report(done=met.added, next_s=EVERY_S if met.next is None else 0)
