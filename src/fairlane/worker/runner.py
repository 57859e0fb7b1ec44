"""Runs attempts in slots: `async def` on the loop, `def` in threads, isolated tasks in child processes.

A slot pulls a held job, runs it as the current job and hands its outcome to the worker's state, again and again:
no task, future or model per job.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any

from fairlane.client.context import CurrentJob, job_in_force, tenant_in_force
from fairlane.client.hooks import HOOKS_S
from fairlane.client.logs import GuardedLogger, is_ctrl_c, structlog_binder
from fairlane.client.steps import arun_steps
from fairlane.client.workflows import needs_results, with_results
from fairlane.core.job import Lease
from fairlane.core.outcome import Cancelled, Crashed, Outcome, Released, Snoozed
from fairlane.core.payload.storable import format_traceback, type_name
from fairlane.errors import AttemptInterrupted
from fairlane.worker.attempts import (
    FAILED,
    AttemptStore,
    BreakerGuard,
    JobLog,
    PreparedTask,
    log_failure,
    log_hook,
    record_failure,
)
from fairlane.worker.isolated.children import ChildDied, ChildNotStarted, Children
from fairlane.worker.lanes import LaneState, Slot
from fairlane.worker.progress import ProgressWriter
from fairlane.worker.services import is_current
from fairlane.worker.state import WorkerState

log = GuardedLogger("fairlane.worker")

PUT_OFF_S = 5.0
"""How long an isolated job waits, uncharged, when no process could be started for it."""
YIELD_S = 0.005
"""Jobs that never wait still let the loop run other tasks this often."""

Call = tuple["asyncio.Future[Any]", contextvars.Context, Callable[..., Any], Mapping[str, Any]]


class Threads:
    """Threads for tasks that are plain functions, started when a call finds none free.

    A thread stuck in a call is left behind and replaced.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str = "fairlane") -> None:
        self._loop, self._name = loop, name
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._free = 0
        self._lock = threading.Lock()
        self.abandoned = 0
        """Calls whose caller was cancelled and that still hold their thread: a reason to recycle the process."""

    async def run(self, function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        """Call it in a thread, in the caller's context. After a cancellation it runs on and its result is dropped."""
        future: asyncio.Future[Any] = self._loop.create_future()
        with self._lock:
            if self._free:
                self._free -= 1
            else:
                self._start()
        self._calls.put((future, contextvars.copy_context(), function, arguments))
        try:
            return await future
        except asyncio.CancelledError:
            if not future.done() or future.cancelled():
                self.abandoned += 1
            raise

    def close(self) -> None:
        for _ in self._threads:
            self._calls.put(None)

    def _start(self) -> None:
        # Daemons: a call that never returns must not keep the process from exiting.
        thread = threading.Thread(target=self._serve, name=f"{self._name}-{len(self._threads) + 1}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        while True:
            call = self._calls.get()
            if call is None:
                return
            future, context, function, arguments = call
            try:
                result, error = context.run(function, **arguments), None
            except BaseException as raised:  # noqa: BLE001 - a runner: handed to whoever awaits the call
                result, error = None, raised
            with self._lock:
                self._free += 1
            try:
                self._loop.call_soon_threadsafe(self._settle, future, result, error)
            except RuntimeError:
                return  # the loop is closed: the process is exiting

    def _settle(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        if future.cancelled():
            self.abandoned -= 1
        elif error is None:
            future.set_result(result)
        else:
            try:
                # Thrown into a coroutine, a GeneratorExit closes it.
                future.set_exception(
                    RuntimeError("the task raised GeneratorExit") if type(error) is GeneratorExit else error
                )
            except BaseException:  # noqa: BLE001 - StopIteration, or a class that resists: no caller waits for ever
                future.set_exception(RuntimeError(f"the task raised {type_name(error)}"))


class SlotRunner:
    """Runs the attempts of one lane's slots."""

    def __init__(
        self,
        state: WorkerState,
        lane: LaneState,
        threads: Threads,
        children: Children | None,
        breakers: BreakerGuard,
        progress: ProgressWriter,
    ) -> None:
        self._state, self._lane, self._threads, self._children = state, lane, threads, children
        self._breakers, self._progress, self._clock = breakers, progress, state.app.runtime.clock
        self._step_store = AttemptStore(state.app, state.worker)
        settings = state.app.runtime.settings
        self._job_log = JobLog.of(settings.log_jobs)
        self._bind = structlog_binder(is_wanted=settings.log_context)

    async def run(self, slot: Slot) -> None:
        """Until the engine stops and nothing is held."""
        state, lane, held, job_log = self._state, self._lane, self._lane.held, self._job_log
        if slot.unsettled is not None:
            self._settle_unknown(slot, slot.unsettled)
        yielded_s = state.monotonic()
        while True:
            if not held:
                if state.stopping:
                    return
                await lane.wait()
                yielded_s = state.monotonic()
                continue
            began_s = state.monotonic()
            lease = lane.next(began_s)
            if began_s > lane.trusted_until_s and not state.may_begin(lane, lease, began_s):
                continue
            lane.begin(lease, began_s)
            state.started += 1
            slot.unsettled = lease
            if job_log is not None:
                job_log.started(lease)
            try:
                outcome = await self._outcome(slot, lease, began_s)
            finally:
                now_s = state.monotonic()
                lane.end(lease, began_s, now_s - began_s)
            if isinstance(outcome, Snoozed) and outcome.failure is not None:
                state.put_offs.add(lease, outcome.failure)
            state.put(outcome, lease, now_s - began_s)
            if isinstance(outcome, FAILED):
                error, slot.error = slot.error, None
                record_failure(state.app, lease, outcome)
                log_failure(lease, outcome, error)
            elif job_log is not None:
                job_log.ended(lease, outcome, now_s - began_s)
            slot.unsettled = None
            if now_s - yielded_s > YIELD_S:
                await asyncio.sleep(0)
                yielded_s = state.monotonic()

    def _settle_unknown(self, slot: Slot, lease: Lease) -> None:
        """Settle the job under which this slot ended, so that it does not stay leased for as long as this worker lives.

        For instance, its code awaited a future that held a GeneratorExit, which closes all coroutines up to the slot.
        """
        slot.unsettled, began_s = None, slot.began_s
        ran_s = self._state.monotonic() - began_s
        unknown = RuntimeError("its slot ended under it")
        self._state.put(self._state.tasks[lease.type].raised(lease, unknown, ran_s), lease, ran_s)

    async def _outcome(self, slot: Slot, lease: Lease, began_s: float) -> Outcome | None:
        """Run one attempt. Whatever goes wrong in it or around it becomes an outcome: its slot runs the next job."""
        own, task = slot.task, self._state.tasks[lease.type]
        assert own is not None
        try:
            if task.breaker is None:
                outcome = await self._attempt(slot, lease, began_s)
                if own.cancelling():
                    await _absorb_cancel(own)
            else:
                outcome = await self._breakers.run(task.breaker, lease, partial(self._attempt, slot, lease, began_s))
            if self._progress.pending:
                await self._progress.finish(lease)
        except BaseException as error:
            if self._state.closing or not is_current(own) or is_ctrl_c(error):
                raise
            log.error(  # noqa: TRY400 - Python's own traceback would show secrets that ours leaves out
                "the outcome of job %s (%s) could not be determined\n%s", lease.id, lease.type, format_traceback(error)
            )
            unknown = RuntimeError(f"its outcome could not be determined: {type_name(error)}")
            return task.raised(lease, unknown, self._state.monotonic() - began_s)
        return outcome

    async def _attempt(self, slot: Slot, lease: Lease, began_s: float) -> Outcome | None:
        task = self._state.tasks[lease.type]
        slot.begin(lease, began_s, task.timeout_s(lease), self._lane.timeout_s)
        slot.job = current = CurrentJob(
            task.shown(lease),
            self._progress,
            self._clock,
            began_s + slot.timeout_s,
            self._step_store,
            self._state.app.runtime,
        )
        job, tenant = job_in_force.set(current), tenant_in_force.set(lease.tenant)
        unbind = None if self._bind is None else self._bind(current)
        is_context_lost = False
        try:
            if lease.headers and needs_results(lease):
                lease = await arun_steps(self._state.app.runtime.access, with_results(lease))
            isolated = self._state.isolated
            is_alone = task.isolated or lease.suspect or (isolated and (lease.type, lease.tenant) in isolated)
            if is_alone and self._children is not None:
                slot.waits = True
                begin, decided = partial(self._restart, slot, lease), partial(self._restart, slot, lease, HOOKS_S)
                return await self._children.run(lease, self._progress, begin, decided, self._step_store)
            arguments = task.decode(lease)
            if task.is_async:
                result = await task.function(**arguments)
            elif task.outer is None:
                result = await self._threads.run(task.function, arguments)
            else:
                result = await task.outer.arun(current, partial(self._threads.run, task.function, arguments))
        except asyncio.CancelledError as error:
            if slot.stopping is not None:
                outcome = self._stopped(slot, task, lease, error)
            elif self._state.closing:
                raise
            else:
                outcome = self._raised(slot, task, lease, error)
            if task.on_failure:
                await self._call_hooks(slot, task, lease, outcome)
            return outcome
        except ChildNotStarted as reason:
            return _put_off(lease, str(reason))
        except ChildDied as died:
            log.warning("job %s (%s), attempt %d: %s", lease.id, lease.type, lease.attempt, died)
            self._state.on_child_crash(lease)
            return Crashed(seq=lease.seq, attempt=lease.attempt, ran_s=self._state.monotonic() - slot.began_s)
        except BaseException as error:  # a runner: whatever a task raises becomes an outcome
            if slot.task is not None and not is_current(slot.task):
                is_context_lost = True  # collected after its loop was closed, in another context
                raise
            if is_ctrl_c(error):
                raise
            if isinstance(error, AttemptInterrupted) and slot.stopping is not None:
                outcome = self._stopped(slot, task, lease, error)
            else:
                outcome = self._raised(slot, task, lease, error)
            if task.on_failure:
                await self._call_hooks(slot, task, lease, outcome)
            return outcome
        else:
            if task.after or task.on_failure:
                outcome = task.returned(lease, result, self._state.monotonic() - began_s)
                await self._call_hooks(slot, task, lease, outcome, result)
                return outcome
        finally:
            slot.end()
            if not is_context_lost:
                if unbind is not None:
                    unbind()
                tenant_in_force.reset(tenant)
                job_in_force.reset(job)
        return task.returned(lease, result, self._state.monotonic() - began_s)

    def _restart(self, slot: Slot, lease: Lease, timeout_s: float | None = None) -> None:
        """Restart the clock of an attempt that waited for its process, or whose hooks begin, and report it anew."""
        stopping = slot.stopping
        slot.begin(lease, self._state.monotonic(), timeout_s or slot.timeout_s, self._lane.timeout_s)
        slot.stopping, slot.reported = stopping, False

    async def _call_hooks(
        self, slot: Slot, task: PreparedTask, lease: Lease, outcome: Outcome | None, result: object = None
    ) -> None:
        """Call the hooks that learn of an outcome, in a span of their own; none of them can change it."""
        hooks, ended = task.ended(outcome, result, slot.error)
        if not hooks:
            return
        slot.end()  # consumes the cancellation by which the attempt was stopped
        slot.begin(lease, self._state.monotonic(), HOOKS_S, self._lane.timeout_s)
        slot.reported = False
        # A job of its own: the attempt's says that it should stop, and its thread may still look at it.
        until_s = slot.began_s + slot.timeout_s
        slot.job = job = CurrentJob(task.shown(lease), self._progress, self._clock, until_s)
        token = job_in_force.set(job)
        try:
            for hook in hooks:
                try:
                    if hook.is_async:
                        await hook.call(job, ended)
                    else:
                        await self._threads.run(partial(hook.call, job, ended), {})
                except BaseException as error:
                    if (slot.task is not None and not is_current(slot.task)) or is_ctrl_c(error):
                        raise
                    log_hook(lease, hook, error)
                    if slot.stopping is not None or self._state.closing:
                        return
        finally:
            with suppress(ValueError):  # collected in another context
                job_in_force.reset(token)

    def _raised(self, slot: Slot, task: PreparedTask, lease: Lease, error: BaseException) -> Outcome:
        outcome = task.raised(lease, error, self._state.monotonic() - slot.began_s)
        if isinstance(outcome, FAILED):
            slot.error = error
        return outcome

    def _stopped(self, slot: Slot, task: PreparedTask, lease: Lease, interrupted: BaseException) -> Outcome | None:
        ran_s = self._state.monotonic() - slot.began_s
        if slot.stopping == "lease_lost":
            return None
        if slot.stopping == "shutdown":
            return Released(seq=lease.seq, attempt=lease.attempt, ran_s=None if slot.waits else ran_s)
        if slot.stopping == "cancel":
            return Cancelled(seq=lease.seq, attempt=lease.attempt, ran_s=None if slot.waits else ran_s)
        if slot.waits:
            return _put_off(lease, f"no process was free for it within its timeout of {slot.timeout_s:g} s")
        timeout = TimeoutError(f"ran longer than its timeout of {slot.timeout_s:g} s")
        timeout.__cause__ = interrupted  # its traceback shows where the attempt was
        return self._raised(slot, task, lease, timeout)


def _put_off(lease: Lease, reason: str) -> Outcome:
    log.warning("job %s (%s) is put off for %g s: %s", lease.id, lease.type, PUT_OFF_S, reason)
    return Snoozed(seq=lease.seq, attempt=lease.attempt, delay_s=PUT_OFF_S, recorded=False)


async def _absorb_cancel(own: asyncio.Task[None]) -> None:
    """Consume a cancellation that a task requested of its own slot and that arrives after it ended.

    Otherwise it would hit the next attempt here.
    """
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
    while own.uncancel():
        continue
