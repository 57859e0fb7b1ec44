"""The Turn of a worker: claims, starts, settles and gives back; and what keeps the lines moving beside it.

worker                              store
  Renew  ───────────────────────▶  a heartbeat row, good for lease_s
  Turn(outcomes, starts, wants) ▶  settle, promote, reclaim, claim: one commit
         ◀───────────────────────  leases, refused outcomes, jobs to cancel
  Retire ───────────────────────▶  its leases go back, its row goes
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct

from fairlane.core.ids import JobId, OfLease, Seq, WorkerId
from fairlane.core.job import DEFAULT_TIMEOUT_S, Lease
from fairlane.core.limits import Limit
from fairlane.core.ops.base import Op
from fairlane.core.outcome import Outcome

PROMOTE_LIMIT = 1000


RECLAIM_LIMIT = 100


START_BY_S = 60.0


MAX_CRASHES = 3


class Mark(Struct, frozen=True, kw_only=True, array_like=True):
    """A place in one tenant's line: everything up to and including it has been looked at."""

    queue: str
    band: int
    tenant: str
    rank: int
    due_at: datetime
    seq: Seq


class Take(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Up to `limit` jobs of one tenant's line, behind `after` if given."""

    queue: str
    band: int
    tenant: str
    limit: int
    after: Mark | None = None


class Want(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one lane would like to claim.

    First the `takes`, in order, each up to its limit. Then, if `discover` and there is room: queues in the given
    order, lowest band first, and within a band the tenants with ready jobs of the wanted types, one job each in turn,
    in the order of their names beginning behind `cursor` and wrapping round, until `limit` is reached or nothing is
    left. Within a tenant: rank, due, seq. In one tenant's line a claim looks at no more than `look` rows (behind
    `after`), wanted or not. Later takes and discovery continue a line after the last row that was looked at; rows are
    looked at only when their turn comes. Takes, too, give only wanted types and count against `limit`. Each Want looks
    afresh. Paused queues, tenants and types are passed over unseen.

    Limits (those of the Turn together with those kept in the store): nothing is claimed under a limit that has no room,
    counting what this Turn has claimed before. A limit has room while its leases are fewer than `running`, its claims
    of the last `period_s` fewer than the rate's `count`, and it is not paused. A claim counts under each key that has a
    rate in force then, until a `period_s` later (at that instant no more). A line whose tenant or queue has no room is
    passed over unseen, like a paused one, and leaves off when the room ends. A row whose type, or a named limit of it,
    has no room is looked at and passed over, like one of a type not wanted.
    """

    lane: str
    queues: tuple[str, ...]
    limit: int
    start: int = 0
    """How many of the claimed begin at once, the first ones: for whoever runs nothing else meanwhile. The rest is
    prefetched; an engine claims all of its jobs so and reports those that it begins."""
    slots: int | None = None
    """Only the first this many of the claimed may be under a limit on running or a rate: behind them such jobs have no
    room, because they would hold a place while they wait for a slot. A worker counts the slots that are free and those
    in which a job has just ended: what it has claimed ahead gives way to more urgent jobs. None: any number."""
    types: tuple[str, ...] | None = None
    """None: any. A worker names the types it knows and never gets another."""
    leaves: tuple[str, ...] = ()
    """Jobs of these types that were put off are left for others: passed over like those of a type not wanted."""
    takes: tuple[Take, ...] = ()
    discover: bool = True
    cursor: str = ""
    look: int = 1000
    survey: int = 0
    """Also return which tenants have ready jobs left in the queue and band that this Want's discovery claimed from
    last, at most this many."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    """For jobs that carry none: a started lease ends after twice its timeout."""
    start_by_s: float = START_BY_S
    """A prefetched lease ends this long after the claim."""


class Start(OfLease, Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An attempt has begun `ran_s` ago: its lease now ends twice `timeout_s` after that.

    For an attempt that has begun already, deadline and `alone` are set again and the start instant stays.
    """

    seq: Seq
    attempt: int
    claim_no: int
    timeout_s: float
    ran_s: float = 0.0
    alone: bool = False
    """Nothing else runs in that process: a crash is this job's doing."""


class Refusal(OfLease, Struct, frozen=True, kw_only=True):
    """An outcome or a start of an attempt whose lease is gone. Nothing was changed."""

    seq: Seq
    attempt: int
    claim_no: int


class Survey(Struct, frozen=True, kw_only=True, array_like=True):
    """Tenants, not paused, with ready jobs of whatever type in one queue and band, in the order of their names
    beginning behind the tenant that discovery served last and wrapping round."""

    lane: str
    queue: str
    band: int
    tenants: tuple[str, ...]


ReclaimCause = Literal["worker_gone", "start_by_passed", "deadline_passed"]


class Reclaimed(Struct, frozen=True, kw_only=True):
    seq: Seq
    id: JobId
    attempt: int
    worker: WorkerId
    cause: ReclaimCause
    became: Literal["ready", "dead", "cancelled"]
    type: str = ""
    """Of the job, like `tenant`; empty in answers of functions that were made before this."""
    tenant: str = ""


class TurnResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    now: datetime
    leases: tuple[Lease, ...] = ()
    refused: tuple[Refusal, ...] = ()
    """Outcomes first, then starts, in the order given."""
    cancels: tuple[Seq, ...] = ()
    """Leased here and asked to stop, by seq."""
    registered: bool = True
    """False: this worker's row is gone or its heartbeat too old. It may settle, but was given nothing."""
    marks: tuple[Mark, ...] = ()
    """The last row looked at in each line where this Turn claimed or passed over anything, by queue, band, tenant."""
    cursors: dict[str, str] = {}
    """By lane: the tenant that discovery served last. Where it found nothing: the last tenant it examined, if the store
    stopped before it had examined all and does not remember where; `limited_until` is then soon."""
    next_due_at: datetime | None = None
    """When the next scheduled job is due."""
    reclaimed: tuple[Reclaimed, ...] = ()
    surveys: tuple[Survey, ...] = ()
    """Of the Wants that asked for one and claimed anything by discovery, in their order."""
    limited: bool = False
    """Some limit on running, rate or pause is in force, given or kept."""
    held_back: bool = False
    """A hint: a wanted type has no room now, so that jobs passed over here may be wanted at any moment."""
    limited_until: datetime | None = None
    """A hint: when a rate or a pause that held something back here lets the next one through."""


class Turn(Op[TurnResult], frozen=True, kw_only=True):
    """Settle what ended, mark what started, promote and reclaim a bounded lot, claim what is wanted: one commit.

    In this order: starts, outcomes, promotion, reclaiming, claiming. An unregistered worker claims nothing.

    Repetition: sent again with the same (worker, claim_no) after a lost reply, a Turn that wants anything claims
    nothing new while live leases of that claim are there, and returns them again, as they are now, in the same order.
    A store behind a network takes a number below that of the last claim that gave its worker anything for a late copy,
    which nobody waits for: it claims nothing.
    Outcomes already recorded under the same attempt, worker and kind, if only by this Turn, are accepted again.

    Settling: each outcome is guarded by the lease (seq, attempt, claim_no, worker), which is removed. A worker gives no
    two Turns that want anything the same `claim_no`, except to repeat one: no outcome settles another job to which a
    store that lost the first has given its number.

      completed  done(completed)
      retried    attempts + 1, scheduled at now + delay
      snoozed    scheduled at now + delay
                 with a failure, given up `give_up_s` after its series began: done(dead) as if died, uncharged
      died       attempts + 1 if charged, done(dead) and a dead letter pending review
      cancelled  done(cancelled)
      released   ready again, with the due time it had; if a cancel was asked for: done(cancelled)
      crashed    as a reclaimed attempt that had started and ran alone: recorded `lost`, one crash more, suspect,
                 ready or dead

    A retried or snoozed attempt that was asked to cancel ends cancelled. Whatever ends a job frees its dedup key.

    Records: the attempt is recorded by what was reported: `completed`, `failed` (retried), `dead` (died), `cancelled`,
    `snoozed`, `released`, also where the job then ended cancelled because that had been asked for (a retried one is
    charged). A cancelled attempt's reason is its error message; it is no failure, and the job's error fields stay.
    A completed, retried, died or snoozed attempt clears `suspect`. A snooze that is not `recorded` leaves no record,
    unless the job ends cancelled by it: `suspect` stays, and the attempt's number is skipped in the history. Such a
    snooze is never refused, whoever holds the lease by now: nothing ran, so nothing is lost.

    Put off: a snooze with a `failure` is recorded with it; one that is not `recorded` only if it begins a series. The
    series of an error type lasts while the job's newest record, those `released` left out, is a snooze of that type,
    and began when that ended. The snooze that begins a series never gives up. The job counts as put off until it is
    claimed, or acted on by hand.

    Suspended: a snooze with a `suspension` also records it. A sleep: the durable step `n`, which ends when the job is
    due. A wait: if a signal is there that the job has not had (see TakeSignal), it is recorded as step `n` and the job
    is due now; else the job waits for one until it is due. What ends cancelled records neither.

    Rates: an attempt that goes back without ever having started gives back what it counted against rates. These are
    `released` with neither a start nor `ran_s`, a snooze that is not `recorded`, and an unstarted lease that is past
    its start-by, reset by hand, or of a retired or lapsed worker.

    Wake-ups: where a lease under a running limit ends, waiting workers are woken, unless its Turn claims as many again
    under each such limit. They are also woken where a job becomes ready again: released, crashed, reclaimed or reset.

    Reclaiming (workers whose heartbeat lapsed): a started attempt is recorded `lost`, makes the job suspect, and counts
    one crash if it ran alone. At MAX_CRASHES the job is dead (`crashed`), else it is ready again with the due time it
    had. An unstarted attempt is recorded `lost`, and the job is ready again. If a cancel was asked for, the job ends
    cancelled in every case. A started, lost attempt has error type `WorkerLost` (`Crashed` where the job is dead of
    it), class `transient`. Workers come in the order (`expires_at`, id), their leases by seq; a worker's row is removed
    once it has no lease left; no worker is looked at once `reclaim_limit` is reached.

    Instants: an attempt ended at now - `ended_ago_s`; it started when its lease says so, else `ran_s` before it ended.
    A job finished when the outcome that finished it ended; one finished by reclaiming or by a person, now.
    """

    worker: WorkerId
    claim_no: int
    outcomes: tuple[Outcome, ...] = ()
    starts: tuple[Start, ...] = ()
    wants: tuple[Want, ...] = ()
    limits: tuple[Limit, ...] = ()
    """The code's limits: for the claims, and to decide who is woken as leases end. May be left out only where none of
    them concerns the queues it claims from or the leases it ends."""
    waiting: bool = False
    """From this commit on an enqueue wakes this worker."""
    promote_limit: int = PROMOTE_LIMIT
    reclaim_limit: int = RECLAIM_LIMIT


class ReclaimResult(Struct, frozen=True, kw_only=True):
    reclaimed: tuple[Reclaimed, ...] = ()


class Reclaim(Op[ReclaimResult], frozen=True, kw_only=True):
    """Take back what nobody is working on any more: up to `limit` leases.

    First those of lapsed workers (a row is removed with its last lease), as in a Turn. Then those past their deadline
    (`deadline_at` <= now), by seq: unstarted ones are ready again (recorded `released`), started ones overran twice
    their timeout and are dead, recorded `lost`, with error type `JobStuck` ("Job exceeded timeout threshold"), class
    `transient`, charged. A lease whose worker has no row counts as a lapsed worker's. If a cancel was asked for the job
    ends cancelled.
    """

    limit: int = RECLAIM_LIMIT


class Promoted(Struct, frozen=True, kw_only=True):
    count: int
    next_due_at: datetime | None = None


class Promote(Op[Promoted], frozen=True, kw_only=True):
    """Make scheduled jobs that are due ready, by due time then seq, at most `limit`."""

    limit: int = PROMOTE_LIMIT


class Aged(Struct, frozen=True, kw_only=True):
    count: int


class Age(Op[Aged], frozen=True, kw_only=True):
    """Move jobs that have been ready for long up in their line: one step of priority for every `every_s` since they
    were due.

    For each ready job of the queue: its own priority less the whole number of `every_s` in now - `due_at`, not below 0,
    becomes its band (or its rank, where its priority orders only the tenant's own jobs), if that is less than the one
    it has. At most `limit` moved, in the order of band, tenant, rank, due, seq. The job's `priority` stays; its leases
    show the band and rank it has reached, and it keeps them when it goes back or is retried.
    """

    queue: str
    every_s: float
    limit: int = 1000
