"""Schedules in the store: any worker may fire them, each nominal time once.

A worker reads what is due, computes the jobs and the next time with the cron library, and sends one `Fire`. The store
applies it only if the schedule has not moved since the worker read it: of many workers one wins, and none leads.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct

from fairlane.core.ids import JobId
from fairlane.core.job import JobSpec
from fairlane.core.names import check_words
from fairlane.core.ops.base import Act, Op, RefusalCode
from fairlane.core.schedules import Schedule, ScheduleSource, ScheduleSpec


class Planned(Struct, frozen=True, kw_only=True):
    """A schedule's words and its next nominal time, worked out by the caller."""

    spec: ScheduleSpec
    next_at: datetime | None


class Declared(Struct, frozen=True, kw_only=True):
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class DeclareSchedules(Op[Declared], frozen=True, kw_only=True):
    """Make the schedules of one `source` be these; names in the order given, removed ones sorted.

    New: added. Same words: untouched, wherever it stands. Other words: changed, `next_at` as given, `declared_at` now;
    `last_at`, `last_job_id` and a pause kept. With `prune`, schedules of this source that are not named are removed. A
    name held by the other source is left alone. With `by` it is a person's act. Audit, for each in this order:
    `schedule_add` (before None) or `schedule_change` (before {"cron"} as it was), after {"cron"}; `schedule_remove` as
    for RemoveSchedule; target `schedule:<name>`, tenant of its spec (as it now is).
    """

    schedules: tuple[Planned, ...]
    source: ScheduleSource = "code"
    prune: bool = False
    by: str | None = None
    notes: str | None = None

    def __post_init__(self) -> None:
        for field, words in (("by", self.by), ("notes", self.notes)):
            if words is not None:
                check_words(field, words)


class Schedules(Struct, frozen=True, kw_only=True):
    schedules: tuple[Schedule, ...]
    next_s: float | None = None
    """With `due`: seconds until an unpaused schedule that is not due yet will be; None: there is none."""


class ListSchedules(Op[Schedules], frozen=True, kw_only=True):
    """Every schedule, by name; with `due`, only those unpaused whose `next_at` <= now, by (next_at, name).

    At most `limit` in either case.
    """

    due: bool = False
    limit: int = 1000


class Fired(Struct, frozen=True, kw_only=True):
    outcome: Literal["fired", "skipped", "waiting", "lost"]
    """fired    it stood there: jobs are in, it moved on
    skipped  overlap `skip`: the last job is unfinished; it moved on without a job
    waiting  overlap `queue`: the last job is unfinished; nothing was changed
    lost     another worker was first, or it was paused, changed or removed; nothing was changed
    """
    job_ids: tuple[JobId, ...] = ()
    """The jobs that now stand for the firings, in order."""


class Fire(Op[Fired], frozen=True, kw_only=True):
    """Move a schedule from `expected_at` on to `next_at`, enqueueing `jobs`, in one commit.

    `last_at` becomes `fired_at` (None leaves it: it only gets another time) and `last_job_id` the last of the jobs.
    Jobs carry the idempotency key `schedule:<name>:<nominal time>`: should such a job be there already, it stands for
    the firing. With no jobs (nothing made up for) it only moves on, `fired`, whatever its overlap says, and
    `last_job_id` stays. `skipped` sets `last_at`, too. The last job is unfinished while it is there and not done. Jobs
    made wake waiting workers.
    """

    name: str
    expected_at: datetime
    jobs: tuple[JobSpec, ...]
    fired_at: datetime | None
    next_at: datetime | None


class ScheduleAct(Struct, frozen=True, kw_only=True, omit_defaults=True):
    refused: RefusalCode | None = None
    schedule: Schedule | None = None
    job_id: JobId | None = None


class PauseSchedule(Act[ScheduleAct], frozen=True, kw_only=True):
    """Stop it firing, or with `paused=False` let it fire again from `next_at` (as given, None too) on.

    Pausing a paused schedule, or resuming one that is not, writes nothing.

    Audit: `schedule_pause` or `schedule_resume`, target `schedule:<name>`, tenant of its spec, before and after
    {"paused": bool}.
    """

    name: str
    paused: bool = True
    next_at: datetime | None = None


class RunSchedule(Act[ScheduleAct], frozen=True, kw_only=True):
    """Enqueue `job` now, beside the timetable, paused or not; `last_job_id` becomes it, or the job that stands for it.

    Audit: `schedule_run`, after {"job_id"}, before None. Wakes waiting workers.
    """

    name: str
    job: JobSpec


class RemoveSchedule(Act[ScheduleAct], frozen=True, kw_only=True):
    """Take it away; the answer holds it as it was. Audit: `schedule_remove`, before {"cron"}, after None."""

    name: str
