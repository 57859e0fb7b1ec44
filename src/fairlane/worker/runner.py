"""Filling a slot: pull a held job, run it as the current job, put its outcome on the desk; again and again.

One attempt, here and now: in a child of its own, or in a test.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial

from fairlane.client.admin.breakers import around_by_caller
from fairlane.client.app import Fairlane
from fairlane.client.context import CurrentJob, NoteTaker, job_in_force, running, tenant_in_force
from fairlane.core.job import Lease
from fairlane.core.outcome import Cancelled, Crashed, Outcome, Released, Snoozed
from fairlane.errors import AttemptInterrupted
from fairlane.worker.exceptions import FAILED, log_failure, remember_failure
from fairlane.worker.isolated.children import ChildDied, ChildNotStarted, Children
from fairlane.worker.lanes import LaneState, Slot
from fairlane.worker.prepared import PreparedTask
from fairlane.worker.services import Services
from fairlane.worker.state import Desk
from fairlane.worker.threads import Threads

log = logging.getLogger("fairlane.worker")

PUT_OFF_S = 5.0
"""How long an isolated job waits, uncharged, when no process could be had for it."""
YIELD_S = 0.005
"""Jobs that never wait still let the loop breathe this often."""


class Filler:
    """Runs the attempts of one lane's slots."""

    def __init__(
        self, desk: Desk, state: LaneState, threads: Threads, children: Children | None, services: Services
    ) -> None:
        self._desk, self._state, self._threads, self._children = desk, state, threads, children
        self._services, self._noter, self._clock = services, services.noter, desk.app.runtime.clock

    async def fill(self, slot: Slot) -> None:
        """Until the engine stops and nothing is held."""
        desk, state, held, noter = self._desk, self._state, self._state.held, self._noter
        own = slot.task
        assert own is not None
        breath_s = desk.monotonic()
        while True:
            if not held:
                if desk.stopping:
                    return
                await state.wait()
                breath_s = desk.monotonic()
                continue
            began_s = desk.monotonic()
            lease = state.next(began_s)
            if began_s > state.trusted_until_s and not desk.may_begin(state, lease, began_s):
                continue
            state.begin(lease, began_s)
            desk.started += 1
            try:
                breaker = desk.tasks[lease.type].breaker
                if breaker is None:
                    outcome = await self._attempt(slot, lease, began_s)
                    if own.cancelling():
                        await _take_in_cancel(own)
                else:
                    attempt = partial(self._attempt, slot, lease, began_s)
                    outcome = await self._services.breakers.run(breaker, lease, attempt)
                if noter.books:
                    await noter.finish(lease)
            except BaseException as error:  # a runner: whatever goes wrong around an attempt, its slot lives on
                if desk.closing:
                    raise
                log.exception("how job %s (%s) ended could not be told", lease.id, lease.type)
                untold = RuntimeError(f"how it ended could not be told: {type(error).__name__}")
                outcome = desk.tasks[lease.type].raised(lease, untold, desk.monotonic() - began_s)
            finally:
                now_s = desk.monotonic()
                state.end(lease, began_s, now_s - began_s)
            desk.put(outcome, lease, now_s - began_s)
            if isinstance(outcome, FAILED):
                remember_failure(desk.app, lease, outcome)
                log_failure(lease, outcome)
            if now_s - breath_s > YIELD_S:
                await asyncio.sleep(0)
                breath_s = desk.monotonic()

    async def _attempt(self, slot: Slot, lease: Lease, began_s: float) -> Outcome | None:
        task = self._desk.tasks[lease.type]
        slot.begin(lease, began_s, task.timeout_s(lease))
        slot.job = current = CurrentJob(lease, self._noter, self._clock, began_s + slot.timeout_s)
        job, tenant = job_in_force.set(current), tenant_in_force.set(lease.tenant)
        is_left_behind = False
        try:
            if (task.isolated or lease.suspect) and self._children is not None:
                slot.waits = True
                return await self._children.run(lease, self._noter, partial(self._begin_apart, slot, lease))
            arguments = task.decode(lease)
            if task.is_async:
                result = await task.function(**arguments)
            else:
                slot.threaded = True
                result = await self._threads.run(task.function, arguments)
        except asyncio.CancelledError as error:
            if slot.stopping is None:
                if self._desk.closing:
                    raise
                return task.raised(lease, error, self._desk.monotonic() - began_s)
            return self._stopped(slot, task, lease)
        except ChildNotStarted as reason:
            return _put_off(lease, str(reason))
        except ChildDied as died:
            log.warning("job %s (%s), attempt %d: %s", lease.id, lease.type, lease.attempt, died)
            return Crashed(seq=lease.seq, attempt=lease.attempt, ran_s=self._desk.monotonic() - slot.began_s)
        except GeneratorExit:
            is_left_behind = True  # on a loop that is gone, and in nobody's context
            raise
        except BaseException as error:  # noqa: BLE001 - a runner: whatever a task raises becomes an outcome
            if isinstance(error, AttemptInterrupted) and slot.stopping is not None:
                return self._stopped(slot, task, lease)
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                error = RuntimeError(f"the task raised {type(error).__name__}")
            return task.raised(lease, error, self._desk.monotonic() - began_s)
        finally:
            slot.end()
            if not is_left_behind:
                tenant_in_force.reset(tenant)
                job_in_force.reset(job)
        return task.returned(lease, result, self._desk.monotonic() - began_s)

    def _begin_apart(self, slot: Slot, lease: Lease) -> None:
        """An attempt that has waited for its process begins now. The store is told, whose clock has run meanwhile."""
        stopping = slot.stopping
        slot.begin(lease, self._desk.monotonic(), slot.timeout_s)
        slot.stopping, slot.reported = stopping, False

    def _stopped(self, slot: Slot, task: PreparedTask, lease: Lease) -> Outcome | None:
        ran_s = self._desk.monotonic() - slot.began_s
        if slot.stopping == "lease_lost":
            return None
        if slot.stopping == "shutdown":
            return Released(seq=lease.seq, attempt=lease.attempt, ran_s=None if slot.waits else ran_s)
        if slot.stopping == "cancel":
            return Cancelled(seq=lease.seq, attempt=lease.attempt, ran_s=None if slot.waits else ran_s)
        if slot.waits:
            return _put_off(lease, f"no process for it came free within its timeout of {slot.timeout_s:g} s")
        return task.raised(lease, TimeoutError(f"ran longer than its timeout of {slot.timeout_s:g} s"), ran_s)


def _put_off(lease: Lease, reason: str) -> Outcome:
    log.warning("job %s (%s) is put off for %g s: %s", lease.id, lease.type, PUT_OFF_S, reason)
    return Snoozed(seq=lease.seq, attempt=lease.attempt, delay_s=PUT_OFF_S, recorded=False)


async def _take_in_cancel(own: asyncio.Task[None]) -> None:
    """A task cancelled the slot it ran in, and ended before that took effect: it must not hit what runs here next."""
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
    while own.uncancel():
        continue


def run_here(app: Fairlane, lease: Lease, notes: NoteTaker | None = None) -> Outcome:
    """Run one leased attempt in this thread, an `async def` on a loop of its own, and decide how it ended; settles nothing."""
    task = PreparedTask(app, app.tasks.require(lease.type))
    began_s = app.runtime.clock.monotonic()
    try:
        with running(lease, notes, app.runtime.clock, began_s + task.timeout_s(lease)), around_by_caller(task.breaker):
            arguments = task.decode(lease)
            result = asyncio.run(task.function(**arguments)) if task.is_async else task.function(**arguments)
    except (Exception, AttemptInterrupted) as error:  # noqa: BLE001 - a runner: whatever a task raises becomes an outcome
        return task.raised(lease, error, app.runtime.clock.monotonic() - began_s)
    return task.returned(lease, result, app.runtime.clock.monotonic() - began_s)
