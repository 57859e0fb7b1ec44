"""`memory://`: every operation answered from this process's memory, under one lock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Lock
from typing import Any, TypeVar
from uuid import UUID

from fairlane.core import ops
from fairlane.core.clock import Clock, SystemClock
from fairlane.core.ids import WorkerId
from fairlane.core.ops import Enqueue, Op
from fairlane.core.ops.enqueue import Notify
from fairlane.errors import InvalidOption, StoreClosed, UnsupportedConnection
from fairlane.stores.base import Capability
from fairlane.stores.memory import (
    accessing,
    acting,
    aging,
    breaking,
    counting,
    enqueueing,
    explaining,
    holding,
    keeping,
    limiting,
    pausing,
    reading,
    reclaiming,
    reporting,
    reviewing,
    scheduling,
    telling,
    tenants,
    turning,
    watching,
)
from fairlane.stores.memory.facts import Facts
from fairlane.stores.memory.listening import MemoryListener

T = TypeVar("T")

_ANSWERS: dict[type[Any], Callable[[Facts, Any, datetime], Any]] = {
    ops.Enqueue: enqueueing.enqueue,
    ops.Turn: turning.turn,
    ops.Renew: turning.renew,
    ops.Retire: turning.retire,
    ops.Lapse: turning.lapse,
    ops.ListWorkers: reporting.list_workers,
    ops.Note: reporting.note,
    ops.AddStats: reporting.add_stats,
    ops.ReadStats: reporting.read_stats,
    ops.Promote: reclaiming.promote,
    ops.Reclaim: reclaiming.reclaim,
    ops.Cancel: acting.cancel,
    ops.Fail: acting.fail,
    ops.Bury: acting.bury,
    ops.Reset: acting.reset,
    ops.Reprocess: reviewing.reprocess,
    ops.Discard: reviewing.discard,
    ops.Resolve: reviewing.resolve,
    ops.Acknowledge: reviewing.acknowledge,
    ops.Admit: breaking.admit,
    ops.Report: breaking.report,
    ops.ListBreakers: breaking.list_breakers,
    ops.ResetBreaker: breaking.reset_breaker,
    ops.ForceBreaker: breaking.force_breaker,
    ops.DeclareSchedules: scheduling.declare_schedules,
    ops.ListSchedules: scheduling.list_schedules,
    ops.Fire: scheduling.fire,
    ops.PauseSchedule: scheduling.pause_schedule,
    ops.RunSchedule: scheduling.run_schedule,
    ops.RemoveSchedule: scheduling.remove_schedule,
    ops.PauseClaims: pausing.pause_claims,
    ops.ResumeClaims: pausing.resume_claims,
    ops.ListPauses: pausing.list_pauses,
    ops.ListLimits: limiting.list_limits,
    ops.SetLimit: limiting.set_limit,
    ops.ClearLimit: limiting.clear_limit,
    ops.PauseLimit: limiting.pause_limit,
    ops.TakeTokens: limiting.take_tokens,
    ops.Unhold: holding.unhold,
    ops.Age: aging.age,
    ops.SetTenant: tenants.set_tenant,
    ops.GetTenant: tenants.get_tenant,
    ops.PageTenants: tenants.page_tenants,
    ops.AddTenants: tenants.add_tenants,
    ops.ReadWeights: tenants.read_weights,
    ops.Why: explaining.why,
    ops.GetJob: reading.get_job,
    ops.PageJobs: reading.page_jobs,
    ops.GetDeadLetter: reading.get_dead_letter,
    ops.PageDeadLetters: reading.page_dead_letters,
    ops.PageAudit: reading.page_audit,
    ops.GetStats: counting.get_stats,
    ops.IssueCredential: accessing.issue_credential,
    ops.FindCredential: accessing.find_credential,
    ops.RedeemLink: accessing.redeem_link,
    ops.RevokeCredential: accessing.revoke_credential,
    ops.SeeCredentials: accessing.see_credentials,
    ops.ListCredentials: accessing.list_credentials,
    ops.AddEvents: telling.add_events,
    ops.ReadEvents: telling.read_events,
    ops.ForgetOld: telling.forget_old,
    ops.TakeDuty: watching.take_duty,
    ops.ReadAlerts: watching.read_alerts,
    ops.SaveAlerts: watching.save_alerts,
    ops.SilenceAlerts: watching.silence_alerts,
    ops.ReadUnsealed: watching.read_unsealed,
    ops.SealAudit: watching.seal_audit,
    ops.ReadAuditChain: watching.read_audit_chain,
    ops.GroupDeadLetters: watching.group_dead_letters,
    ops.RollUpEnqueued: watching.roll_up_enqueued,
    ops.Check: keeping.check,
    ops.Retain: keeping.retain,
    ops.Purge: keeping.purge,
}


class MemoryStore:
    """A store in plain Python, for tests and for work that may end with its process. Safe to use from many threads."""

    name = "memory"
    capabilities: frozenset[Capability] = frozenset()

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._facts = Facts()
        self._listeners: defaultdict[UUID, list[MemoryListener]] = defaultdict(list)
        self._lock = Lock()
        self._closed = False

    def run(self, op: Op[T], *, on: object | None = None) -> T:
        if on is not None:
            raise UnsupportedConnection(on, "none: its jobs are in this process, not in a database")
        answer = _ANSWERS.get(type(op))
        if answer is None:
            raise InvalidOption("op", op, "an operation of fairlane.core.ops")
        now = self._clock.now() if op.now is None else op.now
        if now.tzinfo is not UTC:
            now = now.astimezone(UTC)
        with self._lock:
            if self._closed:
                raise StoreClosed(self.name)
            last_seq = self._facts.last_seq
            self._facts.wakes = False
            self._facts.freed.clear()
            result: T = answer(self._facts, op, now)
            if self._facts.wakes or self._facts.freed or self._facts.last_seq != last_seq:
                self._wake(op.notify if isinstance(op, Enqueue) else "if_waiting")
        return result

    async def arun(self, op: Op[T], *, on: object | None = None) -> T:
        """The same: no operation here waits for anything but another one."""
        return self.run(op, on=on)

    def listener(self, worker: WorkerId) -> MemoryListener:
        def forget(listener: MemoryListener) -> None:
            with self._lock:
                if listener in self._listeners[worker]:
                    self._listeners[worker].remove(listener)
                if not self._listeners[worker]:
                    del self._listeners[worker]

        listener = MemoryListener(forget)
        with self._lock:
            if self._closed:
                raise StoreClosed(self.name)
            self._listeners[worker].append(listener)
        return listener

    def migrator(self) -> None:
        """It keeps no schema."""

    def close(self) -> None:
        """End every wait, forget every job; later operations raise `StoreClosed`."""
        with self._lock:
            self._closed = True
            self._facts.clear()
            listeners = [listener for some in self._listeners.values() for listener in some]
        for listener in listeners:
            listener.close()

    async def aclose(self) -> None:
        self.close()

    def _wake(self, notify: Notify) -> None:
        if notify == "never":
            return
        for worker, listeners in self._listeners.items():
            known = self._facts.workers.get(worker)
            if notify == "always" or (known is not None and known.waiting):
                for listener in listeners:
                    listener.wake()
