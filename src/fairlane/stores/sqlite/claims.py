"""Chooses ready jobs, fair over tenants, leaving out what is paused or has no room, and leases them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import NamedTuple

from fairlane.core.ids import Seq, WorkerId
from fairlane.core.ops import Mark, Survey, Want
from fairlane.stores.instants import LATEST_US, from_us, span_us, to_us
from fairlane.stores.sqlite.driver import Row
from fairlane.stores.sqlite.job_keys.places import count_claims
from fairlane.stores.sqlite.limits.room import ENDLESS, Room, are_leases_counted
from fairlane.stores.sqlite.lines import BEFORE_ALL, Line, LineName, Position, Wanted
from fairlane.stores.sqlite.pauses import Paused
from fairlane.stores.sqlite.transaction import Transaction, as_list

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
# The heads of many lines in one statement: with a hundred tenants a fifth less than line by line.
_HEADS = """
select r.rank, r.due_at, r.seq, r.type, r.put_off, r.tenant
from json_each(?1) t cross join fairlane_ready r on r.seq in (
  select seq from fairlane_ready where queue = ?2 and band = ?3 and tenant = t.value order by rank, due_at, seq
    limit ?4)
"""
_LEASE = """
insert into fairlane_lease (seq, worker, claim_no, nth, lane, due_at, leased_at, started_at, deadline_at, attempt,
  attempts, crashes, suspect, aged, queue, tenant, type, rated)
select r.seq, ?1, ?2, ?10 + c.key, ?3, r.due_at, ?4, iif(c.key < ?5, ?4, null),
  min(?4 + iif(c.key < ?5, cast(min(round(coalesce(j.timeout_s, ?6) * 2000000.0), ?8) as integer), ?7), ?8),
  r.attempt + 1, r.attempts, r.crashes, r.suspect, nullif(r.band + r.rank, j.band + j.rank), {counted}
from json_each(?9) c cross join fairlane_ready r on r.seq = c.value cross join fairlane_job j on j.seq = r.seq
"""
_COUNTED = {True: "r.queue, r.tenant, r.type", False: "null, null, null"}
_RATED = {True: "?11 ->> c.key", False: "?11"}
_LEASES = {
    (counted, rated): _LEASE.format(counted=f"{_COUNTED[counted]}, {_RATED[rated]}")
    for counted in (True, False)
    for rated in (True, False)
}
_UNREADY = "delete from fairlane_ready where seq in (select value from json_each(?))"


class Chosen(NamedTuple):
    seqs: list[int]
    discovered: LineName | None
    """The line that discovery served last."""


class Barred(NamedTuple):
    """What a claim has to leave alone."""

    paused: Paused
    room: Room | None
    """None: no limit is in force."""

    def room_in(self, queue: str, tenant: str) -> int:
        return ENDLESS if self.room is None else self.room.in_line(queue, tenant)


def claim(
    tx: Transaction,
    want: Want,
    worker: WorkerId,
    claim_no: int,
    nth: int,
    limits: Barred,
    marks: dict[LineName, Position],
) -> Chosen:
    """Lease to the worker what one lane wants, numbered from `nth` on, and note how far each line was looked at."""
    choice = Choice(tx, want, limits)
    chosen = choice.make()
    for name, line in choice.lines.items():
        if line.looked:
            marks[name] = line.last_looked
    if chosen.seqs:
        seqs = as_list(chosen.seqs)
        unstarted_us = span_us(want.start_by_s)
        rated = None if limits.room is None else limits.room.rated(chosen.seqs)
        tx.db.execute(
            _LEASES[are_leases_counted(tx), rated is not None],
            (worker.bytes, claim_no, want.lane, tx.now, want.start, want.timeout_s, unstarted_us, LATEST_US, seqs, nth,
             rated),
        )  # fmt: skip
        tx.db.execute(_UNREADY, (seqs,))
        if rated is not None and limits.room is not None:
            limits.room.use()
        if tx.watches_claims:
            count_claims(tx, seqs)
    return chosen


def survey(tx: Transaction, want: Want, served: LineName, paused: Paused) -> Survey:
    """Who else has ready jobs where discovery served last."""
    queue, band, tenant = served
    names = chain.from_iterable(_tenants(tx, queue, band, tenant, want.survey, _not_paused(paused.tenants)))
    return Survey(lane=want.lane, queue=queue, band=band, tenants=tuple(islice(names, want.survey)))


class Choice:
    """One Want's choice among the ready jobs."""

    def __init__(self, tx: Transaction, want: Want, limits: Barred) -> None:
        self._tx, self._want, self._limits = tx, want, limits
        self._is_wanted = _filter(want, limits)
        self._seqs: list[int] = []
        self.lines: dict[LineName, Line] = {}

    def make(self) -> Chosen:
        self._take()
        discovered = None
        for queue, band in self._bands() if self._left > 0 else ():
            discovered = self._discover(queue, band) or discovered
            if self._left <= 0:
                break
        return Chosen(self._seqs, discovered)

    @property
    def _left(self) -> int:
        return self._want.limit - len(self._seqs)

    def _line(self, name: LineName) -> Line:
        line = self.lines.get(name)
        if line is None:
            line = self.lines[name] = Line(name, self._want)
        return line

    def _take(self) -> None:
        paused = self._limits.paused
        for take in self._want.takes:
            if take.queue in paused.queues or take.tenant in paused.tenants:
                continue
            name = take.queue, take.band, take.tenant
            after = BEFORE_ALL if take.after is None else _position(take.after)
            self._serve(name, take.limit, None, after)

    def _discover(self, queue: str, band: int) -> LineName | None:
        """Serve the tenants of a band in turn; returns the line served last."""
        room = self._limits.room
        full = len(self._seqs) + (self._left if room is None else min(self._left, room.in_queue(queue)))
        names = _tenants(self._tx, queue, band, self._want.cursor, self._left, self._tenants_with_room(queue))
        first = next(names, [])
        page = -(-self._left // max(len(first), 1))
        turns: Iterator[str] = chain(first, chain.from_iterable(names))
        if len(first) > 1:
            for tenant, rows in _heads(self._tx, first, queue, band, min(page, self._want.look)).items():
                self._line((queue, band, tenant)).begin_with(rows)
        last, each = None, 1
        while len(self._seqs) < full:
            served: list[str] = []
            for tenant in turns:
                name = queue, band, tenant
                if self._serve(name, each, page):
                    served.append(tenant)
                    last = name
                if len(self._seqs) >= full:
                    break
            if not served:
                break
            turns = iter(served)
            # One tenant left: all its turns at once.
            each = full - len(self._seqs) if len(served) == 1 else 1
        return last

    def _serve(self, name: LineName, turns: int, page: int | None, after: Position = BEFORE_ALL) -> int:
        """Give a line a number of turns, as far as there is room; returns how many jobs it gave."""
        queue, _, tenant = name
        room = self._limits.room
        self._count_slots()
        count = min(turns, self._left, self._limits.room_in(queue, tenant))
        if count <= 0:
            return 0
        line = self._line(name)
        if room is None:
            seqs = [row[2] for row in line.take(self._tx, self._is_wanted, count, page or count, after)]
            self._seqs += seqs
            return len(seqs)
        for number in range(count):
            # One by one: what is taken may leave no room for the type of the next one.
            self._count_slots()
            rows = line.take(self._tx, self._is_wanted, 1, page or count, after)
            if not rows:
                return number
            [(_, _, seq, task, _)] = rows
            room.claim(queue, tenant, task, seq)
            self._seqs.append(seq)
        return count

    def _count_slots(self) -> None:
        room, slots = self._limits.room, self._want.slots
        if room is not None:
            room.slots_left = ENDLESS if slots is None else max(slots - len(self._seqs), 0)

    def _bands(self) -> Iterator[tuple[str, int]]:
        """Queues in the lane's order, lowest band first."""
        room = self._limits.room
        self._count_slots()
        for queue in self._want.queues if self._want.discover else ():
            band = None if queue in self._limits.paused.queues else -1
            while band is not None and (room is None or room.in_queue(queue) > 0):
                band = self._tx.db.execute(_NEXT_BAND, (queue, band))[0][0]
                if band is not None:
                    yield queue, band

    def _tenants_with_room(self, queue: str) -> Callable[[list[str]], list[str]]:
        """Leaves out tenants that are paused or have no room in this queue."""
        paused, room = self._limits.paused.tenants, self._limits.room
        if room is None:
            return _not_paused(paused)

        def with_room(tenants: list[str]) -> list[str]:
            room.count_tenants(queue, tenants)
            return [tenant for tenant in tenants if tenant not in paused and room.in_line(queue, tenant) > 0]

        return with_room


def _not_paused(paused: frozenset[str]) -> Callable[[list[str]], list[str]]:
    return lambda tenants: [tenant for tenant in tenants if tenant not in paused] if paused else tenants


def _filter(want: Want, limits: Barred) -> Wanted | None:
    """Which types to take, as far as there is room for them at the moment; None: any."""
    paused, room = limits.paused.types, limits.room
    if want.types is not None:
        types = frozenset(want.types) - paused
        return types.__contains__ if room is None else lambda task: task in types and room.has_for(task)
    if room is not None:
        return lambda task: task not in paused and room.has_for(task)
    return (lambda task: task not in paused) if paused or want.leaves else None


def _tenants(
    tx: Transaction, queue: str, band: int, cursor: str, count: int, eligible: Callable[[list[str]], list[str]]
) -> Iterator[list[str]]:
    """Tenants with ready jobs behind the cursor, then those up to it, in lists of at most `count`."""
    last, wrapped = cursor, False
    while True:
        names = [name for (name,) in tx.db.execute(_TENANTS, (queue, band, last, count))]
        is_last = len(names) < count
        if wrapped and names and names[-1] > cursor:
            names, is_last = [name for name in names if name <= cursor], True
        if names:
            if served := eligible(names):
                yield served
            last = names[-1]
        if is_last:
            if wrapped or not cursor:
                return
            last, wrapped = _NO_TENANT, True


def _heads(tx: Transaction, tenants: list[str], queue: str, band: int, page: int) -> dict[str, list[Row]]:
    heads: dict[str, list[Row]] = {}
    for *row, tenant in tx.db.execute(_HEADS, (as_list(tenants), queue, band, page)):
        heads.setdefault(tenant, []).append(tuple(row))
    return heads


def _position(mark: Mark) -> Position:
    return mark.rank, to_us(mark.due_at), mark.seq


def marks_of(marks: dict[LineName, Position]) -> tuple[Mark, ...]:
    return tuple(
        Mark(queue=queue, band=band, tenant=tenant, rank=rank, due_at=from_us(due_at), seq=Seq(seq))
        for (queue, band, tenant), (rank, due_at, seq) in sorted(marks.items())
    )
