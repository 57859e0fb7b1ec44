"""What a lane asks for next: from the lines it knows, or by looking round again.

Claiming from known lines skips what lies behind their marks: rows claimed long ago that the database cannot forget yet
(an old snapshot held on PostgreSQL: 2,400 jobs/s from the head of the line, 20,000 from its mark). Looking round finds new tenants,
more urgent bands and jobs that came back behind a mark; it runs when woken, after a short batch, and else as often as keeps it
within a fifth of the time, but never more rarely than every half second: nobody waits unseen for long, however slow a look was.

A look goes only so far into a line. Where it met nothing but jobs not wanted here (paused, or of types this worker does not know), the next
looks go on behind them, so that a thousand of those hide nothing.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from fairlane.core.ops import Mark, Take, TurnResult, Want

PAUSE_PER_LOOK = 4.0
"""After a look round, known lines serve for so many times as long as it took: a fifth of the time goes into looking."""
LONGEST_PAUSE_S = 0.5
SEARCHED_FOR_S = 30.0
"""How long at least a line that was looked through is trusted to hold nothing wanted but what came behind."""

Line = tuple[str, int, str]


class ClaimPlanner:
    """Remembers one lane's lines, and shares each claim fairly over them."""

    def __init__(self, lane: str, queues: tuple[str, ...], types: tuple[str, ...] | None = None) -> None:
        self._lane, self._queues, self._types = lane, queues, types
        self._marks: dict[Line, Mark] = {}
        """Lines of one queue and band, the most urgent with anything left, and every tenant that has jobs there."""
        self._cursor = ""
        self._look_again_s = 0.0
        """When to look round again."""
        self._behind: dict[Line, Mark] = {}
        """Lines that begin with jobs not wanted here, and how far they were looked through."""
        self._is_short = False
        self.is_searching = False
        """The last look ended among jobs not wanted here: there may be others behind them."""
        self._searched_s = 0.0
        self._forget_s = 0.0

    def want(self, limit: int, now_s: float, *, start: int = 0, woken: bool = False) -> Want:
        """The next Want: by discovery, or from the lines known. `now_s` is monotonic."""
        discover = woken or not self._marks or now_s >= self._look_again_s
        if self._behind and not self.is_searching and now_s >= self._forget_s:
            self._behind, self._searched_s = {}, 0.0
        return Want(
            lane=self._lane,
            queues=self._queues,
            limit=limit,
            start=start,
            types=self._types,
            takes=self._searches(limit) if discover else self._takes(limit),
            discover=discover,
            cursor=self._cursor,
        )

    def learn(self, want: Want, answer: TurnResult, took_s: float, now_s: float) -> None:
        """Take in what a Turn with this Want brought, how long it took, and that it is over now."""
        mine = [lease for lease in answer.leases if lease.lane == self._lane]
        given = Counter((lease.queue, lease.band, lease.tenant) for lease in mine)
        marks = {(mark.queue, mark.band, mark.tenant): mark for mark in answer.marks}
        if want.discover:
            self._look_again_s = now_s + min(PAUSE_PER_LOOK * took_s, LONGEST_PAUSE_S)
        self._cursor = answer.cursors.get(self._lane, mine[-1].tenant if mine else self._cursor)
        self._is_short = len(mine) < want.limit
        self.is_searching = self._is_short and want.discover and self._looks_on(want, answer, took_s, now_s)
        if self._is_short:
            self._marks = {}
        elif want.discover:
            # The last band claimed from is the only one with anything left. Once a tenant had its second turn there, all had their first:
            # every line is known. Otherwise others may wait unseen, and only looking round again is fair to them.
            last = (mine[-1].queue, mine[-1].band)
            lines = [line for line in given if line[:2] == last]
            met_all = any(given[line] > 1 for line in lines)
            self._marks = {line: marks[line] for line in lines if line in marks} if met_all else {}
        else:
            self._marks.update({line: marks[line] for line in given if line in marks})

    def _searches(self, limit: int) -> tuple[Take, ...]:
        """One job each from behind what is not wanted; the look round that follows goes on from there. Only when nobody else waits."""
        if not self._is_short:
            return ()
        lines = list(self._behind)[:limit]
        return tuple(
            Take(queue=queue, band=band, tenant=tenant, limit=1, after=self._behind[queue, band, tenant])
            for queue, band, tenant in lines
        )

    def _looks_on(self, want: Want, answer: TurnResult, took_s: float, now_s: float) -> bool:
        """Whether lines of jobs not wanted here were looked into further than before; False: to their end."""
        for take in want.takes:  # those asked now come last the next time
            line = take.queue, take.band, take.tenant
            self._behind[line] = self._behind.pop(line)
        # The marks and leases are those of all lanes of this worker.
        given = {(lease.queue, lease.band, lease.tenant) for lease in answer.leases}
        further = {}
        for mark in answer.marks:
            line = mark.queue, mark.band, mark.tenant
            before = self._behind.get(line)
            if mark.queue in self._queues and (line not in given if before is None else _place(mark) > _place(before)):
                further[line] = mark
        self._behind.update(further)
        if further:
            self._searched_s += took_s
            self._forget_s = now_s + max(PAUSE_PER_LOOK * self._searched_s, SEARCHED_FOR_S)
        return bool(further)

    def _takes(self, limit: int) -> tuple[Take, ...]:
        lines = sorted(self._marks)
        in_turn = [line for line in lines if line[2] > self._cursor] + [
            line for line in lines if line[2] <= self._cursor
        ]
        each, left = divmod(limit, len(in_turn))
        return tuple(
            Take(
                queue=queue,
                band=band,
                tenant=tenant,
                limit=each + (place < left),
                after=self._marks[queue, band, tenant],
            )
            for place, (queue, band, tenant) in enumerate(in_turn)
            if each or place < left
        )


def _place(mark: Mark) -> tuple[int, datetime, int]:
    return mark.rank, mark.due_at, mark.seq
