"""A process that does nothing but fire schedules: `python -m tests.worker.scheduler_process <kind> <address>`.

Reads an instant a line and fires what is due then; says "op" before each operation and "done" after each instant, so that it can be
killed between any two of them.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from fairlane import Fairlane, FakeClock
from fairlane.core.ops import Op
from fairlane.stores.base import Store
from fairlane.worker.duties.schedules import DueSchedules
from tests.support.stores import open_at


class Timed:
    """A store whose time is that of a clock, whatever its own says."""

    def __init__(self, store: Store, clock: FakeClock, *, tells: bool = False) -> None:
        self._store, self._clock, self._tells = store, clock, tells
        self.name, self.capabilities = store.name, store.capabilities
        self.migrator, self.listener = store.migrator, store.listener
        self.close, self.aclose = store.close, store.aclose

    def run(self, op: Op[Any], *, on: object | None = None) -> Any:
        return self._store.run(self._timed(op), on=on)

    async def arun(self, op: Op[Any], *, on: object | None = None) -> Any:
        if self._tells:
            print("op", flush=True)
        return await self._store.arun(self._timed(op), on=on)

    def _timed(self, op: Op[Any]) -> Op[Any]:
        return replace(op, now=self._clock.now())


async def main(kind: str, address: str) -> None:
    clock = FakeClock()
    app = Fairlane(store=Timed(open_at(kind, address), clock, tells=True), clock=clock)
    due = DueSchedules(app)
    print("ready", flush=True)
    for line in sys.stdin:
        clock.advance((datetime.fromisoformat(line.strip()) - clock.now()).total_seconds())
        while (await due.run_once(clock.now())).next_s == 0:
            pass
        print("done", flush=True)
    await app.runtime.store.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
