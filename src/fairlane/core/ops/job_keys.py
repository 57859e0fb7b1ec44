"""Keys of jobs: who has a place at one, and who waits there.

    Enqueue ──▶ held at its key ──▶ ready ──▶ leased ──▶ done
      ▲ due, or retried              └─ has a place ─┘

A job with a key (`core.job_keys.JobKey`) is never ready by itself: whatever makes another job ready (an enqueue, a
promotion, a release, a reclaim) holds it at its key, among the keys of its tenant. Each Turn, after it has settled,
promoted and reclaimed and before it claims, lets held jobs in, as many as there are places: they become ready, and
claims know nothing of keys. A job has a place while it is ready or leased. An ordered job that has one keeps it when it
is scheduled again (retried, snoozed, failed by hand) and as a dead letter pending review.

Places: fewer than `running` have one. What is in force is what people have set for the key's name (kind `key`), field
by field before what the first held job brings along; where that is ordered there is one place, whatever is set, and
none where `running` is 0. While that limit is paused nobody is let in.
Rates: the claims of jobs with the key in the last `period_s`, together with the jobs that are ready, are fewer than
`count`. Claims of jobs that were let in under a rate count, and are given back, like those of other rates.
Order: ordered jobs first, by seq, where a job that was made from a dead letter counts as the one that died; then by
band, rank, due and seq.

A limit that is set, cleared or paused holds the ready jobs with keys of its name again. Who is let in late wakes
nobody: what frees a place outside of a Turn, and an enqueue, wake waiting workers.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct

from fairlane.core.ids import JobId, Seq
from fairlane.core.limits import Rate
from fairlane.core.ops.base import Op, Scope

HOLDERS_SHOWN = 10


class PlaceHolder(Struct, frozen=True, kw_only=True):
    """A job that has a place at a key."""

    id: JobId
    seq: Seq
    type: str
    state: Literal["ready", "scheduled", "leased", "dead"]
    since: datetime
    """Leased: since when; dead: when it died; else: when it is due."""


class KeyUse(Struct, frozen=True, kw_only=True):
    """A key at which jobs are held or have places."""

    tenant: str
    key: str
    running: int | None
    """Places in force for the first job held there (for the oldest that has a place, where none is); None: no limit."""
    rate: Rate | None
    ordered: bool
    """The job it goes by is ordered."""
    in_use: int
    """Places in use."""
    waiting: int
    """Jobs held there."""
    holders: tuple[PlaceHolder, ...] = ()
    """Who has the places, by seq, the first HOLDERS_SHOWN."""


class KeyUses(Struct, frozen=True, kw_only=True):
    keys: tuple[KeyUse, ...]


class ListKeys(Op[KeyUses], frozen=True, kw_only=True):
    """The keys at which jobs are held: those with the most of them first, then by tenant and key."""

    scope: Scope
    name: str | None = None
    """Only keys of this name."""
    key: str | None = None
    """Only this key."""
    limit: int = 50
