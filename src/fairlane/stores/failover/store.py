"""The store over a primary and a spool: who gets an operation, and when the primary counts as away.

    reachable   every operation goes to the primary; what the spool still holds is replayed meanwhile
    refusing    it answers, but takes no jobs: its memory or disk is full, or a right is missing. Enqueues are
                acknowledged by the spool; everything else goes to the primary, which may so make room
    away        enqueues are acknowledged by the spool, all others raise StoreUnavailable at once

In the last two a thread of its own asks for the primary again and again, and replays the spool when it takes jobs.

An enqueue that the primary does not answer in time is spooled, whether the primary has done it or not: jobs have the
ids of their first try, and the replay creates none twice. An enqueue in the caller's own transaction never is.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar, cast

from msgspec import Struct

from fairlane.core.clock import Clock, SystemClock
from fairlane.core.ids import WorkerId
from fairlane.core.job import JobSpec
from fairlane.core.ops import (
    AddNodes,
    Check,
    Emit,
    Enqueue,
    EnqueueResult,
    EnqueueWorkflow,
    HasTenants,
    ListLimits,
    Op,
    TakeTokens,
)
from fairlane.errors import FairlaneError, StoreClosed, StoreUnavailable
from fairlane.stores.base import Capability, Listener, Migrator, Store
from fairlane.stores.failover.replay import Replay, Replayed
from fairlane.stores.failover.spool import MEMORY, Spool, SpoolDepth, SpoolUnavailable
from fairlane.stores.sqlite.connection import fork_locks

T = TypeVar("T")

PROBES_S = (0.1, 0.25, 0.5, 1.0, 2.0)
"""Between questions to a primary that takes no jobs; from the first again once it has taken them for SETTLED_S."""
SETTLED_S = 10.0
END_S = 5.0
"""How long a close waits for a primary that does not answer."""
NAMED = 20
"""Jobs that are named when they are lost."""
LOOK_S = 5.0
"""How often the spool is looked at while the primary answers: a process that was killed may have left jobs in it."""
CALLS = 64
"""Calls of one process that wait for the primary at once, each in a thread."""
PROMPT: tuple[type[Op[Any]], ...] = (Enqueue, ListLimits, TakeTokens, HasTenants, EnqueueWorkflow, AddNodes, Emit)
"""What brings work, and what a client may ask before it: they wait for an answer no longer than the timeout."""
NODE_S = 0.001
"""Time for each node beyond the timeout: a workflow that is late raises, unlike an enqueue, and may have 100,000."""


class WentAway(Struct, frozen=True):
    why: str


class RefusesJobs(Struct, frozen=True):
    """It answers, but not to enqueues."""

    why: str


class CameBack(Struct, frozen=True):
    away_s: float


class ReplayFailed(Struct, frozen=True):
    why: str


class SpoolLost(Struct, frozen=True):
    """Jobs were in memory when the store was closed, or the process ended."""

    jobs: int
    first: tuple[JobSpec, ...]


News = WentAway | RefusesJobs | CameBack | Replayed | ReplayFailed | SpoolLost


class FailoverState(Struct, frozen=True, kw_only=True):
    reachable: bool
    why: str | None
    """Why the primary is away, or takes no jobs."""
    spool: SpoolDepth | None
    """None: the spool cannot be read; its directory is gone, or its disk is."""


class Failover:
    """One store over two. `on_news` is called from several threads, and never with a lock held."""

    def __init__(
        self,
        primary: Store,
        spool: Spool,
        *,
        timeout_s: float = 2.0,
        clock: Clock | None = None,
        on_news: Callable[[News], object] = lambda news: None,
    ) -> None:
        self.primary, self.spool = primary, spool
        self.name, self.capabilities = primary.name, primary.capabilities | {Capability.SPOOLS}
        self._timeout_s, self._clock, self._on_news = timeout_s, clock or SystemClock(), on_news
        self._closed = False
        self._lock = threading.RLock()
        self.locks = (self._lock,)
        self._why: StoreUnavailable | None = None
        self._changed_s = float("-inf")
        self._misses = 0
        self._is_news = False
        """The keeper has not been told yet that the primary is unavailable."""
        self._failure: str | None = None
        self._late: set[asyncio.Future[Any]] = set()
        self._threads: _Threads | None = None
        self._replay = Replay(primary, spool, self._clock, self._note_back, on_news)
        fork_locks.add(self)

    def run(self, op: Op[T], *, on: object | None = None) -> T:
        threads = self._started()
        if on is not None:
            return self.primary.run(op, on=on)
        is_sent = False
        try:
            self._require_admitted(op)
            is_sent = True
            if isinstance(op, PROMPT):
                return self._answered(threads.calls.submit(self.primary.run, op), self._patience_s(op))
            return self.primary.run(op)
        except StoreUnavailable as error:
            if not self._is_to_be_spooled(op, error):
                raise
        return cast("T", self._spooled(cast("Enqueue", op), is_sent))

    async def arun(self, op: Op[T], *, on: object | None = None) -> T:
        threads = self._started()
        if on is not None:
            return await self.primary.arun(op, on=on)
        is_sent = False
        try:
            self._require_admitted(op)
            is_sent = True
            if isinstance(op, PROMPT):
                return await self._awaited(op)
            return await self.primary.arun(op)
        except StoreUnavailable as error:
            if not self._is_to_be_spooled(op, error):
                raise
        loop = asyncio.get_running_loop()
        return cast("T", await loop.run_in_executor(threads.spool, self._spooled, cast("Enqueue", op), is_sent))

    def listener(self, worker: WorkerId) -> Listener:
        return self.primary.listener(worker)

    def migrator(self) -> Migrator | None:
        return self.primary.migrator()

    @property
    def is_away(self) -> bool:
        return _is_away(self._why)

    def state(self) -> FailoverState:
        """Never raises: who looks at the health of a store is not hurt by a spool that is gone."""
        why, spool = self._why, None
        with suppress(SpoolUnavailable):
            spool = self.spool.depth()
        return FailoverState(reachable=not _is_away(why), why=None if why is None else why.why, spool=spool)

    def close(self) -> None:
        """End the replay after its batch; what is left in a spool on disk is replayed by whoever opens it next."""
        self._end()
        self.primary.close()
        self.spool.close()

    async def aclose(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._end)
        await self.primary.aclose()
        self.spool.close()

    def _end(self) -> None:
        """What waits in memory is replayed if the primary takes it now, else lost."""
        is_kept = self.spool.place != MEMORY
        with self._lock:
            self._closed = True
            self._replay.is_ended = is_kept
            threads, self._threads = self._threads, None
        atexit.unregister(self._end)
        if threads is not None and threads.pid == os.getpid():
            threads.end(last_step=not is_kept)
            self._replay.is_ended = True
            if not is_kept and (jobs := self.spool.depth().jobs):
                first = tuple(job.spec for job in self.spool.page(0, NAMED))
                self._on_news(SpoolLost(jobs, first))

    def _started(self) -> _Threads:
        threads = self._threads
        if threads is not None and threads.pid == os.getpid():
            return threads
        with self._lock:
            if self._closed:
                raise StoreClosed(self.name)
            if self._threads is None or self._threads.pid != os.getpid():
                self._threads = _Threads(self._step)
                if self.spool.place == MEMORY:
                    atexit.register(self._end)
            return self._threads

    def _patience_s(self, op: Op[Any]) -> float:
        nodes = len(op.jobs) if isinstance(op, (EnqueueWorkflow, AddNodes)) else 0
        return self._timeout_s + nodes * NODE_S

    def _answered(self, call: Future[T], patience_s: float) -> T:
        try:
            return call.result(patience_s)
        except TimeoutError:
            raise self._too_slow(patience_s) from None

    async def _awaited(self, op: Op[T]) -> T:
        call, patience_s = asyncio.ensure_future(self.primary.arun(op)), self._patience_s(op)
        try:
            await asyncio.wait({call}, timeout=patience_s)
        except asyncio.CancelledError:
            call.cancel()
            raise
        if not call.done():
            # Not cancelled: that would wait for the server that does not answer.
            self._late.add(call)
            call.add_done_callback(self._forget_late)
            raise self._too_slow(patience_s)
        return call.result()

    def _forget_late(self, call: asyncio.Future[Any]) -> None:
        self._late.discard(call)
        if not call.cancelled():
            call.exception()

    def _spooled(self, op: Enqueue, is_sent: bool) -> EnqueueResult:
        try:
            return self.spool.add(op, sent=is_sent)
        except StoreUnavailable as error:
            why = "it is away" if self._why is None else self._why.why
            also = f"{why}; nor can the spool {self.spool.place} be used: {error.why}"
            raise StoreUnavailable(self.name, also) from error
        finally:
            self._kick()

    def _too_slow(self, patience_s: float) -> StoreUnavailable:
        return StoreUnavailable(self.name, f"no answer within {patience_s:g} s")

    def _require_admitted(self, op: Op[Any]) -> None:
        """Raise if the primary is away, or takes no jobs and this brings some."""
        why = self._why
        if why is not None and (_is_away(why) or isinstance(op, Enqueue)):
            raise StoreUnavailable(why.store, why.why, why.problem)

    def _is_to_be_spooled(self, op: Op[Any], error: StoreUnavailable) -> bool:
        """Also notes what the error says of the primary: one that cannot do another operation may take enqueues."""
        is_enqueue = isinstance(op, Enqueue)
        if is_enqueue or _is_away(error):
            self._note_unavailable(error)
        if not is_enqueue:
            self._kick()
        return is_enqueue

    def _kick(self) -> None:
        """Have the keeper ask for a primary that has become unavailable.

        After the job is in the spool: one that refuses jobs answers, and with nothing to replay would be back.
        """
        with self._lock:
            is_news, self._is_news, threads = self._is_news, False, self._threads
        if is_news and threads is not None:
            threads.kick()

    def _note_unavailable(self, error: StoreUnavailable) -> None:
        with self._lock:
            before, self._why = self._why, error
            now_s = self._clock.monotonic()
            if before is None:
                if now_s - self._changed_s > SETTLED_S:
                    self._misses = 0
                self._changed_s = now_s
                self._is_news = True
        if before is None or _is_away(before) != _is_away(error):
            self._on_news(WentAway(error.why) if _is_away(error) else RefusesJobs(error.why))

    def _note_back(self) -> None:
        """It takes jobs."""
        with self._lock:
            was_away, self._why = self._why is not None, None
            away_s = self._clock.monotonic() - self._changed_s
            if was_away:
                self._changed_s += away_s
        if was_away:
            self._on_news(CameBack(away_s))

    def _step(self) -> float:
        """Ask for a primary that takes no jobs, replay the spool; returns the seconds until the next step."""
        was_unavailable = self._why is not None
        try:
            if was_unavailable:
                self.primary.run(Check())
            failure = self._replay_failure()
            if was_unavailable:
                self._note_back()
        except StoreClosed:
            return LOOK_S
        except StoreUnavailable as error:
            self._note_unavailable(error)
            pause_s = PROBES_S[min(self._misses, len(PROBES_S) - 1)]
            self._misses += 1
            return pause_s
        except Exception as error:  # noqa: BLE001 - the thread goes on: without it the primary would stay away for ever
            failure = _described(error)
        if failure not in (None, self._failure):
            self._on_news(ReplayFailed(failure))
        self._failure = failure
        return LOOK_S

    def _replay_failure(self) -> str | None:
        """Replay what the spool holds; returns why that failed, and raises if the primary takes no jobs."""
        try:
            if self.spool.depth().jobs > 0:
                self._replay.run_pass()
        except Exception as error:
            if isinstance(error, (StoreClosed, StoreUnavailable)) and not isinstance(error, SpoolUnavailable):
                raise
            return _described(error)
        return None


def _is_away(why: StoreUnavailable | None) -> bool:
    """Whether nothing can be asked of the primary: one that is busy or refuses a call answers others."""
    return why is not None and why.problem == "cannot be reached"


def _described(error: Exception) -> str:
    return str(error) if isinstance(error, FairlaneError) else repr(error)


class _Threads:
    """The threads of one process: a fork copies none."""

    def __init__(self, step: Callable[[], float]) -> None:
        self.pid = os.getpid()
        self.calls = ThreadPoolExecutor(CALLS, "fairlane-failover-call")
        self.spool = ThreadPoolExecutor(1, "fairlane-failover-spool")
        self._step, self._ended, self._kicked = step, False, threading.Event()
        self._takes_last_step = False
        self._keeper = threading.Thread(target=self._keep, name="fairlane-failover", daemon=True)
        self._keeper.start()

    def kick(self) -> None:
        self._kicked.set()

    def end(self, *, last_step: bool) -> None:
        self._takes_last_step, self._ended = last_step, True
        self._kicked.set()
        self._keeper.join(END_S)
        self.calls.shutdown(wait=False, cancel_futures=True)
        self.spool.shutdown()

    def _keep(self) -> None:
        while not self._ended:
            self._kicked.wait(self._step())
            self._kicked.clear()
        if self._takes_last_step:
            self._step()
