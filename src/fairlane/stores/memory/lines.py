"""Ready jobs in the order they are claimed: a line for each tenant in each band of each queue."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlane.stores.memory.facts import Row

LineKey = tuple[str, int, str]
"""Queue, band, tenant."""

Key = tuple[int, datetime, int]
"""Rank, due time, seq: a job's place in its line."""

Entry = tuple[int, datetime, int, "Row"]

_MUCH_GAP = 64


class Line:
    """One tenant's ready jobs: a sorted list with a moving head.

    Most jobs join at the end and leave at the head, both in no time. What is given back belongs near the head and goes
    into the gap there; elsewhere the shorter side moves, so that a long line costs little wherever it changes.
    """

    __slots__ = ("entries", "head", "tenant")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.entries: list[Entry] = []
        self.head = 0

    def __len__(self) -> int:
        return len(self.entries) - self.head

    def add(self, entry: Entry) -> None:
        entries = self.entries
        if self.head > _MUCH_GAP and self.head * 2 > len(entries):
            del entries[: self.head]
            self.head = 0
        if not entries or entry > entries[-1] or self.head == len(entries):
            entries.append(entry)
            return
        head, at = self.head, bisect_left(entries, entry, self.head)
        if head and at - head <= len(entries) - at:
            entries[head - 1 : at - 1] = entries[head:at]
            entries[at - 1] = entry
            self.head = head - 1
        else:
            entries.insert(at, entry)

    def find(self, key: Key) -> int:
        """Where the job with this key is; it must be there."""
        return bisect_left(self.entries, key, self.head)  # a tuple sorts before its own extension

    def behind(self, key: Key) -> int:
        rank, due_at, seq = key
        return bisect_left(self.entries, (rank, due_at, seq + 1), self.head)

    def remove(self, at: int) -> int:
        """Take the entry at `at` out; returns where the one behind it is now."""
        entries, head = self.entries, self.head
        if at - head > len(entries) - at:
            del entries[at]
            return at
        if at != head:
            entries[head + 1 : at + 1] = entries[head:at]
        entries[head] = _GAP
        self.head = head + 1
        return at + 1

    def due_before(self, until: datetime) -> Iterator[Entry]:
        """Those that were due at or before an instant, rank by rank."""
        at = self.head
        while at < len(self.entries):
            rank, due_at = self.entries[at][:2]
            if due_at <= until:
                yield self.entries[at]
                at += 1
            else:
                at = bisect_left(self.entries, (rank + 1,), at)

    def oldest_due_at(self) -> datetime | None:
        """The earliest due time, found rank by rank."""
        oldest, at = None, self.head
        while at < len(self.entries):
            rank, due_at = self.entries[at][:2]
            oldest = due_at if oldest is None or due_at < oldest else oldest
            at = bisect_left(self.entries, (rank + 1,), at)
        return oldest


_GAP: Entry = (-1, datetime.min.replace(tzinfo=UTC), -1, None)  # type: ignore[assignment]
"""Stands where an entry was, so that a line keeps no job alive that has left it."""


class Ready:
    """Every line, found by its key, and by queue, band and tenant in order."""

    def __init__(self) -> None:
        self.count = 0
        self.lines: dict[LineKey, Line] = {}
        self.tenants: dict[str, dict[int, list[str]]] = {}
        """By queue and band: the tenants that have a line, sorted. A line may be empty until a claim meets it."""

    def add(self, row: Row) -> None:
        line = self.lines.get(row.line)
        if line is None:
            queue, band, tenant = row.line
            line = self.lines[row.line] = Line(tenant)
            insort(self.tenants.setdefault(queue, {}).setdefault(band, []), tenant)
        line.add((row.rank, row.due_at, row.seq, row))
        self.count += 1

    def remove(self, row: Row) -> None:
        line = self.lines[row.line]
        line.remove(line.find((row.rank, row.due_at, row.seq)))
        self.count -= 1

    def drop_if_empty(self, key: LineKey) -> None:
        line = self.lines.get(key)
        if line is None or len(line):
            return
        queue, band, tenant = key
        del self.lines[key]
        names = self.tenants[queue][band]
        del names[bisect_left(names, tenant)]
        if not names:
            del self.tenants[queue][band]
        if not self.tenants[queue]:
            del self.tenants[queue]
