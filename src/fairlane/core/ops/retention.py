"""Retention: what is removed once it is old enough, and a purge for tests."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from msgspec import Struct

from fairlane.core.ops.base import Op

LONG_AGO = datetime.min.replace(tzinfo=UTC)


class Retained(Struct, frozen=True, kw_only=True):
    jobs: int
    """Jobs removed with all their facts and keys."""
    finished_to: datetime | None = None
    """When the last of the finished ones had finished."""
    examined_to: datetime | None = None
    """Only so far were finished jobs examined: others may follow, from this instant on."""
    more_stats: bool = False
    """Statistics past their age are left: another step removes them."""


class Retain(Op[Retained], frozen=True, kw_only=True):
    """Remove finished jobs past their age, oldest first, at most `limit`, with their attempts, steps, keys and dead
    letters.

    First completed and cancelled ones that finished before `finished_before`, by (`finished_at`, seq); then dead ones,
    only when their dead letter was closed before `closed_before`, by (`closed_at`, seq), never while pending review.

    For jobs of the queues in `by_queue` the instant there stands for both of these. As such jobs may be many that stay,
    no more than `examine` finished ones are examined then, and those that finished together with the last.
    """

    finished_before: datetime | None = None
    finished_from: datetime | None = None
    """Leaves alone what finished earlier: a step continues at the `finished_to` of the one before, and does not read
    past all that those have removed."""
    closed_before: datetime | None = None
    by_queue: Mapping[str, datetime] = {}
    examine: int = 10_000
    stats_before: datetime | None = None
    """Also remove statistics of minutes before this, oldest first, at most 2,000 rows, not counted in `limit`."""
    limit: int = 1000

    def newest(self, before: datetime | None) -> datetime:
        """Before when jobs of any queue must have ended, given when those of other queues must have."""
        return max((before or LONG_AGO, *self.by_queue.values()))


class Forgotten(Struct, frozen=True, kw_only=True):
    events: int
    credentials: int
    signals: int = 0


class ForgetOld(Op[Forgotten], frozen=True, kw_only=True):
    """Remove events from before `events_before`, signals emitted before `signals_before`, and credentials that expired
    or were revoked before `credentials_before`; oldest first, at most `limit` of each. A good credential stays.
    """

    events_before: datetime | None = None
    credentials_before: datetime | None = None
    signals_before: datetime | None = None
    limit: int = 1000


class Purged(Struct, frozen=True, kw_only=True):
    jobs: int


class Purge(Op[Purged], frozen=True, kw_only=True):
    """Remove everything: jobs, workers, audit records, breakers, schedules, pauses, limits, tenants, figures, all else.

    Their numbers are not given again. For tests: the client refuses it in production.
    """


class ResultsDropped(Struct, frozen=True, kw_only=True):
    dropped: int
    at: datetime | None
    """With `seq`: the last job that was examined; if none was, what was given."""
    seq: int | None
    more: bool
    """As many as asked for were examined: there may be others behind the last."""
    left_at: datetime | None = None
    """When the first of those had finished that stay because their workflow goes on: to be examined again."""


class DropResults(Op[ResultsDropped], frozen=True, kw_only=True):
    """Remove the results of completed jobs of one type that finished before an instant; they stay completed.

    Examines completed and cancelled jobs of all types in the order (`finished_at`, seq), at most `limit`, behind
    (`at`, `seq`) if that is given. Results of nodes stay while Retain would leave their jobs alone: others may wait
    for them.
    """

    type: str
    finished_before: datetime
    at: datetime | None = None
    seq: int | None = None
    limit: int = 1000
