"""The worker's operations: Turn, Promote, Renew, Retire."""

from __future__ import annotations

import msgspec

from fairlane.core.ids import Seq
from fairlane.core.job import Lease
from fairlane.core.ops import Promote, Promoted, Renew, Renewed, Retire, Retired, Survey, Turn, TurnResult
from fairlane.core.outcome import Released
from fairlane.stores.sqlite.claims import Limits, claim, marks_of, survey
from fairlane.stores.sqlite.facts import BAND, RANK
from fairlane.stores.sqlite.instants import after, from_us, maybe_from_us
from fairlane.stores.sqlite.leases import leases_by_seq, leases_of_claim
from fairlane.stores.sqlite.limits.in_force import heed
from fairlane.stores.sqlite.limits.leased import count_leases_from_now_on
from fairlane.stores.sqlite.limits.room import Room
from fairlane.stores.sqlite.lines import LineName, Position
from fairlane.stores.sqlite.listener import wake_for_ready, wake_for_room
from fairlane.stores.sqlite.pauses import paused
from fairlane.stores.sqlite.reclaim import reclaim_lapsed
from fairlane.stores.sqlite.settle import settle, start
from fairlane.stores.sqlite.transaction import Transaction, as_list

_DUE = "select seq from fairlane_scheduled where due_at <= ? order by due_at, seq limit ?"
_PROMOTE = f"""
insert into fairlane_ready (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect)
select s.seq, j.queue, {BAND.format(aged="s.aged")}, j.tenant, {RANK.format(aged="s.aged")}, s.due_at, j.type,
  s.attempt, s.attempts, s.crashes, s.suspect
from json_each(?) c cross join fairlane_scheduled s on s.seq = c.value cross join fairlane_job j on j.seq = s.seq
"""  # noqa: S608
_UNSCHEDULE = "delete from fairlane_scheduled where seq in (select value from json_each(?))"
_CANCELS = "select seq from fairlane_lease where worker = ? and cancel_requested order by seq"
_REGISTERED = "select waiting from fairlane_worker where id = ? and expires_at > ?"
_MARK_WAITING = "update fairlane_worker set waiting = ? where id = ?"
_RENEW = """
insert into fairlane_worker (id, name, queues, types, wake_address, figures, registered_at, renewed_at, expires_at)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?8)
on conflict (id) do update set name = excluded.name, queues = excluded.queues, types = excluded.types,
  wake_address = excluded.wake_address, figures = excluded.figures, renewed_at = excluded.renewed_at, expires_at = excluded.expires_at
"""


def turn(tx: Transaction, op: Turn) -> TurnResult:
    heeded = heed(tx, op.limits)
    if heeded is not None and heeded.counts_leases:
        count_leases_from_now_on(tx)
    unstarted = start(tx, op.worker, op.starts) if op.starts else []
    stale = settle(tx, op.worker, op.outcomes) if op.outcomes else []
    promote_due(tx, op.promote_limit)
    reclaimed = reclaim_lapsed(tx, op.reclaim_limit)
    registered = tx.db.execute(_REGISTERED, (op.worker.bytes, tx.now))
    limited = heeded is not None and heeded.limits_claims(tx.now)
    claims = Claims(tx, op, Room(tx, heeded) if heeded is not None and limited else None)
    leases: list[Lease] = []
    if registered:
        if op.wants:
            leases = leases_of_claim(tx, op.worker, op.claim_no) or claims.make()
        if op.waiting != registered[0][0]:
            tx.db.execute(_MARK_WAITING, (op.waiting, op.worker.bytes))
    if tx.freed and (op.wants or op.limits):
        wake_for_room(tx, heeded, leases, but=op.worker)
    elif tx.freed:  # who claims nothing gives no limits: one that is not known here may have counted them
        tx.freed.clear()
        wake_for_ready(tx, but=op.worker)
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
        limited_until=None if claims.room is None else maybe_from_us(claims.room.free_at()),
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
        limits = Limits(paused(tx), self.room)
        seqs: list[int] = []
        for want in op.wants:
            chosen = claim(tx, want, op.worker, op.claim_no, len(seqs), limits, self.marks)
            seqs += chosen.seqs
            if chosen.discovered is not None:
                self.cursors[want.lane] = chosen.discovered[2]
                if want.survey > 0:
                    self.surveys.append(survey(tx, want, chosen.discovered, limits.stopped))
        return leases_by_seq(tx, seqs) if seqs else []


def promote_due(tx: Transaction, limit: int) -> int:
    due = [seq for (seq,) in tx.db.execute(_DUE, (tx.now, max(limit, 0)))]
    if due:
        seqs = as_list(due)
        tx.db.execute(_PROMOTE, (seqs,))
        tx.db.execute(_UNSCHEDULE, (seqs,))
    return len(due)


def _next_due(tx: Transaction) -> int | None:
    at: int | None = tx.db.execute("select min(due_at) from fairlane_scheduled")[0][0]
    return at


def promote(tx: Transaction, op: Promote) -> Promoted:
    return Promoted(count=promote_due(tx, op.limit), next_due_at=maybe_from_us(_next_due(tx)))


def renew(tx: Transaction, op: Renew) -> Renewed:
    expires_at = after(tx.now, op.lease_s)
    fresh = not tx.db.execute("select 1 from fairlane_worker where id = ?", (op.worker.bytes,))
    queues, types, figures = (msgspec.json.encode(value).decode() for value in (op.queues, op.types, op.figures))
    tx.db.execute(_RENEW, (op.worker.bytes, op.name, queues, types, op.wake_address, figures, tx.now, expires_at))
    return Renewed(now=from_us(tx.now), expires_at=from_us(expires_at), fresh=fresh)


def retire(tx: Transaction, op: Retire) -> Retired:
    held = tx.db.execute("select seq, attempt from fairlane_lease where worker = ? order by seq", (op.worker.bytes,))
    settle(tx, op.worker, [Released(seq=Seq(seq), attempt=attempt) for seq, attempt in held])
    tx.db.execute("delete from fairlane_worker where id = ?", (op.worker.bytes,))
    return Retired(released=len(held))
