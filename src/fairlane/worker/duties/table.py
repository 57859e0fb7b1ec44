"""The duties of a worker in a table: name, seconds between steps, and the operations of a step.

A step returns how many jobs or rows it changed. One that changed `limit` of them has more to do and is repeated at
once; a step that decides by itself when the next is due returns a `StepReport`. Duties with more logic than that are
modules of their own.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from fairlane.alerts import AlertDuty
from fairlane.alerts.duty import EVERY_S
from fairlane.client.logs import GuardedLogger
from fairlane.core.audit_chain import seal
from fairlane.core.clock import is_within
from fairlane.core.ops import (
    MOST_EXCEPTIONS,
    AddEvents,
    AddTenants,
    Advance,
    Age,
    BringBack,
    Check,
    Deliver,
    DropResults,
    ForgetOld,
    ListLimits,
    Promote,
    ReadUnsealed,
    ReadWeights,
    Reclaim,
    ReportExceptions,
    Retain,
    RollUpEnqueued,
    SealAudit,
    TakeDuty,
    Unhold,
)
from fairlane.core.ops.events import loss_events
from fairlane.core.ops.turn import PROMOTE_LIMIT, RECLAIM_LIMIT
from fairlane.core.workflows import RELEASE_LIMIT
from fairlane.worker.duties.limit_warnings import LimitWarnings
from fairlane.worker.duties.loop import DutyLoop, StepReport
from fairlane.worker.duties.schedules import DueSchedules, ScheduleDeclarations
from fairlane.worker.duties.statistics import FastLane, StatisticsFlush
from fairlane.worker.state import SET_BACK, WorkerState

log = GuardedLogger("fairlane.worker")

BATCH = 1000
"""Rows that one step moves or removes, unless its row says otherwise."""
FIRST_BATCH, REMOVAL_S = 200, 0.02
"""Removals are bounded by time: a step takes the rows that fit this span by what the last one took, up to BATCH."""
EXAMINED = 10
"""Jobs that are examined in the time of one removal, where a queue keeps its jobs for longer."""
TENANTS, AUDIT_RECORDS, ENQUEUED_JOBS = 500, 500, 5000
CLOCK_S = 1.0
"""Seconds between looks at whether a Turn has seen the store's clock go back; they ask the store nothing."""
EVENTS_KEPT = timedelta(days=7)
CREDENTIALS_KEPT = timedelta(days=30)
"""After they ended: people can look them up for this long."""
WATCHED_S = 1.0
"""Seconds between flushes of events while somebody watches the stream."""
IDLE_LOOKS = 20
"""Steps for workflows that a worker without ended jobs leaves out."""
REVIEW_S = 3600.0
"""Seconds between looks at results that were left because their workflow went on."""
NOTHING_HELD_S = 30.0
"""Seconds between steps for held jobs while no limit holds any."""


class DutyRow(NamedTuple):
    name: str
    every_s: float
    step: Callable[[TableDuty, datetime], Awaitable[int | StepReport]]
    limit: int = sys.maxsize
    one_worker: bool = False
    """One of all workers at a time takes the duty and finishes it; the others skip it. Only spares the store: every
    step is safe to repeat."""
    idle_s: float = 0.0
    """Seconds between steps of an idle worker; 0: no others than `every_s`."""


class IdlePace:
    """Leaves out steps of a worker where no job runs, and none ended and no wake-up came since its last step.

    Not where wake-ups may not arrive, and not while the store does not answer.
    """

    def __init__(self, state: WorkerState, idle_s: float) -> None:
        self._state, self._idle_s = state, idle_s
        self._seen, self._stepped_s = -1, 0.0

    def leaves_out(self) -> bool:
        state = self._state
        return (
            state.activity() == self._seen
            and state.monotonic() - self._stepped_s < self._idle_s
            and state.is_woken_reliably
            and not state.outage.is_on
            and not state.busy()  # a busy worker is not woken
        )

    def stepped(self, seen: int) -> None:
        """A step has succeeded that began when the worker's activity was `seen`."""
        self._seen, self._stepped_s = seen, self._state.monotonic()


class TableDuty:
    """One row of the table in one worker."""

    def __init__(self, row: DutyRow, state: WorkerState) -> None:
        self.name, self._row, self.state = row.name, row, state
        self.store = state.app.runtime.access
        self._pace = IdlePace(state, row.idle_s)
        self.cursor = ""
        """Where the last step stopped."""
        self.reached: datetime | None = None
        """The same, in time."""
        self.batch = FIRST_BATCH
        """How many rows the next step removes, where steps are bounded by time."""
        self.examined: dict[str, tuple[datetime | None, int | None]] = {}
        """The same for the results of each task."""
        self.left: dict[str, datetime] = {}
        """When the first finished of those results that other nodes of a workflow might need still."""
        self.reviewed_s = float("-inf")
        self.seen: int | None = None
        """The worker's count of jobs at the last step."""
        self._has_more = False

    async def run_once(self, now: datetime) -> StepReport:
        seen = self.state.activity()
        if self._row.idle_s and not self._has_more and self._pace.leaves_out():
            return StepReport(next_s=self._row.every_s)
        if self._row.one_worker and not self._has_more:
            taken = await self.store.arun(TakeDuty(name=self.name, every_s=self._row.every_s))
            if not taken.taken:
                self._pace.stepped(seen)
                return StepReport(next_s=self._row.every_s)
            # By the store's clock: a machine whose clock is ahead must not remove what is still young.
            now = taken.now
        self._has_more = False  # if this step fails, any worker may take the duty again
        report = await self.step(now)
        self._has_more = report.next_s == 0
        self._pace.stepped(seen)
        return report

    async def step(self, now: datetime) -> StepReport:
        """One step, whoever has taken the duty."""
        done = await self._row.step(self, now)
        if isinstance(done, StepReport):
            return done
        return StepReport(done=done, next_s=0 if done >= self._row.limit else self._row.every_s)


async def promote(duty: TableDuty, now: datetime) -> int:
    if duty.state.has_turned_within(TABLE["due_jobs"].every_s):
        return 0  # every Turn promotes
    promoted = (await duty.store.arun(Promote())).count
    if promoted:
        duty.state.wake()
    return promoted


async def reclaim(duty: TableDuty, now: datetime) -> int:
    reclaimed = (await duty.store.arun(Reclaim())).reclaimed
    for lease in reclaimed:
        log.warning(
            "attempt %d of job %s was taken from worker %s (%s): the job is %s",
            lease.attempt,
            lease.id,
            lease.worker,
            lease.cause,
            lease.became,
        )
    if events := loss_events(reclaimed):
        await duty.store.arun(AddEvents(events=events))
    return len(reclaimed)


async def unhold(duty: TableDuty, now: datetime) -> int | StepReport:
    limits = duty.state.app.limits.declared
    released = (await duty.store.arun(Unhold(limits=limits, limit=BATCH))).count
    if released:
        duty.state.wake()
        return released
    holds = any(limit.when_full == "hold" for limit in limits) or any(
        stored.limit.when_full == "hold" for stored in (await duty.store.arun(ListLimits())).limits
    )
    return 0 if holds else StepReport(next_s=NOTHING_HELD_S)


async def deliver(duty: TableDuty, now: datetime) -> StepReport:
    """Deliver signals emitted in callers' transactions, and the rest of those that many jobs wait for."""
    delivered = await duty.store.arun(Deliver(limit=BATCH))
    if delivered.count:
        duty.state.wake()
    return StepReport(done=delivered.count, next_s=0 if delivered.more else TABLE["signals"].every_s)


async def advance(duty: TableDuty, now: datetime) -> int | StepReport:
    """Let nodes go that the commit of their parents' end had no room for."""
    state = duty.state
    if state.ended == duty.seen and duty.batch > 0:
        duty.batch -= 1  # nothing ended here: others look after their own, so look seldom
        return 0
    duty.seen, duty.batch = state.ended, IDLE_LOOKS
    moved = (await duty.store.arun(Advance())).count
    if moved:
        state.wake()
    return moved


async def age(duty: TableDuty, now: datetime) -> StepReport:
    queues = duty.state.app.runtime.settings.queues
    spans = {name: policy.aging_s for name, policy in queues.items() if policy.aging_s is not None}
    if not spans:
        return StepReport(next_s=None)
    counts = [
        (await duty.store.arun(Age(queue=queue, every_s=every_s, limit=BATCH))).count
        for queue, every_s in spans.items()
    ]
    # Twice in each span: no job moves up later than by half a span.
    pause_s = min(TABLE["aging"].every_s, *(every_s / 2 for every_s in spans.values()))
    return StepReport(done=sum(counts), next_s=0 if max(counts) >= BATCH else pause_s)


async def read_weights(duty: TableDuty, now: datetime) -> int:
    """Give the lanes the weights of tenants."""
    state = duty.state
    if state.started == duty.seen and not state.busy():
        return 0  # nothing was claimed since
    duty.seen = state.started
    weights = (await duty.store.arun(ReadWeights())).weights
    for lane in state.lanes:
        lane.planner.accounts.weigh(weights)
    return len(weights)


async def flush_events(duty: TableDuty, now: datetime) -> int | StepReport:
    """Write the events, and learn whether somebody watches; while jobs run, also without events, for their ends."""
    state, events = duty.state, duty.state.events
    if state.ended == duty.seen and not events.has_unwritten and not state.busy():
        return 0
    duty.seen = state.ended
    written = await events.flush()
    return StepReport(done=written, next_s=WATCHED_S) if events.is_watched else written


async def report_exceptions(duty: TableDuty, now: datetime) -> int:
    """Let people read what the jobs of this process last raised."""
    caught = duty.state.app.runtime.last_exceptions
    if caught.total == (duty.seen or 0):
        return 0
    total, newest = caught.total, tuple(caught)[-MOST_EXCEPTIONS:]
    if (await duty.store.arun(ReportExceptions(worker=duty.state.worker, exceptions=newest))).accepted:
        duty.seen = total
    return len(newest)


async def retain(duty: TableDuty, now: datetime) -> StepReport:
    """Remove finished jobs, closed dead letters and statistics past their age; never a dead letter pending review."""
    settings, now = (
        duty.state.app.runtime.settings,
        (await duty.store.arun(Check())).now,
    )  # the store's clock, as in run_once
    if settings.retain_between is not None and not is_within(settings.retain_between, now):
        return StepReport(next_s=TABLE["retention"].every_s)
    began_s, asked = duty.state.monotonic(), duty.batch
    kept = {queue.name: queue.retain_days for queue in settings.queues.values() if queue.retain_days is not None}
    removed = await duty.store.arun(
        Retain(
            finished_before=now - timedelta(days=settings.retain_completed_days),
            finished_from=duty.reached,
            closed_before=now - timedelta(days=settings.retain_dead_letter_days),
            by_queue={name: now - timedelta(days=days) for name, days in kept.items()},
            examine=EXAMINED * asked,
            stats_before=now - timedelta(days=settings.retain_stats_days),
            limit=asked,
        )
    )
    fit = int(asked * REMOVAL_S / max(duty.state.monotonic() - began_s, 0.001))
    duty.batch = max(min(fit, 2 * asked, BATCH), asked // 2, 1)
    is_full = removed.jobs >= asked
    duty.reached = (removed.finished_to or duty.reached) if is_full else removed.examined_to
    next_s = 0 if is_full or removed.examined_to or removed.more_stats else TABLE["retention"].every_s
    return StepReport(done=removed.jobs, next_s=next_s)


async def drop_results(duty: TableDuty, now: datetime) -> StepReport:
    """Remove results of tasks that keep theirs for a limited time. Each worker remembers how far it has come."""
    every_s = TABLE["results"].every_s
    kept = {name: task.definition.result_expires_s for name, task in duty.state.app.tasks.items()}
    limited = {name: expires_s for name, expires_s in kept.items() if expires_s is not None}
    if not limited:
        return StepReport(next_s=every_s)
    done, more, now = 0, False, (await duty.store.arun(Check())).now
    for name, expires_s in limited.items():
        at, seq = duty.examined.get(name, (None, None))
        before = now - timedelta(seconds=expires_s)
        answer = await duty.store.arun(DropResults(type=name, finished_before=before, at=at, seq=seq, limit=BATCH))
        duty.examined[name] = answer.at, answer.seq
        if answer.left_at is not None:
            duty.left.setdefault(name, answer.left_at)
        done, more = done + answer.dropped, more or answer.more
    if duty.left and not more and duty.state.monotonic() - duty.reviewed_s >= REVIEW_S:
        duty.examined |= {name: (left_at, None) for name, left_at in duty.left.items()}
        duty.left, duty.reviewed_s = {}, duty.state.monotonic()
    return StepReport(done=done, next_s=0 if more else every_s)


async def add_tenants(duty: TableDuty, now: datetime) -> StepReport:
    """Go through the names of tenants with jobs, from the first to the last and again."""
    added = await duty.store.arun(AddTenants(after=duty.cursor, limit=TENANTS))
    duty.cursor = added.next or ""
    return StepReport(done=added.added, next_s=TABLE["tenants"].every_s if added.next is None else 0)


async def count_enqueued(duty: TableDuty, now: datetime) -> int:
    return (await duty.store.arun(RollUpEnqueued(limit=ENQUEUED_JOBS))).jobs


async def remove_old(duty: TableDuty, now: datetime) -> int:
    signals_kept = timedelta(days=duty.state.app.runtime.settings.retain_signals_days)
    removed = await duty.store.arun(
        ForgetOld(
            events_before=now - EVENTS_KEPT,
            credentials_before=now - CREDENTIALS_KEPT,
            signals_before=now - signals_kept,
            limit=BATCH,
        )
    )
    return max(removed.events, removed.credentials, removed.signals)


async def seal_audit(duty: TableDuty, now: datetime) -> int:
    """Link new audit records into the chain. Of workers that seal at once the store accepts one."""
    unsealed = await duty.store.arun(ReadUnsealed(limit=AUDIT_RECORDS))
    if not unsealed.records:
        return 0
    links = seal(unsealed.last, unsealed.records)
    return len(links) if (await duty.store.arun(SealAudit(links=links))).sealed else 0


TABLE = {
    row.name: row
    for row in (
        DutyRow("due_jobs", 5.0, promote, PROMOTE_LIMIT),
        DutyRow("lost_jobs", 10.0, reclaim, RECLAIM_LIMIT, idle_s=20.0),
        DutyRow("held_jobs", 1.0, unhold, BATCH),
        DutyRow("signals", 2.0, deliver, idle_s=20.0),
        DutyRow("workflows", 1.0, advance, RELEASE_LIMIT),
        DutyRow("aging", 60.0, age),
        DutyRow("weights", 3.0, read_weights),
        DutyRow("events", 3.0, flush_events),
        DutyRow("exceptions", 3.0, report_exceptions),
        DutyRow("retention", 600.0, retain, one_worker=True),
        DutyRow("results", 60.0, drop_results),
        DutyRow("tenants", 20.0, add_tenants, one_worker=True, idle_s=60.0),
        DutyRow("enqueued_jobs", 30.0, count_enqueued, ENQUEUED_JOBS, one_worker=True, idle_s=60.0),
        DutyRow("old_events", 600.0, remove_old, BATCH, one_worker=True),
        DutyRow("audit", 20.0, seal_audit, AUDIT_RECORDS, one_worker=True, idle_s=60.0),
    )
}


class ClockCheck:
    """Brings back what began in the future, after the store's clock was set back; looks for it once as it starts."""

    name = "clock"

    def __init__(self, state: WorkerState, schedules: DueSchedules) -> None:
        self._state, self._schedules = state, schedules
        self._has_more = True
        self._moved = 0

    async def run_once(self, now: datetime) -> StepReport:
        state, behind_s = self._state, self._state.take_set_back()
        if behind_s is None and not self._has_more:
            return StepReport(next_s=CLOCK_S)
        try:
            done = await state.app.runtime.access.arun(BringBack(behind_s=behind_s))
            if done.behind_s > 0:
                if behind_s is None:
                    log.warning(SET_BACK, done.behind_s)
                behind_s = done.behind_s
                await self._schedules.set_back()
        except BaseException:
            state.note_set_back(behind_s or 0.0)
            raise
        self._has_more = done.more
        self._moved += done.moved
        if self._moved and not done.more:
            self._moved = 0
            state.forget_lines()
        return StepReport(done=done.moved, next_s=0 if done.more else CLOCK_S)


class AlertCheck:
    """Evaluates the alert rules, one worker at a time."""

    name = "alerts"

    def __init__(self, state: WorkerState) -> None:
        self._duty, self._state = AlertDuty(state.app), state
        self._pace = IdlePace(state, 60.0)

    async def run_once(self, now: datetime) -> StepReport:
        if self._pace.leaves_out():
            return StepReport(next_s=EVERY_S)
        seen = self._state.activity()
        next_s = await self._duty.step()
        self._pace.stepped(seen)
        return StepReport(next_s=next_s)


class Duties:
    """The duties of one worker process."""

    def __init__(self, state: WorkerState) -> None:
        app = state.app
        self.statistics = StatisticsFlush(app.runtime.access, state.worker, state.statistics, app.runtime.clock)
        self.fast_lane = FastLane(state)
        self.schedules = DueSchedules(app)
        self._events = state.events
        clock = ClockCheck(state, self.schedules)
        figures = self.statistics, self.fast_lane
        own_modules = (
            *(ScheduleDeclarations(app), clock, self.schedules, *figures),
            *(LimitWarnings(state), AlertCheck(state)),
        )
        self.loop = DutyLoop(
            (*own_modules, *(TableDuty(row, state) for row in TABLE.values())),
            app.runtime.clock,
            app.runtime.chance,
            state.outage,
        )

    async def run(self) -> None:
        """Until cancelled."""
        self._events.worker_started()
        await self.loop.run()

    async def finish(self) -> None:
        """Write the last statistics and events of a stopping worker, while it is still registered."""
        await self.statistics.finish()
        await self._events.finish()

    def figures(self) -> dict[str, float]:
        """For the heartbeat: payload sizes, long jobs on fast lanes, fired schedules, age of the oldest duty."""
        sizes = self.statistics.statistics.payload_buckets
        figures = {f"payload.under_{2**bucket}": float(count) for bucket, count in enumerate(sizes) if count}
        figures["fast_lane.long"] = float(self.fast_lane.seen)
        figures["schedules.fired"] = float(self.schedules.fired)
        figures["duties.oldest_s"] = round(max(self.loop.ages_s().values(), default=0.0), 1)
        return figures
