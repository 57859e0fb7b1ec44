"""What a worker reports of itself with its heartbeat, and the thread that sends an embedded worker's heartbeat."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable

from fairlane.client.app import Fairlane
from fairlane.client.logs import GuardedLogger
from fairlane.core.clock import Clock
from fairlane.core.ops import Renew, Retire, Turn
from fairlane.errors import FairlaneError, NotAdmitted, StoreUnavailable
from fairlane.stores.base import Migrator
from fairlane.worker.config import known_queues
from fairlane.worker.engine import Engine
from fairlane.worker.foreman.health import trusted_s
from fairlane.worker.host_workers import HostWorkers
from fairlane.worker.process_memory import own_memory_mb

log = GuardedLogger("fairlane.worker")

FIGURES_S = 5.0
"""Utilisation is measured over this long."""
RETRY_S = 0.5
BLOCKED_S = 1.0
"""A loop that has not reported what runs on it for this long is blocked."""


class WorkerFigures:
    """Memory, utilisation of lanes, and figures of duties.

    Measured on the engine's loop; `latest` may be read from any thread.
    """

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine, self._clock = engine, clock
        self.latest: dict[str, float] = {}
        self._schema = _schema_needed(engine.state.app.runtime.store.migrator())
        self._measured_s: float | None = None

    def measure_if_old(self) -> None:
        if self._measured_s is None or self._clock.monotonic() - self._measured_s >= FIGURES_S:
            self.measure()

    def measure(self) -> None:
        state, now_s = self._engine.state, self._clock.monotonic()
        running_s: dict[str, float] = {}
        for slot in state.slots:
            if slot.lease is not None:
                name = slot.lease.lane
                running_s[name] = running_s.get(name, 0.0) + (now_s - slot.began_s) / slot.width
        figures = {"memory_mb": round(own_memory_mb(), 1), "started": float(state.started), "ended": float(state.ended)}
        for lane in state.lanes:
            name = lane.config.name
            figures[f"lane.{name}.slots"] = float(lane.config.slots)
            figures[f"lane.{name}.utilisation"] = round(lane.utilisation(now_s, running_s.get(name, 0.0)), 3)
        if (spool := state.app.runtime.access.spool_state()) is not None and spool.jobs is not None:
            figures["spool.jobs"] = float(spool.jobs)
        self.latest, self._measured_s = figures | self._schema | self._engine.duties.figures(), now_s


def _schema_needed(migrator: Migrator | None) -> dict[str, float]:
    """What `fairlane migrate contract` asks live workers for."""
    if migrator is None:
        return {}
    needed = migrator.needed
    return {"schema.version": float(needed.expanded), "schema.functions": float(needed.functions)}


class HeartbeatThread:
    """Renews from a thread of its own, so that a busy event loop cannot delay it."""

    def __init__(self, app: Fairlane, engine: Engine, figures: WorkerFigures, lost: Callable[[], None]) -> None:
        self._app, self._engine, self._figures, self._lost = app, engine, figures, lost
        self._config, self._worker = engine.state.config, engine.state.worker
        settings = app.runtime.settings
        self._host = (
            None
            if settings.url.startswith("memory:")
            else HostWorkers(app.runtime.clock, settings.url, settings.schema, settings.key_prefix)
        )
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="fairlane-heartbeat", daemon=True)
        self._renewed_s: float | None = None
        """When the heartbeat was last renewed; None: not yet, or the leases it held are given up."""
        self._was_registered = False

    def start(self, *, waits: bool) -> None:
        """Register; if the store is away later, where `waits`, else raise its error."""
        if self._host is not None:
            self._host.add(self._worker, os.getpid())
        try:
            self._renew()
        except StoreUnavailable as error:
            if not waits or isinstance(error, NotAdmitted):
                raise
            log.warning("the store is away: this worker begins when it answers: %s", error)
        self._thread.start()

    def end(self) -> None:
        """Stop renewing and retire the worker: what is still leased goes back."""
        self._ended.set()
        self._thread.join()
        try:
            self._app.runtime.store.run(Retire(worker=self._worker))
            if self._host is not None:
                self._host.remove(self._worker)
        except FairlaneError as error:
            log.warning("this worker could not be retired, its jobs wait for the heartbeat to lapse: %s", error)

    def _beat(self) -> None:
        every_s, monotonic = self._config.lease_s / 3, self._app.runtime.clock.monotonic
        if self._host is not None:
            self._host.lapse_gone(self._app.runtime.store)
        pause_s = min(RETRY_S, every_s)  # soon again: the wake address is known by then
        while not self._ended.wait(pause_s):
            try:
                self._renew()
                pause_s = every_s
            except BaseException as error:  # noqa: BLE001 - a service loop: the next try may reach the store
                pause_s = min(RETRY_S, every_s)
                if self._renewed_s is not None and monotonic() - self._renewed_s > trusted_s(self._config.lease_s):
                    self._renewed_s = None
                    log.warning(
                        "the heartbeat could not be renewed, running jobs are stopped before it lapses: %s", error
                    )
                    self._lost()

    def _renew(self) -> None:
        state, sent_s = self._engine.state, self._app.runtime.clock.monotonic()
        queues = tuple(queue for lane in self._config.lanes for queue in lane.queues)
        answer = self._app.runtime.store.run(
            Renew(
                worker=self._worker,
                lease_s=self._config.lease_s,
                name=f"{socket.gethostname()}:{os.getpid()}",
                queues=known_queues(self._app, queues),
                types=tuple(sorted(state.tasks)),
                wake_address=self._engine.wakeups.address,
                figures=self._figures.latest,
            )
        )
        if answer.fresh and self._was_registered:
            log.warning("the store had removed this worker: its running jobs have lost their leases")
            self._lost()
        self._renewed_s, self._was_registered = sent_s, True
        # What blocks the loop cannot be reported by it, and would be taken for never begun.
        if starts := state.starts(late_s=BLOCKED_S):
            self._app.runtime.store.run(
                Turn(worker=self._worker, claim_no=0, starts=starts, promote_limit=0, reclaim_limit=0)
            )
