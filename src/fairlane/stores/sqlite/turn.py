"""A worker's Turn: settles, promotes, reclaims and claims in one transaction; aging of waiting jobs; reading leases."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from uuid import UUID, SafeUUID

import msgspec
from msgspec.structs import replace

from fairlane.core.ids import JobId, Seq, WorkerId
from fairlane.core.job import Lease
from fairlane.core.ops import Age, Aged, Promote, Promoted, Survey, Turn, TurnResult
from fairlane.errors import StoreError, StoreRefused
from fairlane.stores.instants import before, from_us, maybe_from_us, span_us
from fairlane.stores.sqlite.claims import Barred, claim, marks_of, survey
from fairlane.stores.sqlite.driver import Row
from fairlane.stores.sqlite.facts import BAND, RANK, are_keys_used, hold_at_keys
from fairlane.stores.sqlite.job_keys.places import NOBODY, let_in
from fairlane.stores.sqlite.limits.in_force import applicable_limits
from fairlane.stores.sqlite.limits.room import Room, count_leases_from_now_on
from fairlane.stores.sqlite.lines import LineName, Position
from fairlane.stores.sqlite.listener import wake_for_ready, wake_for_room
from fairlane.stores.sqlite.pauses import paused
from fairlane.stores.sqlite.reclaim import reclaim_lapsed
from fairlane.stores.sqlite.settle import settle, start
from fairlane.stores.sqlite.transaction import Transaction, as_list, change
from fairlane.stores.sqlite.workflows.gates import end_nodes

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
select l.seq, j.id, l.attempt, l.claim_no, l.attempts, l.crashes, l.suspect, l.started_at, l.lane, j.type, j.tenant,
  j.queue, j.band, j.rank, l.due_at, l.leased_at, l.deadline_at, j.enqueued_at, j.max_attempts, j.payload_version,
  j.timeout_s,
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
    leases: dict[int, Lease] = {lease.seq: lease for lease in _leases(tx, _BY_SEQ, (as_list(seqs),))}
    return [leases[seq] for seq in seqs]


def leases_of_claim(tx: Transaction, worker: WorkerId, claim_no: int) -> list[Lease]:
    return _leases(tx, _BY_CLAIM, (worker.bytes, claim_no))


def _leases(tx: Transaction, sql: str, params: tuple[object, ...]) -> list[Lease]:
    """One row that cannot be read costs nobody the others."""
    try:
        return [_lease(row) for row in tx.db.execute(sql, params)]
    except (StoreError, msgspec.MsgspecError, ValueError, TypeError, AttributeError):
        as_bytes = re.sub(rf"\b{_TEXTS}\b", r"cast(\g<0> as blob)", sql)
        return [_lease_or_reason(row) for row in tx.db.execute(as_bytes, params)]


_TEXTS = r"j\.(?:type|tenant|queue|payload|category|idempotency_key|correlation_id|created_by|refs|headers|retry)"
_UUIDS = (1, 25)
"""Places of the columns that are bytes by nature."""
_DOCUMENTS = slice(27, 30)
"""Places of refs, headers and retry."""


def _lease_or_reason(row: Row) -> Lease:
    reason, texts = None, list(row)
    for place, value in enumerate(row):
        if isinstance(value, bytes) and place not in _UUIDS:
            texts[place] = value.decode("utf-8", "replace")
            if texts[place].encode() != value:
                reason = "its text is not valid UTF-8"
    try:
        lease = _lease(tuple(texts))
    except (msgspec.MsgspecError, ValueError, TypeError, AttributeError) as error:
        reason, texts[_DOCUMENTS] = f"its row cannot be read: {error}", (None, None, None)
        lease = _lease(tuple(texts))
    return lease if reason is None else replace(lease, unreadable=reason)


def _lease(row: Row) -> Lease:
    (
        seq, job_id, attempt, claim_no, attempts, crashes, suspect, started_at, lane, job_type, tenant, queue, band,
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
        claim_no=claim_no,
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


_DUE = "select seq from fairlane_scheduled where due_at <= ? order by due_at, seq limit ?"
_PROMOTE = f"""
insert into fairlane_ready (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, put_off)
select s.seq, j.queue, {BAND.format(aged="s.aged")}, j.tenant, {RANK.format(aged="s.aged")}, s.due_at, j.type,
  s.attempt, s.attempts, s.crashes, s.suspect, s.put_off
from json_each(?) c cross join fairlane_scheduled s on s.seq = c.value cross join fairlane_job j on j.seq = s.seq
"""  # noqa: S608
_UNSCHEDULE = "delete from fairlane_scheduled where seq in (select value from json_each(?))"
_CANCELS = "select seq from fairlane_lease where worker = ? and cancel_requested order by seq"
_REGISTERED = "select waiting from fairlane_worker where id = ? and expires_at > ?"
_MARK_WAITING = "update fairlane_worker set waiting = ? where id = ?"
_NEXT_BAND = "select min(band) from fairlane_ready where queue = ? and band > ?"
_NEXT_TENANT = "select min(tenant) from fairlane_ready where queue = ? and band = ? and tenant > ?"
_NEXT_RANK = "select min(rank) from fairlane_ready where queue = ? and band = ? and tenant = ? and rank > ?"
# The jobs of one line that are due for a step up; those that moved and are not due for their next step are left out.
_OLD = """
select r.seq, max(j.band + j.rank - (?1 - r.due_at) / ?2, 0) reached
from fairlane_ready r cross join fairlane_job j on j.seq = r.seq
where r.queue = ?3 and r.band = ?4 and r.tenant = ?5 and r.rank = ?6 and r.due_at <= ?7
  and max(j.band + j.rank - (?1 - r.due_at) / ?2, 0) < r.band + r.rank
order by r.due_at, r.seq limit ?8
"""
_MOVE_BAND = "update fairlane_ready set band = ? where seq = ?"
_MOVE_RANK = "update fairlane_ready set rank = ? where seq = ?"


@change
def turn(tx: Transaction, op: Turn) -> TurnResult:
    applicable = applicable_limits(tx, op.limits)
    if applicable is not None and applicable.counts_leases:
        count_leases_from_now_on(tx)
    unstarted = start(tx, op.worker, op.starts) if op.starts else []
    stale = settle(tx, op.worker, op.outcomes) if op.outcomes else []
    promote_due(tx, op.promote_limit)
    reclaimed = reclaim_lapsed(tx, op.reclaim_limit)
    if tx.ended:
        end_nodes(tx)  # before claiming: this Turn may take what it has let go
    at_keys = let_in(tx) if are_keys_used(tx) else NOBODY
    tx.left_key = False
    registered = tx.db.execute(_REGISTERED, (op.worker.bytes, tx.now))
    limited = applicable is not None and applicable.limits_claims(tx.now)
    claims = Claims(tx, op, Room(tx, applicable) if applicable is not None and limited else None)
    leases: list[Lease] = []
    if registered:
        if op.wants:
            # A claim that is repeated because its reply was lost gets the leases it made.
            leases = leases_of_claim(tx, op.worker, op.claim_no) or claims.make()
        if op.waiting != registered[0][0]:
            tx.db.execute(_MARK_WAITING, (op.waiting, op.worker.bytes))
    if tx.freed and (op.wants or op.limits):
        wake_for_room(tx, applicable, leases, but=op.worker)
    elif tx.freed:  # who claims nothing gives no limits: one that is not known here may have counted them
        tx.freed.clear()
        wake_for_ready(tx, but=op.worker)
    if not at_keys.seqs.issubset(lease.seq for lease in leases):
        wake_for_ready(tx, but=op.worker)
    hints = (at_keys.until, None if claims.room is None else claims.room.free_at())
    return TurnResult(
        now=from_us(tx.now),
        leases=tuple(leases),
        refused=(*stale, *unstarted),
        cancels=tuple(Seq(seq) for (seq,) in tx.db.execute(_CANCELS, (op.worker.bytes,))),
        registered=bool(registered),
        marks=marks_of(claims.marks),
        cursors=claims.cursors,
        next_due_at=maybe_from_us(_next_due(tx)),
        reclaimed=tuple(reclaimed),
        surveys=tuple(claims.surveys),
        limited=limited,
        held_back=claims.room is not None and claims.room.is_short_for_tasks,
        limited_until=maybe_from_us(min((at for at in hints if at is not None), default=None)),
    )


class Claims:
    """What the Wants of one Turn get, and how far they looked for it."""

    def __init__(self, tx: Transaction, op: Turn, room: Room | None) -> None:
        self._tx, self._op = tx, op
        self.room = room
        self.marks: dict[LineName, Position] = {}
        self.cursors: dict[str, str] = {}
        self.surveys: list[Survey] = []

    def make(self) -> list[Lease]:
        tx, op = self._tx, self._op
        limits = Barred(paused(tx), self.room)
        seqs: list[int] = []
        for want in op.wants:
            chosen = claim(tx, want, op.worker, op.claim_no, len(seqs), limits, self.marks)
            seqs += chosen.seqs
            if chosen.discovered is not None:
                self.cursors[want.lane] = chosen.discovered[2]
                if want.survey > 0:
                    self.surveys.append(survey(tx, want, chosen.discovered, limits.paused))
        return leases_by_seq(tx, seqs) if seqs else []


@change
def promote(tx: Transaction, op: Promote) -> Promoted:
    return Promoted(count=promote_due(tx, op.limit), next_due_at=maybe_from_us(_next_due(tx)))


def promote_due(tx: Transaction, limit: int) -> int:
    due = [seq for (seq,) in tx.db.execute(_DUE, (tx.now, max(limit, 0)))]
    if due:
        seqs = as_list(due)
        tx.db.execute(_PROMOTE, (seqs,))
        tx.db.execute(_UNSCHEDULE, (seqs,))
        hold_at_keys(tx, due)
    return len(due)


def _next_due(tx: Transaction) -> int | None:
    at: int | None = tx.db.execute("select min(due_at) from fairlane_scheduled")[0][0]
    return at


@change
def age(tx: Transaction, op: Age) -> Aged:
    step = span_us(op.every_s)
    if step <= 0:
        raise StoreRefused("sqlite", f"every_s = {op.every_s!r} is no span to age by; nothing was changed")
    moved: list[tuple[int, int, int]] = []
    for band, tenant, rank in _lines_of(tx, op.queue):
        left = op.limit - len(moved)
        if left <= 0:
            break
        line = (op.queue, band, tenant, rank)
        rows = tx.db.execute(_OLD, (tx.now, step, *line, before(tx.now, op.every_s), left))
        moved += [(reached, seq, rank) for seq, reached in rows]
    tx.db.executemany(_MOVE_BAND, [(reached, seq) for reached, seq, rank in moved if not rank])
    tx.db.executemany(_MOVE_RANK, [(reached, seq) for reached, seq, rank in moved if rank])
    return Aged(count=len(moved))


def _lines_of(tx: Transaction, queue: str) -> Iterator[tuple[int, str, int]]:
    """Bands, tenants and ranks with ready jobs, in order, each found by a seek behind the one before."""
    band = -1
    while (band := tx.db.execute(_NEXT_BAND, (queue, band))[0][0]) is not None:
        tenant = ""
        while (tenant := tx.db.execute(_NEXT_TENANT, (queue, band, tenant))[0][0]) is not None:
            rank = -1
            while (rank := tx.db.execute(_NEXT_RANK, (queue, band, tenant, rank))[0][0]) is not None:
                if band or rank:
                    yield band, tenant, rank
