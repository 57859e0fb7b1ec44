"""Turns `Enqueue` into one call.

Of `enqueue_one_v1` for the common job, of `enqueue_alike_v1` for several that differ in id and payload alone, of
`enqueue_v1` for all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import cast

import msgspec
from msgspec.structs import replace

from fairlane.core.alike import AlikeJobs, JobIds, Lazy, as_alike, lines_of
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

_FIELDS = (
    "%s::text, %s::text, %s::text, %s::smallint, %s::text, %s::text{payload}, %s::integer, %s::integer, "
    "%s::double precision, %s::text, %s::text, %s::text::uuid, %s::text, %s::text::json, %s::text::json, "
    "%s::text::json, %s::text::timestamptz, %s::double precision, %s::text::timestamptz, %s::text, %s::text::json, "
    "%s::integer)::text"
)
SQL_ONE = "select {schema}.enqueue_one_v1(%s::text::uuid, " + _FIELDS.replace("{payload}", "")
SQL_ALIKE = "select {schema}.enqueue_alike_v1(%s::text::uuid[], " + _FIELDS.replace("{payload}", "::json")

_read = answer_reader(EnqueueResult)
_read_quick: Callable[[Rows], int | list[Seq] | EnqueueResult]
_read_quick = answer_reader(int | list[Seq] | EnqueueResult)  # type: ignore[arg-type]


def _enqueued(rows: Rows) -> EnqueueResult:
    return _only_paused(_read(rows))


def _only_paused(result: EnqueueResult) -> EnqueueResult:
    """Without the limit that stands for a refusing pause towards older clients."""
    return result if result.paused is None else EnqueueResult(paused=result.paused, depth=result.depth)


def enqueue(op: Enqueue) -> Call[EnqueueResult]:
    limits = enqueue_limits(op.limits) if op.limits else None
    jobs = as_alike(op.jobs) if op.capacity is None else None
    if jobs is not None and jobs.first.key is None and not _holds_nul(jobs.first):
        terms = tenant_terms(op.limits, jobs.first.tenant, jobs.first.queue)
        most = terms.payload_bytes
        if most is None or all(len(bytes(payload)) <= most for payload in jobs.payloads):
            return _enqueue_alike(op, jobs, limits, terms.waiting if op.warns or terms.when_full != "warn" else None)
    text = None if limits is None else terms_text(op.limits, op.jobs, warns=op.warns)
    params = (json_text(tuple(op.jobs)), instant(op.now), op.capacity, op.notify, limits, text)
    return Call(SQL, params, _enqueued, has_text=True)


def _enqueue_alike(op: Enqueue, jobs: AlikeJobs, limits: str | None, waiting: int | None) -> Call[EnqueueResult]:
    job, ids = jobs.first, jobs.ids

    def read(rows: Rows) -> EnqueueResult:
        answer = _read_quick(rows)
        if isinstance(answer, int):
            return EnqueueResult(receipts=(Receipt(disposition="created", id=job.id, seq=Seq(answer)),))
        if isinstance(answer, list):
            seqs = answer
            created = Lazy(len(seqs), lambda at: Receipt(disposition="created", id=ids[at], seq=seqs[at]))
            return EnqueueResult(receipts=cast("tuple[Receipt, ...]", created))
        return _only_paused(answer)

    shared = (
        *(job.payload_version, job.max_attempts, job.timeout_s, job.category, job.correlation_id),
        *(None if job.parent_id is None else str(job.parent_id), job.created_by),
        *(_json(job.refs) if job.refs else None, _json(job.headers) if job.headers else None),
        *(None if job.retry is None else bytes(job.retry).decode(), instant(job.run_at), job.delay_s),
        *(instant(op.now), op.notify, limits, waiting),
    )
    line = (job.type, job.tenant, job.queue, job.priority, job.priority_scope)
    if len(ids) == 1:
        return Call(SQL_ONE, (str(job.id), *line, bytes(job.payload).decode(), *shared), read, has_text=True)
    names = ids.texts() if isinstance(ids, JobIds) else map(str, ids)
    payloads = b"[" + b",".join(jobs.payloads) + b"]"
    return Call(SQL_ALIKE, (f"{{{','.join(names)}}}", *line, payloads.decode(), *shared), read, has_text=True)


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
    found = [_terms_text(limits, *line, count, warns)[1] for line, count in lines_of(jobs).items()]
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
