"""Whether the file is durable and safe, and what follows when the machine's clock is set back."""

from __future__ import annotations

import msgspec

from fairlane.core.breaker import BreakerRecord, begun_by
from fairlane.core.ops import CLOCK_HELD_S, BringBack, BroughtBack, Health, ReadSetBack, SetBack
from fairlane.stores.instants import from_us, maybe_from_us, span_us
from fairlane.stores.sqlite.driver import Driver
from fairlane.stores.sqlite.limits.in_force import forget_read
from fairlane.stores.sqlite.migrator import current_state
from fairlane.stores.sqlite.transaction import Transaction, change, reading

OLD_LIBRARY = (
    "SQLite {version} is older than 3.51.3, whose write-ahead log can corrupt a file used by several processes: "
    "the slower rollback journal is used instead. Set sqlite_library to apsw, or upgrade Python's SQLite"
)
STILL_WAL = (
    "SQLite {version} is older than 3.51.3 and the file is in write-ahead mode, held by another process: "
    "it can be corrupted. "
    "Stop every process using it, start one with this library, then the others; or use apsw in all of them"
)
NOT_SYNCED = "synchronous is {value}: a power failure may lose acknowledged jobs. Set it to full"
_FULL = 2

_SIGNS = """
select max(
  coalesce((select max(renewed_at) from fairlane_worker), 0), coalesce((select max(taken_at) from fairlane_duty), 0),
  coalesce((select enqueued_at from fairlane_job order by seq desc limit 1), 0))
"""
_BEGIN_NOW = (
    """
    update fairlane_worker set expires_at = ?1 + expires_at - renewed_at, renewed_at = ?1,
      registered_at = min(registered_at, ?1) where renewed_at > ?1
    """,
    """
    update fairlane_lease set
      deadline_at = deadline_at - max(coalesce(started_at, leased_at) - ?1, 0),
      started_at = min(started_at, ?1), leased_at = min(leased_at, ?1), due_at = min(due_at, ?1)
    where max(leased_at, coalesce(started_at, leased_at), due_at) > ?1
    """,
    "update fairlane_duty set taken_at = ?1 where taken_at > ?1",
    """
    update fairlane_alert set since = min(since, ?1), fired_at = min(fired_at, ?1), told_at = min(told_at, ?1),
      resolved_at = min(resolved_at, ?1)
    """,
    """
    insert into fairlane_rate_use (kind, name, queue, at, number)
    select kind, name, queue, ?1, sum(number) from fairlane_rate_use where at > ?1 group by kind, name, queue
    on conflict (kind, name, queue, at) do update set number = number + excluded.number
    """,
    "delete from fairlane_rate_use where at > ?1",
    "update fairlane_knock set at = 0 where at <> 0 and ?1 is not null",
)
_END_PAUSES = "update fairlane_limit set paused_until = null where paused_until > ? returning 1"
_KEEP = "insert or replace into fairlane_meta values (?, ?)"
_KEPT = "select name, value from fairlane_meta where name between 'set_back_at' and 'set_back_us'"
_EXAMINED_TO = "select value from fairlane_meta where name = 'set_back_seq'"
_WAITING = """
select seq from fairlane_ready where seq < ?1 union all select seq from fairlane_scheduled where seq < ?1
order by seq desc limit ?2
"""
_DUE_NOW = "update fairlane_ready set due_at = ?1 where seq between ?2 and ?3 and due_at > ?1 returning 1"
_BEGUN_AHEAD = "select seq, due_at, since from fairlane_scheduled where seq between ? and ? and since > ?"
_MOVE = "update fairlane_scheduled set due_at = ?, since = ? where seq = ?"
_MOVE_SLEEP = "update fairlane_step set until = ? where seq = ? and kind = 'sleep' and until = ?"
_MOVE_WAIT = "update fairlane_wait set until = ? where seq = ? and until = ?"


def health(tx: Transaction, version: str, *, wants_wal: bool) -> Health:
    journal, synchronous = _pragma(tx.db, "journal_mode"), int(_pragma(tx.db, "synchronous"))
    degraded = []
    if not wants_wal:
        degraded.append((STILL_WAL if journal == "wal" else OLD_LIBRARY).format(version=version))
    if synchronous < _FULL:
        degraded.append(NOT_SYNCED.format(value=synchronous))
    return Health(
        now=from_us(tx.now),
        store="sqlite",
        server=f"SQLite {version} ({tx.db.library})",
        schema_version=current_state(tx.db).expanded,
        durable=synchronous >= _FULL,
        degraded=tuple(degraded),
    )


def _pragma(db: Driver, name: str) -> str:
    return str(db.execute(f"pragma {name}")[0][0])


@change
def bring_back(tx: Transaction, op: BringBack) -> BroughtBack:
    behind_us = span_us(op.behind_s or 0.0)
    goes_on = bool(tx.db.execute(_EXAMINED_TO))
    if not behind_us and not goes_on:
        seen_us = tx.db.execute(_SIGNS)[0][0] - tx.now
        behind_us = seen_us if seen_us > span_us(CLOCK_HELD_S) else 0
    if behind_us > 0:
        _begin_now(tx)
        tx.db.executemany(_KEEP, [("set_back_at", tx.now), ("set_back_us", behind_us), ("set_back_seq", 2**63 - 1)])
    moved, more = _move_waiting(tx, max(op.limit, 0)) if behind_us > 0 or goes_on else (0, False)
    return BroughtBack(now=from_us(tx.now), behind_s=behind_us / 1e6, moved=moved, more=more)


def _begin_now(tx: Transaction) -> None:
    for statement in _BEGIN_NOW:
        tx.db.execute(statement, (tx.now,))
    now = from_us(tx.now)
    for name, text in tx.db.execute("select name, breaker from fairlane_breaker"):
        kept = msgspec.json.decode(text, type=BreakerRecord)
        if (begun := begun_by(kept, now)) != kept:
            document = msgspec.json.encode(begun).decode()
            tx.db.execute("update fairlane_breaker set breaker = ? where name = ?", (document, name))
    if tx.db.execute(_END_PAUSES, (tx.now,)):
        forget_read(tx)


def _move_waiting(tx: Transaction, limit: int) -> tuple[int, bool]:
    """How many jobs were moved, and whether others are left to be examined."""
    [(examined_to,)] = tx.db.execute(_EXAMINED_TO)
    seqs = [seq for (seq,) in tx.db.execute(_WAITING, (examined_to, limit))]
    moved = 0
    if seqs:
        newest, oldest = seqs[0], seqs[-1]
        moved = len(tx.db.execute(_DUE_NOW, (tx.now, oldest, newest)))
        for seq, due_at, since in tx.db.execute(_BEGUN_AHEAD, (oldest, newest, tx.now)):
            at = tx.now + max(due_at - since, 0)
            tx.db.execute(_MOVE, (at, tx.now, seq))
            for statement in (_MOVE_SLEEP, _MOVE_WAIT):
                tx.db.execute(statement, (at, seq, due_at))
            moved += 1
        tx.db.execute(_KEEP, ("set_back_seq", oldest))
    if len(seqs) < limit:
        tx.db.execute("delete from fairlane_meta where name = 'set_back_seq'")
    return moved, len(seqs) >= limit


@reading
def read_set_back(tx: Transaction, op: ReadSetBack) -> SetBack:
    kept: dict[str, int] = dict(tx.db.execute(_KEPT))
    at, behind_us = kept.get("set_back_at"), kept.get("set_back_us", 0)
    return SetBack(now=from_us(tx.now), at=maybe_from_us(at), behind_s=behind_us / 1e6)
