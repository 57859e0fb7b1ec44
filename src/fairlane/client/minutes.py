"""Reading the figures of past minutes, page after page up to a bound."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from fairlane.client.steps import Steps
from fairlane.core.ops import ReadStats, StatRow

ROWS_A_READ = 10_000
MOST_READS = 5


class Minutes(NamedTuple):
    rows: list[StatRow]
    is_cut: bool
    """There was too much: only the beginning of the span is here."""


def read_minutes(
    since: datetime,
    until: datetime,
    *,
    type: str | None = None,
    queue: str | None = None,
    tenant: str | None = None,
    most_reads: int = MOST_READS,
) -> Steps[Minutes]:
    """The minutes from `since` to before `until`. A minute that a full read cut in two is read again from its beginning."""
    asked = ReadStats(since=since, until=until, type=type, queue=queue, tenant=tenant, limit=ROWS_A_READ)
    rows: list[StatRow] = []
    for _ in range(most_reads):
        found: tuple[StatRow, ...] = (yield asked).rows
        if len(found) < ROWS_A_READ:
            return Minutes([*rows, *found], is_cut=False)
        last = found[-1].minute
        whole = [row for row in found if row.minute < last]
        if not whole:
            return Minutes([*rows, *found], is_cut=True)
        rows += whole
        asked = replace(asked, since=last)
    return Minutes(rows, is_cut=True)
