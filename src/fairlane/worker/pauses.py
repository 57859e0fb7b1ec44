"""Heeding pauses: what a worker claimed ahead of a pause and has not begun goes back."""

from __future__ import annotations

import asyncio
import logging

from fairlane.core.job import Lease
from fairlane.core.ops import ListPauses
from fairlane.errors import StoreError
from fairlane.worker.state import Desk

log = logging.getLogger("fairlane.worker")

HEED_S = 1.5


class PauseHeeder:
    """Looks only while jobs are held: a Turn hears of pauses by itself."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def run(self) -> None:
        while True:
            await asyncio.sleep(HEED_S)
            try:
                await self.run_once()
            except StoreError as error:
                log.warning("pauses are not known for now: %s", error)

    async def run_once(self) -> int:
        """How many jobs went back."""
        desk = self._desk
        if not any(state.held for state in desk.lanes):
            return 0
        paused = {(pause.kind, pause.name) for pause in (await desk.app.runtime.store.arun(ListPauses())).pauses}

        def is_paused(lease: Lease) -> bool:
            return not paused.isdisjoint(
                (("queue", lease.queue), ("type", lease.type), ("tenant", lease.tenant)),
            )

        count = 0
        for state in desk.lanes:
            unwanted = sum(map(is_paused, state.held))
            if unwanted:
                desk.give_back(state, is_paused)
            count += unwanted
        return count
