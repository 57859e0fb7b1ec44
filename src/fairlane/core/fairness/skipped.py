"""Lines that a claim passes over: empty ones for a moment, and the unwanted or claimed jobs at the head of others.

A tenant whose line was empty is left alone, longer each time, until it has jobs again. In a line that begins with jobs
that are paused or of types this worker does not know, the last row examined is remembered; in any line, how far it was
claimed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from fairlane.core.job import Lease
from fairlane.core.ops import Mark, Take, TurnResult, Want

SEARCHED_FOR_S = 30.0
"""How long at least a line that was looked through is trusted to hold nothing wanted but what came behind."""
PAUSE_PER_SEARCH = 100.0
"""And this many times as long as the search took: an idle worker spends a hundredth of its time on searches."""
SHORT_PAUSE, LONG_PAUSE = 4.0, 20.0
"""The same while a limit holds wanted jobs back: at first, and doubled up to this while searches find nothing."""
LOOK, LONGEST_LOOK, LOOK_OVER_LINES = 1_000, 16_000, 64_000
"""How many rows of a line a claim looks at; while a search continues four times as many each time, at most these in
one line and in all: past 100,000 jobs it takes 9 claims."""

Line = tuple[str, int, str]
"""Queue, band, tenant."""


class Searcher:
    """Continues after unwanted jobs claim by claim, so that they hide nothing behind them.

    A claim that finds nothing behind its marks looks at the heads, too. From time to time lines are searched again,
    because jobs come back; sooner where a limit holds jobs back, which may be wanted at any moment.
    """

    def __init__(self, queues: tuple[str, ...]) -> None:
        self._queues = frozenset(queues)
        self.behind: dict[Line, Mark] = {}
        self._further: Mapping[Line, Mark] = {}
        self.is_searching = False
        """The last claim was not full and came further into such a line: there may be something behind."""
        self.look = LOOK
        self.is_held_back = False
        """A limit holds wanted jobs back: lines were looked through, not claimed, up to their marks."""
        self._pause = SHORT_PAUSE
        self._spent_s = 0.0
        self._again_s = 0.0

    def forget_if_old(self, now_s: float) -> None:
        if self.behind and not self.is_searching and now_s >= self._again_s:
            self._forget()
            self._pause = min(2 * self._pause, LONG_PAUSE)

    def _forget(self) -> None:
        self.behind, self._spent_s = {}, 0.0

    def takes(self, limit: int, queues: tuple[str, ...]) -> tuple[Take, ...]:
        """One job each from behind; the discovery that follows continues from there. For when nobody else waits."""
        lines = [line for line in self.behind if line[0] in queues]
        return tuple(
            Take(queue=queue, band=band, tenant=tenant, limit=1, after=self.behind[queue, band, tenant])
            for queue, band, tenant in lines[:limit]
        )

    def after(self, line: Line) -> Mark | None:
        """Where a look for a share of this line begins."""
        return self.behind.get(line) if self.is_searching or not self.is_held_back else None

    def goes_on_in(self, line: Line) -> bool:
        """The last claim came further into it."""
        return line in self._further

    def learn(self, want: Want, answer: TurnResult, took_s: float, now_s: float, *, is_short: bool) -> None:
        """Take in the marks of a Turn: those of lines without a wanted job show how far they were examined."""
        self._further = self._came_further(answer) if answer.marks else {}
        if self.behind:
            for take in want.takes:  # those asked now come last the next time
                line = take.queue, take.band, take.tenant
                if line in self.behind:
                    self.behind[line] = self.behind.pop(line)
                    if any(lease.tenant == take.tenant for lease in answer.leases):
                        self._pause = SHORT_PAUSE
        self.is_searching = is_short and bool(self._further)
        if len(want.queues) == len(self._queues):
            if self.is_held_back and not answer.held_back:
                # What was passed over for want of room is wanted now.
                self._forget()
                self._further, self.is_searching = {}, is_short
            self.is_held_back = answer.held_back
        if self._further:
            self.behind.update(self._further)
            self._spent_s += took_s
            trusted_s = max(PAUSE_PER_SEARCH * self._spent_s, SEARCHED_FOR_S)
            self._again_s = now_s + (self._pause * self._spent_s if self.is_held_back else trusted_s)
        self.look = LOOK
        if self.is_searching and self._further:
            self.look = max(min(4 * want.look, LONGEST_LOOK, LOOK_OVER_LINES // len(self._further)), LOOK)

    def _came_further(self, answer: TurnResult) -> dict[Line, Mark]:
        # The marks and leases are those of all lanes of this worker.
        given = {(lease.queue, lease.band, lease.tenant) for lease in answer.leases}
        further = {}
        for mark in answer.marks:
            line = mark.queue, mark.band, mark.tenant
            if mark.queue not in self._queues:
                continue
            before = self.behind.get(line)
            if line not in given if before is None else _place(mark) > _place(before):
                further[line] = mark
        return further


def _place(mark: Mark) -> tuple[int, datetime, int]:
    return mark.rank, mark.due_at, mark.seq


CLAIMED_LINES = 100


class Claimed:
    """How far lines were claimed, also of those that are empty now.

    Where looks from the heads are slow, a job that arrives at the end of such a line is found without one.
    """

    def __init__(self) -> None:
        self._marks: dict[Line, Mark] = {}

    def learn(self, leases: Iterable[Lease]) -> None:
        """Take in what was claimed. Not how far was looked: a limit may have held back what lies between."""
        for line, last in {(lease.queue, lease.band, lease.tenant): lease for lease in leases}.items():
            before = self._marks.pop(line, None)
            # Behind a later rank the jobs of all earlier ones would be passed over.
            if last.rank == 0:
                queue, band, tenant = line
                mark = Mark(queue=queue, band=band, tenant=tenant, rank=0, due_at=last.due_at, seq=last.seq)
                self._marks[line] = mark if before is None or _place(mark) > _place(before) else before
        while len(self._marks) > CLAIMED_LINES:
            del self._marks[next(iter(self._marks))]

    def takes(self, limit: int, queues: tuple[str, ...]) -> tuple[Take, ...]:
        """All that waits behind the marks, the most urgent first; of equals the ones served longest ago."""
        urgency = {queue: place for place, queue in enumerate(queues)}
        lines = sorted(
            (line for line in self._marks if line[0] in urgency), key=lambda line: (urgency[line[0]], line[1])
        )
        return tuple(
            Take(queue=queue, band=band, tenant=tenant, limit=limit, after=self._marks[queue, band, tenant])
            for queue, band, tenant in lines
        )


REST_S = 0.02
LONGEST_S = 0.5
KEPT = 10_000


class Rests:
    def __init__(self) -> None:
        self._until_s: dict[str, float] = {}
        self._next_s: dict[str, float] = {}
        """How long the next rest will be, of those that have rested since they last gave anything."""
        self._first_s = float("inf")

    def __len__(self) -> int:
        return len(self._until_s)

    def __contains__(self, tenant: str) -> bool:
        return tenant in self._until_s

    def begin(self, tenant: str, now_s: float) -> None:
        for_s = self._next_s.get(tenant, REST_S)
        if len(self._next_s) > KEPT:
            self._next_s.clear()
        self._next_s[tenant] = min(2 * for_s, LONGEST_S)
        self._until_s[tenant] = now_s + for_s
        self._first_s = min(self._first_s, now_s + for_s)

    def end(self, tenant: str) -> None:
        """It gave something."""
        self._next_s.pop(tenant, None)
        self._until_s.pop(tenant, None)

    def over(self, now_s: float) -> list[str]:
        """Whose rest is over now."""
        if now_s < self._first_s:
            return []
        rested = [tenant for tenant, until_s in self._until_s.items() if until_s <= now_s]
        for tenant in rested:
            del self._until_s[tenant]
        self._first_s = min(self._until_s.values(), default=float("inf"))
        return rested

    def clear(self) -> None:
        self._until_s.clear()
        self._first_s = float("inf")
