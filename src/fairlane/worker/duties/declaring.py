"""The declarer: the schedules an application's code names are made known to the store, once for each start."""

from __future__ import annotations

import logging
from datetime import datetime

from fairlane.client.app import Fairlane
from fairlane.core.ops import Check, DeclareSchedules, Planned
from fairlane.worker.duties.report import Report

log = logging.getLogger("fairlane.worker")


class Declarer:
    name = "declarer"

    def __init__(self, app: Fairlane) -> None:
        self._app = app

    async def run_once(self, now: datetime) -> Report:
        app, specs = self._app, tuple(self._app.runtime.schedules.values())
        if not specs and not app.runtime.settings.prune_schedules:
            return Report(next_s=None)
        from fairlane.core.schedules.cron import Cron

        at = (await app.runtime.access.arun(Check())).now
        planned = tuple(Planned(spec=spec, next_at=Cron(spec.cron, spec.timezone).next_after(at)) for spec in specs)
        declared = await app.runtime.access.arun(
            DeclareSchedules(schedules=planned, prune=app.runtime.settings.prune_schedules)
        )
        for what in ("added", "changed", "removed"):
            if names := getattr(declared, what):
                log.info("schedules %s: %s", what, ", ".join(names))
        return Report(done=len(declared.added + declared.changed + declared.removed), next_s=None)
