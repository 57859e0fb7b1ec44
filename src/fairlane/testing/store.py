"""The store of an application under test: in memory, and bound to the transactions of the test's own connections."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar, cast
from uuid import UUID

from fairlane.client.settings.model import Settings
from fairlane.client.steps import Sleeper
from fairlane.client.store_access import StoreAccess
from fairlane.core.clock import Clock
from fairlane.core.ids import JobId
from fairlane.core.ops import AddNodes, Emit, Emitted, Enqueue, EnqueueResult, EnqueueWorkflow, Op, WorkflowReceipt
from fairlane.errors import UnsupportedConnection
from fairlane.stores.sqlite.driver import Driver
from fairlane.stores.sqlite.memory import MemoryStore
from fairlane.stores.sqlite.retention import JOB_TABLES, remove_nodes
from fairlane.stores.sqlite.transaction import as_list
from fairlane.testing.transactions import ACCEPTED, TransactionMark, TransactionUnknown, aconnection_of, connection_of

T = TypeVar("T")

ENQUEUES = Enqueue, EnqueueWorkflow, AddNodes
WRITES = *ENQUEUES, Emit
"""What may be part of the caller's own transaction."""


class SandboxAccess(StoreAccess):
    """An application under test can be closed and used again: its store ends with the test."""

    def __init__(self, settings: Settings, clock: Clock, store: SandboxStore, sleeper: Sleeper) -> None:
        super().__init__(settings, clock, store, sleeper)

    def close(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


class SandboxStore(MemoryStore):
    """A memory store in which a job or signal of the test's connection is there while that transaction has it."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.marks: list[TransactionMark] = []
        self.after_enqueue: Callable[[], object] | None = None
        self.after_aenqueue: Callable[[], Awaitable[object]] | None = None

    def run(self, op: Op[T], *, on: object | None = None) -> T:
        self._follow_rollbacks()
        if not isinstance(op, WRITES):
            return super().run(op)
        mark: TransactionMark | None = None
        if on is not None:
            connection = connection_of(on)
            if connection.is_async:
                verb = "emit" if isinstance(op, Emit) else "enqueue"
                raise UnsupportedConnection(on, f"{ACCEPTED}; with an asynchronous one `await …a{verb}(…)`")
            mark = TransactionMark(connection)
            connection.run(mark.write())
        result = super().run(cast("Op[T]", op))
        self._keep(mark, op, result)
        if self.after_enqueue is not None and isinstance(op, ENQUEUES):
            self.after_enqueue()
        return result

    async def arun(self, op: Op[T], *, on: object | None = None) -> T:
        for mark in tuple(self.marks):
            if mark.connection.is_async and not mark.is_unknown:
                self._follow(mark, is_there=await mark.alook())
        if not isinstance(op, WRITES):
            return self.run(op)
        self._follow_rollbacks()
        mine: TransactionMark | None = None
        if on is not None:
            mine = TransactionMark(await aconnection_of(on))
            await mine.connection.arun(mine.write())
        result = super().run(cast("Op[T]", op))
        self._keep(mine, op, result)
        if self.after_aenqueue is not None and isinstance(op, ENQUEUES):
            await self.after_aenqueue()
        return result

    def hidden(self, *, is_asked: bool) -> Iterator[JobId]:
        """Jobs of transactions that have failed and can only be rolled back.

        Raises `TransactionUnknown` where a transaction cannot be asked; `is_asked`: asynchronous ones were, just now.
        """
        for mark in tuple(mark for mark in self.marks if mark.jobs):
            if mark.connection.is_async and mark.is_kept is None and not is_asked:
                raise TransactionUnknown(
                    "jobs were enqueued on an asynchronous connection, which can only be asked by `await`: use "
                    "`await aenqueued(…)`, `await aassert_enqueued(…)` or `await aassert_nothing_enqueued(…)`"
                )
            if mark.is_unknown:
                mark.look()  # raises
            if mark.is_kept is None and mark.connection.is_elsewhere:
                raise TransactionUnknown(
                    "a job was enqueued with conn= on a sqlite3 connection that only another thread may ask: open it "
                    "with `check_same_thread=False`, or ask for enqueued jobs in that thread"
                )
            if mark.connection.is_failed:
                yield from mark.jobs

    def forget(self, jobs: tuple[JobId, ...], signals: tuple[UUID, ...] = ()) -> None:
        """Remove jobs and signals as if they had never been."""

        def remove(db: Driver) -> None:
            for signal in signals:
                db.execute("delete from fairlane_signal where id = ?", (signal.bytes,))
            for job in jobs:
                for (seq,) in db.execute("select seq from fairlane_job where id = ?", (job.bytes,)):
                    remove_nodes(db, as_list([seq]))
                    for table in JOB_TABLES:
                        db.execute(f"delete from fairlane_{table} where seq = ?", (seq,))  # noqa: S608

        self._memory.change(remove)

    def _keep(self, mark: TransactionMark | None, op: Op[Any], result: object) -> None:
        if mark is not None:
            if isinstance(result, EnqueueResult):
                mark.jobs = tuple(each.id for each in result.receipts if each.disposition == "created")
            elif isinstance(op, EnqueueWorkflow) and cast("WorkflowReceipt", result).disposition == "created":
                mark.jobs = tuple(job.id for job in op.jobs)
            elif isinstance(op, Emit) and not cast("Emitted", result).repeated:
                mark.signals = (op.id,)
            if mark.jobs or mark.signals:
                self.marks.append(mark)

    def _follow_rollbacks(self) -> None:
        for mark in tuple(self.marks):
            connection = mark.connection
            if not connection.is_async and not (mark.is_unknown or (mark.is_kept is None and connection.is_failed)):
                try:
                    is_there = mark.look()
                except Exception as error:
                    if type(error).__module__.partition(".")[0] != "sqlite3":
                        raise
                    continue  # it belongs to another thread
                self._follow(mark, is_there=is_there)

    def _follow(self, mark: TransactionMark, *, is_there: bool) -> None:
        if mark.is_kept is not None and mark in self.marks:
            self.marks.remove(mark)
        if not is_there:
            self.forget(mark.jobs, mark.signals)
