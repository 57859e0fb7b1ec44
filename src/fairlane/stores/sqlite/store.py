"""The SQLite store: one file, many processes, every change one immediate transaction."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, TypeVar, cast

from fairlane.core import ops
from fairlane.core.chance import Chance, SystemChance
from fairlane.core.clock import Clock, SystemClock
from fairlane.core.ids import WorkerId
from fairlane.core.ops import Op
from fairlane.errors import InvalidOption, SchemaOutOfDate, StoreClosed
from fairlane.stores.base import Capability
from fairlane.stores.sqlite import (
    accessing,
    acting,
    aging,
    borrowing,
    breakers,
    counting,
    dead_letters,
    enqueueing,
    explaining,
    figures,
    holding,
    keeping,
    limits,
    noting,
    paging,
    pauses,
    rates,
    reading,
    reclaiming,
    schedules,
    sealing,
    telling,
    tenants,
    turning,
    waking,
    watching,
    workers,
)
from fairlane.stores.sqlite.database import Database
from fairlane.stores.sqlite.driver import Driver, Library
from fairlane.stores.sqlite.heeding import LimitMemory
from fairlane.stores.sqlite.instants import to_us
from fairlane.stores.sqlite.location import located
from fairlane.stores.sqlite.migrating import SqliteMigrator
from fairlane.stores.sqlite.transaction import StoreClock, Transaction

T = TypeVar("T")
Handler = Callable[[Transaction, Any], object]

CHANGES: dict[type, Handler] = {
    ops.Enqueue: enqueueing.enqueue,
    ops.Turn: turning.turn,
    ops.Renew: turning.renew,
    ops.Retire: turning.retire,
    ops.Promote: turning.promote,
    ops.Reclaim: reclaiming.reclaim,
    ops.Cancel: acting.cancel,
    ops.Fail: acting.fail,
    ops.Bury: acting.bury,
    ops.Reset: acting.reset,
    ops.Reprocess: dead_letters.reprocess,
    ops.Discard: dead_letters.discard,
    ops.Resolve: dead_letters.resolve,
    ops.Acknowledge: dead_letters.acknowledge,
    ops.Lapse: workers.lapse,
    ops.Note: noting.note,
    ops.AddStats: figures.add_stats,
    ops.Admit: breakers.admit,
    ops.Report: breakers.report,
    ops.ResetBreaker: breakers.reset,
    ops.ForceBreaker: breakers.force,
    ops.DeclareSchedules: schedules.declare,
    ops.Fire: schedules.fire,
    ops.PauseSchedule: schedules.pause,
    ops.RunSchedule: schedules.run,
    ops.RemoveSchedule: schedules.remove,
    ops.PauseClaims: pauses.pause,
    ops.ResumeClaims: pauses.resume,
    ops.Retain: keeping.retain,
    ops.Purge: keeping.purge,
    ops.SetLimit: limits.set_limit,
    ops.ClearLimit: limits.clear_limit,
    ops.PauseLimit: limits.pause_limit,
    ops.TakeTokens: rates.take_tokens,
    ops.Unhold: holding.unhold,
    ops.Age: aging.age,
    ops.SetTenant: tenants.set_tenant,
    ops.AddTenants: tenants.add_tenants,
    ops.IssueCredential: accessing.issue,
    ops.RedeemLink: accessing.redeem,
    ops.RevokeCredential: accessing.revoke,
    ops.SeeCredentials: accessing.see,
    ops.AddEvents: telling.add,
    ops.ForgetOld: telling.forget,
    ops.TakeDuty: watching.take_duty,
    ops.SaveAlerts: watching.save_alerts,
    ops.SilenceAlerts: watching.silence,
    ops.RollUpEnqueued: watching.roll_up,
    ops.SealAudit: sealing.seal,
}
READS: dict[type, Handler] = {
    ops.GetJob: reading.get_job,
    ops.GetDeadLetter: reading.get_dead_letter,
    ops.PageJobs: paging.page_jobs,
    ops.PageDeadLetters: paging.page_dead_letters,
    ops.PageAudit: paging.page_audit,
    ops.GetStats: counting.get_stats,
    ops.ListBreakers: breakers.list_breakers,
    ops.ListSchedules: schedules.list_schedules,
    ops.ListPauses: pauses.list_pauses,
    ops.ListWorkers: workers.list_workers,
    ops.ReadStats: figures.read_stats,
    ops.ListLimits: limits.list_limits,
    ops.GetTenant: tenants.get_tenant,
    ops.PageTenants: tenants.page_tenants,
    ops.ReadWeights: tenants.read_weights,
    ops.Why: explaining.why,
    ops.FindCredential: accessing.find,
    ops.ListCredentials: accessing.list_credentials,
    ops.ReadEvents: telling.read,
    ops.ReadAlerts: watching.read_alerts,
    ops.GroupDeadLetters: watching.group_dead_letters,
    ops.ReadUnsealed: sealing.read_unsealed,
    ops.ReadAuditChain: sealing.read_chain,
}
OPERATIONS = {*CHANGES, *READS, ops.Check}


class SqliteStore:
    """Keeps jobs in a SQLite file, readable by its owner alone if the store made it.

    `library` is "apsw", or "stdlib" for applications that enqueue through their own sqlite3 connection; one file is never used
    through both in one process. A change waits up to `busy_timeout_s` for other writers, then raises StoreUnavailable.
    """

    name = "sqlite"
    capabilities = frozenset({Capability.DURABLE, Capability.SHARED, Capability.BORROWS})

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        library: Library = "apsw",
        busy_timeout_s: float = 10.0,
        allow_network_filesystem: bool = False,
        clock: Clock | None = None,
        chance: Chance | None = None,
    ) -> None:
        place = located(path, allow_network_filesystem=allow_network_filesystem)
        self._db = Database(place, library, busy_timeout_s, chance or SystemChance())
        self._clock = StoreClock(clock or SystemClock())
        self._limit_memory = LimitMemory()
        self._thread: tuple[int, ThreadPoolExecutor] | None = None
        self._closed = False
        # An old or newer schema is reported by the first operation: until then a migrator can be asked for.
        with contextlib.suppress(SchemaOutOfDate):
            self._db.make_ready()

    def run(self, op: Op[T], *, on: object | None = None) -> T:
        if self._closed:
            raise StoreClosed(self.name)
        if type(op) not in OPERATIONS:
            raise InvalidOption("op", op, "an operation of fairlane.core.ops")
        if on is not None:
            return cast("T", self._borrow(op, on))
        if _writes(op):
            return cast("T", self._change(op))
        return cast("T", self._db.read(lambda db: self._handle(db, op, writing=False)[0]))

    async def arun(self, op: Op[T], *, on: object | None = None) -> T:
        """The same in a thread of the store's own. On a borrowed connection it runs right here, where its owner is."""
        if self._closed:
            raise StoreClosed(self.name)
        if on is not None:
            return self.run(op, on=on)
        return await asyncio.get_running_loop().run_in_executor(self._executor(), lambda: self.run(op))

    def listener(self, worker: WorkerId) -> waking.SqliteListener:
        return waking.SqliteListener(self._db.place, worker, self._db.data_version, self._executor)

    def migrator(self) -> SqliteMigrator:
        return SqliteMigrator(self._db.change_any_schema)

    def close(self) -> None:
        self._closed = True
        thread, self._thread = self._thread, None
        if thread is not None and thread[0] == os.getpid():
            thread[1].shutdown(wait=True)
        self._db.close()

    async def aclose(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.close)

    def _change(self, op: Op[Any]) -> object:
        answer, wakes = self._db.change(lambda db: self._handle(db, op, writing=True))
        if wakes:
            waking.wake(wakes)
        return answer

    def _borrow(self, op: Op[Any], on: object) -> object:
        # The wake-ups are dropped: they would come before the caller's commit, and find nothing.
        self._db.make_ready()

        def work(db: Driver) -> object:
            return self._handle(db, op, writing=False, borrowed=True)[0]

        return borrowing.borrow(on, self._db.library, self._db.place, work)

    def _handle(self, db: Driver, op: Op[Any], *, writing: bool, borrowed: bool = False) -> tuple[object, list[str]]:
        now = self._clock.now_us(db, writing=writing) if op.now is None else to_us(op.now)
        tx = Transaction(db, now, limit_memory=None if borrowed else self._limit_memory)
        if isinstance(op, ops.Check):
            return self._check(tx), []
        handler = CHANGES.get(type(op)) or READS[type(op)]
        answer = handler(tx, op)
        if tx.freed or tx.gave_back:
            waking.wake_for_ready(tx)
        return answer, tx.wakes

    def _check(self, tx: Transaction) -> ops.Health:
        return keeping.health(
            tx,
            self._db.sqlite_version,
            wants_wal=self._db.journal_mode == "wal",
            in_place=self._db.is_in_place(),
            clock_behind_us=self._clock.behind_us(tx.db),
        )

    def _executor(self) -> Executor:
        """One thread, so operations of a process wait here instead of at the file's lock; anew after a fork."""
        if self._thread is None or self._thread[0] != os.getpid():
            self._thread = (os.getpid(), ThreadPoolExecutor(1, thread_name_prefix="fairlane-sqlite"))
        return self._thread[1]


def _writes(op: Op[Any]) -> bool:
    """Most operations always do or never; who only reads waits for no writer."""
    if isinstance(op, ops.ReadEvents):
        return op.watch
    if isinstance(op, ops.AddEvents):
        return bool(op.events)
    return type(op) in CHANGES
