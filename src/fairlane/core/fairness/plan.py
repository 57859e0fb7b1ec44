"""Plans a lane's next claim: a share from each of the lines it knows, and discovery of others.

A line is one tenant's ready jobs in one queue and band. Known are the lines of the most urgent band that has anything
left. Each claim is shared over them by the tenants' accounts; what a line does not give, discovery finds elsewhere in
the same claim.

Claiming behind the marks of known lines skips rows claimed long ago that the database cannot forget yet (an old
snapshot held on PostgreSQL: 2,400 jobs/s from the head of the line, 20,000 from its mark). Discovery begins at the
heads of the lines, takes one job and also says who else waits: new tenants, more urgent bands and jobs that came back
behind a mark are found. It happens when woken, when nothing is known, and else as often as keeps what it costs beyond a
plain claim within a fifth of the time, but never more rarely than every half second. Where it is slow, lines claimed
before are asked first for what has come behind their marks, and it waits for that time also when woken.

A look goes only so far into a line. Where it met nothing but jobs not wanted here (paused, or of types this worker does
not know), the next ones continue after them, so that a thousand of those hide nothing.
"""

from __future__ import annotations

from collections import Counter

from fairlane.core.fairness.accounts import FOLLOW, Accounts
from fairlane.core.fairness.skipped import Claimed, Line, Rests, Searcher
from fairlane.core.job import Lease
from fairlane.core.ops import Mark, Survey, Take, TurnResult, Want

PAUSE_PER_LOOK = 4.0
"""After a discovery, known lines serve for this many times as long as it took beyond a plain claim, so that discovery
takes a fifth of the time."""
MANY, PAUSE_PER_JOB_S = 100, 6e-5
"""And this long for each job beyond a hundred that came with it: where 500 are claimed in ten milliseconds, the two
that a look costs more are lost in what claims wander by, and looks were taken every time."""
PAUSE_UNDER_LIMITS_S = 0.05
"""And at least this long under limits: their jobs are not prefetched, so a place is empty while a look goes on. Without
limits others wait as long for what is prefetched. The Turn between two jobs takes 1.8 ms at best, with a look 3.2."""
LONGEST_PAUSE_S = 0.5
SLOW_S = 0.01
"""Discovery that takes longer than this beyond a plain claim reads over jobs claimed long ago."""
SHORT_S = 0.005
"""What a claim that finds next to nothing may take, however long the full ones take."""
SURVEY = 1000
NAME_S = 5e-6
"""What one name in a survey costs here, beside what it costs the store."""


class ClaimPlanner:
    """Remembers one lane's lines, and shares each claim fairly over them."""

    def __init__(self, lane: str, queues: tuple[str, ...], types: tuple[str, ...] | None = None) -> None:
        self._lane, self._queues, self._types = lane, queues, types
        self._urgency = {queue: place for place, queue in enumerate(queues)}
        self.accounts = Accounts()
        self._place: tuple[str, int] | None = None
        """The queue and band of the known lines."""
        self._lines: dict[str, Mark | None] = {}
        """By tenant: how far they were claimed; None: to be asked from the head."""
        self._rests = Rests()
        self._claimed = Claimed()
        self._searcher = Searcher(queues)
        self._cursor = ""
        self._is_short = False
        self._is_look = False
        self._looked = self._is_slow = False
        self._is_behind = False
        """The last claim asked only behind marks."""
        self._goes_on = False
        """It was short, and some of the lines it asked have more, or a look is due."""
        self._look_again_s = 0.0
        self._plain_s = 0.0
        """What a claim from known lines takes."""
        self._extra_s = LONGEST_PAUSE_S
        """What the last look took beyond that."""

    @property
    def is_searching(self) -> bool:
        """The last claim ended among jobs not wanted here, or in lines that are empty now: others may have more."""
        return self._searcher.is_searching or self._goes_on

    @property
    def looks_at_s(self) -> float | None:
        """When to claim again, because the last claim was short and asked only behind marks."""
        return self._look_again_s if self._is_behind and self._is_short and not self.is_searching else None

    def want(
        self,
        limit: int,
        now_s: float,
        *,
        slots: int | None = None,
        woken: bool = False,
        leaves: tuple[str, ...] = (),
    ) -> Want:
        """The next Want. `now_s` is monotonic; `slots` and `leaves`: see Want."""
        self._searcher.forget_if_old(now_s)
        rested = self._rests.over(now_s)
        if rested:
            self.accounts.await_turn([tenant for tenant in rested if tenant in self._lines], now_s)
        behind: tuple[Take, ...] = ()
        is_new = woken and not (self._is_behind and self._is_short)
        self._is_behind = self._is_slow and (is_new or now_s < self._look_again_s) and not self._searcher.behind
        if self._is_behind and (not self._lines or self._searcher.is_held_back):
            behind = self._claimed.takes(limit, self._queues)
            self._is_behind = bool(behind)
        self._is_look = not self._is_behind and (woken or not self._lines or now_s >= self._look_again_s)
        cursor = self._cursor
        picked: Counter[str] = Counter()
        if behind:
            takes = behind
        elif self._lines:
            picked, cursor = self._picked(limit, now_s)
            takes = self._takes(picked)
        else:
            takes = self._searcher.takes(limit, self._queues) if self._is_short else ()
        return Want(
            lane=self._lane,
            queues=self._queues,
            limit=limit,
            slots=slots,
            types=self._types,
            leaves=leaves,
            takes=takes,
            discover=not self._is_behind,
            cursor=cursor,
            look=self._searcher.look,
            survey=SURVEY,
        )

    def learn(self, want: Want, answer: TurnResult, took_s: float, now_s: float) -> None:
        """Take in what a Turn with this Want brought, how long it took, and that it is over now."""
        mine = [lease for lease in answer.leases if lease.lane == self._lane]
        given = Counter([(lease.queue, lease.band, lease.tenant) for lease in mine])
        for (_, _, tenant), count in given.items():
            self.accounts.claim(tenant, count, now_s)
        self._cursor = answer.cursors.get(self._lane, mine[-1].tenant if mine else self._cursor)
        self._is_short = len(mine) < want.limit
        self._searcher.learn(want, answer, took_s, now_s, is_short=self._is_short)
        survey = next((survey for survey in answer.surveys if survey.lane == self._lane), None)
        if self._is_look:
            # Two in a row: one may have been slow for some other reason.
            plain_s = min(self._plain_s, SHORT_S) if self._is_short else self._plain_s
            last_s, self._extra_s = self._extra_s, max(took_s - plain_s, 0.0)
            if survey is not None:
                self._extra_s += NAME_S * len(survey.tenants)
            extra_s = min(last_s, self._extra_s)
            pause_s = max(PAUSE_PER_LOOK * extra_s, PAUSE_PER_JOB_S * (len(mine) - MANY))
            if answer.limited and not self._is_short:
                pause_s = max(pause_s, PAUSE_UNDER_LIMITS_S)
            self._look_again_s = now_s + min(pause_s, max(LONGEST_PAUSE_S, extra_s))
            self._is_slow = self._looked and extra_s > SLOW_S
            self._looked = True
        elif survey is None and mine:
            self._plain_s += (took_s - self._plain_s) * (FOLLOW if self._plain_s else 1.0)
        marks = {(mark.queue, mark.band, mark.tenant): mark for mark in answer.marks}
        self._claimed.learn(mine)
        self._goes_on = False
        if survey is not None:
            self._know(survey, marks, self._rested(want, given, now_s), now_s)
        elif self._is_short and not self._is_behind:
            self._forget_lines()
        else:
            for line in given:
                if line[:2] == self._place and line[2] in self._lines:
                    self._lines[line[2]] = marks.get(line)
            if self._is_short:
                self._leave_ended(want, given)
                self._goes_on = bool(given and self._lines) or now_s >= self._look_again_s

    def _leave_ended(self, want: Want, given: Counter[Line]) -> None:
        """Of the known lines, keep those that gave what they were asked for."""
        ended = {take.tenant for take in want.takes if given[take.queue, take.band, take.tenant] < take.limit}
        known = [tenant for tenant in self._lines if tenant in ended]
        self.accounts.leave(known)
        for tenant in known:
            del self._lines[tenant]
        if not self._lines:
            self._forget_lines()

    def _forget_lines(self) -> None:
        self.accounts.leave(self._lines)
        self._place, self._lines = None, {}
        self._rests.clear()

    def forget(self) -> None:
        """Begin at the heads of all lines: the due times that their marks go by were changed."""
        self._forget_lines()
        self._claimed, self._searcher = Claimed(), Searcher(self._queues)

    def in_order(self, leases: list[Lease], now_s: float) -> list[Lease]:
        """Held jobs in the order in which they should begin."""
        return self.accounts.in_order(leases, now_s, self._urgency)

    def _picked(self, limit: int, now_s: float) -> tuple[Counter[str], str]:
        """How many jobs of whom, and where discovery begins: at a look with the last one picked."""
        if len(self._lines) == 1 and not self._searcher.behind and not self._rests:
            (tenant,) = self._lines
            if self._is_look:
                return Counter(), tenant  # all by discovery, beginning with whoever is new
            return Counter({tenant: limit}), self._cursor
        assert self._place is not None
        singly = {line[2] for line in self._searcher.behind if line[:2] == self._place}
        order = self.accounts.picks(limit, now_s, singly)
        if not self._is_look or not order:
            return Counter(order), self._cursor
        return Counter(order[:-1] if len(order) == limit else order), just_before(order[-1])

    def _takes(self, picked: Counter[str]) -> tuple[Take, ...]:
        assert self._place is not None
        queue, band = self._place
        return tuple(
            [
                Take(
                    queue=queue,
                    band=band,
                    tenant=tenant,
                    limit=count,
                    after=self._searcher.after((queue, band, tenant)) if self._is_look else self._lines[tenant],
                )
                for tenant, count in picked.items()
            ]
        )

    def _rested(self, want: Want, given: Counter[Line], now_s: float) -> set[str]:
        """Leave lines without a job to take (empty, at a limit, of unknown types) alone for a while.

        Nobody waits for them, and no account is measured by theirs.
        """
        rested = set()
        for take in want.takes:
            line = take.queue, take.band, take.tenant
            if line not in given and not self._searcher.goes_on_in(line):
                rested.add(take.tenant)
                self._rests.begin(take.tenant, now_s)
        for _, _, tenant in given:
            self._rests.end(tenant)
        self.accounts.leave(rested)
        return rested

    def _know(self, survey: Survey, marks: dict[Line, Mark], rested: set[str], now_s: float) -> None:
        """Who has jobs in the most urgent band with anything left."""
        place = survey.queue, survey.band
        before = self._lines if place == self._place else {}
        names = dict.fromkeys(survey.tenants)
        if len(names) >= SURVEY:
            # There are more than it says: those known from before, unless they just had nothing.
            names = dict.fromkeys([*(tenant for tenant in before if tenant not in rested), *names])
        kept = {} if self._is_look else before
        self.accounts.leave([tenant for tenant in self._lines if tenant not in names])
        self._place = place
        self._lines = {tenant: marks.get((*place, tenant), kept.get(tenant)) for tenant in names}
        self.accounts.await_turn([tenant for tenant in names if tenant not in self._rests], now_s)


def just_before(tenant: str) -> str:
    """A name behind which this tenant comes first."""
    last = ord(tenant[-1]) - 1
    if 0xD800 <= last <= 0xDFFF:
        last = 0xD7FF
    return f"{tenant[:-1]}{chr(max(last, 1))}\U0010ffff"
