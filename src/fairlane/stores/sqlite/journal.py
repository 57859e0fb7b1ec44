"""The journal of a file: the write-ahead log, or the rollback journal where a SQLite is too old to share one."""

from __future__ import annotations

from pathlib import Path

from fairlane.errors import ConfigError
from fairlane.stores.sqlite.driver import Driver, Locked
from fairlane.stores.sqlite.migrator import current_state

FIRST_SAFE_WAL = (3, 51, 3)
"""Before this version a checkpoint in one process could reset the write-ahead log under a writer in another, and
corrupt the file."""

TOO_OLD = (
    "SQLite {version} of this process cannot share {place} with those that use it through a newer one: before 3.51.3 "
    'its write-ahead log was not safe. Set sqlite_library = "apsw" here, or stop them all and start this process first'
)


def set_journal(db: Driver, place: Path, version: str) -> None:
    """Use the write-ahead log, unless this library, or another process's, is too old to share one."""
    wanted = "wal" if is_wal_safe(version) else "truncate"
    [(mode,)] = db.execute("pragma journal_mode")
    if wanted == "wal" and (mode == "wal" or keeps_rollback_journal(db)):
        return
    try:
        db.execute(f"pragma journal_mode = {wanted}")
    except Locked:
        if mode != "wal":
            raise
        raise ConfigError(TOO_OLD.format(version=version, place=place)) from None


def is_wal_safe(version: str) -> bool:
    return as_numbers(version) >= FIRST_SAFE_WAL


def keeps_rollback_journal(db: Driver) -> bool:
    """Whether a process whose library is too old for the write-ahead log uses this file."""
    if current_state(db).expanded == 0:
        return False
    return bool(db.execute("select 1 from fairlane_meta where name = 'rollback_journal'"))


def keep_rollback_journal(db: Driver) -> None:
    db.execute("insert or replace into fairlane_meta values ('rollback_journal', 1)")


def as_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
