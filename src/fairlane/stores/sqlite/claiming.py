"""Choosing ready jobs, fair over tenants, and leasing them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from fairlane.core.ids import Seq, WorkerId
from fairlane.core.ops import Mark, Want
from fairlane.stores.sqlite.instants import LATEST_US, from_us, span_us, to_us
from fairlane.stores.sqlite.transaction import Transaction, seq_list

LineName = tuple[str, int, str]
"""Queue, band, tenant."""
Position = tuple[int, int, int]
"""Rank, due, seq: where a job stands in its line."""

BEFORE_ALL: Position = (-1, 0, 0)

_NEXT_BAND = "select min(band) from fairlane_ready where queue = ? and band > ?"
# Seeks from tenant to tenant: its cost grows with the tenants asked for, not with the jobs waiting.
_TENANTS = """
with recursive line(tenant) as (
  select min(tenant) from fairlane_ready where queue = ?1 and band = ?2 and tenant > ?3
  union all
  select (select min(tenant) from fairlane_ready where queue = ?1 and band = ?2 and tenant > line.tenant)
  from line where line.tenant is not null)
select tenant from line where tenant is not null limit ?4
"""
_NO_TENANT = ""
_ROWS = """
select rank, due_at, seq, type from fairlane_ready
where queue = ? and band = ? and tenant = ? and (rank, due_at, seq) > (?, ?, ?) order by rank, due_at, seq limit ?
"""
_LEASE = """
insert into fairlane_lease (seq, worker, claim_no, nth, lane, due_at, leased_at, started_at, deadline_at, attempt, attempts, crashes, suspect)
select r.seq, ?1, ?2, ?10 + c.key, ?3, r.due_at, ?4, iif(c.key < ?5, ?4, null),
  min(?4 + iif(c.key < ?5, cast(round(coalesce(j.timeout_s, ?6) * 2000000.0) as integer), ?7), ?8),
  r.attempt + 1, r.attempts, r.crashes, r.suspect
from json_each(?9) c cross join fairlane_ready r on r.seq = c.value cross join fairlane_job j on j.seq = r.seq
"""
_UNREADY = "delete from fairlane_ready where seq in (select value from json_each(?))"


class Chosen(NamedTuple):
    seqs: list[int]
    cursor: str | None
    """The tenant that discovery served last."""


class Line:
    """One tenant's line in one band, read a page at a time; remembers what it has looked at."""

    __slots__ = ("_name", "_page", "_rows", "_want", "last_looked", "looked", "position")

    def __init__(self, name: LineName, want: Want) -> None:
        self._name, self._want = name, want
        self._rows: Iterator[tuple[int, int, int, str]] = iter(())
        self._page = 0
        self.position = self.last_looked = BEFORE_ALL
        self.looked = 0

    def skip_to(self, after: Position) -> None:
        if after > self.position:
            self.position, self._rows, self._page = after, iter(()), 0

    def next_wanted(self, tx: Transaction, types: frozenset[str] | None, page: int) -> int | None:
        """The seq of the next job of a wanted type, passing over others, within the want's `look`."""
        while self.looked < self._want.look:
            row = next(self._rows, None)
            if row is None:
                # Twice as much each time: a line full of unwanted types is passed in few statements.
                self._page = min(max(page, 2 * self._page), self._want.look - self.looked)
                rows = tx.db.execute(_ROWS, (*self._name, *self.position, self._page))
                if not rows:
                    return None
                self._rows = iter(rows)
                continue
            rank, due_at, seq, job_type = row
            self.position = self.last_looked = (rank, due_at, seq)
            self.looked += 1
            if types is None or job_type in types:
                return seq
        return None


def claim(
    tx: Transaction, want: Want, worker: WorkerId, claim_no: int, nth: int, marks: dict[LineName, Position]
) -> Chosen:
    """Lease to the worker what one lane wants, numbered from `nth` on, and note how far each line was looked at."""
    lines: dict[LineName, Line] = {}
    chosen = choose(tx, want, lines)
    for name, line in lines.items():
        if line.looked:
            marks[name] = line.last_looked
    if chosen.seqs:
        seqs = seq_list(chosen.seqs)
        unstarted_us = span_us(want.start_by_s)
        tx.db.execute(
            _LEASE,
            (worker.bytes, claim_no, want.lane, tx.now, want.start, want.timeout_s, unstarted_us, LATEST_US, seqs, nth),
        )
        tx.db.execute(_UNREADY, (seqs,))
    return chosen


def choose(tx: Transaction, want: Want, lines: dict[LineName, Line]) -> Chosen:
    seqs: list[int] = []
    types = None if want.types is None else frozenset(want.types)

    def line_of(name: LineName) -> Line:
        line = lines.get(name)
        if line is None:
            line = lines[name] = Line(name, want)
        return line

    for take in want.takes:
        line = line_of((take.queue, take.band, take.tenant))
        if take.after is not None:
            line.skip_to((take.after.rank, to_us(take.after.due_at), take.after.seq))
        room = min(take.limit, want.limit - len(seqs))
        for _ in range(room):
            seq = line.next_wanted(tx, types, room)
            if seq is None:
                break
            seqs.append(seq)

    cursor = None
    for queue, band in _bands(tx, want):
        room = want.limit - len(seqs)
        if room <= 0:
            break
        names = _tenants(tx, queue, band, want.cursor, room)
        first = next(names, [])
        page = -(-room // max(len(first), 1))
        turns: Iterator[str] = chain(first, chain.from_iterable(names))
        while len(seqs) < want.limit:
            served: list[str] = []
            for tenant in turns:
                seq = line_of((queue, band, tenant)).next_wanted(tx, types, page)
                if seq is not None:
                    seqs.append(seq)
                    served.append(tenant)
                    cursor = tenant
                    if len(seqs) >= want.limit:
                        break
            if not served:
                break
            turns = iter(served)
    return Chosen(seqs, cursor)


def _bands(tx: Transaction, want: Want) -> Iterator[tuple[str, int]]:
    """Queues in the lane's order, lowest band first."""
    for queue in want.queues if want.discover else ():
        band = -1
        while (band := tx.db.execute(_NEXT_BAND, (queue, band))[0][0]) is not None:
            yield queue, band


def _tenants(tx: Transaction, queue: str, band: int, cursor: str, room: int) -> Iterator[list[str]]:
    """Tenants with ready jobs behind the cursor, then those up to it, in lists as long as there is room."""
    last = cursor
    while names := [name for (name,) in tx.db.execute(_TENANTS, (queue, band, last, room))]:
        yield names
        last = names[-1]
    last = _NO_TENANT
    while names := [name for (name,) in tx.db.execute(_TENANTS, (queue, band, last, room)) if name <= cursor]:
        yield names
        last = names[-1]


def marks_of(marks: dict[LineName, Position]) -> tuple[Mark, ...]:
    return tuple(
        Mark(queue=queue, band=band, tenant=tenant, rank=rank, due_at=from_us(due_at), seq=Seq(seq))
        for (queue, band, tenant), (rank, due_at, seq) in sorted(marks.items())
    )
