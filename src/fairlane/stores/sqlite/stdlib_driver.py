"""The interpreter's own sqlite3, for applications that enqueue through their own sqlite3 connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from fairlane.stores.sqlite.driver import Library, Row, translated, unstorable


class StdlibDriver:
    library: Library = "stdlib"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._cursor = connection.cursor()
        self._cursor.row_factory = None

    @classmethod
    def open(cls, path: str) -> StdlibDriver:
        try:
            return cls(
                sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256, timeout=0)
            )
        except sqlite3.Error as error:
            raise translated(error, _code(error)) from error

    def execute(self, sql: str, params: Sequence[object] = ()) -> list[Row]:
        try:
            return self._cursor.execute(sql, _bound(sql, params)).fetchall()
        except sqlite3.Error as error:
            raise translated(error, _code(error)) from error
        except (UnicodeEncodeError, OverflowError) as error:
            raise unstorable(error) from error

    def executemany(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        try:
            self._cursor.executemany(sql, (_bound(sql, row) for row in rows))
        except sqlite3.Error as error:
            raise translated(error, _code(error)) from error
        except (UnicodeEncodeError, OverflowError) as error:
            raise unstorable(error) from error

    def in_transaction(self) -> bool:
        return self.connection.in_transaction

    def copy_to(self, other: StdlibDriver) -> None:
        self.connection.backup(other.connection)

    def close(self) -> None:
        self.connection.close()


def _bound(sql: str, params: Sequence[object]) -> Sequence[object] | dict[str, object]:
    """Values for `?1, ?2, …` by name: Python 3.12.0 to 3.12.3 deprecate numbered parameters with a sequence."""
    return {str(number): value for number, value in enumerate(params, 1)} if "?1" in sql else params


def _code(error: sqlite3.Error) -> int | None:
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def library_version() -> str:
    return sqlite3.sqlite_version
