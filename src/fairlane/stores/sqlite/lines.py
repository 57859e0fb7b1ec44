"""One tenant's line of ready jobs, read a page at a time as a claim goes along it."""

from __future__ import annotations

from collections.abc import Callable

from fairlane.core.ops import Want
from fairlane.stores.sqlite.driver import Row
from fairlane.stores.sqlite.transaction import Transaction

LineName = tuple[str, int, str]
"""Queue, band, tenant."""
Position = tuple[int, int, int]
"""Rank, due, seq: where a job stands in its line."""
Wanted = Callable[[str], bool]
"""Whether a job of this type is to be taken."""
BEFORE_ALL: Position = (-1, 0, 0)
# The rows behind a position are read in three steps that each seek. With (rank, due_at, seq) > (?, ?, ?) SQLite walks
# every job of that rank and instant: 9 ms behind 100,000 jobs of one enqueue. (tests/unit/test_sqlite_plans.py)
_LINE = "select rank, due_at, seq, type, put_off from fairlane_ready where queue = ? and band = ? and tenant = ?"
_SAME_INSTANT = f"{_LINE} and rank = ? and due_at = ? and seq > ? order by seq limit ?"
_LATER_INSTANTS = f"{_LINE} and rank = ? and due_at > ? order by due_at, seq limit ?"
_NEXT_RANKS = f"{_LINE} and rank > ? order by rank, due_at, seq limit ?"


class Line:
    """One tenant's line in one band, read a page at a time; remembers what it has looked at."""

    __slots__ = ("_at", "_name", "_page", "_position", "_rows", "_want", "last_looked", "looked")

    def __init__(self, name: LineName, want: Want) -> None:
        self._name, self._want = name, want
        self._rows: list[Row] = []
        self._at = 0
        self._page = 0
        self._position = self.last_looked = BEFORE_ALL
        self.looked = 0

    def begin_with(self, rows: list[Row]) -> None:
        """Use rows read together with those of other lines, unless this line has been begun."""
        if self.last_looked == BEFORE_ALL:
            self._position, self._rows, self._at = BEFORE_ALL, sorted(rows), 0

    def take(
        self, tx: Transaction, is_wanted: Wanted | None, count: int, page: int, after: Position = BEFORE_ALL
    ) -> list[Row]:
        """The rows of the next `count` jobs of wanted types, passing over others, within the want's `look`.

        Continues after what was looked at last; `after` moves this one call further, and no later one.
        """
        begin = max(after, self.last_looked)
        if begin != self._position:
            self._position, self._rows, self._at, self._page = begin, [], 0, 0
        found: list[Row] = []
        while len(found) < count and self.looked < self._want.look:
            if self._at >= len(self._rows) and not self._read_on(tx, page):
                break
            found += self._go_on(is_wanted, count - len(found))
        return found

    def _go_on(self, is_wanted: Wanted | None, count: int) -> list[Row]:
        """Look at the rows of this page up to the `count`th wanted one; there is at least one."""
        begin, end = self._at, min(len(self._rows), self._at + self._want.look - self.looked)
        if is_wanted is None:
            self._at = min(end, begin + count)
            found = self._rows[begin : self._at]
        else:
            found = []
            while self._at < end and len(found) < count:
                row = self._rows[self._at]
                self._at += 1
                if is_wanted(row[3]) and not (row[4] and row[3] in self._want.leaves):
                    found.append(row)
        self.looked += self._at - begin
        self._position = self.last_looked = self._rows[self._at - 1][:3]
        return found

    def _read_on(self, tx: Transaction, page: int) -> bool:
        # Twice as much each time: a line full of jobs that are passed over is passed in few statements.
        self._page = min(max(page, 2 * self._page), self._want.look - self.looked)
        self._rows, self._at = _rows_behind(tx, self._name, self._position, self._page), 0
        return bool(self._rows)


def _rows_behind(tx: Transaction, line: LineName, position: Position, limit: int) -> list[Row]:
    rank, due_at, seq = position
    rows: list[Row] = []
    if position != BEFORE_ALL:
        rows = tx.db.execute(_SAME_INSTANT, (*line, rank, due_at, seq, limit))
        if len(rows) < limit:
            rows += tx.db.execute(_LATER_INSTANTS, (*line, rank, due_at, limit - len(rows)))
    if len(rows) < limit:
        rows += tx.db.execute(_NEXT_RANKS, (*line, rank, limit - len(rows)))
    return rows
