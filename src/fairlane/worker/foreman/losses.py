"""Telling the store what became of a worker, so that its jobs run again at once."""

from __future__ import annotations

import asyncio
import logging
from typing import Literal

from fairlane.core.clock import Clock
from fairlane.core.ids import WorkerId
from fairlane.core.ops import AddEvents, EventDraft, Lapse, Reclaim, Retire, Start, Turn
from fairlane.errors import FairlaneError
from fairlane.stores.base import Store
from fairlane.worker.board import Running
from fairlane.worker.events import losses
from fairlane.worker.foreman.health import Verdict, stuck

log = logging.getLogger("fairlane.foreman")

Ending = Verdict | Literal["left", "overstayed", "refused", "crashed"]
"""Why a worker is no more."""

RETRY_S = 0.5
CRASHES: frozenset[Ending] = frozenset({"crashed", "silent"})
"""Endings that people are told of: nobody asked for them. A stuck attempt is told of by itself."""


async def account_for(
    store: Store, clock: Clock, worker: WorkerId, ending: Ending, running: tuple[Running, ...], within_s: float
) -> None:
    """Give a dead worker's leases back; tried until the store answers or its heartbeat has ended by itself.

    The process must have ended: what it held may run elsewhere from here on.
    """
    until_s = clock.monotonic() + within_s
    while True:
        try:
            if ending == "crashed":
                await store.arun(Lapse(worker=worker, starts=tuple(_start(attempt) for attempt in running)))
            else:
                if ending == "stuck":
                    await bury(store, worker, stuck(running, clock.monotonic()))
                await store.arun(Retire(worker=worker))
            if ending in CRASHES:
                data = {"worker": str(worker), "why": ending, "jobs": len(running)}
                await store.arun(AddEvents(events=(EventDraft(kind="worker_crashed", data=data),)))
            return
        except FairlaneError as error:
            if clock.monotonic() >= until_s:
                log.warning(
                    "worker %s could not be signed off, its jobs wait for its heartbeat to lapse: %s", worker, error
                )
                return
        await asyncio.sleep(RETRY_S)


async def bury(store: Store, worker: WorkerId, attempts: tuple[Running, ...]) -> None:
    """End stuck attempts as the store ends them: their deadline is drawn to now, then passed deadlines are reclaimed.

    First these, then the worker: retired together with it they would be given back and run again.
    """
    if not attempts:
        return
    starts = tuple(Start(seq=a.seq, attempt=a.attempt, timeout_s=0.0) for a in attempts)
    answer = await store.arun(Turn(worker=worker, claim_no=0, starts=starts, promote_limit=0, reclaim_limit=0))
    left = {(a.seq, a.attempt) for a in attempts} - {(r.seq, r.attempt) for r in answer.refused}
    while left:
        reclaimed = (await store.arun(Reclaim())).reclaimed
        if not reclaimed:
            return  # somebody else's reclaiming was quicker
        if events := losses(reclaimed):
            await store.arun(AddEvents(events=events))
        left -= {(r.seq, r.attempt) for r in reclaimed}


def _start(attempt: Running) -> Start:
    return Start(seq=attempt.seq, attempt=attempt.attempt, timeout_s=attempt.timeout_s)
