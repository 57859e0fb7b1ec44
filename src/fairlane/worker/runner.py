"""Runs attempts in slots: `async def` on the loop, `def` in threads, isolated tasks in child processes.

A slot pulls a held job, runs it as the current job and hands its outcome to the worker's state, again and again:
no task, future or model per job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from fairlane.client.context import CurrentJob, job_in_force, tenant_in_force
from fairlane.client.hooks import HOOKS_S, Hook
from fairlane.client.logs import GuardedLogger, is_ctrl_c, structlog_binder
from fairlane.client.signature import entries_of
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
from fairlane.worker.batch_calls import BatchCall, BatchGatherer, BatchMember
from fairlane.worker.board import BoardLine
from fairlane.worker.isolated.children import ChildDied, ChildNotStarted, Children
from fairlane.worker.lanes import LaneState, Slot
from fairlane.worker.progress import ProgressWriter
from fairlane.worker.services import is_current
from fairlane.worker.state import WorkerState
from fairlane.worker.threads import Threads

log = GuardedLogger("fairlane.worker")

PUT_OFF_S = 5.0
"""How long an isolated job waits, uncharged, when no process could be started for it."""
YIELD_S = 0.005
"""Jobs that never wait still let the loop run other tasks this often."""


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
        lines: list[BoardLine],
    ) -> None:
        self._state, self._lane, self._threads, self._children = state, lane, threads, children
        self._breakers, self._progress, self._clock = breakers, progress, state.app.runtime.clock
        self._step_store = AttemptStore(state.app, state.worker)
        self._batches = {name: task for name, task in state.tasks.items() if task.batch is not None}
        self._gatherer = BatchGatherer(state, lane, lines)
        settings = state.app.runtime.settings
        self._job_log = JobLog.of(settings.log_jobs)
        self._bind = structlog_binder(is_wanted=settings.log_context)

    async def run(self, slot: Slot) -> None:
        """Until the engine stops and nothing is held."""
        state, lane, held, job_log = self._state, self._lane, self._lane.held, self._job_log
        batches, calls = self._batches, lane.calls
        if slot.unsettled is not None:
            self._settle_unknown(slot, slot.unsettled)
        yielded_s = state.monotonic()
        while True:
            if calls:
                await self._run_call(slot, calls.popleft())
                continue
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
            if batches and (batch_task := batches.get(lease.type)) is not None and self._joins(lease):
                self._gatherer.add(batch_task, lease, began_s)
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
            self._put(slot, lease, outcome, now_s - began_s)
            slot.unsettled = None
            if now_s - yielded_s > YIELD_S:
                await asyncio.sleep(0)
                yielded_s = state.monotonic()

    def _put(self, slot: Slot, lease: Lease, outcome: Outcome | None, ran_s: float) -> None:
        """Hand an outcome over, and log it."""
        state = self._state
        if isinstance(outcome, Snoozed) and outcome.failure is not None:
            state.put_offs.add(lease, outcome.failure)
        state.put(outcome, lease, ran_s)
        if isinstance(outcome, FAILED):
            error, slot.error = slot.error, None
            record_failure(state.app, lease, outcome)
            log_failure(lease, outcome, error)
        elif self._job_log is not None:
            self._job_log.ended(lease, outcome, ran_s)

    def _settle_unknown(self, slot: Slot, unsettled: Lease | BatchCall) -> None:
        """Settle what ran when this slot ended, so that it does not stay leased for as long as this worker lives.

        For instance, its code awaited a future that held a GeneratorExit, which closes all coroutines up to the slot.
        """
        slot.unsettled, unknown = None, RuntimeError("its slot ended under it")
        ran_s = self._state.monotonic() - slot.began_s
        for lease in unsettled.leases if isinstance(unsettled, BatchCall) else (unsettled,):
            self._state.put(self._state.tasks[lease.type].raised(lease, unknown, ran_s), lease, ran_s)
        if isinstance(unsettled, BatchCall):
            self._gatherer.forget(unsettled)

    def _joins(self, lease: Lease) -> bool:
        """Whether a job of a batch task may run beside others: not if its kind has crashed a process."""
        return self._children is None or not (lease.suspect or (lease.type, lease.tenant) in self._state.isolated)

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
        slot.begin(lease, began_s, task.timeout_s(lease))
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
                lease = await self._with_results(lease)
            isolated = self._state.isolated
            is_alone = task.isolated or lease.suspect or (isolated and (lease.type, lease.tenant) in isolated)
            if is_alone and self._children is not None:
                slot.wait()
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
            return Crashed(
                seq=lease.seq,
                attempt=lease.attempt,
                claim_no=lease.claim_no,
                ran_s=self._state.monotonic() - slot.began_s,
            )
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

    async def _with_results(self, lease: Lease) -> Lease:
        runtime = self._state.app.runtime
        return await arun_steps(runtime.access, with_results(lease, runtime.tasks))

    def _restart(self, slot: Slot, lease: Lease, timeout_s: float | None = None) -> None:
        """Restart the clock of an attempt that waited for its process, or whose hooks begin, and report it anew."""
        stopping = slot.stopping
        slot.begin(lease, self._state.monotonic(), timeout_s or slot.timeout_s)
        slot.stopping = stopping

    async def _call_hooks(
        self, slot: Slot, task: PreparedTask, lease: Lease, outcome: Outcome | None, result: object = None
    ) -> None:
        """Call the hooks that learn of an outcome, in a span of their own; none of them can change it."""
        if (hooked := task.ended(outcome, result, slot.error))[0]:
            self._begin_hooks(slot, lease)
            await self._run_hooks(slot, task, lease, *hooked)

    def _begin_hooks(self, slot: Slot, lease: Lease) -> None:
        slot.end()  # consumes the cancellation by which the attempt was stopped
        slot.begin(lease, self._state.monotonic(), HOOKS_S)

    async def _run_hooks(
        self, slot: Slot, task: PreparedTask, lease: Lease, hooks: tuple[Hook, ...], ended: Any
    ) -> None:
        # A job of its own: the attempt's says that it should stop, and its thread may still look at it.
        until_s = slot.began_s + slot.timeout_s
        slot.job = job = CurrentJob(task.shown(lease), self._progress, self._clock, until_s)
        token, unbind = job_in_force.set(job), None if self._bind is None else self._bind(job)
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
                if unbind is not None:
                    unbind()

    async def _run_call(self, slot: Slot, call: BatchCall) -> None:
        """Run the jobs of a batch call, and settle each on its own."""
        state, lane, began_s = self._state, self._lane, self._state.monotonic()
        leases = self._gatherer.begin(call, began_s)
        if not leases:
            return self._gatherer.forget(call)
        lane.begin_call(leases, began_s)
        state.started += len(leases)
        slot.unsettled, slot.began_s = call, began_s
        if self._job_log is not None:
            for lease in leases:
                self._job_log.started(lease)
        try:
            outcomes = await self._call_outcomes(slot, call, began_s)
        finally:
            ran_s = state.monotonic() - began_s
            lane.end_call(leases, began_s, ran_s)
        for member, lease, outcome in zip(call.members, leases, outcomes, strict=True):
            self._put(member, lease, outcome, ran_s)
        slot.unsettled = None
        return self._gatherer.forget(call)

    async def _call_outcomes(self, slot: Slot, call: BatchCall, began_s: float) -> Sequence[Outcome | None]:
        """As `_outcome`, for each job of a call."""
        own, task = slot.task, call.task
        assert own is not None
        try:
            if task.breaker is None:
                outcomes = await self._call(call, own, began_s)
            else:
                run = partial(self._call, call, own, began_s)
                outcomes = await self._breakers.run_all(task.breaker, call.leases, run)
            if own.cancelling():
                await _absorb_cancel(own)
            if self._progress.pending:
                for lease in call.leases:
                    await self._progress.finish(lease)
        except BaseException as error:
            if self._state.closing or not is_current(own) or is_ctrl_c(error):
                raise
            log.error(  # noqa: TRY400 - Python's own traceback would show secrets that ours leaves out
                "the outcome of %d jobs (%s) could not be determined\n%s",
                len(call.leases),
                task.name,
                format_traceback(error),
            )
            unknown = RuntimeError(f"its outcome could not be determined: {type_name(error)}")
            ran_s = self._state.monotonic() - began_s
            return [task.raised(lease, unknown, ran_s) for lease in call.leases]
        return outcomes

    async def _call(self, call: BatchCall, own: asyncio.Task[None], began_s: float) -> Sequence[Outcome | None]:
        task, failure = call.task, None
        tokens = unbind = None
        call.runs_in = own
        try:
            if call.is_unwanted:
                raise asyncio.CancelledError  # its jobs were cancelled while it waited for its breaker
            members, values = await self._arguments(call)
            jobs = tuple(self._current(call.task, member, began_s) for member in members)
            for job in jobs:
                job.batch = jobs
            if jobs:
                tokens = job_in_force.set(jobs[0]), tenant_in_force.set(jobs[0].tenant)
                unbind = None if self._bind is None else self._bind(jobs[0])
                arguments = {task.argument: values}
                if task.is_async:
                    returned = await task.function(**arguments)
                elif task.outer is None:
                    returned = await self._threads.run(task.function, arguments)
                else:
                    returned = await task.outer.arun(jobs[0], partial(self._threads.run, task.function, arguments))
                for member, entry in zip(members, entries_of(task.name, returned, len(members)), strict=True):
                    if isinstance(entry, BaseException):
                        member.error = entry
                    else:
                        member.result = entry
        except BaseException as error:  # a runner: whatever a task raises becomes an outcome
            is_foreign = not is_current(own)
            if is_foreign:
                tokens = unbind = None  # collected after its loop was closed, in another context
            is_closing = isinstance(error, asyncio.CancelledError) and not call.is_stopped and self._state.closing
            if is_foreign or is_closing or is_ctrl_c(error):
                raise
            failure = error
        finally:
            if tokens is not None:
                job_in_force.reset(tokens[0])
                tenant_in_force.reset(tokens[1])
            if unbind is not None:
                unbind()
        outcomes = [
            self._member_outcome(member, task, lease, failure)
            for member, lease in zip(call.members, call.leases, strict=True)
        ]
        if task.after or task.on_failure:
            await self._call_batch_hooks(call, outcomes)
        for member in call.members:
            member.end()
        return outcomes

    def _current(self, task: PreparedTask, member: BatchMember, began_s: float) -> CurrentJob:
        assert member.lease is not None
        shown, until_s = task.shown(member.lease), began_s + member.timeout_s
        member.job = CurrentJob(shown, self._progress, self._clock, until_s, None, self._state.app.runtime)
        member.job.stopping = member.stopping
        return member.job

    async def _arguments(self, call: BatchCall) -> tuple[list[BatchMember], list[Any]]:
        """The jobs whose payload can be read, and the argument of each; the others have failed."""
        members, values = [], []
        for member, lease in zip(call.members, call.leases, strict=True):
            try:
                filled = lease
                if lease.headers and needs_results(lease):
                    filled = await self._with_results(lease)
                values.append(call.task.decode(filled)[call.task.argument])
                members.append(member)
            except Exception as error:  # noqa: BLE001 - a runner: this job alone fails
                member.error = error
        return members, values

    def _member_outcome(
        self, member: BatchMember, task: PreparedTask, lease: Lease, failure: BaseException | None
    ) -> Outcome | None:
        if member.stopping == "lease_lost":
            return None
        if isinstance(failure, (asyncio.CancelledError, AttemptInterrupted)) and member.stopping is not None:
            return self._stopped(member, task, lease, failure)
        error, member.error = member.error or failure, None
        if error is not None:
            return self._raised(member, task, lease, error)
        return task.returned(lease, member.result, self._state.monotonic() - member.began_s)

    async def _call_batch_hooks(self, call: BatchCall, outcomes: Sequence[Outcome | None]) -> None:
        """The hooks of all its jobs share one span."""
        hooked = [
            (member, lease, call.task.ended(outcome, member.result, member.error))
            for member, lease, outcome in zip(call.members, call.leases, outcomes, strict=True)
        ]
        hooked = [(member, lease, ended) for member, lease, ended in hooked if ended[0]]
        for member in call.members:
            member.end()
        for member, lease, _ in hooked:
            self._begin_hooks(member, lease)
        for member, lease, ended in hooked:
            if call.is_stopped or self._state.closing:
                return
            await self._run_hooks(member, call.task, lease, *ended)

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
            return Released(
                seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, ran_s=None if slot.waits else ran_s
            )
        if slot.stopping == "cancel":
            return Cancelled(
                seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, ran_s=None if slot.waits else ran_s
            )
        if slot.waits:
            return _put_off(lease, f"no process was free for it within its timeout of {slot.timeout_s:g} s")
        timeout = TimeoutError(f"ran longer than its timeout of {slot.timeout_s:g} s")
        timeout.__cause__ = interrupted  # its traceback shows where the attempt was
        return self._raised(slot, task, lease, timeout)


def _put_off(lease: Lease, reason: str) -> Outcome:
    log.warning("job %s (%s) is put off for %g s: %s", lease.id, lease.type, PUT_OFF_S, reason)
    return Snoozed(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, delay_s=PUT_OFF_S, recorded=False)


async def _absorb_cancel(own: asyncio.Task[None]) -> None:
    """Consume a cancellation that a task requested of its own slot and that arrives after it ended.

    Otherwise it would hit the next attempt here.
    """
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
    while own.uncancel():
        continue
