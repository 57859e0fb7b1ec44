"""What a worker says of itself, twice a second."""

from __future__ import annotations

from fairlane.core.clock import Clock
from fairlane.worker.engine import Engine
from fairlane.worker.figures import Figures
from fairlane.worker.foreman.messages import Tick

TICK_S = 0.5


class Ticker:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine, self._clock, self._figures = engine, clock, Figures(engine, clock)

    def tick(self) -> Tick:
        engine, now_s = self._engine, self._clock.monotonic()
        self._figures.measure_if_old()
        return Tick(
            wake_address=engine.wake_address,
            running=sum(state.running for state in engine.desk.lanes),
            held=sum(len(state.held) for state in engine.desk.lanes),
            abandoned=engine.threads.abandoned if engine.threads is not None else 0,
            answered_ago_s=now_s - engine.turner.answered_s,
            figures=self._figures.latest,
        )
