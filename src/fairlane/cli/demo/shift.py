"""A worker's shift in one thread: claims by Turn, holds each lease as long as the work takes, settles what ended.

The real worker keeps several processes, timeouts and renewals of its own; the operations are the same.
"""

from __future__ import annotations

from typing import NamedTuple

from fairlane.cli.demo.tasks import RENDER_S, TAKES_S
from fairlane.client.app import Fairlane
from fairlane.core.decide import decide
from fairlane.core.ids import WorkerId
from fairlane.core.job import DEFAULT_QUEUE, Lease
from fairlane.core.ops import Renew, Retire, Turn, Want
from fairlane.core.outcome import Outcome
from fairlane.errors import AttemptCancelled
from fairlane.testing import run_attempt

LANE = "demo"
SLOTS = 3
LEASE_S = 15.0
RENEW_EVERY_S = 5.0


class Running(NamedTuple):
    lease: Lease
    ends_s: float


class Shift:
    def __init__(self, app: Fairlane) -> None:
        self._app = app
        self._worker = WorkerId(app.new_job_id())
        self._running: list[Running] = []
        self._stopped: set[int] = set()
        self._claim_no = 0
        self._cursor = ""
        self._renew_s = float("-inf")

    def step(self) -> None:
        """One turn: settle what ended, claim for the slots that are free."""
        now_s = self._app.clock.monotonic()
        if now_s >= self._renew_s:
            self._app.store.run(Renew(worker=self._worker, lease_s=LEASE_S, name=LANE, queues=(DEFAULT_QUEUE,)))
            self._renew_s = now_s + RENEW_EVERY_S
        outcomes = tuple(self._ended(now_s))
        free = SLOTS - len(self._running)
        want = Want(
            lane=LANE,
            queues=(DEFAULT_QUEUE,),
            limit=free,
            start=free,
            types=tuple(self._app.tasks),
            # The tenant served last: the next claim begins behind it, so that all take turns.
            cursor=self._cursor,
        )
        self._claim_no += 1
        turn = Turn(worker=self._worker, claim_no=self._claim_no, outcomes=outcomes, wants=(want,) if free else ())
        result = self._app.store.run(turn)
        self._cursor = result.cursors.get(LANE, self._cursor)
        self._stopped = set(result.cancels)
        self._running += [Running(lease, now_s + TAKES_S.get(lease.type, RENDER_S)) for lease in result.leases]

    def end(self) -> None:
        """Give back what still runs, uncharged."""
        self._app.store.run(Retire(worker=self._worker))
        self._running.clear()

    def _ended(self, now_s: float) -> list[Outcome]:
        stopped = [running for running in self._running if running.lease.seq in self._stopped]
        ended = [running for running in self._running if running.ends_s <= now_s and running not in stopped]
        self._running = [running for running in self._running if running not in stopped and running not in ended]
        return [
            *(self._cancelled(running.lease) for running in stopped),
            *(run_attempt(self._app, r.lease) for r in ended),
        ]

    def _cancelled(self, lease: Lease) -> Outcome:
        task = self._app.require_task(lease.type)
        return decide(
            lease,
            AttemptCancelled("asked to stop"),
            self._app.policy_for(task, lease.queue),
            task.definition.classifier,
            now=self._app.clock.now(),
            fraction=self._app.chance.fraction(),
            ran_s=None,
        )
