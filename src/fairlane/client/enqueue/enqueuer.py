"""Enqueues prepared jobs and turns the store's receipts into handles."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from fairlane.client.context import tenant_in_force
from fairlane.client.enqueue.options import NO_TENANT, Options
from fairlane.client.enqueue.prepare import refuse_results
from fairlane.client.enqueue.quotas import LOOK_EVERY_S, DepthWarning, TenantQuotas
from fairlane.client.enqueue.round_trips import SharedRoundTrips
from fairlane.client.handle import Handle
from fairlane.client.steps import Steps, Through, Verbs, arun_steps, ask, both, run_steps
from fairlane.core.alike import Lazy
from fairlane.core.job import JobSpec
from fairlane.core.ops import Enqueue, EnqueueResult, HasTenants, Receipt, Scope, WorkflowReceipt
from fairlane.core.ops.enqueue import Notify
from fairlane.errors import DuplicateJob, IdConflict, InvalidOption, QueueFull, QueuePaused, StoreUnavailable

if TYPE_CHECKING:
    from fairlane.client.runtime import Runtime
    from fairlane.client.task import Bound, Definition


Row = Mapping[str, Any] | tuple[Any, ...] | list[Any]
"""The arguments of one call: by name, or in their order."""
MOST_ROWS = 10_000
"""What one commit may carry of them."""


def chunks(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    source = iter(rows)
    while chunk := list(islice(source, size)):
        yield chunk


async def achunks(rows: Iterable[Row] | AsyncIterable[Row], size: int) -> AsyncIterator[list[Row]]:
    if not isinstance(rows, AsyncIterable):
        for chunk in chunks(rows, size):
            yield chunk
        return
    chunk = []
    async for row in rows:
        chunk.append(row)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _bound(task: Definition[Any], row: Row) -> dict[str, Any]:
    if isinstance(row, Mapping):
        return task.signature.bind((), row)
    if isinstance(row, tuple | list):
        return task.signature.bind(tuple(row), {})
    raise InvalidOption("row", row, f'the arguments of one "{task.name}" job: a mapping by name, a tuple or a list')


class Enqueuer(Verbs):
    """Every enqueue of an application goes through here.

    Ids are generated before the first try, so that a call can be repeated after a lost reply. On a caller's own
    connection nothing is repeated, committed or counted.
    """

    __slots__ = ("_capacity", "_depth", "_look_at_s", "_notify", "_quotas", "_round_trips", "preparer")

    def __init__(self, runtime: Runtime, rules: Runtime | None = None) -> None:
        """`rules` are those of another application, whose jobs go to this one's store."""
        super().__init__(runtime)
        self.preparer = (rules or runtime).preparer
        settings = self.preparer.settings
        self._capacity: int | None = settings.capacity
        self._notify: Notify = settings.notify
        self._depth = None if settings.warn_depth is None else DepthWarning(settings.warn_depth, runtime.clock)
        self._quotas = TenantQuotas((rules or runtime).limits, runtime.clock)
        self._round_trips = SharedRoundTrips(runtime.access)
        self._look_at_s = float("-inf")

    def _one(self, task: Definition[Any], options: Options, args: dict[str, Any]) -> Steps[Handle[Any]]:
        if options.tenant == NO_TENANT:
            yield from self._ask_for_tenants(options.conn)
        spec = self.preparer.job(task, options, args)
        result = yield from self._put((spec,), options.conn)
        return self._handle(task, options, spec, self._receipts(result)[0])

    def prepared(self, call: Bound[Any]) -> Steps[Handle[Any]]:
        """Enqueue a call whose payload is checked."""
        if call.options.tenant == NO_TENANT:
            yield from self._ask_for_tenants(call.options.conn)
        refuse_results(call)
        spec = self.preparer.bound_job(call.definition, call.options, call.args, call.payload)
        result = yield from self._put((spec,), call.options.conn)
        return self._handle(call.definition, call.options, spec, self._receipts(result)[0])

    def _many(self, bounds: Iterable[Bound[Any]], conn: object | None) -> Steps[Sequence[Handle[Any]]]:
        bounds = list(bounds)
        if not bounds:
            return []
        if any(bound.options.tenant == NO_TENANT for bound in bounds):
            yield from self._ask_for_tenants(conn)
        conn = self._connection(bounds, conn)
        specs = self.preparer.bound_jobs(bounds)
        return self._handles(bounds, specs, self._receipts((yield from self._put(specs, conn))))

    def one(self, task: Definition[Any], options: Options, args: dict[str, Any]) -> Handle[Any]:
        return run_steps(self._round_trips, self._one(task, options, args))

    async def aone(self, task: Definition[Any], options: Options, args: dict[str, Any]) -> Handle[Any]:
        return await arun_steps(self._round_trips, self._one(task, options, args))

    many, amany = both(_many)

    def _rows(self, task: Definition[Any], options: Options, rows: Sequence[Row]) -> Steps[int]:
        """Enqueue one call for each row, all in one commit; returns how many, without those that were discarded."""
        if options.tenant == NO_TENANT:
            yield from self._ask_for_tenants(options.conn)
        specs = self.preparer.jobs(task, options, [_bound(task, row) for row in rows])
        receipts = self._receipts((yield from self._put(specs, options.conn)))
        if isinstance(receipts, Lazy):
            return len(receipts)  # none of them was looked at
        return sum(receipt.disposition != "duplicate" for receipt in receipts)

    rows, arows = both(_rows)

    def _put(self, specs: Sequence[JobSpec], conn: object | None) -> Steps[EnqueueResult]:
        asks = self._may_ask(conn)
        if asks:
            try:
                yield from self._quotas.before(specs)
            except StoreUnavailable:
                if not self._spools(conn):
                    raise
        result: EnqueueResult = yield Through(conn, (yield from self._op(specs, conn)))
        if result.paused is not None:
            raise QueuePaused(result.paused.kind, result.paused.name, result.paused.notes)
        if result.refused is not None or result.hits:
            yield from self._quotas.after(result, may_tell=asks)
        if self._depth is not None and conn is None and not result.full:
            yield from self._depth.after(result)
        return result

    def before_workflow(
        self, specs: Sequence[JobSpec], conn: object | None, unless: Callable[[], Steps[bool]] | None = None
    ) -> Steps[Enqueue]:
        """Take the tokens that these jobs need (`unless` says otherwise); how an enqueue of them would be asked for."""
        if self._may_ask(conn):
            yield from self._quotas.before(specs, unless)
        return (yield from self._op(specs, conn))

    def refuse(self, receipt: WorkflowReceipt) -> Steps[None]:
        """Raise what nodes of a workflow were refused by, if they were: a pause, the capacity or a tenant's limit."""
        if receipt.paused is not None:
            raise QueuePaused(receipt.paused.kind, receipt.paused.name, receipt.paused.notes)
        if receipt.full:
            raise QueueFull(receipt.depth or 0, self._capacity or 0)
        if receipt.refused is not None:
            yield from self._quotas.after(EnqueueResult(refused=receipt.refused), may_tell=False)

    def _ask_for_tenants(self, conn: object | None) -> Steps[None]:
        """Ask whether the store has tenants, if this process has used none yet: `tenant=None` is refused then."""
        preparer, now_s = self.preparer, self._runtime.clock.monotonic()
        is_settled = preparer.settings.require_tenant is not None or preparer.uses_tenants or tenant_in_force.get()
        if not is_settled and now_s >= self._look_at_s and self._may_ask(conn):
            try:
                preparer.uses_tenants = yield from ask(HasTenants())
            except StoreUnavailable:
                if not self._spools(conn):
                    raise
            self._look_at_s = now_s + LOOK_EVERY_S

    def _spools(self, conn: object | None) -> bool:
        """Whether an enqueue is kept while the store cannot be reached: what it would ask before is left out then."""
        return conn is None and self._runtime.access.failover is not None

    def _may_ask(self, conn: object | None) -> bool:
        """Skipped while a caller writes to the same SQLite file: both connections would wait for each other."""
        return conn is None or self._runtime.access.name != "sqlite"

    def _connection(self, bounds: Sequence[Bound[Any]], conn: object | None) -> object | None:
        """The connection that all of them name, if any does."""
        for bound in bounds:
            refuse_results(bound)
        for options in {id(bound.options): bound.options for bound in bounds}.values():
            if options.on_duplicate == "raise":
                raise InvalidOption(
                    "on_duplicate", "raise", '"return" in enqueue_many: look at each handle\'s `duplicate`'
                )
            if options.conn is not None and conn is None:
                conn = options.conn
            if options.conn is not None and options.conn is not conn:
                raise InvalidOption("conn", options.conn, "one connection for the whole of enqueue_many")
        return conn

    def _op(self, specs: Sequence[JobSpec], conn: object | None) -> Steps[Enqueue]:
        notify = self._notify
        if conn is not None and notify == "if_waiting":
            # A worker may start waiting before the caller commits.
            notify = "always"
        limits = self._quotas.applied_to(specs)
        warns = yield from self._quotas.warns(specs, limits, conn, asks=self._may_ask(conn))
        return Enqueue(jobs=specs, capacity=self._capacity, notify=notify, limits=limits, warns=warns)

    def _receipts(self, result: EnqueueResult) -> Sequence[Receipt]:
        if result.full:
            assert self._capacity is not None
            raise QueueFull(self._capacity if result.depth is None else result.depth, self._capacity)
        return result.receipts

    def _handles(
        self, given: Sequence[Bound[Any]], specs: Sequence[JobSpec], receipts: Sequence[Receipt]
    ) -> Sequence[Handle[Any]]:
        def handle(at: int) -> Handle[Any]:
            return self._handle(given[at].definition, given[at].options, specs[at], receipts[at])

        handles = Lazy(len(receipts), handle)
        # Where the receipts were made one by one, one of them may be a conflict, which is raised here.
        return handles if isinstance(receipts, Lazy) else list(handles)

    def _handle(self, task: Definition[Any], options: Options, spec: JobSpec, receipt: Receipt) -> Handle[Any]:
        if receipt.disposition == "conflict":
            raise IdConflict(spec.id)
        is_duplicate = receipt.disposition == "duplicate"
        if is_duplicate and options.on_duplicate == "raise":
            met = spec.key.value if receipt.key == "job" and spec.key is not None else None
            raise DuplicateJob(receipt.id, receipt.key or "idempotency", met)
        return Handle(
            receipt.id,
            self._runtime,
            Scope(spec.tenant),
            type=task.name,
            read_result=task.signature.read_result,
            result_expires_s=task.result_expires_s,
            duplicate=is_duplicate,
        )
