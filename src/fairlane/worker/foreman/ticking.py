"""What a worker says of itself, twice a second."""

from __future__ import annotations

from fairlane.core.clock import Clock
from fairlane.worker.engine import Engine
from fairlane.worker.foreman.messages import Tick
from fairlane.worker.foreman.processes import own_memory_mb

TICK_S = 0.5
FIGURES_S = 5.0
"""Utilisation is measured over this long."""


class Ticker:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine, self._clock = engine, clock
        self._figures: dict[str, float] = {}
        self._figured_s: float | None = None

    def tick(self) -> Tick:
        engine, now_s = self._engine, self._clock.monotonic()
        if self._figured_s is None or now_s - self._figured_s >= FIGURES_S:
            self._figures, self._figured_s = self._measured(now_s), now_s
        return Tick(
            wake_address=engine.wake_address,
            running=sum(state.running for state in engine.desk.lanes),
            held=sum(len(state.held) for state in engine.desk.lanes),
            abandoned=engine.threads.abandoned if engine.threads is not None else 0,
            answered_ago_s=now_s - engine.turner.answered_s,
            figures=self._figures,
        )

    def _measured(self, now_s: float) -> dict[str, float]:
        desk = self._engine.desk
        running_s: dict[str, float] = {}
        for slot in desk.slots:
            if slot.lease is not None:
                lane = slot.lease.lane
                running_s[lane] = running_s.get(lane, 0.0) + now_s - slot.began_s
        figures = {"memory_mb": round(own_memory_mb(), 1), "started": float(desk.started), "ended": float(desk.ended)}
        for state in desk.lanes:
            name = state.lane.name
            figures[f"lane.{name}.slots"] = float(state.lane.slots)
            figures[f"lane.{name}.utilisation"] = round(state.utilisation(now_s, running_s.get(name, 0.0)), 3)
        return figures | self._engine.duties.figures()
