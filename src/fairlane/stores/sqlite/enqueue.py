"""Writes new jobs, as far as the limits of their tenants allow."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import msgspec

from fairlane.core.ids import JobId, Seq
from fairlane.core.job import JobSpec
from fairlane.core.limits import FullPolicy
from fairlane.core.ops import Enqueue, EnqueueResult, LimitHit, Receipt
from fairlane.stores.instants import after, span_us, to_us
from fairlane.stores.sqlite.held import count_waiting
from fairlane.stores.sqlite.job_keys.places import NO_KEY, columns_of, find_conflict, keep_key, make_way, makes_way
from fairlane.stores.sqlite.limits.in_force import ApplicableLimits, applicable_limits
from fairlane.stores.sqlite.listener import addresses_to_wake
from fairlane.stores.sqlite.pauses import refusing_pause
from fairlane.stores.sqlite.transaction import Transaction, change, text_of

_DEPTH = """
select count(*) from (
  select 1 from (select seq from fairlane_ready union all select seq from fairlane_scheduled
    union all select seq from fairlane_held
    union all select seq from fairlane_job_key where state = 'held') limit ?)
"""
_SAME_ID = """
select seq, type, tenant, queue, band + rank, payload, idempotency_key, dedup_key, parent_id
from fairlane_job where id = ?
"""
_SAME_IDEMPOTENCY_KEY = """
select j.seq, j.id from fairlane_idempotency_key k cross join fairlane_job j on j.seq = k.seq
  where k.tenant = ? and k.key = ?
"""
_SAME_DEDUP_KEY = """
select j.seq, j.id from fairlane_dedup_key k cross join fairlane_job j on j.seq = k.seq
where k.tenant = ? and k.type = ? and k.key = ?
"""
_JOB = """
insert into fairlane_job (id, type, tenant, queue, band, rank, max_attempts, payload_version, timeout_s, enqueued_at,
  due_at, category, idempotency_key, dedup_key, correlation_id, parent_id, created_by, refs, headers, retry, payload,
  key, key_terms)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) returning seq
"""
_READY = """
insert into fairlane_ready (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect)
values (?, ?, ?, ?, ?, ?, ?, 0, 0, 0, 0)
"""
_SCHEDULED = """
insert into fairlane_scheduled (seq, queue, tenant, failed, due_at, since, attempt, attempts, crashes, suspect)
values (?, ?, ?, 0, ?, ?, 0, 0, 0, 0)
"""


@change
def enqueue(tx: Transaction, op: Enqueue) -> EnqueueResult:
    depth, jobs = count_depth(tx, op.capacity), tuple(op.jobs)
    if depth is not None and op.capacity is not None and depth + len(jobs) > op.capacity:
        return EnqueueResult(full=True, depth=depth)
    applicable = applicable_limits(tx, op.limits)
    if tx.has_refusals and (refusing := refusing_pause(tx, jobs)) is not None:
        return EnqueueResult(paused=refusing, depth=depth)
    if applicable is None:
        result = EnqueueResult(receipts=tuple(put(tx, spec) for spec in jobs), depth=depth)
    else:
        result = _put_within(tx, Quotas(tx, applicable, warns=op.warns), jobs, depth)
    created = {spec.queue for spec, receipt in zip(jobs, result.receipts, strict=False) if _is_new(receipt)}
    if created:
        tx.wakes.extend(addresses_to_wake(tx, op.notify, created))
    return result


def count_depth(tx: Transaction, capacity: int | None) -> int | None:
    """Jobs that wait, counted up to the capacity; None: there is none to count for."""
    return None if capacity is None else int(tx.db.execute(_DEPTH, (max(capacity, 0),))[0][0])


def _put_within(tx: Transaction, quotas: Quotas, jobs: tuple[JobSpec, ...], depth: int | None) -> EnqueueResult:
    """Put jobs in as far as their tenants' limits allow; none at all where one is refused."""
    too_long = quotas.find_too_long(jobs)
    if too_long is not None:
        return EnqueueResult(refused=too_long, depth=depth)
    if any(spec.key is not None and makes_way(spec.key) for spec in jobs):
        quotas.count(jobs)  # before any is cancelled
    receipts, ended = list[Receipt](), len(tx.ended)
    tx.db.execute("savepoint within_limits")
    for spec in jobs:
        taken = _met(tx, spec)
        policy = quotas.over(spec) if taken is None else None
        if policy == "reject":
            tx.db.execute("rollback to within_limits")
            tx.db.execute("release within_limits")
            del tx.ended[ended:]
            return EnqueueResult(refused=quotas.hit(spec.tenant, spec.queue), depth=depth)
        receipts.append(taken or _write_in_its_place(tx, spec, held=policy == "hold"))
    tx.db.execute("release within_limits")
    return EnqueueResult(receipts=tuple(receipts), depth=depth, hits=quotas.hits())


def _is_new(receipt: Receipt) -> bool:
    """Created, and not kept back."""
    return receipt.disposition == "created" and not receipt.held


def put(tx: Transaction, spec: JobSpec) -> Receipt:
    """Write one job, unless its id or one of its keys is taken; no limit is asked."""
    return _met(tx, spec) or _write_in_its_place(tx, spec)


def _write_in_its_place(tx: Transaction, spec: JobSpec, *, held: bool = False) -> Receipt:
    """Write a job; first its key may cancel others for it."""
    if spec.key is not None and makes_way(spec.key):
        make_way(tx, spec)
    return write(tx, spec, held=held)


def write(tx: Transaction, spec: JobSpec, *, held: bool = False, line: str | None = None) -> Receipt:
    """Write a new job; `line`: of a held one the queue it waits in, if that is not its own."""
    due_at = _due_at(tx, spec)
    if spec.timeout_s is not None:
        # SQLite would keep a NaN as null: no timeout of its own.
        span_us(spec.timeout_s)
    band, rank = spec.band, spec.rank
    [(seq,)] = tx.db.execute(
        _JOB,
        (
            spec.id.bytes,
            spec.type,
            spec.tenant,
            spec.queue,
            band,
            rank,
            spec.max_attempts,
            spec.payload_version,
            spec.timeout_s,
            tx.now,
            due_at,
            spec.category,
            spec.idempotency_key,
            spec.dedup_key,
            spec.correlation_id,
            None if spec.parent_id is None else spec.parent_id.bytes,
            spec.created_by,
            _json(spec.refs),
            _json(spec.headers),
            None if spec.retry is None else text_of(spec.retry, "the retry policy of job", spec.id),
            text_of(spec.payload, "the payload of job", spec.id),
            *(NO_KEY if spec.key is None else columns_of(spec.key)),
        ),
    )
    if spec.key is not None:
        keep_key(tx, seq, is_due=not held and due_at <= tx.now)
    if held:
        tx.db.execute(
            "insert into fairlane_held values (?, ?, ?)", (seq, spec.queue if line is None else line, spec.tenant)
        )
    elif due_at <= tx.now and spec.key is None:
        tx.db.execute(_READY, (seq, spec.queue, band, spec.tenant, rank, due_at, spec.type))
    elif due_at > tx.now:
        since = tx.now if spec.run_at is None else None
        tx.db.execute(_SCHEDULED, (seq, spec.queue, spec.tenant, due_at, since))
    if spec.idempotency_key is not None:
        tx.db.execute("insert into fairlane_idempotency_key values (?, ?, ?)", (spec.tenant, spec.idempotency_key, seq))
    if spec.dedup_key is not None:
        tx.db.execute(
            "insert into fairlane_dedup_key values (?, ?, ?, ?)", (seq, spec.tenant, spec.type, spec.dedup_key)
        )
    return Receipt(disposition="created", id=spec.id, seq=seq, held=held)


def _met(tx: Transaction, spec: JobSpec) -> Receipt | None:
    """What stands in the way: the same id first, then the idempotency key, the dedup key, and the job's own key."""
    same = tx.db.execute(_SAME_ID, (spec.id.bytes,))
    if same:
        parent = None if spec.parent_id is None else spec.parent_id.bytes
        content = (
            spec.type,
            spec.tenant,
            spec.queue,
            spec.priority,
            text_of(spec.payload, "the payload of job", spec.id),
        )
        alike = same[0][1:] == (*content, spec.idempotency_key, spec.dedup_key, parent)
        return Receipt(disposition="replayed" if alike else "conflict", id=spec.id, seq=same[0][0])
    if spec.idempotency_key is not None:
        holder = tx.db.execute(_SAME_IDEMPOTENCY_KEY, (spec.tenant, spec.idempotency_key))
        if holder:
            return Receipt(disposition="duplicate", id=_job_id(holder[0][1]), seq=Seq(holder[0][0]), key="idempotency")
    if spec.dedup_key is not None:
        holder = tx.db.execute(_SAME_DEDUP_KEY, (spec.tenant, spec.type, spec.dedup_key))
        if holder:
            return Receipt(disposition="duplicate", id=_job_id(holder[0][1]), seq=Seq(holder[0][0]), key="dedup")
    if spec.key is not None and spec.key.on_conflict == "discard" and (found := find_conflict(tx, spec)) is not None:
        return Receipt(disposition="duplicate", id=_job_id(found[1]), seq=Seq(found[0]), key="job")
    return None


def _due_at(tx: Transaction, spec: JobSpec) -> int:
    if spec.run_at is not None:
        return to_us(spec.run_at)
    return after(tx.now, spec.delay_s) if spec.delay_s else tx.now


def _job_id(raw: bytes) -> JobId:
    return JobId(UUID(bytes=raw))


def _json(value: dict[str, int | str] | dict[str, str]) -> str | None:
    return msgspec.json.encode(value).decode() if value else None


@dataclass(slots=True)
class Quota:
    """One tenant in one queue during one enqueue."""

    limit: int
    policy: FullPolicy
    found: int
    created: int = 0

    @property
    def is_over(self) -> bool:
        return self.found + self.created > self.limit


class Quotas:
    """How many of a tenant's jobs may wait in one queue, counted once for each enqueue."""

    def __init__(self, tx: Transaction, applicable: ApplicableLimits, *, warns: bool) -> None:
        self._tx, self._force, self._warns = tx, applicable.force, warns
        self._by_line: dict[tuple[str, str], Quota | None] = {}

    def find_too_long(self, jobs: tuple[JobSpec, ...]) -> LimitHit | None:
        """The first job whose payload is longer than its tenant may have."""
        for spec in jobs:
            most, size = self._force.terms(spec.tenant, spec.queue).payload_bytes, len(bytes(spec.payload))
            if most is not None and size > most:
                return LimitHit(
                    tenant=spec.tenant,
                    queue=spec.queue,
                    cause="payload_bytes",
                    limit=most,
                    found=size,
                    policy="reject",
                )
        return None

    def count(self, jobs: tuple[JobSpec, ...]) -> None:
        for line in {(spec.tenant, spec.queue) for spec in jobs}:
            self._by_line.setdefault(line, self._open(*line))

    def over(self, spec: JobSpec) -> FullPolicy | None:
        """Count a job that is about to be created: what happens to it if it is beyond the limit; None: it is not."""
        line = spec.tenant, spec.queue
        if line not in self._by_line:
            self._by_line[line] = self._open(*line)
        quota = self._by_line[line]
        if quota is None:
            return None
        quota.created += 1
        return quota.policy if quota.is_over else None

    def hit(self, tenant: str, queue: str) -> LimitHit:
        quota = self._by_line[tenant, queue]
        assert quota is not None
        return LimitHit(
            tenant=tenant, queue=queue, cause="waiting", limit=quota.limit, found=quota.found, policy=quota.policy
        )

    def hits(self) -> tuple[LimitHit, ...]:
        """Limits that were run into, by tenant and queue."""
        return tuple(self.hit(*line) for line in sorted(self._by_line) if (q := self._by_line[line]) and q.is_over)

    def _open(self, tenant: str, queue: str) -> Quota | None:
        terms = self._force.terms(tenant, queue)
        if terms.waiting is None or (terms.when_full == "warn" and not self._warns):
            return None
        return Quota(terms.waiting, terms.when_full, count_waiting(self._tx, tenant, queue, terms.waiting))
