"""Whether the file is durable and safe."""

from __future__ import annotations

from fairlane.core.ops import Health
from fairlane.stores.instants import from_us
from fairlane.stores.sqlite.driver import Driver
from fairlane.stores.sqlite.migrator import current_state
from fairlane.stores.sqlite.transaction import Transaction

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
CLOCK_BEHIND = (
    "the machine's clock is {seconds:.0f} s behind the latest instant this file has seen, and time stands still "
    "here until it "
    "catches up. Correct the clock; if the file saw a wrong future, delete latest_us from fairlane_meta"
)
_FULL = 2


def health(tx: Transaction, version: str, *, wants_wal: bool, clock_behind_us: int) -> Health:
    journal, synchronous = _pragma(tx.db, "journal_mode"), int(_pragma(tx.db, "synchronous"))
    degraded = []
    if not wants_wal:
        degraded.append((STILL_WAL if journal == "wal" else OLD_LIBRARY).format(version=version))
    if synchronous < _FULL:
        degraded.append(NOT_SYNCED.format(value=synchronous))
    if clock_behind_us > 2_000_000:
        degraded.append(CLOCK_BEHIND.format(seconds=clock_behind_us / 1e6))
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
