"""Claiming where limits are in force: the same order, and nothing under a limit that has no room."""

from __future__ import annotations

from datetime import datetime

from fairlane.core.ops import Want
from fairlane.stores.memory.claiming import Claim, Types, Walk
from fairlane.stores.memory.facts import Facts, Row, Worker
from fairlane.stores.memory.lines import LineKey
from fairlane.stores.memory.room import Room


class PassedOver:
    """Types that are paused, or have no room at the moment they are asked about."""

    def __init__(self, paused: Types, room: Room) -> None:
        self._paused, self._room = paused, room
        self._full: set[str] = set()
        """They stay so: room does not grow within a Turn."""

    def __contains__(self, task: str) -> bool:
        if task in self._full or task in self._paused:
            return True
        if self._room.is_open(self._room.of_type(task)):
            return False
        self._full.add(task)
        return True


class LimitedClaim(Claim):
    """One Want, filled as far as there is room.

    A line without room is not looked at. A row whose type has none is looked at and passed over, as if it were not wanted.
    """

    def __init__(self, facts: Facts, want: Want, holder: Worker, claim_no: int, now: datetime, room: Room) -> None:
        super().__init__(facts, want, holder, claim_no, now)
        self._room = room
        self.unwanted = PassedOver(self.unwanted, room)

    def _walk(self, key: LineKey) -> Walk | None:
        queue, _, tenant = key
        cells = self._room.of_line(queue, tenant)
        walk = super()._walk(key) if self._room.is_open(cells) else None
        if walk is not None:
            walk.cells = cells
        return walk

    def _claim_next(self, walk: Walk) -> Row | None:
        room = self._room
        row = super()._claim_next(walk) if room.is_open(walk.cells) else None
        if row is not None and row.lease is not None:
            room.use(row, row.lease, walk.cells)
            room.use(row, row.lease, room.of_type(row.type))
        return row
