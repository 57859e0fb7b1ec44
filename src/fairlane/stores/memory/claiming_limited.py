"""Claiming where limits are in force: the same order, and nothing under a limit that has no room."""

from __future__ import annotations

from datetime import datetime

from fairlane.core.ops import Want
from fairlane.stores.memory.claiming import Claim, Walk
from fairlane.stores.memory.facts import Facts, Worker
from fairlane.stores.memory.lines import LineKey
from fairlane.stores.memory.room import Room


class LimitedClaim(Claim):
    """One Want, filled as far as there is room.

    A line without room is not looked at. A row whose type has none is looked at and left, and its line has had its turn.
    """

    def __init__(self, facts: Facts, want: Want, holder: Worker, claim_no: int, now: datetime, room: Room) -> None:
        super().__init__(facts, want, holder, claim_no, now)
        self._room = room

    def _walk(self, key: LineKey) -> Walk | None:
        queue, _, tenant = key
        cells = self._room.of_line(queue, tenant)
        walk = super()._walk(key) if self._room.is_open(cells) else None
        if walk is not None:
            walk.cells = cells
        return walk

    def _take_up_to(self, limit: int, walk: Walk) -> None:
        while limit > 0 and len(self.leases) < self.want.limit and self._give_turn(walk):
            limit -= 1

    def _serve(self, walk: Walk) -> bool:
        before = len(self.leases)
        had_its_turn = self._give_turn(walk)
        if len(self.leases) > before:
            self.served_last = walk.line.tenant
        return had_its_turn

    def _give_turn(self, walk: Walk) -> bool:
        """Claim the line's next job, or pass over it; False: the line has no room or nothing left."""
        room = self._room
        if not room.is_open(walk.cells):
            return False
        row = walk.find(self.types, self.paused["type"])
        if row is None:
            return False
        cells = room.of_type(row.type)
        if not room.is_open(cells):
            walk.pass_over()
            return True
        walk.take_out()
        self._lease(row)
        assert row.lease is not None
        room.use(row, row.lease, walk.cells)
        room.use(row, row.lease, cells)
        return True
