"""The forgetter: events and credentials that are long over are removed."""

from __future__ import annotations

from datetime import datetime, timedelta

from fairlane.client.store_access import StoreAccess
from fairlane.core.ops import ForgetOld
from fairlane.worker.duties.report import Report

EVERY_S = 600.0
STEP = 1000
EVENTS_KEPT = timedelta(days=7)
CREDENTIALS_KEPT = timedelta(days=30)
"""After they ended: so long people can see what there was."""


class Forgetter:
    name = "forget"

    def __init__(self, store: StoreAccess) -> None:
        self._store = store

    async def run_once(self, now: datetime) -> Report:
        """`now` is the store's."""
        gone = await self._store.arun(
            ForgetOld(events_before=now - EVENTS_KEPT, credentials_before=now - CREDENTIALS_KEPT, limit=STEP)
        )
        return Report(
            done=gone.events + gone.credentials, next_s=0 if max(gone.events, gone.credentials) >= STEP else EVERY_S
        )
