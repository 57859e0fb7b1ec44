"""What an engine offers the tasks it runs: breakers around them, shared resources, and somebody who writes down what they say."""

from __future__ import annotations

import asyncio

from fairlane.worker.breakers import AttemptGuard
from fairlane.worker.pauses import PauseHeeder
from fairlane.worker.progress import Noter
from fairlane.worker.resources import WorkerScope
from fairlane.worker.state import Desk


class Services:
    def __init__(self, desk: Desk) -> None:
        self.breakers = AttemptGuard(desk)
        self.noter = Noter(desk)
        self._heeder = PauseHeeder(desk)
        self._scope: WorkerScope | None = None
        self._loops: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Before the slots: they take the worker's resources from the context they are made in."""
        self._scope = WorkerScope()
        self._loops = [
            asyncio.create_task(self.noter.run(), name="noter"),
            asyncio.create_task(self._heeder.run(), name="pause heeder"),
        ]

    async def close(self) -> None:
        """After the slots: nobody uses the worker's resources any more."""
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        if self._scope is not None:
            await self._scope.close()
