"""The retainer: finished jobs, closed dead letters and figures past their age are removed, a small step at a time."""

from __future__ import annotations

from datetime import datetime, timedelta

from fairlane.client.settings.model import Settings
from fairlane.client.store_access import StoreAccess
from fairlane.core.ops import Check, Retain
from fairlane.worker.duties.report import Report

EVERY_S = 600.0
STEP = 1000


class Retainer:
    """Dead letters count from their closing; one that is pending review is never removed."""

    name = "retainer"

    def __init__(self, store: StoreAccess, settings: Settings) -> None:
        self._store, self._settings = store, settings

    async def run_once(self, now: datetime) -> Report:
        # By the store's clock: a machine whose own runs ahead must not delete what is still young.
        now = (await self._store.arun(Check())).now
        removed = (
            await self._store.arun(
                Retain(
                    finished_before=now - timedelta(days=self._settings.retain_completed_days),
                    closed_before=now - timedelta(days=self._settings.retain_dead_letter_days),
                    stats_before=now - timedelta(days=self._settings.retain_stats_days),
                    limit=STEP,
                )
            )
        ).jobs
        return Report(done=removed, next_s=0 if removed >= STEP else EVERY_S)
