"""Enqueue as one call: of scripts/enqueue_alike.lua for plain jobs, of scripts/enqueue.lua for all others.

Plain are those without keys of any kind or a delay that differ in id and payload alone, one by itself too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast
from uuid import UUID

import msgspec

from fairlane.core.alike import AlikeJobs, JobIds, Lazy, as_alike
from fairlane.core.ids import JobId, Seq
from fairlane.core.job import JobSpec
from fairlane.core.limits import LimitsInForce
from fairlane.core.ops import Enqueue, EnqueueResult, LimitHit, Pause, Receipt
from fairlane.stores.redis.job_keys import conflict_of
from fairlane.stores.redis.states import joined, new_job, own_body, read_body, shared_body, text_of
from fairlane.stores.redis.steps import Script, Steps, Work, handles, pack

Terms = list[tuple[str, str, int, str]]
"""Tenant, queue, how many may wait, and what happens to more."""

_read_pause = msgspec.json.Decoder(Pause).decode


@handles
def enqueue(work: Work, op: Enqueue) -> Steps[EnqueueResult]:
    if (jobs := as_alike(op.jobs)) is not None and (call := _alike(work, op, jobs)) is not None:
        first = yield Script("enqueue_alike", call)
        if first is not None:
            return EnqueueResult(receipts=_created(jobs, first))
    made = [new_job(spec) for spec in op.jobs]
    header: dict[str, Any] = {"jobs": [given for given, _ in made], "notify": op.notify}
    if conflicts := any(spec.key is not None and spec.key.on_conflict != "wait" for spec in op.jobs):
        header["conflicts"] = True
    if op.capacity is not None:
        header["capacity"] = op.capacity
    bodies = [body for _, body in made]
    while True:
        header["version"] = work.limits.version
        force = work.limits.in_force(op.limits)
        too_long, header["terms"] = terms_of(force, op.jobs, warns=op.warns)
        header["too_long"] = too_long is not None
        if conflicts:
            for spec, (given, _) in zip(op.jobs, made, strict=True):
                given.update(conflict_of(spec, work.limits))
        reply = yield Script("enqueue_at_keys" if conflicts else "enqueue", (work.instant(), pack(header), *bodies))
        if reply[0] != b"limits":
            return _result(op, reply, too_long, header["terms"])
        work.limits.keep(reply[1], reply[2])


def _alike(work: Work, op: Enqueue, jobs: AlikeJobs) -> tuple[bytes | str | int, ...] | None:
    """The arguments of scripts/enqueue_alike.lua, where it can do."""
    job = jobs.first
    is_put_off = job.run_at is not None or job.delay_s
    if op.capacity is not None or op.notify == "always" or is_put_off or job.key is not None:
        return None
    if (force := work.limits.in_force(op.limits)) is not None:
        terms = force.terms(job.tenant, job.queue)
        most = terms.payload_bytes
        if terms.waiting is not None and (op.warns or terms.when_full != "warn"):
            return None
        if most is not None and any(len(bytes(payload)) > most for payload in jobs.payloads):
            return None
    ids = jobs.ids.texts() if isinstance(jobs.ids, JobIds) else [one.hex for one in jobs.ids]
    if job.correlation_id == "" or (len(ids) > 1 and len(set(ids)) < len(ids)):
        return None
    try:
        payloads = [str(payload, "utf-8") for payload in jobs.payloads]
    except UnicodeDecodeError:  # said of the very job by `new_job`
        return None
    return (
        *(work.instant(), work.limits.version, int(op.notify != "never")),
        *(job.tenant, job.queue, job.type, job.band, job.rank),
        *(job.correlation_id or "", "" if job.parent_id is None else job.parent_id.hex, shared_body(job)),
        *map(own_body, payloads, ids),
    )


def _created(jobs: AlikeJobs, first: int) -> tuple[Receipt, ...]:
    if len(jobs) == 1:
        return (Receipt(disposition="created", id=jobs.first.id, seq=Seq(first)),)
    made = Lazy(len(jobs), lambda at: Receipt(disposition="created", id=jobs.ids[at], seq=Seq(first + at)))
    return cast("tuple[Receipt, ...]", made)


def terms_of(
    force: LimitsInForce | None, jobs: Sequence[JobSpec], *, warns: bool
) -> tuple[LimitHit | None, Terms | None]:
    """The first job whose payload is longer than its tenant may have, and how many may wait in each line."""
    if force is None:
        return None, None
    waiting: Terms = []
    known: dict[tuple[str, str], int | None] = {}
    too_long = None
    for spec in jobs:
        line = spec.tenant, spec.queue
        if line not in known:
            terms = force.terms(*line)
            known[line] = terms.payload_bytes
            if terms.waiting is not None and (warns or terms.when_full != "warn"):
                waiting.append((*line, terms.waiting, terms.when_full))
        most, size = known[line], len(bytes(spec.payload))
        if too_long is None and most is not None and size > most:
            too_long = LimitHit(
                tenant=spec.tenant, queue=spec.queue, cause="payload_bytes", limit=most, found=size, policy="reject"
            )
    return too_long, waiting or None


def _result(op: Enqueue, reply: list[Any], too_long: LimitHit | None, terms: Terms | None) -> EnqueueResult:
    what, depth = reply[0], reply[1]
    if what == b"full":
        return EnqueueResult(full=True, depth=depth)
    if what == b"paused":
        return EnqueueResult(paused=_read_pause(reply[2]), depth=depth)
    if what == b"too_long":
        return EnqueueResult(refused=too_long, depth=depth)
    if what == b"refused":
        tenant, queue = reply[2].decode(), reply[3].decode()
        return EnqueueResult(refused=limit_hit(terms, joined(tenant, queue), reply[4]), depth=depth)
    receipts = tuple(_receipt(spec, answer) for spec, answer in zip(op.jobs, reply[2], strict=True))
    if not reply[3]:
        return EnqueueResult(receipts=receipts, depth=depth)
    hits = [limit_hit(terms, key.decode(), found) for key, found in reply[3]]
    return EnqueueResult(
        receipts=receipts, depth=depth, hits=tuple(sorted(hits, key=lambda hit: (hit.tenant, hit.queue)))
    )


def limit_hit(terms: Terms | None, line: str, found: int) -> LimitHit:
    [(tenant, queue, limit, policy)] = [one for one in terms or () if joined(one[0], one[1]) == line]
    return LimitHit(
        tenant=tenant,
        queue=queue,
        cause="waiting",
        limit=limit,
        found=found,
        policy=policy,  # type: ignore[arg-type]
    )


def _receipt(spec: JobSpec, answer: int | list[Any]) -> Receipt:
    if isinstance(answer, int):
        return Receipt(disposition="created", id=spec.id, seq=Seq(answer))
    seq = Seq(answer[0])
    if len(answer) == 1:
        return Receipt(disposition="created", id=spec.id, seq=seq, held=True)
    if len(answer) == 2:
        return Receipt(disposition="replayed" if is_alike(spec, answer[1]) else "conflict", id=spec.id, seq=seq)
    return Receipt(disposition="duplicate", id=JobId(UUID(hex=answer[1].decode())), seq=seq, key=answer[2].decode())


def is_alike(spec: JobSpec, kept: bytes) -> bool:
    """Whether a job is what this request asks for; one that nobody can read is not."""
    try:
        body = read_body(kept)
    except msgspec.MsgspecError:
        return False
    parent = None if spec.parent_id is None else spec.parent_id.hex
    content = (spec.type, spec.tenant, spec.queue, spec.priority, text_of(spec.payload, "the payload of job", spec.id))
    keys = (spec.idempotency_key, spec.dedup_key, parent)
    return (body.type, body.tenant, body.queue, body.priority, body.payload) == content and (
        body.idempotency_key,
        body.dedup_key,
        body.parent_id,
    ) == keys
