"""A process that does nothing but fire schedules: `python -m tests.worker.scheduler_process <kind> <address>`.

Reads an instant a line and fires what is due then; says "op" before each operation and "done" after each instant, so that it can be
killed between any two of them.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime
from typing import Any

from fairlane import Fairlane, FakeClock
from fairlane.core.ops import Op
from fairlane.worker.duties.schedules import DueSchedules
from tests.support.stores import Timed, open_at


class Telling(Timed):
    """Says each operation."""

    async def arun(self, op: Op[Any], *, on: object | None = None) -> Any:
        print("op", flush=True)
        return await super().arun(op, on=on)


async def main(kind: str, address: str) -> None:
    clock = FakeClock()
    app = Fairlane(store=Telling(open_at(kind, address), clock), clock=clock)
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
