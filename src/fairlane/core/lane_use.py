"""How busy lanes are, from what workers say of themselves."""

from __future__ import annotations

from fairlane.core.ops.workers import Workers


def lane_use(workers: Workers) -> dict[str, tuple[float, float]]:
    """By lane: slots in use and slots there are, over all workers that live."""
    lanes: dict[str, tuple[float, float]] = {}
    for worker in workers.workers:
        if worker.expires_at <= workers.now:
            continue
        for name, slots in worker.figures.items():
            if name.startswith("lane.") and name.endswith(".slots") and slots > 0:
                lane = name.removeprefix("lane.").removesuffix(".slots")
                used, there_are = lanes.get(lane, (0.0, 0.0))
                share = worker.figures.get(f"lane.{lane}.utilisation", 0.0)
                lanes[lane] = used + share * slots, there_are + slots
    return lanes
