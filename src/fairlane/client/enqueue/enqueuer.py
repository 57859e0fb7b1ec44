"""Enqueues prepared jobs and turns the store's receipts into handles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from fairlane.client.enqueue.depth import DepthWatch
from fairlane.client.enqueue.options import Options
from fairlane.client.enqueue.prepare import Preparer
from fairlane.client.enqueue.quotas import Quotas
from fairlane.client.handle import Handle, Surroundings
from fairlane.client.limiting import CodeLimits
from fairlane.client.steps import arun_steps, run_steps
from fairlane.core.job import JobSpec
from fairlane.core.ops import Enqueue, EnqueueResult, Receipt, only
from fairlane.core.ops.enqueue import Notify
from fairlane.errors import DuplicateJob, IdConflict, InvalidOption, QueueFull

if TYPE_CHECKING:
    from fairlane.client.task import Bound, Definition


class Enqueuer:
    """Every enqueue of an application goes through here, in one of two colours.

    The ids are made before the first try, so the same call may be repeated after a lost reply. On a caller's own
    connection nothing is repeated, committed or counted.
    """

    def __init__(self, preparer: Preparer, around: Surroundings, limits: CodeLimits) -> None:
        self.preparer, self._around = preparer, around
        self._capacity: int | None = preparer.settings.capacity
        self._notify: Notify = preparer.settings.notify
        self._watch = DepthWatch(preparer.settings.warn_depth, around.access, around.clock)
        self._quotas = Quotas(limits, around.clock)

    def one(self, task: Definition[Any], options: Options, args: dict[str, Any]) -> Handle[Any]:
        spec = self.preparer.job(task, options, args)
        return self._handle(task, options, spec, self._receipts(self._put((spec,), options.conn))[0])

    async def aone(self, task: Definition[Any], options: Options, args: dict[str, Any]) -> Handle[Any]:
        spec = self.preparer.job(task, options, args)
        return self._handle(task, options, spec, self._receipts(await self._aput((spec,), options.conn))[0])

    def many(self, bounds: Iterable[Bound[Any]], conn: object | None) -> list[Handle[Any]]:
        given, specs, conn = self._prepared(bounds, conn)
        return self._handles(given, specs, self._put(specs, conn)) if specs else []

    async def amany(self, bounds: Iterable[Bound[Any]], conn: object | None) -> list[Handle[Any]]:
        given, specs, conn = self._prepared(bounds, conn)
        return self._handles(given, specs, await self._aput(specs, conn)) if specs else []

    def _put(self, specs: tuple[JobSpec, ...], conn: object | None) -> EnqueueResult:
        asks = self._may_ask(conn)
        if asks:
            run_steps(self._around.access, self._quotas.before(specs))
        result = self._around.access.run(self._op(specs, conn), on=conn)
        if result.refused is not None or result.hits:
            run_steps(self._around.access, self._quotas.after(result, may_tell=asks))
        if conn is None and self._watch.is_on and not result.full:
            self._watch.look(result)
        return result

    async def _aput(self, specs: tuple[JobSpec, ...], conn: object | None) -> EnqueueResult:
        asks = self._may_ask(conn)
        if asks:
            await arun_steps(self._around.access, self._quotas.before(specs))
        result = await self._around.access.arun(self._op(specs, conn), on=conn)
        if result.refused is not None or result.hits:
            await arun_steps(self._around.access, self._quotas.after(result, may_tell=asks))
        if conn is None and self._watch.is_on and not result.full:
            await self._watch.alook(result)
        return result

    def _may_ask(self, conn: object | None) -> bool:
        """Not while a caller writes to the same SQLite file: our own connection would wait for it, and it for us."""
        return conn is None or self._around.access.name != "sqlite"

    def _prepared(
        self, bounds: Iterable[Bound[Any]], conn: object | None
    ) -> tuple[Sequence[Bound[Any]], tuple[JobSpec, ...], object | None]:
        given = list(bounds)
        for bound in given:
            if bound.options.on_duplicate == "raise":
                raise InvalidOption(
                    "on_duplicate", "raise", '"return" in enqueue_many: look at each handle\'s `duplicate`'
                )
            if bound.options.conn is not None and conn is None:
                conn = bound.options.conn
            if bound.options.conn is not None and bound.options.conn is not conn:
                raise InvalidOption("conn", bound.options.conn, "one connection for the whole of enqueue_many")
        specs = tuple(self.preparer.bound_job(b.definition, b.options, b.args, b.payload) for b in given)
        return given, specs, conn

    def _op(self, specs: tuple[JobSpec, ...], conn: object | None) -> Enqueue:
        notify = self._notify
        if conn is not None and notify == "if_waiting":
            # A worker may begin to wait before the caller commits.
            notify = "always"
        limits = self._quotas.for_queues(frozenset(spec.queue for spec in specs))
        return Enqueue(jobs=specs, capacity=self._capacity, notify=notify, limits=limits)

    def _receipts(self, result: EnqueueResult) -> tuple[Receipt, ...]:
        if result.full:
            assert self._capacity is not None
            raise QueueFull(self._capacity if result.depth is None else result.depth, self._capacity)
        return result.receipts

    def _handles(
        self, given: Sequence[Bound[Any]], specs: Sequence[JobSpec], result: EnqueueResult
    ) -> list[Handle[Any]]:
        receipts = self._receipts(result)
        return [
            self._handle(bound.definition, bound.options, spec, receipt)
            for bound, spec, receipt in zip(given, specs, receipts, strict=True)
        ]

    def _handle(self, task: Definition[Any], options: Options, spec: JobSpec, receipt: Receipt) -> Handle[Any]:
        if receipt.disposition == "conflict":
            raise IdConflict(spec.id)
        is_duplicate = receipt.disposition == "duplicate"
        if is_duplicate and options.on_duplicate == "raise":
            raise DuplicateJob(receipt.id, receipt.key or "idempotency")
        return Handle(
            receipt.id,
            self._around,
            only(spec.tenant),
            type=task.name,
            read_result=task.signature.read_result,
            duplicate=is_duplicate,
        )
