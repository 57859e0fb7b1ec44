"""Sends Turns to the store, one at a time: each settles ended attempts and claims jobs for the lanes' free slots."""

from __future__ import annotations

import asyncio

import msgspec

from fairlane.client.logs import GuardedLogger
from fairlane.core.job import Lease
from fairlane.core.ops import Turn, TurnResult, Want
from fairlane.core.ops.events import loss_events
from fairlane.core.outcome import Died, Failure, Outcome
from fairlane.core.payload.storable import fingerprint
from fairlane.errors import FairlaneError, StoreClosed, StoreRefused, StoreUnavailable
from fairlane.worker.lanes import LaneState
from fairlane.worker.state import TRUSTED_S, WorkerState

log = GuardedLogger("fairlane.worker")

ATTEND_S = 2.0
"""While anything runs a Turn is sent at least this often, to learn of cancellations."""
QUIET_CLAIMS, QUIET_FACTOR, LONGEST_POLL_S = 10, 5, 5.0
"""After QUIET_CLAIMS empty claims polling slows down by QUIET_FACTOR, if wake-ups are known to reach this worker."""
ECHO_S = (0.0, 0.03, 0.3)
"""After falling idle a worker claims again this soon, for an enqueue that had not seen it waiting. The first time is
at once, because the Turn that marks the worker as waiting claims before it commits."""
QUIET_S = 0.02
"""An idle lane beside busy ones asks to be woken after this long without a Turn. Where Turns follow each other faster
it claims soon enough, and a wake-up for every enqueue would slow the writers down."""
PAUSE_PER_REST = 4.0
"""A lane whose places under a limit are taken claims for its other slots again after QUIET_S, and after this many times
as long as such a claim took: it reads over all that has no room."""
ASK_AGAIN_S = 0.02
"""Earliest next claim after one that a limit left short: another worker may be counting under that limit."""
UNREGISTERED_S = 0.2
"""How long a worker whose heartbeat has lapsed waits before its next Turn."""
BACKOFF_S = (0.1, 0.5, 1.0, 2.0, 5.0)

LaneWants = tuple[tuple[LaneState, Want], ...]


class Unanswered(Exception):
    """The store did not answer before the deadline of a stopping worker."""


class TurnLoop:
    """Settles and claims for one engine."""

    def __init__(self, state: WorkerState) -> None:
        self._state = state
        self._claim_no = 0
        self._idle = 0
        """Consecutive Turns that found nothing to do."""
        self._due_s: float | None = None
        """When the next scheduled job is due, by our clock."""
        self._freed_s: float | None = None
        """When a limit that left a claim short allows the next job."""
        self._is_waiting = False
        """The last Turn asked to be woken."""
        self.answered_s = state.monotonic()
        """When the store last answered; the readiness probe reads it."""
        self.stepped_s = self.answered_s
        """When this loop last took a step, whether or not the store answered; the foreman judges it."""
        self._registered = True
        self.until_s: float | None = None
        """Stopping: do not wait for the store beyond this."""

    async def run(self) -> None:
        """Until stopped, until drained, or until `max_jobs`."""
        state = self._state
        while not state.stopping:
            self.stepped_s = state.monotonic()
            drains = state.draining  # read before the claim: what is enqueued before it is to be claimed
            asked = self._wants()
            if not (asked or state.outcomes or state.starts()):
                await self._sleep()
                continue
            claimed = await self.turn(asked)
            if not self._registered:
                await asyncio.sleep(UNREGISTERED_S)
                continue  # an empty answer says nothing about the queues
            searches = any(lane.planner.is_searching for lane in state.lanes)
            if claimed or state.outcomes or not self._is_waiting:
                self._idle = 0
            elif not searches:  # a claim that continues its search is the same claim
                self._idle += 1
            owes_look = any(lane.planner.looks_at_s is not None for lane in state.lanes)
            is_idle = self._idle and not (searches or owes_look or state.busy()) and self._freed_s is None
            if drains and is_idle and all(lane.empty for lane in state.lanes):
                return
            if state.jobs_left() <= 0 and not state.busy():
                return

    async def turn(self, asked: LaneWants = ()) -> int:
        """Send one Turn; how many jobs it claimed."""
        state = self._state
        self._claim_no += 1
        outcomes, state.outcomes = state.outcomes, []
        sent_s = state.monotonic()
        self._is_waiting = not state.stopping and (
            not state.busy() or (self._has_idle_lane() and sent_s - self.answered_s >= QUIET_S)
        )
        starts = state.starts()
        state.reported(starts)
        turn = Turn(
            worker=state.worker,
            claim_no=self._claim_no,
            outcomes=tuple(outcomes),
            starts=starts,
            wants=tuple(want for _, want in asked),
            limits=state.limits if asked else (),
            waiting=self._is_waiting,
        )
        try:
            answer = await self._send(turn)
        except BaseException:
            # Whoever settles for a failing engine sends them again; the store refuses what it has settled already.
            state.outcomes[:0] = outcomes
            raise
        self.answered_s = state.monotonic()
        state.outage.answered()
        state.set_store_time(answer.now, sent_s, self.answered_s)
        state.events.settled(turn.outcomes, (refusal.key for refusal in answer.refused))
        by_lane: dict[str, list[Lease]] = {}
        for lease in answer.leases:
            by_lane.setdefault(lease.lane, []).append(lease)
        for lane, want in asked:
            leases = by_lane.get(want.lane, [])
            lane.planner.learn(want, answer, self.answered_s - sent_s, self.answered_s)
            is_short = len(leases) < want.limit
            if is_short:
                lane.rests_until_s = self.answered_s + max(QUIET_S, PAUSE_PER_REST * (self.answered_s - sent_s))
            elif lane.empty and answer.limited:
                # It took again the places it has freed, which says nothing about other jobs.
                is_short = self.answered_s < lane.rests_until_s
            lane.empty = is_short and not lane.planner.is_searching
            lane.give(leases, sent_s + TRUSTED_S, self.answered_s)
            if leases:
                state.begun.set()
        if asked:
            self._apply_limits(answer, is_short=any(lane.empty for lane, _ in asked))
        self._apply(answer)
        return len(answer.leases)

    def _wants(self) -> LaneWants:
        """What each lane with room claims; nothing where the last answer was short and nothing has happened since."""
        state = self._state
        woken, state.woken = state.woken, False
        asked = []
        left, leaves = state.jobs_left(), state.put_offs.left()
        for lane in state.lanes:
            room = lane.room()
            if room > 0 and left <= 0:
                # The lanes before it claim all that is left of max_jobs: it claims when they find nothing.
                lane.empty = lane.empty and not woken
            room = min(room, left)
            if lane.empty and not woken:
                # The last claim was short: claim only as many as have ended, and more once those are found.
                room = min(room, len(state.outcomes))
            left -= room
            if room > 0:
                limit = room if state.config.batch is None else min(room, state.config.batch)
                slots = max(lane.free_slots(), min(len(state.outcomes), lane.config.slots))
                want = lane.planner.want(
                    limit,
                    state.monotonic(),
                    slots=slots if slots < limit else None,
                    woken=woken,
                    leaves=leaves,
                )
                asked.append((lane, want))
        return tuple(asked)

    async def _sleep(self) -> None:
        """Until there is something to send, or it is time to claim again."""
        state = self._state
        state.kick.clear()
        if state.outcomes or state.woken or state.stopping:
            return
        pause_s = state.poll_s
        if state.is_woken_reliably and self._idle > QUIET_CLAIMS:
            pause_s = max(pause_s, min(QUIET_FACTOR * pause_s, LONGEST_POLL_S))
        if state.busy():
            pause_s = min(pause_s, ATTEND_S, state.report_in_s())
            if not self._is_waiting and self._has_idle_lane():
                pause_s = min(pause_s, QUIET_S)
        if 0 < self._idle <= len(ECHO_S):
            pause_s = min(pause_s, ECHO_S[self._idle - 1])
        for due_s in (self._due_s, self._freed_s):
            if due_s is not None:
                pause_s = min(pause_s, max(due_s - state.monotonic(), 0.0))
        for lane in state.lanes:
            if lane.planner.looks_at_s is not None and lane.free_slots():
                pause_s = min(pause_s, max(lane.planner.looks_at_s - state.monotonic(), QUIET_S))
        try:
            async with asyncio.timeout(pause_s):
                await state.kick.wait()
        except TimeoutError:
            state.woken = True

    async def _send(self, turn: Turn) -> TurnResult:
        """Send it until the store answers: repeated under one claim number it claims once and settles once."""
        state, tries, asked_s = self._state, 0, self._state.monotonic()
        while True:
            try:
                return await state.app.runtime.store.arun(turn)
            except StoreClosed:
                raise
            except Exception as error:
                if isinstance(error, StoreRefused) and turn.outcomes:
                    turn = await self._settle_by_halves(turn, error)
                    continue
                if self.until_s is not None and state.monotonic() > self.until_s:
                    raise Unanswered(str(error)) from error
                pause_s = BACKOFF_S[min(tries, len(BACKOFF_S) - 1)] * (0.5 + state.app.runtime.chance.fraction())
                what = "refused to claim" if isinstance(error, StoreRefused) else "did not answer"
                why = error if isinstance(error, FairlaneError) else f"{type(error).__name__}: {error}"
                if isinstance(error, StoreUnavailable):
                    state.outage.failed(why, asked_s)
                else:
                    log.warning("the store %s, trying again in %.1f s: %s", what, pause_s, why)
                tries += 1
                self.stepped_s = state.monotonic()
                await asyncio.sleep(pause_s)

    async def _settle_by_halves(self, turn: Turn, refused: StoreRefused) -> Turn:
        """Settle halves of the outcomes until the one the store refuses stands alone, and dead-letter that one."""
        outcomes = turn.outcomes
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
        died = Died(seq=outcome.seq, attempt=outcome.attempt, claim_no=outcome.claim_no, ran_s=None, failure=what)
        self._state.events.unstorable(died)
        return died

    def _has_idle_lane(self) -> bool:
        return any(lane.empty and lane.free_slots() for lane in self._state.lanes)

    def _apply_limits(self, answer: TurnResult, *, is_short: bool) -> None:
        until = answer.limited_until
        if until is None or not is_short:
            self._freed_s = None
        else:
            self._freed_s = self.answered_s + max((until - answer.now).total_seconds(), ASK_AGAIN_S)

    def _apply(self, answer: TurnResult) -> None:
        """Act on an answer: cancel jobs, stop those whose lease is lost, and note when to claim again."""
        state, now_s = self._state, self._state.monotonic()
        if answer.cancels:
            asked = frozenset(answer.cancels)
            for lane in state.lanes:
                if any(lease.seq in asked for lease in lane.held):
                    state.give_back(lane, lambda lease: lease.seq in asked)
            for slot in state.slots:
                if slot.lease is not None and slot.lease.seq in asked:
                    slot.stop("cancel")
        for refusal in answer.refused:
            log.warning(
                "attempt %d of job %d no longer belongs to this worker; its outcome does not count",
                refusal.attempt,
                refusal.seq,
            )
            state.lease_lost(refusal.key)
        if answer.reclaimed:
            state.events.extend(loss_events(answer.reclaimed))
        self._registered = answer.registered
        if not answer.registered:
            log.warning("the heartbeat of worker %s has lapsed: nothing is claimed until it is renewed", state.worker)
        due = answer.next_due_at
        self._due_s = None if due is None else now_s + max((due - answer.now).total_seconds(), 0.0)
