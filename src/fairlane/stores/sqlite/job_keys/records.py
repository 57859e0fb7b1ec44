"""Keys as people see them: how far they are used, by whom, and where a job waits."""

from __future__ import annotations

from uuid import UUID

from fairlane.core.ids import JobId, Seq
from fairlane.core.ops import HOLDERS_SHOWN, KeyUse, KeyUses, ListKeys, PlaceHolder
from fairlane.stores.instants import from_us
from fairlane.stores.sqlite.job_keys.places import AT_KEY, FIRST, HERE, OF_NAME, kept_for, own_key, terms_of
from fairlane.stores.sqlite.rows import Condition, bounded, equal, joined
from fairlane.stores.sqlite.transaction import Transaction, reading

_BUSIEST = """
select tenant, key from fairlane_job_key where state = 'held' and {where} group by key, tenant
order by count(*) desc, tenant, key limit ?
"""
_USE = f"""
select u.waiting, u.in_use, u.first, j.key_terms from (
  select (select count(*) from {AT_KEY.format_map(HERE)} and state = 'held') as waiting,
    (select count(*) from {AT_KEY.format_map(HERE)} and state in ('let_in', 'dead')) as in_use,
    coalesce({FIRST.format_map(HERE)},
      (select min(seq) from {AT_KEY.format_map(HERE)} and state in ('let_in', 'dead'))) as first) u
left join fairlane_job j on j.seq = u.first
"""  # noqa: S608
_HOLDERS = f"""
select j.id, j.seq, j.type,
  case when d.seq is not null then 'dead' when l.seq is not null then 'leased' when s.seq is not null then 'scheduled'
    else 'ready' end,
  coalesce(d.finished_at, l.leased_at, s.due_at, r.due_at)
from (select seq from {AT_KEY.format_map(HERE)} and state in ('let_in', 'dead') order by seq limit ?3) c
cross join fairlane_job j on j.seq = c.seq
left join fairlane_done d on d.seq = c.seq
left join fairlane_lease l on l.seq = c.seq
left join fairlane_scheduled s on s.seq = c.seq
left join fairlane_ready r on r.seq = c.seq
order by j.seq
"""  # noqa: S608
_STANDS = """
select tenant, key, state, ordinal, band, rank, due_at from fairlane_job_key where seq = ? and state <> 'dead'
"""
_AHEAD = f"""
select count(*) from {AT_KEY.format_map(HERE)} and state = 'held' and iif(?3 is null,
  ordinal is not null or (band, rank, due_at, seq) < (?4, ?5, ?6, ?7), (ordinal, seq) < (?3, ?7))
"""  # noqa: S608


@reading
def list_keys(tx: Transaction, op: ListKeys) -> KeyUses:
    conditions = equal(("tenant", op.scope.tenant), ("key", op.key))
    if op.name is not None:
        of_name = OF_NAME.replace("?1", "?")
        conditions.append(Condition(of_name, (op.name,) * of_name.count("?")))
    where, params = joined(conditions)
    rows = tx.db.execute(_BUSIEST.format(where=where), (*params, bounded(op.limit)))
    return KeyUses(keys=tuple(use for tenant, key in rows if (use := _read_use(tx, tenant, key)) is not None))


def _read_use(tx: Transaction, tenant: str, key: str) -> KeyUse | None:
    """How far a key is used; None: nobody is there."""
    [(waiting, in_use, first, terms)] = tx.db.execute(_USE, (key, tenant))
    if first is None:
        return None
    in_force = terms_of(own_key(key, terms), kept_for(tx, key))
    holders = [
        PlaceHolder(id=JobId(UUID(bytes=raw)), seq=Seq(seq), type=task, state=state, since=from_us(since))
        for raw, seq, task, state, since in tx.db.execute(_HOLDERS, (key, tenant, HOLDERS_SHOWN))
    ]
    return KeyUse(
        tenant=tenant,
        key=key,
        running=in_force.running,
        rate=in_force.rate,
        ordered=in_force.ordered,
        in_use=in_use,
        waiting=waiting,
        holders=tuple(holders),
    )


def read_wait_at_key(tx: Transaction, seq: int) -> tuple[KeyUse | None, int | None]:
    """How far the key of an unfinished job is used, and how many are before it if it is held there."""
    rows = tx.db.execute(_STANDS, (seq,))
    if not rows:
        return None, None
    [(tenant, key, state, *stands)] = rows
    ahead = tx.db.execute(_AHEAD, (key, tenant, *stands, seq))[0][0] if state == "held" else None
    return _read_use(tx, tenant, key), ahead
