"""Sends a worker's heartbeat from the foreman's process, where the worker cannot delay it, and returns its leases."""

from __future__ import annotations

import asyncio
import socket

from fairlane.client.logs import GuardedLogger
from fairlane.core.clock import Clock
from fairlane.core.ids import WorkerId
from fairlane.core.ops import AddEvents, EventDraft, Lapse, Reclaim, Renew, Retire, Start, Turn
from fairlane.core.ops.events import loss_events
from fairlane.errors import FairlaneError
from fairlane.stores.base import Store
from fairlane.worker.board import RunningAttempt
from fairlane.worker.foreman.crashes import Crashes
from fairlane.worker.foreman.health import Ending, hard_deadline_s
from fairlane.worker.foreman.messages import JobKind
from fairlane.worker.foreman.process import WorkerProcess
from fairlane.worker.host_workers import HostWorkers

log = GuardedLogger("fairlane.foreman")

RETRY_S = 0.5
KILLED_S = 10.0
"""Within this a worker that has to be killed is dead and its leases are returned."""
LOOKS_S = (0.0, 1.0, 2.0, 4.0)
"""Pauses before each look for workers of this host that are gone."""
CRASHES: frozenset[Ending] = frozenset({"crashed", "silent", "broken"})
"""Endings reported as `worker_crashed`: unexpected ones. A stuck attempt has an event of its own."""


class HeartbeatSender:
    """Renews one worker every third of its lease, and at once when its heartbeat has changed."""

    def __init__(self, store: Store, clock: Clock, process: WorkerProcess, crashes: Crashes) -> None:
        self._store, self._clock, self._process, self._crashes = store, clock, process, crashes
        self._every_s = process.setup.config.lease_s / 3
        self._has_failed = False
        self._is_ended = False

    def end(self) -> None:
        """Send no further heartbeat: a late one would register a worker that was just retired."""
        self._is_ended = True
        self._process.news.set()

    async def run(self) -> None:
        """Until `end`."""
        news = self._process.news
        while not self._is_ended:
            news.clear()
            pause_s = self._every_s if await self.run_once() else min(RETRY_S, self._every_s)
            try:
                async with asyncio.timeout(pause_s):
                    await news.wait()
            except TimeoutError:
                continue

    async def run_once(self) -> bool:
        """Send one heartbeat; whether it reached the store."""
        process, sent_s = self._process, self._clock.monotonic()
        try:
            async with asyncio.timeout(self._every_s):
                answer = await self._store.arun(self._heartbeat())
        except Exception as error:  # noqa: BLE001 - a service loop: the next try may reach the store
            if not self._has_failed:
                log.warning(
                    "worker %d: its heartbeat did not reach the store, trying again: %s",
                    process.pid,
                    error or "no answer",
                )
            self._has_failed = True
            return False
        if self._has_failed:
            log.warning("worker %d: its heartbeat reaches the store again", process.pid)
        self._has_failed = False
        process.renewed(sent_s, answer)
        return await self._report_silent()

    async def _report_silent(self) -> bool:
        """Report what runs while the worker's loop is blocked: it would else be taken for never begun.

        Of these, too, only the foreman knows which are stuck: none is overdue in the store before it is in `health`.
        """
        running, now_s = self._process.board.running(), self._clock.monotonic()
        if not running or not self._process.is_silent:
            return True
        until_s = max(*map(hard_deadline_s, running), now_s) + KILLED_S
        starts = tuple(start_until(attempt, now_s, until_s) for attempt in running)
        try:
            await self._store.arun(report_of(self._process.worker, starts))
        except FairlaneError:
            return False
        return True

    def _heartbeat(self) -> Renew:
        process = self._process
        assert process.hello is not None
        return Renew(
            worker=process.worker,
            lease_s=process.setup.config.lease_s,
            name=f"{socket.gethostname()}:{process.pid}",
            queues=process.hello.queues,
            types=process.hello.types,
            wake_address=process.tick.wake_address,
            figures=process.tick.figures | self._crashes.figures(),
        )


async def return_leases(
    store: Store,
    clock: Clock,
    worker: WorkerId,
    ending: Ending,
    running: tuple[RunningAttempt, ...],
    stuck: tuple[RunningAttempt, ...],
    within_s: float,
) -> tuple[JobKind, ...] | None:
    """Return an ended worker's leases, so that its jobs run again at once; retried for `within_s` until the store
    answers. Returns the kinds of jobs that ran in a process that crashed; None: the store did not answer.

    The process must have ended: its jobs may run elsewhere from here on.
    """
    until_s, kinds = clock.monotonic() + within_s, set[JobKind]()
    while True:
        try:
            if ending in ("crashed", "blocked"):
                starts = tuple(_start(attempt) for attempt in running)
                lost = (await store.arun(Lapse(worker=worker, starts=starts))).reclaimed
                began = {attempt.seq for attempt in running}
                kinds |= {JobKind(lease.type, lease.tenant) for lease in lost if lease.type and lease.seq in began}
            else:
                if ending == "stuck":
                    await bury_stuck(store, worker, running, stuck, clock.monotonic())
                await store.arun(Retire(worker=worker))
            if ending in CRASHES:
                data = {"worker": str(worker), "why": ending, "jobs": len(running)}
                await store.arun(AddEvents(events=(EventDraft(kind="worker_crashed", data=data),)))
            return tuple(kinds)
        except FairlaneError as error:
            if clock.monotonic() >= until_s:
                log.warning(
                    "worker %s could not be retired, its jobs wait for its heartbeat to lapse: %s", worker, error
                )
                return None
        await asyncio.sleep(RETRY_S)


async def lapse_gone(store: Store, host: HostWorkers) -> None:
    """Take back the leases of workers of this host that died together with their foremen.

    More than one look: what a killed foreman leaves may take a moment to die.
    """
    for pause_s in LOOKS_S:
        await asyncio.sleep(pause_s)
        if host.gone():
            await asyncio.to_thread(host.lapse_gone, store)


async def bury_stuck(
    store: Store,
    worker: WorkerId,
    running: tuple[RunningAttempt, ...],
    stuck: tuple[RunningAttempt, ...],
    now_s: float,
) -> None:
    """Dead-letter stuck attempts: set their deadline to now, then reclaim passed deadlines.

    Before the worker is retired: with it they would be released and run again, like all others that ran there.
    """
    judged = {a.key for a in stuck}
    starts = tuple(
        start_until(a, now_s, now_s if a.key in judged else now_s + KILLED_S) for a in running if a.began_s <= now_s
    )
    answer = await store.arun(report_of(worker, starts))
    left = {(seq, attempt) for seq, attempt, _ in judged - {refusal.key for refusal in answer.refused}}
    while left:
        reclaimed = (await store.arun(Reclaim())).reclaimed
        if not reclaimed:
            return  # another worker reclaimed them first
        if events := loss_events(reclaimed):
            await store.arun(AddEvents(events=events))
        left -= {(r.seq, r.attempt) for r in reclaimed}


def report_of(worker: WorkerId, starts: tuple[Start, ...]) -> Turn:
    return Turn(worker=worker, claim_no=0, starts=starts, promote_limit=0, reclaim_limit=0)


def start_until(attempt: RunningAttempt, now_s: float, until_s: float) -> Start:
    """Report an attempt as begun, with a lease until then."""
    ran_s = max(now_s - attempt.began_s, 0.0)
    return Start(
        seq=attempt.seq,
        attempt=attempt.attempt,
        claim_no=attempt.claim_no,
        timeout_s=(until_s - now_s + ran_s) / 2,
        ran_s=ran_s,
    )


def _start(attempt: RunningAttempt) -> Start:
    return Start(seq=attempt.seq, attempt=attempt.attempt, claim_no=attempt.claim_no, timeout_s=attempt.timeout_s)
