"""Reads leases for a runner: those of one claim, or by number."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from uuid import UUID, SafeUUID

import msgspec

from fairlane.core.ids import JobId, WorkerId
from fairlane.core.job import Lease
from fairlane.stores.sqlite.driver import Row
from fairlane.stores.sqlite.instants import from_us
from fairlane.stores.sqlite.transaction import Transaction, as_list

_set_int = UUID.int.__set__  # type: ignore[attr-defined, misc]
_set_is_safe = UUID.is_safe.__set__  # type: ignore[attr-defined, misc]
_UNKNOWN = SafeUUID.unknown
_new, _from_bytes = UUID.__new__, int.from_bytes


def uuid_from(raw: bytes) -> UUID:
    """Skips the checks of arguments that cannot be wrong here."""
    made = _new(UUID)
    _set_int(made, _from_bytes(raw, "big"))
    _set_is_safe(made, _UNKNOWN)
    return made


_COLUMNS = """
select l.seq, j.id, l.attempt, l.attempts, l.crashes, l.suspect, l.started_at, l.lane, j.type, j.tenant, j.queue,
  j.band, j.rank, l.due_at, l.leased_at, l.deadline_at, j.enqueued_at, j.max_attempts, j.payload_version, j.timeout_s,
  j.payload, j.category, j.idempotency_key, j.correlation_id, j.parent_id, j.created_by, j.refs, j.headers, j.retry,
  l.aged
"""
_BY_SEQ = f"""{_COLUMNS}
from json_each(?) c cross join fairlane_lease l on l.seq = c.value cross join fairlane_job j on j.seq = l.seq
"""
_BY_CLAIM = f"""{_COLUMNS}
from fairlane_lease l cross join fairlane_job j on j.seq = l.seq where l.worker = ? and l.claim_no = ? order by l.nth
"""
_decode_dict = msgspec.json.Decoder(dict).decode
# The leases of one claim share most of their instants.
_instant = lru_cache(maxsize=1024)(from_us)


def leases_by_seq(tx: Transaction, seqs: Sequence[int]) -> list[Lease]:
    """In the order given; each must be leased."""
    leases = {row[0]: _lease(row) for row in tx.db.execute(_BY_SEQ, (as_list(seqs),))}
    return [leases[seq] for seq in seqs]


def leases_of_claim(tx: Transaction, worker: WorkerId, claim_no: int) -> list[Lease]:
    return [_lease(row) for row in tx.db.execute(_BY_CLAIM, (worker.bytes, claim_no))]


def _lease(row: Row) -> Lease:
    (
        seq, job_id, attempt, attempts, crashes, suspect, started_at, lane, job_type, tenant, queue, band,
        rank, due_at, leased_at, deadline_at, enqueued_at, max_attempts, payload_version, timeout_s, payload,
        category, idempotency_key, correlation_id, parent_id, created_by, refs, headers, retry, aged,
    ) = row  # fmt: skip
    priority = band + rank
    if aged is not None:
        band, rank = (band, aged) if rank else (aged, rank)
    return Lease(
        seq=seq,
        id=JobId(uuid_from(job_id)),
        attempt=attempt,
        attempts=attempts,
        crashes=crashes,
        suspect=suspect == 1,
        started=started_at is not None,
        lane=lane,
        type=job_type,
        tenant=tenant,
        queue=queue,
        band=band,
        rank=rank,
        due_at=_instant(due_at),
        leased_at=_instant(leased_at),
        deadline_at=_instant(deadline_at),
        enqueued_at=_instant(enqueued_at),
        max_attempts=max_attempts,
        payload_version=payload_version,
        priority=priority,
        timeout_s=timeout_s,
        category=category,
        idempotency_key=idempotency_key,
        correlation_id=correlation_id,
        parent_id=None if parent_id is None else JobId(uuid_from(parent_id)),
        created_by=created_by,
        refs={} if refs is None else _decode_dict(refs),
        headers={} if headers is None else _decode_dict(headers),
        retry=None if retry is None else msgspec.Raw(retry.encode()),
        payload=payload,
    )
