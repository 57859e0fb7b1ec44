"""The default library: apsw, which brings a current SQLite with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import apsw

from fairlane.stores.sqlite.driver import Library, Row, translated, unstorable


class ApswDriver:
    library: Library = "apsw"

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self._cursor = connection.cursor()
        # A caller's own connection may have tracers that change rows or veto statements.
        self._cursor.row_trace = None
        self._cursor.exec_trace = None

    @classmethod
    def open(cls, path: str) -> ApswDriver:
        try:
            connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE, statementcachesize=256)
            # Plans do not depend on values: otherwise statements with a range are prepared again at every call, at 5 to
            # 70 µs.
            connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
            return cls(connection)
        except apsw.Error as error:
            raise translated(error, _code(error)) from error

    def execute(self, sql: str, params: Sequence[object] = ()) -> list[Row]:
        try:
            return self._cursor.execute(sql, params).fetchall()
        except apsw.Error as error:
            raise translated(error, _code(error)) from error
        except (UnicodeEncodeError, OverflowError) as error:
            raise unstorable(error) from error

    def executemany(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        try:
            self._cursor.executemany(sql, rows)
        except apsw.Error as error:
            raise translated(error, _code(error)) from error
        except (UnicodeEncodeError, OverflowError) as error:
            raise unstorable(error) from error

    def in_transaction(self) -> bool:
        return self.connection.in_transaction

    def copy_to(self, other: ApswDriver) -> None:
        with other.connection.backup("main", self.connection, "main") as backup:
            backup.step()

    def close(self) -> None:
        self.connection.close(True)


def _code(error: apsw.Error) -> int | None:
    return getattr(error, "result", None)


def library_version() -> str:
    return apsw.sqlite_lib_version()
