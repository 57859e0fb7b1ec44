"""Enqueue as one call of scripts/enqueue.lua."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from fairlane.core.ids import JobId, Seq
from fairlane.core.job import JobSpec
from fairlane.core.limits import LimitsInForce
from fairlane.core.ops import Enqueue, EnqueueResult, LimitHit, Pause, Receipt
from fairlane.stores.redis.states import joined, new_job, read_body, text_of
from fairlane.stores.redis.steps import Script, Steps, Work, handles, pack

_read_pause = msgspec.json.Decoder(Pause).decode


@handles
def enqueue(work: Work, op: Enqueue) -> Steps[EnqueueResult]:
    made = [new_job(spec) for spec in op.jobs]
    header: dict[str, Any] = {"jobs": [given for given, _ in made], "notify": op.notify}
    if op.capacity is not None:
        header["capacity"] = op.capacity
    bodies = [body for _, body in made]
    while True:
        header["version"] = work.limits.version
        force = work.limits.in_force(op.limits)
        too_long, header["terms"] = terms_of(force, op.jobs, warns=op.warns)
        header["too_long"] = too_long is not None
        reply = yield Script("enqueue", (work.instant(), pack(header), *bodies))
        if reply[0] != b"limits":
            return _result(op, reply, too_long, header["terms"])
        work.limits.keep(reply[1], reply[2])


def terms_of(
    force: LimitsInForce | None, jobs: Sequence[JobSpec], *, warns: bool
) -> tuple[LimitHit | None, list[tuple[str, str, int, str]] | None]:
    """The first job whose payload is longer than its tenant may have, and how many may wait in each line."""
    if force is None:
        return None, None
    waiting: list[tuple[str, str, int, str]] = []
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


def _result(
    op: Enqueue, reply: list[Any], too_long: LimitHit | None, terms: list[tuple[str, str, int, str]] | None
) -> EnqueueResult:
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


def limit_hit(terms: list[tuple[str, str, int, str]] | None, line: str, found: int) -> LimitHit:
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
    """Whether a job is what this request asks for."""
    body = read_body(kept)
    parent = None if spec.parent_id is None else spec.parent_id.hex
    content = (spec.type, spec.tenant, spec.queue, spec.priority, text_of(spec.payload, "the payload of job", spec.id))
    keys = (spec.idempotency_key, spec.dedup_key, parent)
    return (body.type, body.tenant, body.queue, body.priority, body.payload) == content and (
        body.idempotency_key,
        body.dedup_key,
        body.parent_id,
    ) == keys
