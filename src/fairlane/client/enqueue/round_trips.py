"""Enqueues made at the same time in one process share a round trip and a commit.

    nothing in flight   a call goes to the store at once, by itself
    one in flight       calls that come meanwhile wait for its answer, then go together as one `Enqueue`

Each caller is answered after the commit of its own job. Where the store refuses the shared call each goes again by
itself, so that a bad job fails its own caller alone: jobs have ids, and none is created twice. Calls on a caller's own
connection, with keys, or of several jobs are not shared. Threads share with threads, coroutines with those of their
event loop.
"""

from __future__ import annotations

import contextvars
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from fairlane.core.ops import Enqueue, EnqueueResult, Op
from fairlane.errors import StoreUnavailable

if TYPE_CHECKING:
    import asyncio

    from fairlane.client.steps import Runner, Sleeper

T = TypeVar("T")

MOST_JOBS, MOST_BYTES = 500, 1_000_000
"""What one shared call may carry."""
PATIENCE_S = 0.05
MOST_IN_FLIGHT = 4
"""Calls that have waited this long for the one in flight go beside it: it may hang on a broken connection."""

Terms = tuple[object, ...]
"""What is the same for all jobs of one call."""
Outcome = EnqueueResult | StoreUnavailable | None
"""A caller's part of a shared call; None: it has to go again by itself."""


class SharedRoundTrips:
    """Runs operations, enqueues of one job together with others of the same terms."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._renew()

    def _renew(self) -> None:
        self._pid = os.getpid()
        self._threads: dict[Terms, ThreadLine] = {}
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Terms, LoopLine]] = WeakKeyDictionary()

    @property
    def sleeper(self) -> Sleeper:
        return self._runner.sleeper

    def run(self, op: Op[T], *, on: object | None = None) -> T:
        terms = _terms(op) if on is None else None
        if terms is None:
            return self._runner.run(op, on=on)
        if self._pid != os.getpid():
            self._renew()  # after a fork: whoever was in flight is the parent's
        line = self._threads.get(terms) or self._threads.setdefault(terms, ThreadLine(self._runner.run))
        return cast("T", line.run(cast("Enqueue", op)))

    async def arun(self, op: Op[T], *, on: object | None = None) -> T:
        terms = _terms(op) if on is None else None
        if terms is None:
            return await self._runner.arun(op, on=on)
        import asyncio  # Imported here: it doubles the import time of fairlane.

        if self._pid != os.getpid():
            self._renew()
        loop = asyncio.get_running_loop()
        lines = self._loops.get(loop)
        if lines is None:
            lines = self._loops[loop] = {}
        line = lines.get(terms)
        if line is None:
            line = lines[terms] = LoopLine(self._runner.arun)
        return cast("T", await line.arun(cast("Enqueue", op)))


def _terms(op: Op[Any]) -> Terms | None:
    """What a call may be shared by; None: it goes alone."""
    if type(op) is not Enqueue or len(op.jobs) != 1:
        return None
    job = op.jobs[0]
    if job.idempotency_key is not None or job.dedup_key is not None:
        return None
    return op.capacity, op.notify, op.limits, op.warns


class _Call:
    """One caller's enqueue, waiting to be shared."""

    __slots__ = ("leads", "op", "outcome", "woken")

    def __init__(self, op: Enqueue) -> None:
        self.op = op
        self.woken = threading.Lock()
        self.woken.acquire()
        self.leads = False
        """It is to send those that wait, itself first."""
        self.outcome: Outcome = None


class ThreadLine:
    """Enqueues of threads: of those that waited for a call the first sends all."""

    def __init__(self, run: Callable[[Enqueue], EnqueueResult]) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._in_flight = 0
        self._waiting: deque[_Call] = deque()

    def run(self, op: Enqueue) -> EnqueueResult:
        with self._lock:
            call = None if self._in_flight == 0 else _Call(op)
            if call is None:
                self._in_flight += 1
            else:
                self._waiting.append(call)
        if call is None:
            try:
                return self._run(op)
            finally:
                self._pass_on()
        self._wait(call)
        if call.leads:
            self._lead(call)
        if isinstance(call.outcome, StoreUnavailable):
            raise call.outcome
        return self._run(op) if call.outcome is None else call.outcome

    def _wait(self, call: _Call) -> None:
        try:
            while not call.woken.acquire(timeout=PATIENCE_S):
                with self._lock:
                    if call in self._waiting and self._in_flight < MOST_IN_FLIGHT:
                        self._waiting.remove(call)
                        self._in_flight += 1
                        call.leads = True
                        return
        except BaseException:  # an interrupted thread leaves the line
            with self._lock:
                if call in self._waiting:
                    self._waiting.remove(call)
            if call.leads:
                self._pass_on()
            raise

    def _lead(self, first: _Call) -> None:
        with self._lock:
            calls = [first, *_taken(self._waiting, lambda call: call.op, len(bytes(first.op.jobs[0].payload)))]
        ops = [call.op for call in calls]
        outcomes: Sequence[Outcome] = [None] * len(calls)
        try:
            outcomes = _parts(ops, self._run(_together(ops)))
        except StoreUnavailable as error:
            outcomes = [error] * len(calls)
        except Exception:  # noqa: BLE001 - each goes again by itself, and gets the error of its own job
            outcomes = [None] * len(calls)
        finally:
            for call, outcome in zip(calls, outcomes, strict=True):
                call.outcome = outcome
                if call is not first:
                    call.woken.release()
            self._pass_on()

    def _pass_on(self) -> None:
        with self._lock:
            if self._waiting and self._in_flight == 1:
                following = self._waiting.popleft()
                following.leads = True
                following.woken.release()
            else:
                self._in_flight -= 1


class LoopLine:
    """Enqueues of one event loop: those that waited for a call are sent by a task of their own.

    A caller that is cancelled ends none but its own: it takes nobody else's call along.
    """

    def __init__(self, arun: Callable[[Enqueue], Coroutine[Any, Any, EnqueueResult]]) -> None:
        self._arun = arun
        self._in_flight = 0
        self._waiting: deque[tuple[Enqueue, asyncio.Future[EnqueueResult | None]]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._relief: asyncio.TimerHandle | None = None

    async def arun(self, op: Enqueue) -> EnqueueResult:
        if self._in_flight == 0:
            self._in_flight += 1
            try:
                return await self._arun(op)
            finally:
                self._in_flight -= 1
                if self._waiting and self._in_flight == 0:
                    self._send()
        import asyncio  # and not a name from it, which takes ten times as long

        loop = asyncio.get_running_loop()
        answer: asyncio.Future[EnqueueResult | None] = loop.create_future()
        self._waiting.append((op, answer))
        if self._relief is None:
            self._relief = loop.call_later(PATIENCE_S, self._relieve)
        result = await answer
        return await self._arun(op) if result is None else result

    def _relieve(self) -> None:
        self._relief = None
        if self._waiting and self._in_flight < MOST_IN_FLIGHT:
            self._send()

    def _send(self) -> None:
        from asyncio import get_running_loop

        self._in_flight += 1
        # In an empty context: what it sends belongs to several callers.
        task = get_running_loop().create_task(self._send_waiting(), context=contextvars.Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_waiting(self) -> None:
        from asyncio import sleep

        try:
            while self._waiting:
                if self._relief is not None:
                    self._relief.cancel()
                    self._relief = None
                calls = [call for call in _taken(self._waiting, lambda call: call[0]) if not call[1].done()]
                if calls:
                    await self._send_together(calls)
                    await sleep(0)  # those just answered may come with their next job, and go along
        finally:
            self._in_flight -= 1

    async def _send_together(self, calls: Sequence[tuple[Enqueue, asyncio.Future[EnqueueResult | None]]]) -> None:
        ops = [op for op, _ in calls]
        outcomes: Sequence[Outcome] = [None] * len(calls)
        try:
            outcomes = _parts(ops, await self._arun(_together(ops)))
        except StoreUnavailable as error:
            outcomes = [error] * len(calls)
        except Exception:  # noqa: BLE001 - each goes again by itself, and gets the error of its own job
            outcomes = [None] * len(calls)
        finally:
            for (_, future), outcome in zip(calls, outcomes, strict=True):
                if future.done():
                    continue
                if isinstance(outcome, StoreUnavailable):
                    future.set_exception(outcome)
                else:
                    future.set_result(outcome)


C = TypeVar("C")


def _taken(waiting: deque[C], op_of: Callable[[C], Enqueue], size: int = 0) -> list[C]:
    """Take from those that wait, in their order, as many as one call may carry."""
    taken: list[C] = []
    while waiting and len(taken) < MOST_JOBS:
        size += len(bytes(op_of(waiting[0]).jobs[0].payload))
        if taken and size > MOST_BYTES:
            break
        taken.append(waiting.popleft())
    return taken


def _together(ops: Sequence[Enqueue]) -> Enqueue:
    return ops[0] if len(ops) == 1 else replace(ops[0], jobs=tuple([op.jobs[0] for op in ops]))


def _parts(ops: Sequence[Enqueue], whole: EnqueueResult) -> Sequence[Outcome]:
    """Each caller's part of the answer to a shared call; None: nothing was written, and it has to go by itself."""
    if len(ops) == 1:
        return [whole]
    if not whole.receipts:
        return [None] * len(ops)
    parts: list[Outcome] = []
    for op, receipt in zip(ops, whole.receipts, strict=True):
        line = op.jobs[0].tenant, op.jobs[0].queue
        hits = tuple([hit for hit in whole.hits if (hit.tenant, hit.queue) == line]) if whole.hits else ()
        depth = None if whole.depth is None else whole.depth + len(parts)
        parts.append(EnqueueResult(receipts=(receipt,), depth=depth, spooled=whole.spooled, hits=hits))
    return parts
