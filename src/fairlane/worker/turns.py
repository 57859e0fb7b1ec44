"""The turner: one Turn at a time in flight, settling what ended and claiming what the lanes have room for."""

from __future__ import annotations

import asyncio
import logging

import msgspec

from fairlane.core.job import Lease
from fairlane.core.ops import Start, Turn, TurnResult, Want
from fairlane.core.outcome import Died, Failure, Outcome
from fairlane.core.payload.storable import fingerprint
from fairlane.errors import FairlaneError, StoreClosed, StoreRefused
from fairlane.worker.events import losses
from fairlane.worker.lanes import LaneState
from fairlane.worker.state import TRUSTED_S, Desk

log = logging.getLogger("fairlane.worker")

REPORT_START_S = 0.5
"""A prefetched attempt still running after this is reported as begun; a shorter one never costs a write of its own."""
ATTEND_S = 2.0
"""While anything runs a Turn goes out this often at least, to hear of cancellations."""
QUIET_LOOKS, QUIET_TIMES, LONGEST_POLL_S = 10, 5, 5.0
"""After so many looks that found nothing it looks so many times more rarely, if wake-ups are known to reach it."""
ECHO_S = (0.0, 0.03, 0.3)
"""After falling idle: look again this soon, for an enqueue that had not seen us waiting. At once, because the Turn that says so
claims before it commits."""
QUIET_S = 0.02
"""A lane with free slots, beside others at work, asks to be woken after so long without a Turn: where Turns follow each other faster it hears soon enough,
and a wake-up for every enqueue would cost the writers dear."""
ASK_AGAIN_S = 0.02
"""After a claim that a limit left short: no sooner, for whoever holds its place may be counting."""
UNREGISTERED_S = 0.2
"""How long a worker whose heartbeat has lapsed waits before it asks again."""
BACKOFF_S = (0.1, 0.5, 1.0, 2.0, 5.0)

FROM_ALL_S = 0.05
"""Queues with limits are looked into this often at least, while others keep a worker busy."""

Asked = tuple[tuple[LaneState, Want], ...]


class Unanswered(Exception):
    """The store did not answer while there was still time."""


class Turner:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._claim_no = 0
        self._idle = 0
        """Turns in a row that found nothing to do."""
        self._due_s: float | None = None
        """When the next scheduled job is due, by our clock."""
        self._freed_s: float | None = None
        """When a limit that held something back lets the next one through."""
        self._is_waiting = False
        """The last Turn asked to be woken."""
        self.answered_s = desk.monotonic()
        """When the store last answered: what readiness is judged by."""
        self._registered = True
        self._is_counted = True
        """Some of what was claimed last may be counted under a limit."""
        self._all_asked_s = float("-inf")
        self._is_partial = False
        """The last look left out queues with limits."""
        self._is_owed = False
        """A lane that was to look into all its queues found the jobs that may still run promised to others: its look comes next."""
        self.until_s: float | None = None
        """Leaving: nobody waits for the store beyond this."""

    async def turn_until_stopped(self) -> None:
        """Turn by turn, until told to stop, drained, or used up."""
        desk = self._desk
        while not desk.stopping:
            asked = self._asked()
            if not (asked or desk.outcomes or self._unreported()):
                await self._sleep()
                continue
            claimed = await self.turn(asked)
            if not self._registered:
                await asyncio.sleep(UNREGISTERED_S)
                continue  # an empty answer says nothing about the queues
            searches = any(state.planner.is_searching for state in desk.lanes)
            if claimed or desk.outcomes or not self._is_waiting:
                self._idle = 0
            elif not searches:  # a search that goes on is still the same look
                self._idle += 1
            if desk.config.drain and self._idle and not (searches or desk.busy()) and self._freed_s is None:
                if self._is_partial:
                    desk.woken = True  # the queues left out may hold something
                elif all(state.empty for state in desk.lanes):
                    return
            if desk.jobs_left() <= 0 and not desk.busy():
                return

    async def turn(self, asked: Asked = ()) -> int:
        """One Turn; how many jobs it brought."""
        desk = self._desk
        self._claim_no += 1
        outcomes, desk.outcomes = desk.outcomes, []
        sent_s = desk.monotonic()
        self._is_waiting = not desk.stopping and (
            not desk.busy() or (self._has_idle_lane() and sent_s - self.answered_s >= QUIET_S)
        )
        # On a Turn that asks only queues chosen because they have no limits, and ends nothing that was counted, no limit bears.
        frees_places, desk.limits.frees_places = desk.limits.frees_places, False
        gives_limits = frees_places or any(want.queues == state.queues for state, want in asked)
        turn = Turn(
            worker=desk.worker,
            claim_no=self._claim_no,
            outcomes=tuple(outcomes),
            starts=self._starts(),
            wants=tuple(want for _, want in asked),
            limits=desk.limits.given if asked and gives_limits else (),
            waiting=self._is_waiting,
        )
        answer = await self._send(turn)
        self.answered_s = desk.monotonic()
        desk.hear_time(answer.now, sent_s)
        by_lane: dict[str, list[Lease]] = {}
        for lease in answer.leases:
            by_lane.setdefault(lease.lane, []).append(lease)
        for state, want in asked:
            leases = by_lane.get(want.lane, [])
            state.planner.learn(want, answer, self.answered_s - sent_s, self.answered_s)
            state.empty = len(leases) < want.limit and not state.planner.is_searching
            state.give(leases, sent_s + TRUSTED_S, self.answered_s)
        if asked:
            desk.limits.in_force = answer.limited or (desk.limits.in_force and not gives_limits)
            self._heed_limits(answer, is_short=any(state.empty for state, _ in asked))
            self._is_counted = desk.limits.may_count(answer.leases)
        self._heed(answer)
        return len(answer.leases)

    def _asked(self) -> Asked:
        """What each lane with room asks for; nothing where the last answer was short and nothing has happened since."""
        desk = self._desk
        woken, desk.woken = desk.woken, False
        asked, is_partial = [], False
        left = desk.jobs_left()
        from_all = self._is_counted or woken or self._is_owed or desk.monotonic() - self._all_asked_s > FROM_ALL_S
        self._is_owed = False
        for state in desk.lanes:
            room, queues = state.room(), None
            if desk.limits.in_force:
                # Free slots may take anything; ahead of them only what no limit counts. Where nothing met a limit lately, both at once from the
                # queues without one, and only now and then a look into the others.
                queues = desk.limits.free(state.queues)
                if state.free_slots() and (from_all or not queues):
                    room, queues = state.free_slots(), None
                elif not queues or (from_all and desk.limits.come_first(state.queues)):
                    room = 0  # what is held runs out, and the slots that come free may take anything
            if from_all and room > 0 and left <= 0:
                # The lanes before it ask for all that is left: its look comes when they find nothing.
                self._is_owed = True
                state.empty = state.empty and not woken
            room = min(room, left)
            if state.empty and not woken:
                # The last look found no more than it got: now for as many as have ended, and where those are found for the rest, too.
                room = min(room, len(desk.outcomes))
            left -= room
            if room > 0:
                limit = room if desk.config.batch is None else min(room, desk.config.batch)
                want = state.planner.want(
                    limit, desk.monotonic(), start=min(limit, state.free_slots()), woken=woken, queues=queues
                )
                asked.append((state, want))
                is_partial = is_partial or queues is not None
        if asked:
            self._is_partial = is_partial
            if from_all:
                self._all_asked_s = desk.monotonic()
        return tuple(asked)

    async def _sleep(self) -> None:
        """Until there is something to send, or it is time to look again."""
        desk = self._desk
        desk.kick.clear()
        if desk.outcomes or desk.woken or desk.stopping:
            return
        pause_s = desk.config.poll_s
        if desk.is_woken_reliably and self._idle > QUIET_LOOKS:
            pause_s = max(pause_s, min(QUIET_TIMES * pause_s, LONGEST_POLL_S))
        if desk.busy():
            pause_s = min(pause_s, ATTEND_S)
            if not self._is_waiting and self._has_idle_lane():
                pause_s = min(pause_s, QUIET_S)
        if 0 < self._idle <= len(ECHO_S):
            pause_s = min(pause_s, ECHO_S[self._idle - 1])
        for due_s in (self._due_s, self._freed_s):
            if due_s is not None:
                pause_s = min(pause_s, max(due_s - desk.monotonic(), 0.0))
        try:
            async with asyncio.timeout(pause_s):
                await desk.kick.wait()
        except TimeoutError:
            desk.woken = True

    async def _send(self, turn: Turn) -> TurnResult:
        """Send it until the store answers: repeated under one number it claims once and settles once."""
        desk, tries = self._desk, 0
        while True:
            try:
                return await desk.app.runtime.store.arun(turn)
            except StoreClosed:
                raise
            except StoreRefused as refused:
                turn = await self._settle_by_halves(turn, refused)
            except FairlaneError as error:
                if self.until_s is not None and desk.monotonic() > self.until_s:
                    raise Unanswered(str(error)) from error
                pause_s = BACKOFF_S[min(tries, len(BACKOFF_S) - 1)] * (0.5 + desk.app.runtime.chance.fraction())
                log.warning("the store did not answer, trying again in %.1f s: %s", pause_s, error)
                tries += 1
                await asyncio.sleep(pause_s)

    async def _settle_by_halves(self, turn: Turn, refused: StoreRefused) -> Turn:
        """Settle the outcomes apart until the one the store refuses stands alone, and let that one die of it."""
        outcomes = turn.outcomes
        if not outcomes:
            raise refused
        if len(outcomes) == 1:
            return msgspec.structs.replace(turn, outcomes=(self._unstorable(outcomes[0], refused),))
        middle = len(outcomes) // 2
        for half in (outcomes[:middle], outcomes[middle:]):
            await self._send(
                Turn(worker=turn.worker, claim_no=turn.claim_no, outcomes=half, promote_limit=0, reclaim_limit=0)
            )
        return msgspec.structs.replace(turn, outcomes=())

    def _unstorable(self, outcome: Outcome, refused: StoreRefused) -> Outcome:
        message = f"its outcome could not be stored: {refused.why}"[:500].replace("\0", "")
        what = Failure(
            error_class="non_retryable",
            error_type="unstorable_result",
            message=message,
            fingerprint=fingerprint("unstorable_result", message, "outcome"),
        )
        return Died(seq=outcome.seq, attempt=outcome.attempt, ran_s=None, failure=what)

    def _unreported(self) -> bool:
        now_s = self._desk.monotonic()
        return any(
            s.lease is not None and not s.reported and now_s - s.began_s > REPORT_START_S for s in self._desk.slots
        )

    def _starts(self) -> tuple[Start, ...]:
        now_s, starts = self._desk.monotonic(), []
        for slot in self._desk.slots:
            if slot.lease is not None and not slot.reported and now_s - slot.began_s > REPORT_START_S:
                slot.reported = True
                starts.append(Start(seq=slot.lease.seq, attempt=slot.lease.attempt, timeout_s=slot.timeout_s))
        return tuple(starts)

    def _has_idle_lane(self) -> bool:
        return any(state.empty and state.free_slots() for state in self._desk.lanes)

    def _heed_limits(self, answer: TurnResult, *, is_short: bool) -> None:
        until = answer.limited_until
        if until is None or not is_short:
            self._freed_s = None
        else:
            self._freed_s = self.answered_s + max((until - answer.now).total_seconds(), ASK_AGAIN_S)

    def _heed(self, answer: TurnResult) -> None:
        """What the store says of jobs we hold: asked to cancel, lost, and when to look again."""
        desk, now_s = self._desk, self._desk.monotonic()
        if answer.cancels:
            asked = frozenset(answer.cancels)
            for state in desk.lanes:
                if any(lease.seq in asked for lease in state.held):
                    desk.give_back(state, lambda lease: lease.seq in asked)
            for slot in desk.slots:
                if slot.lease is not None and slot.lease.seq in asked:
                    slot.stop("cancel", now_s)
        for refusal in answer.refused:
            log.warning(
                "attempt %d of job %d no longer belongs to this worker; its outcome does not count",
                refusal.attempt,
                refusal.seq,
            )
            for slot in desk.slots:
                if slot.lease is not None and (slot.lease.seq, slot.lease.attempt) == (refusal.seq, refusal.attempt):
                    slot.stop("lease_lost", now_s)
        if answer.reclaimed:
            desk.teller.tell_all(losses(answer.reclaimed))
        self._registered = answer.registered
        if not answer.registered:
            log.warning("the heartbeat of worker %s has lapsed: nothing is claimed until it is renewed", desk.worker)
        due = answer.next_due_at
        self._due_s = None if due is None else now_s + max((due - answer.now).total_seconds(), 0.0)
