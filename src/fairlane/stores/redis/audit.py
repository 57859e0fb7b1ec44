"""The audit trail: append-only, written by the script of the act it records, sealed by a chain of hashes."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import msgspec

from fairlane.core import audit_chain
from fairlane.core.ops import (
    MAX_PAGE,
    AuditChain,
    AuditLink,
    AuditPage,
    AuditRecord,
    AuditSealed,
    AuditToSeal,
    PageAudit,
    ReadAuditChain,
    ReadUnsealed,
    SealAudit,
    SealedRecord,
)
from fairlane.stores.redis.steps import Script, Steps, Work, document, handles

MAX_LINKS = 1_000
COUNTED_TO = 1_000
_AT_ONCE = 500


_read_link = msgspec.json.Decoder(AuditLink).decode
_read_document = msgspec.json.Decoder(dict[str, Any]).decode


@handles
def page_audit(work: Work, op: PageAudit) -> Steps[AuditPage]:
    limit = max(1, min(op.limit, MAX_PAGE))
    found: list[AuditRecord] = []
    before = op.before
    while len(found) <= limit:
        ids = yield from _newest(work, op, before)
        records = yield from _records(work, ids)
        found += [
            record
            for record in records
            if record is not None
            and op.scope.tenant in (None, record.tenant)
            and op.action in (None, record.action)
            and op.target in (None, record.target)
        ]
        if len(ids) < _AT_ONCE:
            break
        before = ids[-1]
    page = tuple(found[:limit])
    return AuditPage(records=page, next=page[-1].id if len(found) > limit else None)


@handles
def read_unsealed(work: Work, op: ReadUnsealed) -> Steps[AuditToSeal]:
    last = yield from _last(work)
    waiting = ("ZRANGEBYSCORE", "audit:unsealed", "-inf", "+inf", "LIMIT", 0, max(op.limit, 0))
    [ids] = yield from work.read(waiting, watch=False)
    records = yield from _records(work, [int(one) for one in ids])
    return AuditToSeal(last=last, records=tuple(record for record in records if record is not None))


@handles
def seal(work: Work, op: SealAudit) -> Steps[AuditSealed]:
    last = yield from _last(work)
    ids = [link.audit_id for link in op.links]
    found = yield from _records(work, ids)
    records = [record for record in found if record is not None]
    sealed = yield from work.read(*(("HGET", "audit:sealed", one) for one in ids))
    right = audit_chain.seal(last, records) if len(records) == len(ids) else ()
    if op.links != right or len(set(ids)) < len(ids) or any(n is not None for n in sealed):
        return AuditSealed(sealed=False)
    for link in op.links:
        work.do("ZADD", "audit:chain", link.n, document(link))
        work.do("HSET", "audit:sealed", link.audit_id, link.n)
        work.do("ZREM", "audit:unsealed", link.audit_id)
    yield from work.commit()
    return AuditSealed(sealed=True)


@handles
def read_chain(work: Work, op: ReadAuditChain) -> Steps[AuditChain]:
    limit = max(1, min(op.limit, MAX_LINKS))
    documents, unsealed = yield from work.read(
        ("ZRANGEBYSCORE", "audit:chain", f"({op.after}", "+inf", "LIMIT", 0, limit),
        ("ZCARD", "audit:unsealed"),
        watch=False,
    )
    links = [_read_link(one) for one in documents]
    records = yield from _records(work, [link.audit_id for link in links])
    unaccounted = None
    if op.also_unaccounted:
        unaccounted = yield from _first_unaccounted(work)
    return AuditChain(
        sealed=tuple(SealedRecord(link=link, record=record) for link, record in zip(links, records, strict=True)),
        unsealed=min(unsealed, COUNTED_TO),
        unaccounted=unaccounted,
    )


def _newest(work: Work, op: PageAudit, before: int | None) -> Generator[Script, Any, list[int]]:
    """The highest ids below `before`: of the target's records, of the tenant's, or simply counting down."""
    if op.target is None and op.scope.tenant is None:
        if before is None:
            [last] = yield from work.read(("HGET", "meta", "audit"), watch=False)
            before = int(last or 0) + 1
        return list(range(before - 1, max(before - 1 - _AT_ONCE, 0), -1))
    key = f"audit:tenant:{op.scope.tenant}" if op.target is None else f"audit:target:{op.target}"
    top = "+inf" if before is None else f"({before}"
    [ids] = yield from work.read(("ZREVRANGEBYSCORE", key, top, "-inf", "LIMIT", 0, _AT_ONCE), watch=False)
    return [int(one) for one in ids]


def _records(work: Work, ids: Sequence[int]) -> Generator[Script, Any, list[AuditRecord | None]]:
    """None: it is gone."""
    if not ids:
        return []
    [documents] = yield from work.read(("HMGET", "audit", *ids))
    return [
        None if one is None else msgspec.convert({**_read_document(one), "id": number}, AuditRecord)
        for number, one in zip(ids, documents, strict=True)
    ]


def _last(work: Work) -> Generator[Script, Any, AuditLink | None]:
    [last] = yield from work.read(("ZREVRANGE", "audit:chain", 0, 0))
    return _read_link(last[0]) if last else None


def _first_unaccounted(work: Work) -> Generator[Script, Any, int | None]:
    [last] = yield from work.read(("HGET", "meta", "audit"), watch=False)
    for first in range(1, int(last or 0) + 1, _AT_ONCE):
        ids = range(first, min(first + _AT_ONCE, int(last) + 1))
        sealed, waiting, kept = yield from work.read(
            ("HMGET", "audit:sealed", *ids),
            ("ZMSCORE", "audit:unsealed", *ids),
            ("HMGET", "audit", *ids),
            watch=False,
        )
        for number, n, score, record in zip(ids, sealed, waiting, kept, strict=True):
            if record is not None and n is None and score is None:
                return number
    return None
