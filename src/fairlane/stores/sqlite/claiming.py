"""Choosing ready jobs, fair over tenants, and leasing them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import NamedTuple

from fairlane.core.ids import Seq, WorkerId
from fairlane.core.ops import Mark, Want
from fairlane.stores.sqlite.driver import Row
from fairlane.stores.sqlite.instants import LATEST_US, from_us, span_us, to_us
from fairlane.stores.sqlite.pauses import Paused, paused
from fairlane.stores.sqlite.transaction import Transaction, as_list

LineName = tuple[str, int, str]
"""Queue, band, tenant."""
Position = tuple[int, int, int]
"""Rank, due, seq: where a job stands in its line."""

Wanted = Callable[[str], bool]
"""Whether a job of this type is to be taken."""

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
# Behind a position, in three steps that each seek. Not as (rank, due_at, seq) > (?, ?, ?): SQLite would walk every job of that
# rank and instant, 9 ms behind 100,000 jobs of one enqueue. (tests/unit/test_sqlite_plans.py)
_LINE = "select rank, due_at, seq, type from fairlane_ready where queue = ? and band = ? and tenant = ?"
_SAME_INSTANT = f"{_LINE} and rank = ? and due_at = ? and seq > ? order by seq limit ?"
_LATER_INSTANTS = f"{_LINE} and rank = ? and due_at > ? order by due_at, seq limit ?"
_NEXT_RANKS = f"{_LINE} and rank > ? order by rank, due_at, seq limit ?"
# The heads of many lines in one statement: with a hundred tenants a fifth less than line by line.
_HEADS = """
select r.rank, r.due_at, r.seq, r.type, r.tenant
from json_each(?1) t cross join fairlane_ready r on r.seq in (
  select seq from fairlane_ready where queue = ?2 and band = ?3 and tenant = t.value order by rank, due_at, seq limit ?4)
"""
_LEASE = """
insert into fairlane_lease (seq, worker, claim_no, nth, lane, due_at, leased_at, started_at, deadline_at, attempt, attempts, crashes, suspect)
select r.seq, ?1, ?2, ?10 + c.key, ?3, r.due_at, ?4, iif(c.key < ?5, ?4, null),
  min(?4 + iif(c.key < ?5, cast(min(round(coalesce(j.timeout_s, ?6) * 2000000.0), ?8) as integer), ?7), ?8),
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

    __slots__ = ("_name", "_page", "_position", "_rows", "_want", "last_looked", "looked")

    def __init__(self, name: LineName, want: Want) -> None:
        self._name, self._want = name, want
        self._rows: Iterator[Row] = iter(())
        self._page = 0
        self._position = self.last_looked = BEFORE_ALL
        self.looked = 0

    def begin_with(self, rows: list[tuple[int, int, int, str]]) -> None:
        """Use rows read together with those of other lines, unless this line has been begun."""
        if self.last_looked == BEFORE_ALL:
            self._position, self._rows = BEFORE_ALL, iter(sorted(rows))

    def take(
        self, tx: Transaction, is_wanted: Wanted | None, count: int, page: int, after: Position = BEFORE_ALL
    ) -> list[int]:
        """The seqs of the next `count` jobs of wanted types, passing over others, within the want's `look`.

        Goes on behind what was looked at last; `after` moves this one call further, and no later one.
        """
        begin = max(after, self.last_looked)
        if begin != self._position:
            self._position, self._rows, self._page = begin, iter(()), 0
        found: list[int] = []
        while len(found) < count and self.looked < self._want.look:
            rows = list(islice(self._rows, min(count - len(found), self._want.look - self.looked)))
            if not rows:
                # Twice as much each time: a line full of unwanted types is passed in few statements.
                self._page = min(max(page, 2 * self._page), self._want.look - self.looked)
                fetched = _rows_behind(tx, self._name, self._position, self._page)
                if not fetched:
                    break
                self._rows = iter(fetched)
                continue
            self.looked += len(rows)
            self._position = self.last_looked = rows[-1][:3]
            found += [seq for _, _, seq, job_type in rows if is_wanted is None or is_wanted(job_type)]
        return found


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
        seqs = as_list(chosen.seqs)
        unstarted_us = span_us(want.start_by_s)
        tx.db.execute(
            _LEASE,
            (worker.bytes, claim_no, want.lane, tx.now, want.start, want.timeout_s, unstarted_us, LATEST_US, seqs, nth),
        )
        tx.db.execute(_UNREADY, (seqs,))
    return chosen


def choose(tx: Transaction, want: Want, lines: dict[LineName, Line]) -> Chosen:
    seqs: list[int] = []
    stopped = paused(tx)
    is_wanted = _filter(want, stopped)

    def line_of(name: LineName) -> Line:
        line = lines.get(name)
        if line is None:
            line = lines[name] = Line(name, want)
        return line

    for take in want.takes:
        if take.queue in stopped.queues or take.tenant in stopped.tenants:
            continue
        line = line_of((take.queue, take.band, take.tenant))
        after = BEFORE_ALL if take.after is None else _position(take.after)
        room = min(take.limit, want.limit - len(seqs))
        seqs += line.take(tx, is_wanted, room, room, after)

    cursor = None
    for queue, band in _bands(tx, want, stopped) if len(seqs) < want.limit else ():
        room = want.limit - len(seqs)
        names = _tenants(tx, queue, band, want.cursor, room, stopped)
        first = next(names, [])
        page = -(-room // max(len(first), 1))
        turns: Iterator[str] = chain(first, chain.from_iterable(names))
        if len(first) > 1:
            for tenant, rows in _heads(tx, first, queue, band, min(page, want.look)).items():
                line_of((queue, band, tenant)).begin_with(rows)
        each = 1
        while len(seqs) < want.limit:
            served: list[str] = []
            for tenant in turns:
                found = line_of((queue, band, tenant)).take(tx, is_wanted, each, page)
                if found:
                    seqs += found
                    served.append(tenant)
                    cursor = tenant
                    if len(seqs) >= want.limit:
                        break
            if not served:
                break
            turns = iter(served)
            # One tenant left: all its turns at once.
            each = want.limit - len(seqs) if len(served) == 1 else 1
        if len(seqs) >= want.limit:
            break
    return Chosen(seqs, cursor)


def _filter(want: Want, stopped: Paused) -> Wanted | None:
    """Which types to take; None: any."""
    if want.types is not None:
        return (frozenset(want.types) - stopped.types).__contains__
    return (lambda job_type: job_type not in stopped.types) if stopped.types else None


def _bands(tx: Transaction, want: Want, stopped: Paused) -> Iterator[tuple[str, int]]:
    """Queues in the lane's order, lowest band first."""
    for queue in want.queues if want.discover else ():
        if queue in stopped.queues:
            continue
        band = -1
        while (band := tx.db.execute(_NEXT_BAND, (queue, band))[0][0]) is not None:
            yield queue, band


def _tenants(tx: Transaction, queue: str, band: int, cursor: str, room: int, stopped: Paused) -> Iterator[list[str]]:
    """Tenants with ready jobs behind the cursor, then those up to it, in lists as long as there is room."""
    last, wrapped = cursor, False
    while True:
        names = [name for (name,) in tx.db.execute(_TENANTS, (queue, band, last, room))]
        is_last = len(names) < room
        if wrapped and names and names[-1] > cursor:
            names, is_last = [name for name in names if name <= cursor], True
        if names:
            if served := [name for name in names if name not in stopped.tenants]:
                yield served
            last = names[-1]
        if is_last:
            if wrapped or not cursor:
                return
            last, wrapped = _NO_TENANT, True


def _heads(
    tx: Transaction, tenants: list[str], queue: str, band: int, page: int
) -> dict[str, list[tuple[int, int, int, str]]]:
    heads: dict[str, list[tuple[int, int, int, str]]] = {}
    for rank, due_at, seq, job_type, tenant in tx.db.execute(_HEADS, (as_list(tenants), queue, band, page)):
        heads.setdefault(tenant, []).append((rank, due_at, seq, job_type))
    return heads


def _position(mark: Mark) -> Position:
    return mark.rank, to_us(mark.due_at), mark.seq


def marks_of(marks: dict[LineName, Position]) -> tuple[Mark, ...]:
    return tuple(
        Mark(queue=queue, band=band, tenant=tenant, rank=rank, due_at=from_us(due_at), seq=Seq(seq))
        for (queue, band, tenant), (rank, due_at, seq) in sorted(marks.items())
    )
