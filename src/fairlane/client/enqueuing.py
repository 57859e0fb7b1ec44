"""Enqueues prepared jobs and turns the store's receipts into handles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from fairlane.client.depth import DepthWatch
from fairlane.client.handle import Handle, Surroundings
from fairlane.client.options import Options
from fairlane.client.preparing import Preparer
from fairlane.core.job import JobSpec
from fairlane.core.ops import Enqueue, EnqueueResult, Receipt, only
from fairlane.core.ops.enqueue import Notify
from fairlane.errors import DuplicateJob, IdConflict, InvalidOption, QueueFull

if TYPE_CHECKING:
    from fairlane.client.definition import Definition
    from fairlane.client.task import Bound


class Enqueuer:
    """Every enqueue of an application goes through here, in one of two colours.

    The ids are made before the first try, so the same call may be repeated after a lost reply. On a caller's own
    connection nothing is repeated, committed or counted.
    """

    def __init__(self, preparer: Preparer, around: Surroundings) -> None:
        self.preparer, self._around = preparer, around
        self._capacity: int | None = preparer.settings.capacity
        self._notify: Notify = preparer.settings.notify
        self._watch = DepthWatch(preparer.settings.warn_depth, around.access, around.clock)

    def one(self, task: Definition[Any], options: Options, args: dict[str, Any]) -> Handle[Any]:
        spec = self.preparer.job(task, options, args)
        result = self._around.access.run(self._op((spec,), options.conn), on=options.conn)
        handle = self._handle(task, options, spec, self._receipts(result)[0])
        if options.conn is None and self._watch.is_on:
            self._watch.look(result)
        return handle

    async def aone(self, task: Definition[Any], options: Options, args: dict[str, Any]) -> Handle[Any]:
        spec = self.preparer.job(task, options, args)
        result = await self._around.access.arun(self._op((spec,), options.conn), on=options.conn)
        handle = self._handle(task, options, spec, self._receipts(result)[0])
        if options.conn is None and self._watch.is_on:
            await self._watch.alook(result)
        return handle

    def many(self, bounds: Iterable[Bound[Any]], conn: object | None) -> list[Handle[Any]]:
        given, specs, conn = self._prepared(bounds, conn)
        if not specs:
            return []
        result = self._around.access.run(self._op(specs, conn), on=conn)
        handles = self._handles(given, specs, result)
        if conn is None and self._watch.is_on:
            self._watch.look(result)
        return handles

    async def amany(self, bounds: Iterable[Bound[Any]], conn: object | None) -> list[Handle[Any]]:
        given, specs, conn = self._prepared(bounds, conn)
        if not specs:
            return []
        result = await self._around.access.arun(self._op(specs, conn), on=conn)
        handles = self._handles(given, specs, result)
        if conn is None and self._watch.is_on:
            await self._watch.alook(result)
        return handles

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
        return Enqueue(jobs=specs, capacity=self._capacity, notify=notify)

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
