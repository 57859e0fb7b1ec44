"""Keeping the file in order: its check, retention, and a purge for tests."""

from __future__ import annotations

from fairlane.core.ops import Health, Purge, Purged, Retain, Retained
from fairlane.stores.sqlite.driver import Driver
from fairlane.stores.sqlite.instants import from_us, to_us
from fairlane.stores.sqlite.limits.in_force import forget_read
from fairlane.stores.sqlite.migrator import current_state
from fairlane.stores.sqlite.transaction import Transaction, as_list

_FINISHED = """
select seq from fairlane_done where status <> 'dead' and finished_at < ? order by finished_at, seq limit ?
"""
_CLOSED = "select seq from fairlane_dead_letter where closed_at < ? order by closed_at, seq limit ?"
_OLD_FIGURES = """
delete from fairlane_stat where (minute, type, queue, tenant) in
  (select minute, type, queue, tenant from fairlane_stat where minute < ? order by minute limit 10000)
"""
_FACTS = ("attempt", "done", "dead_letter", "note", "job")
_LIMITS = ("held", "limit", "rate_use", "tenant")
_TABLES = ("ready", "scheduled", "lease", "attempt", "done", "dead_letter", "idempotency_key", "dedup_key", "job")
_WATCHING = ("audit", "audit_seal", "audit_unsealed", "credential", "event", "duty", "alert", "silence")
_KEYS = """
delete from fairlane_idempotency_key where (tenant, key) in
  (select tenant, idempotency_key from fairlane_job where seq in (select value from json_each(?)) and idempotency_key is not null)
"""

OLD_LIBRARY = (
    "SQLite {version} is older than 3.51.3, whose write-ahead log can corrupt a file used by several processes: "
    "the slower rollback journal is used instead. Set sqlite_library to apsw, or upgrade Python's SQLite"
)
STILL_WAL = (
    "SQLite {version} is older than 3.51.3 and the file is in write-ahead mode, held by another process: it can be corrupted. "
    "Stop every process using it, start one with this library, then the others; or use apsw in all of them"
)
NOT_SYNCED = "synchronous is {value}: a power failure may lose acknowledged jobs. Set it to full"
CLOCK_BEHIND = (
    "the machine's clock is {seconds:.0f} s behind the latest instant this file has seen, and time stands still here until it "
    "catches up. Correct the clock; if the file saw a wrong future, delete latest_us from fairlane_meta"
)
NOT_IN_PLACE = "the file was removed or replaced while this process had it open: what is written goes nowhere. Restart this process"
_FULL = 2


def health(tx: Transaction, version: str, *, wants_wal: bool, in_place: bool, clock_behind_us: int) -> Health:
    journal, synchronous = _pragma(tx.db, "journal_mode"), int(_pragma(tx.db, "synchronous"))
    degraded = []
    if not wants_wal:
        degraded.append((STILL_WAL if journal == "wal" else OLD_LIBRARY).format(version=version))
    if not in_place:
        degraded.append(NOT_IN_PLACE)
    if synchronous < _FULL:
        degraded.append(NOT_SYNCED.format(value=synchronous))
    if clock_behind_us > 2_000_000:
        degraded.append(CLOCK_BEHIND.format(seconds=clock_behind_us / 1e6))
    return Health(
        now=from_us(tx.now),
        store="sqlite",
        server=f"SQLite {version} ({tx.db.library})",
        schema_version=current_state(tx.db).expanded,
        durable=synchronous >= _FULL and in_place,
        degraded=tuple(degraded),
    )


def _pragma(db: Driver, name: str) -> str:
    return str(db.execute(f"pragma {name}")[0][0])


def retain(tx: Transaction, op: Retain) -> Retained:
    limit = max(op.limit, 0)
    seqs: list[int] = []
    if op.finished_before is not None:
        seqs += [seq for (seq,) in tx.db.execute(_FINISHED, (to_us(op.finished_before), limit))]
    if op.closed_before is not None:
        seqs += [seq for (seq,) in tx.db.execute(_CLOSED, (to_us(op.closed_before), limit - len(seqs)))]
    if seqs:
        listed = as_list(seqs)
        tx.db.execute(_KEYS, (listed,))
        for table in _FACTS:
            tx.db.execute(f"delete from fairlane_{table} where seq in (select value from json_each(?))", (listed,))  # noqa: S608
    if op.stats_before is not None:
        tx.db.execute(_OLD_FIGURES, (to_us(op.stats_before),))
    return Retained(jobs=len(seqs))


def purge(tx: Transaction, op: Purge) -> Purged:
    [(jobs,)] = tx.db.execute("select count(*) from fairlane_job")
    tx.db.execute("insert into fairlane_meta values ('purging', 1)")
    for table in (*_TABLES, "worker", "breaker", "schedule", "pause", "note", "stat", *_WATCHING, *_LIMITS):
        tx.db.execute(f"delete from fairlane_{table}")  # noqa: S608
    tx.db.execute("delete from fairlane_meta where name in ('purging', 'watched_until_us', 'rolled_up_seq')")
    forget_read(tx)
    return Purged(jobs=jobs)
