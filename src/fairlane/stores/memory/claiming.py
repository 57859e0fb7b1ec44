"""Claiming: takes first, then discovery, one job of each tenant in turn."""

from __future__ import annotations

from bisect import bisect_right
from datetime import datetime
from itertools import chain, islice
from typing import Protocol

from fairlane.core.ids import Seq
from fairlane.core.job import Lease
from fairlane.core.ops import Mark, Survey, Take, Want
from fairlane.stores.memory.facts import Facts, Row, Try, Worker
from fairlane.stores.memory.lines import Entry, Key, Line, LineKey
from fairlane.stores.memory.moments import later
from fairlane.stores.memory.room import Cells

Marks = dict[LineKey, Entry]


class Types(Protocol):
    """Some types of jobs."""

    def __contains__(self, task: str, /) -> bool: ...


class Walk:
    """How far one Want has looked in one line."""

    __slots__ = ("at", "cells", "last", "left", "line")

    def __init__(self, line: Line, look: int) -> None:
        self.line, self.left = line, look
        self.cells: Cells = ()
        self.at = line.head
        self.last: Entry | None = None

    def start_behind(self, key: Key) -> None:
        self.at = max(self.at, self.line.behind(key))

    def take(self, types: frozenset[str] | None, unwanted: Types) -> Row | None:
        """Take out the next job of a wanted type."""
        line, at, left = self.line, self.at, self.left
        entries = line.entries
        end = len(entries)
        while at < end and left > 0:
            left -= 1
            entry = entries[at]
            row = entry[3]
            if (types is None or row.type in types) and row.type not in unwanted:
                self.at, self.left, self.last = line.remove(at), left, entry
                return row
            self.last = entry
            at += 1
        self.at, self.left = at, left
        return None


class Claim:
    """One Want of one worker, being filled."""

    def __init__(self, facts: Facts, want: Want, holder: Worker, claim_no: int, now: datetime) -> None:
        self.facts, self.want, self.holder, self.claim_no, self.now = facts, want, holder, claim_no, now
        self.types = None if want.types is None else frozenset(want.types)
        self.paused = facts.paused
        self.unwanted: Types = facts.paused["type"]
        self.running = facts.running
        self.leases: list[Lease] = []
        self.walks: dict[LineKey, Walk] = {}
        self.served_last: str | None = None
        self.discovered_in: tuple[str, int] | None = None
        """The queue and band that discovery claimed from last."""
        self._start_by = later(now, want.start_by_s)
        self._ends_by_default = later(now, 2 * want.timeout_s)

    def fill(self) -> None:
        for take in self.want.takes:
            self._take(take)
        for queue in self.want.queues if self.want.discover else ():
            for band in () if queue in self.paused["queue"] else sorted(self.facts.ready.tenants.get(queue, ())):
                claimed = len(self.leases)
                if claimed < self.want.limit:
                    self._discover(queue, band)
                if len(self.leases) > claimed:
                    self.discovered_in = queue, band
        for key in self.walks:
            self.facts.ready.drop_if_empty(key)

    def _take(self, take: Take) -> None:
        if take.queue in self.paused["queue"]:
            return
        walk = self._walk((take.queue, take.band, take.tenant))
        if walk is None:
            return
        before, looked_at = walk.at, walk.last
        if take.after is not None:
            walk.start_behind((take.after.rank, take.after.due_at, take.after.seq))
        self._take_up_to(take.limit, walk)
        if walk.last is looked_at:
            # It looked at nothing behind its mark: what lies before the mark is still to be looked at.
            walk.at = before

    def _take_up_to(self, limit: int, walk: Walk) -> None:
        for _ in range(min(limit, self.want.limit - len(self.leases))):
            if self._claim_next(walk) is None:
                break

    def _walk(self, key: LineKey) -> Walk | None:
        """A paused tenant's line is not even looked at."""
        walk = self.walks.get(key)
        if walk is None:
            line = self.facts.ready.lines.get(key)
            if line is None or line.tenant in self.paused["tenant"]:
                return None
            walk = self.walks[key] = Walk(line, self.want.look)
        return walk

    def _discover(self, queue: str, band: int) -> None:
        names = self.facts.ready.tenants[queue][band]
        first, limit, leases = bisect_right(names, self.want.cursor), self.want.limit, self.leases
        in_turn = []
        for nth in range(len(names)):
            if len(leases) >= limit:
                return
            walk = self._walk((queue, band, names[(first + nth) % len(names)]))
            if walk is not None and self._serve(walk):
                in_turn.append(walk)
        while in_turn and len(leases) < limit:
            in_turn = [walk for walk in in_turn if len(leases) < limit and self._serve(walk)]

    def _serve(self, walk: Walk) -> bool:
        if self._claim_next(walk) is None:
            return False
        self.served_last = walk.line.tenant
        return True

    def _claim_next(self, walk: Walk) -> Row | None:
        row = walk.take(self.types, self.unwanted)
        if row is not None:
            self._lease(row)
        return row

    def survey(self) -> Survey | None:
        """Who has ready jobs left where discovery claimed last."""
        if self.want.survey <= 0 or self.discovered_in is None or self.served_last is None:
            return None
        queue, band = self.discovered_in
        names = self.facts.ready.tenants.get(queue, {}).get(band, [])
        first = bisect_right(names, self.served_last)
        left = (
            name
            for name in chain(islice(names, first, None), islice(names, first))
            if name not in self.paused["tenant"] and len(self.facts.ready.lines[queue, band, name])
        )
        return Survey(lane=self.want.lane, queue=queue, band=band, tenants=tuple(islice(left, self.want.survey)))

    def _lease(self, row: Row) -> None:
        now, want, started_at = self.now, self.want, None
        deadline_at = self._start_by
        if len(self.leases) < want.start:
            started_at = now
            timeout_s = row.spec.timeout_s
            deadline_at = self._ends_by_default if timeout_s is None else later(now, 2 * timeout_s)
        row.place = "leased"
        row.attempt += 1
        row.lease = lease = Try(row.attempt, self.holder.id, self.claim_no, want.lane, now, started_at, deadline_at)
        self.facts.ready.count -= 1
        self.holder.leases[row.seq] = row
        if self.running is not None:
            self.running.add(row)
        self.leases.append(lease_of(row, lease))


def lease_of(row: Row, lease: Try) -> Lease:
    spec = row.spec
    queue, band, tenant = row.line
    return Lease(
        seq=row.seq,
        id=spec.id,
        attempt=lease.attempt,
        attempts=row.attempts,
        crashes=row.crashes,
        suspect=row.suspect,
        started=lease.started_at is not None,
        lane=lease.lane,
        type=row.type,
        tenant=tenant,
        queue=queue,
        band=band,
        rank=row.rank,
        due_at=row.due_at,
        leased_at=lease.leased_at,
        deadline_at=lease.deadline_at,
        enqueued_at=row.enqueued_at,
        max_attempts=spec.max_attempts,
        payload_version=spec.payload_version,
        priority=spec.priority,
        timeout_s=spec.timeout_s,
        category=spec.category,
        idempotency_key=spec.idempotency_key,
        correlation_id=spec.correlation_id,
        parent_id=spec.parent_id,
        created_by=spec.created_by,
        refs=spec.refs.copy(),
        headers=spec.headers.copy(),
        retry=spec.retry,
        payload=row.payload,
    )


def marks_of(looked: Marks) -> tuple[Mark, ...]:
    return tuple(
        Mark(queue=queue, band=band, tenant=tenant, rank=rank, due_at=due_at, seq=Seq(seq))
        for (queue, band, tenant), (rank, due_at, seq, _) in sorted(looked.items())
    )
