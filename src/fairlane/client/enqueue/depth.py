"""Watches how many jobs wait, and warns once each time they grow past the warning depth."""

from __future__ import annotations

import logging

from fairlane.client.store_access import StoreAccess
from fairlane.core.clock import Clock
from fairlane.core.ops import ALL_TENANTS, EnqueueResult, GetStats, Stats

logger = logging.getLogger("fairlane.client")

LOOK_EVERY_S = 1.0


class DepthWatch:
    """Where a capacity is set the store counts at every enqueue; else this asks, at most once a second."""

    def __init__(self, warn_depth: int | None, access: StoreAccess, clock: Clock) -> None:
        self._warn_depth, self._access, self._clock = warn_depth, access, clock
        self._next_look_s = float("-inf")
        self._is_deep = False
        self.is_on = warn_depth is not None

    def look(self, result: EnqueueResult) -> None:
        if result.depth is not None:
            self._compare(_depth_after(result, result.depth))
        elif self._is_due():
            self._compare(waiting(self._access.run(self._question())))

    async def alook(self, result: EnqueueResult) -> None:
        if result.depth is not None:
            self._compare(_depth_after(result, result.depth))
        elif self._is_due():
            self._compare(waiting(await self._access.arun(self._question())))

    def _is_due(self) -> bool:
        now_s = self._clock.monotonic()
        if now_s < self._next_look_s:
            return False
        self._next_look_s = now_s + LOOK_EVERY_S
        return True

    def _question(self) -> GetStats:
        assert self._warn_depth is not None
        return GetStats(scope=ALL_TENANTS, cap=self._warn_depth + 1)

    def _compare(self, depth: int) -> None:
        assert self._warn_depth is not None
        was_deep, self._is_deep = self._is_deep, depth >= self._warn_depth
        if self._is_deep and not was_deep:
            logger.warning("%d jobs or more are waiting, the warning depth is %d", depth, self._warn_depth)


def _depth_after(result: EnqueueResult, depth_before: int) -> int:
    return depth_before + sum(receipt.disposition == "created" for receipt in result.receipts)


def waiting(stats: Stats) -> int:
    """Jobs ready or scheduled, over all queues."""
    return sum(queue.ready + queue.scheduled for queue in stats.queues)
