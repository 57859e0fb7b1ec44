"""What the parts of one engine share: prepared tasks, lanes, slots, known limits, outcomes that wait to be settled."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable
from datetime import datetime

from fairlane.client.app import Fairlane
from fairlane.client.logs import GuardedLogger, OutageLog
from fairlane.core.attempt_sums import AttemptStatistics
from fairlane.core.ids import LeaseKey, WorkerId
from fairlane.core.job import Lease
from fairlane.core.ops import CLOCK_HELD_S, Start
from fairlane.core.ops.turn import START_BY_S
from fairlane.core.outcome import Completed, Outcome, Released, leaves_no_record
from fairlane.worker.attempts import PreparedTask, PutOffs
from fairlane.worker.batch_calls import MOST_LINES, largest_batch
from fairlane.worker.config import WorkerConfig, known_queues
from fairlane.worker.events import EventBuffer
from fairlane.worker.lanes import LaneState, Slot

log = GuardedLogger("fairlane.worker")

MARGIN_S = 5.0
"""A held job begins at least this long before its lease ends: later it may belong to another worker."""
TRUSTED_S = START_BY_S - MARGIN_S
AHEAD_S = 10.0
"""A store's clock that goes ahead by more than this beside ours is worth a line in the log."""
SET_BACK = (
    "the store's clock was set back by %.0f s: delays, retries, leases and rates that it had let begin in the future "
    "begin now, and times shown from then lie ahead. If it is wrong now, set it right: nothing waits for the old time"
)
SET_AHEAD = (
    "the store's clock went ahead by %.0f s: what is due by then runs now, and leases may have lapsed. If it is wrong "
    "now, set it right: nothing will wait for this time"
)


class WorkerState:
    """Slots add outcomes, the turn loop takes them. Used on the engine's loop only."""

    def __init__(self, app: Fairlane, config: WorkerConfig, worker: WorkerId) -> None:
        self.app, self.worker = app, worker
        self.config = config = config.completed(app)
        assert config.poll_s is not None
        self.poll_s: float = config.poll_s
        self.monotonic: Callable[[], float] = app.runtime.clock.monotonic
        self.tasks = {
            name: PreparedTask(app, task)
            for name, task in app.tasks.items()
            if not config.types or name in config.types or task.name in config.types
        }
        self.lanes = tuple(
            LaneState(lane, known_queues(app, lane.queues), tuple(sorted(self.tasks))) for lane in config.lanes
        )
        served = frozenset(queue for lane in self.lanes for queue in lane.queues)
        self.limits = tuple(limit for limit in app.limits.declared if limit.is_for_claims_from(served))
        """Declared in code, for claims from these queues."""
        self.slots: list[Slot] = []
        slots, largest = sum(lane.slots for lane in config.lanes), largest_batch(self.tasks.values())
        self.board_lines = slots + min(slots * largest, MOST_LINES)
        """For the slots, and for the jobs of batch calls."""
        self.outcomes: list[Outcome] = []
        self.put_offs = PutOffs(self.monotonic)
        self.outage = OutageLog(log, self.monotonic)
        self.statistics = AttemptStatistics()
        self.events = EventBuffer(app.runtime.access, worker, {lane.name: lane.slots for lane in config.lanes})
        self.kick = asyncio.Event()
        """Set for the turn loop: an outcome, a free slot, a wake-up, or the end."""
        self.woken = True
        self.draining = config.drain
        """Stop when nothing is ready and nothing runs."""
        self.stopping = False
        """No more claims; held jobs are released."""
        self.closing = False
        """The slots themselves are being ended."""
        self._store_time: tuple[datetime, float, float] | None = None
        """The store's time, and the earliest and the latest it can have been on our clock."""
        self._set_back_s = 0.0
        self.started = 0
        self.ended = 0
        self.isolated: frozenset[tuple[str, str]] = frozenset()
        """Tasks and tenants whose jobs run in processes of their own, because they crash the one they run in."""
        self.watched: dict[tuple[str, str], int] = {}
        """Successes of tasks and tenants that crashed a process lately."""
        self.on_child_crash: Callable[[Lease], None] = lambda _: None
        self.is_woken_reliably = False
        """A wake-up has been received here: they do reach this process."""
        self._wake_ups = 0
        self.begun = asyncio.Event()
        """Set for the watchdog when jobs are given to the lanes."""

    def on_wake_up(self) -> None:
        self.is_woken_reliably = True
        self._wake_ups += 1
        self.wake()

    def activity(self) -> int:
        """Changes with every job that ends here, every wake-up, and when the store goes away or comes back."""
        return self.ended + self._wake_ups + self.outage.count

    def wake(self) -> None:
        """There may be work."""
        self.woken = True
        self.kick.set()

    def put(self, outcome: Outcome | None, lease: Lease, ran_s: float) -> None:
        """Add an ended attempt; None: its lease is lost and there is nothing to settle."""
        self.ended += 1
        if outcome is not None:
            self.outcomes.append(outcome)
            self.statistics.add(lease, outcome, ran_s)
            if self.watched and type(outcome) is Completed and (kind := (lease.type, lease.tenant)) in self.watched:
                self.watched[kind] += 1
            if type(outcome) is not Completed and leaves_no_record(outcome):
                self.started -= 1  # put off: it runs another time
            if self.events.is_watched or type(outcome) is not Completed:
                self.events.attempt_ended(lease, outcome, ran_s)
        self.kick.set()

    def busy(self) -> bool:
        return any(lane.running or lane.held or lane.gathered for lane in self.lanes)

    def jobs_left(self) -> int:
        """How many more jobs this worker may claim before it reaches `max_jobs`."""
        if self.config.max_jobs is None:
            return sys.maxsize
        return self.config.max_jobs - self.started - sum(len(lane.held) + lane.gathered for lane in self.lanes)

    def set_store_time(self, now: datetime, sent_s: float, answered_s: float) -> None:
        """The store's time, from the answer to a Turn; notices by our own clock where the store's was set."""
        if self._store_time is not None:
            at, earliest_s, latest_s = self._store_time
            passed_s = (now - at).total_seconds()
            if (behind_s := sent_s - latest_s - passed_s) > CLOCK_HELD_S:
                log.warning(SET_BACK, behind_s)
                self.note_set_back(behind_s)
                self._give_back_all()
                self.forget_lines()
            elif (ahead_s := passed_s - (answered_s - earliest_s)) > AHEAD_S:
                log.warning(SET_AHEAD, ahead_s)
        self._store_time = now, sent_s, answered_s

    def note_set_back(self, behind_s: float) -> None:
        """The store's clock was set back by so much, for the duty `clock` to deal with."""
        self._set_back_s = max(behind_s, self._set_back_s)

    def take_set_back(self) -> float | None:
        """By how much the store's clock was set back since this was last asked; None: it was not."""
        behind_s, self._set_back_s = self._set_back_s, 0.0
        return behind_s or None

    def _give_back_all(self) -> None:
        """What has not begun: how long its leases last was said by a clock that was wrong."""
        for lane in self.lanes:
            self.give_back(lane, lambda _: True)
            lane.give_back_gathered()

    def forget_lines(self) -> None:
        """Claim from the heads of all lines: due times of ready jobs have changed."""
        for lane in self.lanes:
            lane.planner.forget()
        self.wake()

    def has_turned_within(self, span_s: float) -> bool:
        """Whether a Turn sent within the last `span_s` seconds was answered."""
        return self._store_time is not None and self.monotonic() - self._store_time[1] < span_s

    def left_s(self, lease: Lease, now_s: float) -> float:
        """How long a lease lasts at least, by our clock."""
        if self._store_time is None:
            return 0.0
        at, sent_s, _ = self._store_time
        return (lease.deadline_at - at).total_seconds() - (now_s - sent_s)

    def may_begin(self, lane: LaneState, lease: Lease, now_s: float) -> bool:
        """Whether a job that was held for a while is surely still ours; releases it if not."""
        left_s = self.left_s(lease, now_s) - MARGIN_S
        if left_s > 0:
            lane.trusted_until_s = now_s + left_s
            return True
        self.release(lane, lease)
        self.kick.set()
        return False

    def report_in_s(self) -> float:
        """How soon an attempt that runs here is to be reported as begun, unless it ends before."""
        at_s = min((slot.report_at_s for slot in self.slots if slot.lease is not None), default=float("inf"))
        return max(at_s - self.monotonic(), 0.0)

    def starts(self, late_s: float = 0.0) -> tuple[Start, ...]:
        """Attempts to be reported as begun, since `late_s`; also asked in the thread of an embedded worker's
        heartbeat, while slots go on to other jobs."""
        now_s, starts = self.monotonic(), []
        for slot in tuple(self.slots):
            lease, began_s, timeout_s = slot.lease, slot.began_s, slot.timeout_s
            if lease is not None and now_s - late_s >= slot.report_at_s and lease is slot.lease:
                ran_s = max(now_s - began_s, 0.0)
                starts.append(
                    Start(
                        seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, timeout_s=timeout_s, ran_s=ran_s
                    )
                )
        return tuple(starts)

    def reported(self, starts: Iterable[Start]) -> None:
        told = {start.seq for start in starts}
        for slot in self.slots:
            if slot.lease is not None and slot.lease.seq in told:
                slot.reported = True

    def give_back(self, lane: LaneState, unwanted: Callable[[Lease], bool]) -> None:
        """Release held jobs before they begin."""
        kept = []
        for lease in lane.held:
            if unwanted(lease):
                self.release(lane, lease)
            else:
                kept.append(lease)
        lane.held.clear()
        lane.held.extend(kept)
        self.kick.set()

    def lease_lost(self, key: LeaseKey) -> None:
        """Stop a running attempt that no longer belongs to this worker."""
        for slot in self.slots:
            if slot.lease is not None and slot.lease.key == key:
                slot.stop("lease_lost")

    def release(self, lane: LaneState, lease: Lease) -> None:
        """Give a job back that has not begun."""
        lane.release(lease)
        self.outcomes.append(Released(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no))
