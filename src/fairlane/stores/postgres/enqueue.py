"""Turns `Enqueue` into one call: of `enqueue_one_v1` for the common job, of `enqueue_v1` for all others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from fairlane.core.ids import Seq
from fairlane.core.job import JobSpec
from fairlane.core.limits import Limit, LimitsInForce, TenantTerms
from fairlane.core.ops import Enqueue, EnqueueResult, Receipt
from fairlane.stores.postgres.calls import Call, Rows, answer_reader, instant, json_text, limits_text

# Sent as text and cast by the server: an asyncpg connection may have the caller's own codecs for json and timestamptz.
SQL = (
    "select {schema}.enqueue_v1("
    "%s::text::json, %s::text::timestamptz, %s::integer, %s::text, %s::text::json, %s::text::json)::text"
)

SQL_ONE = (
    "select {schema}.enqueue_one_v1(%s::text::uuid, %s::text, %s::text, %s::text, %s::smallint, %s::text, %s::text, "
    "%s::integer, %s::integer, %s::double precision, %s::text, %s::text, %s::text::uuid, %s::text, %s::text::json, "
    "%s::text::json, %s::text::json, %s::text::timestamptz, %s::double precision, %s::text::timestamptz, %s::text, "
    "%s::text::json, %s::integer)::text"
)

_read = answer_reader(EnqueueResult)
_read_one: Callable[[Rows], int | EnqueueResult] = answer_reader(int | EnqueueResult)  # type: ignore[arg-type]


def _enqueued(rows: Rows) -> EnqueueResult:
    return _only_paused(_read(rows))


def _only_paused(result: EnqueueResult) -> EnqueueResult:
    """Without the limit that stands for a refusing pause towards older clients."""
    return result if result.paused is None else EnqueueResult(paused=result.paused, depth=result.depth)


def enqueue(op: Enqueue) -> Call[EnqueueResult]:
    limits = enqueue_limits(op.limits) if op.limits else None
    if len(op.jobs) == 1 and op.capacity is None:
        [job] = op.jobs
        terms = tenant_terms(op.limits, job.tenant, job.queue)
        fits = terms.payload_bytes is None or len(bytes(job.payload)) <= terms.payload_bytes
        if fits and job.idempotency_key is None and job.dedup_key is None and not _holds_nul(job):
            return _enqueue_one(op, job, limits, terms.waiting if op.warns or terms.when_full != "warn" else None)
    text = None if limits is None else terms_text(op.limits, op.jobs, warns=op.warns)
    return Call(SQL, (json_text(op.jobs), instant(op.now), op.capacity, op.notify, limits, text), _enqueued)


def _enqueue_one(op: Enqueue, job: JobSpec, limits: str | None, waiting: int | None) -> Call[EnqueueResult]:
    def read(rows: Rows) -> EnqueueResult:
        answer = _read_one(rows)
        if isinstance(answer, int):
            return EnqueueResult(receipts=(Receipt(disposition="created", id=job.id, seq=Seq(answer)),))
        return _only_paused(answer)

    params = (
        *(str(job.id), job.type, job.tenant, job.queue, job.priority, job.priority_scope, bytes(job.payload).decode()),
        *(job.payload_version, job.max_attempts, job.timeout_s, job.category, job.correlation_id),
        *(None if job.parent_id is None else str(job.parent_id), job.created_by),
        *(_json(job.refs) if job.refs else None, _json(job.headers) if job.headers else None),
        *(None if job.retry is None else bytes(job.retry).decode(), instant(job.run_at), job.delay_s),
        *(instant(op.now), op.notify, limits, waiting),
    )
    return Call(SQL_ONE, params, read)


def _holds_nul(job: JobSpec) -> bool:
    """Whether its refs or headers may hold what no worker could read, which only `enqueue_v1` refuses."""
    return bool(job.refs or job.headers) and "\\u0000" in _json((job.refs, job.headers))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


@lru_cache(maxsize=64)
def enqueue_limits(limits: tuple[Limit, ...]) -> str | None:
    """What concerns tenants' enqueues; None: nothing does."""
    return limits_text(
        [
            given
            for given in limits
            if given.kind == "tenant" and (given.waiting, given.when_full, given.payload_bytes) != (None, None, None)
        ]
    )


@lru_cache(maxsize=4096)
def tenant_terms(limits: tuple[Limit, ...], tenant: str, queue: str) -> TenantTerms:
    return LimitsInForce(limits).terms(tenant, queue)


def terms_text(limits: tuple[Limit, ...], jobs: Sequence[JobSpec], *, warns: bool = True) -> str:
    """What the code's limits come to for these jobs, by tenant and queue: those with any."""
    if len(jobs) == 1:
        return _terms_text(limits, jobs[0].tenant, jobs[0].queue, 1, warns)[0]
    groups = Counter((job.tenant, job.queue) for job in jobs)
    found = [_terms_text(limits, *group, count, warns)[1] for group, count in groups.items()]
    return f"[{','.join(one for one in found if one)}]"


@lru_cache(maxsize=4096)
def _terms_text(limits: tuple[Limit, ...], tenant: str, queue: str, jobs: int, warns: bool) -> tuple[str, str]:
    """As a list of its own, and as one of several."""
    terms = tenant_terms(limits, tenant, queue)
    if terms.when_full == "warn" and not warns:
        terms = replace(terms, waiting=None)
    if terms.waiting is None and terms.payload_bytes is None:
        return "[]", ""
    group = {"tenant": tenant, "queue": queue, "jobs": jobs, **msgspec.structs.asdict(terms)}
    text = msgspec.json.encode(group).decode()
    return f"[{text}]", text
