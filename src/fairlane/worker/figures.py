"""What a worker says of itself with its heartbeat: its memory, how busy its lanes are, what its duties tell."""

from __future__ import annotations

from fairlane.core.clock import Clock
from fairlane.worker.engine import Engine
from fairlane.worker.foreman.processes import own_memory_mb

FIGURES_S = 5.0
"""Utilisation is measured over this long."""


class Figures:
    """Measured on the engine's own loop, for its lanes count on while they are read; `latest` may be read from any thread."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine, self._clock = engine, clock
        self.latest: dict[str, float] = {}
        self._measured_s: float | None = None

    def measure_if_old(self) -> None:
        if self._measured_s is None or self._clock.monotonic() - self._measured_s >= FIGURES_S:
            self.measure()

    def measure(self) -> None:
        desk, now_s = self._engine.desk, self._clock.monotonic()
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
        self.latest, self._measured_s = figures | self._engine.duties.figures(), now_s
