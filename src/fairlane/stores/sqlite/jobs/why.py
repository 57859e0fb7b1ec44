"""Why a job waits: its place in line, pauses, limits and workers that concern it."""

from __future__ import annotations

import msgspec

from fairlane.core.job import Job
from fairlane.core.limits import LimitKey
from fairlane.core.ops import TENANT_COUNT_CAP, LimitState, Pause, Waiting, Why
from fairlane.core.ops.jobs import WaitPlace
from fairlane.stores.instants import from_us, maybe_from_us
from fairlane.stores.sqlite.job_keys.records import read_wait_at_key
from fairlane.stores.sqlite.jobs.records import find_job, read_job
from fairlane.stores.sqlite.limits import rates
from fairlane.stores.sqlite.limits.in_force import ApplicableLimits, applicable_limits
from fairlane.stores.sqlite.limits.room import leases_under
from fairlane.stores.sqlite.pauses import all_pauses
from fairlane.stores.sqlite.signals import read_wait
from fairlane.stores.sqlite.transaction import Transaction, reading

_PLACE = """
select 'ready', suspect, null from fairlane_ready where seq = ?1
union all select 'scheduled', suspect, null from fairlane_scheduled where seq = ?1
union all select 'held', 0, null from fairlane_held where seq = ?1
union all select 'held', suspect, null from fairlane_job_key where seq = ?1 and state = 'held'
union all select 'leased', l.suspect, w.expires_at
  from fairlane_lease l left join fairlane_worker w on w.id = l.worker where l.seq = ?1
union all select status, 0, null from fairlane_done where seq = ?1
"""
_LINE = "select queue, band, tenant, rank, due_at, seq from fairlane_ready where seq = ?"
_AHEAD = """
select count(*) from (
  select 1 from fairlane_ready where queue = ?1 and band = ?2 and tenant = ?3 and rank < ?4
  union all
  select 1 from fairlane_ready where queue = ?1 and band = ?2 and tenant = ?3 and rank = ?4 and due_at < ?5
  union all
  select 1 from fairlane_ready where queue = ?1 and band = ?2 and tenant = ?3 and rank = ?4 and due_at = ?5 and seq < ?6
  limit ?7)
"""
_MORE_URGENT = "select count(*) from (select 1 from fairlane_ready where queue = ? and band < ? limit ?)"
_TENANTS = """
with recursive line(tenant) as (
  select min(tenant) from fairlane_ready where queue = ?1 and band = ?2
  union all
  select (select min(tenant) from fairlane_ready where queue = ?1 and band = ?2 and tenant > line.tenant)
  from line where line.tenant is not null)
select count(*) from (select 1 from line where tenant is not null and tenant <> ?3 limit ?4)
"""
_LIVE = "select queues, types from fairlane_worker where expires_at > ?"
_names = msgspec.json.Decoder(tuple[str, ...]).decode


@reading
def why(tx: Transaction, op: Why) -> Waiting | None:
    seq = find_job(tx, op.id, op.scope.tenant)
    if seq is None:
        return None
    job = read_job(tx, seq)
    applicable = applicable_limits(tx, op.limits)
    [(found, suspect, worker_until)] = tx.db.execute(_PLACE, (seq,))
    place: WaitPlace = found
    ahead, more_urgent, tenants = _in_line(tx, seq) if place == "ready" else (0, 0, 0)
    workers, knowing = _workers(tx, job)
    key, key_ahead = read_wait_at_key(tx, seq)
    unfinished = place in ("ready", "scheduled", "held", "leased")
    return Waiting(
        now=from_us(tx.now),
        job=job,
        place=place,
        ahead=ahead,
        more_urgent=more_urgent,
        tenants=tenants,
        pauses=_pauses(tx, job),
        limits=_limits(tx, applicable, job) if applicable is not None and unfinished else (),
        waiting_limit=None if applicable is None else applicable.force.terms(job.tenant, job.queue).waiting,
        workers=workers,
        knowing=knowing,
        waits_for=read_wait(tx, seq),
        suspect=suspect == 1,
        worker_until=maybe_from_us(worker_until),
        key=key,
        key_ahead=key_ahead,
    )


def _in_line(tx: Transaction, seq: int) -> tuple[int, int, int]:
    [line] = tx.db.execute(_LINE, (seq,))
    queue, band, tenant, *_ = line
    [(ahead,)] = tx.db.execute(_AHEAD, (*line, TENANT_COUNT_CAP))
    [(more_urgent,)] = tx.db.execute(_MORE_URGENT, (queue, band, TENANT_COUNT_CAP))
    [(tenants,)] = tx.db.execute(_TENANTS, (queue, band, tenant, TENANT_COUNT_CAP))
    return ahead, more_urgent, tenants


def _pauses(tx: Transaction, job: Job) -> tuple[Pause, ...]:
    concerning = {("queue", job.queue), ("tenant", job.tenant), ("type", job.type)}
    return tuple(pause for pause in all_pauses(tx) if (pause.kind, pause.name) in concerning)


def _workers(tx: Transaction, job: Job) -> tuple[int, int]:
    """Live workers that serve its queue, and those of them that know its type."""
    live = [(_names(queues), _names(types)) for queues, types in tx.db.execute(_LIVE, (tx.now,))]
    serving = [types for queues, types in live if not queues or job.queue in queues]
    return len(serving), sum(not types or job.type in types for types in serving)


def _limits(tx: Transaction, applicable: ApplicableLimits, job: Job) -> tuple[LimitState, ...]:
    keys = applicable.force.keys_of(job.queue, job.tenant, job.type)
    return tuple(state for key in keys if (state := _state(tx, applicable, key)) is not None)


def _state(tx: Transaction, applicable: ApplicableLimits, key: LimitKey) -> LimitState | None:
    bound = applicable.of(key)
    if bound is None:
        return None
    running, rate = bound.running, bound.rate
    paused_until = bound.paused_until if bound.paused_until > tx.now else None
    if running is None and rate is None and paused_until is None:
        return None
    most = TENANT_COUNT_CAP
    free_at = None if rate is None else rates.free_at(tx, key, rate)
    return LimitState(
        kind=key.kind,
        name=key.name,
        queue=key.queue,
        running=running,
        leases=0 if running is None else leases_under(tx, key, bound.types, most),
        rate=rate,
        starts=0 if rate is None else min(rates.used(tx, key, rate, most), most),
        free_at=maybe_from_us(max((at for at in (free_at, paused_until) if at is not None), default=None)),
    )
