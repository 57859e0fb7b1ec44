"""`app.statistics`: current counts, statistics of past minutes, and the health of the store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import get_args

from msgspec import Struct
from msgspec.structs import replace

from fairlane.client.context import in_scope
from fairlane.client.rights import Right
from fairlane.client.steps import Steps, Verbs, ask, both
from fairlane.core.ops import Check, GetStats, Health, ReadStats, StatRow, Stats
from fairlane.core.ops.statistics import StatsBy, StatsPart
from fairlane.errors import InvalidOption

ROWS_A_READ = 10_000
MOST_READS = 5
MOST_STEPS = 1_500
ROUGH_CAP = 10_000
"""Rough counts are exact up to this."""


class Minutes(Struct, frozen=True, kw_only=True):
    rows: tuple[StatRow, ...]
    is_cut: bool
    """The result was too large and covers only the beginning of the span."""


class Series(Struct, frozen=True, kw_only=True):
    since: datetime
    until: datetime
    step_s: int
    rows: tuple[StatRow, ...]
    """One for each step that has data, and each type, queue or tenant, depending on `by`."""
    is_cut: bool
    """The result was too large and covers only the beginning of the span."""


def read_minutes(
    since: datetime,
    until: datetime,
    *,
    type: str | None = None,
    queue: str | None = None,
    tenant: str | None = None,
    most_reads: int = MOST_READS,
) -> Steps[Minutes]:
    """The minutes from `since` to before `until`.

    A minute that a full read cut in two is read again from its beginning.
    """
    asked = ReadStats(since=since, until=until, type=type, queue=queue, tenant=tenant, limit=ROWS_A_READ)
    rows: list[StatRow] = []
    for _ in range(most_reads):
        found = (yield from ask(asked)).rows
        if len(found) < ROWS_A_READ:
            return Minutes(rows=(*rows, *found), is_cut=False)
        last = found[-1].minute
        whole = [row for row in found if row.minute < last]
        if not whole:
            return Minutes(rows=(*rows, *found), is_cut=True)
        rows += whole
        asked = replace(asked, since=last)
    return Minutes(rows=tuple(rows), is_cut=True)


class StatisticsAdmin(Verbs):
    """Methods for statistics."""

    __slots__ = ()

    def _counts(self, *, tenant: str | int | None = None, rough: bool = False) -> Steps[Stats]:
        """Counts by queue and status, with the oldest due time of each queue, and pending jobs by type.

        `rough` is for whoever asks every second: queues and dead letters only, numbers over 10,000 are estimates.
        """
        scope = in_scope(tenant)
        if rough:
            return (yield from ask(GetStats(scope=scope, cap=ROUGH_CAP, rough=True, parts=("queues", "dead_letters"))))
        return (yield from ask(GetStats(scope=scope, parts=get_args(StatsPart))))

    def _minutes(
        self,
        since: datetime,
        until: datetime,
        *,
        type: str | None = None,
        queue: str | None = None,
        tenant: str | int | None = None,
    ) -> Steps[Minutes]:
        """Jobs that ended in each minute from `since` to before `until`, by type, queue and tenant. Rows add up."""
        return (yield from read_minutes(since, until, type=type, queue=queue, tenant=in_scope(tenant).tenant))

    def _series(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        step_s: int = 60,
        by: StatsBy | None = None,
        type: str | None = None,
        queue: str | None = None,
        tenant: str | int | None = None,
    ) -> Steps[Series]:
        """Sums over steps of time, together or by type, queue or tenant.

        Covers the last hour unless `since` and `until` are given.
        """
        end = until or (yield from ask(Check())).now.astimezone(UTC)
        begin = (since or end - timedelta(hours=1)).replace(second=0, microsecond=0)
        if begin >= end or (end - begin) / timedelta(seconds=step_s) > MOST_STEPS:
            raise InvalidOption("since, until, step_s", step_s, f"1 to {MOST_STEPS:,} steps")
        asked = ReadStats(
            since=begin,
            until=end,
            type=type,
            queue=queue,
            tenant=in_scope(tenant).tenant,
            limit=ROWS_A_READ,
            step_s=step_s,
            by=by,
        )
        rows = (yield from ask(asked)).rows
        return Series(since=begin, until=end, step_s=step_s, rows=rows, is_cut=len(rows) == ROWS_A_READ)

    def _health(self) -> Steps[Health]:
        """Reach the store and read its own state."""
        return (yield from ask(Check()))

    counts, acounts = both(_counts, Right.READ)
    minutes, aminutes = both(_minutes, Right.READ)
    series, aseries = both(_series, Right.READ)
    health, ahealth = both(_health, Right.READ)
