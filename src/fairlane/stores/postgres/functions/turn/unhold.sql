-- unhold_v1: release held jobs whose tenant has room again.
-- role:   worker
-- moves:  unhold held -> ready, unhold held -> scheduled
-- guard:  one call at a time: two would both count the same room
-- uses:   held_room, see count_waiting
create or replace function unhold_v1(_op json) returns json
language plpgsql
set search_path from current
set enable_seqscan = off
set jit = off
as $$
declare
  _limits  json := last_limits(_op->'limits');
  _limit   integer := (_op->>'limit')::integer;
  _now     timestamptz := now_of(_op);
  _left    integer := _limit;
  _woken   boolean := false;
  _queue   text := chr(1);  -- behind the queue '', where nodes wait for their parents
  _tenant  text := '';
  _room    integer;
  _moved   integer;
  _due     boolean;
begin
  -- The workers whose duty calls this also know the code's limits: here an index begins to count what enqueues ask for.
  if not exists (select from counted where kind = 'tenant') and exists (
    select from json_to_recordset(_limits) as l (kind text, waiting integer, when_full text, payload_bytes integer)
    where l.kind = 'tenant' and num_nonnulls(l.waiting, l.when_full, l.payload_bytes) > 0
  ) then
    perform count_from_now_on(null, null, 'waiting');
  end if;
  delete from rate_use where ctid = any(array(
    select ctid from rate_use where at < _now - interval '1 day' limit 2000));  -- the longest period a rate may have
  if not pg_try_advisory_xact_lock(limit_lock('unhold', '')) then
    return json_build_object('count', 0);
  end if;
  while _left > 0 loop
    select h.queue, h.tenant into _queue, _tenant from held h
    where (h.queue, h.tenant) > (_queue, _tenant) and h.key is null
    order by h.queue, h.tenant limit 1;
    exit when not found;
    _room := (select t.waiting from tenant_terms(_tenant, _queue, _limits) t);
    _room := coalesce(_room - count_waiting(_tenant, _queue, _room, false), _left);
    continue when _room <= 0;
    with freed as (
      delete from held h where h.seq = any(array(
        select f.seq from held f where f.queue = _queue and f.tenant = _tenant and f.key is null
        order by f.seq limit least(_room, _left) for update skip locked))
      -- One that was due at its enqueue is due, also where that lies in the future: the clock was set back since.
      returning h.*
    ), placed as materialized (
      select f.*, f.due_at <= _now or f.due_at <= j.enqueued_at as is_due, j.key as at_key,
             key_nth(j.key_terms, j.seq) as nth
      from freed f join job j on j.seq = f.seq
    ), due as (
      insert into ready (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped,
        timeout_s, key, key_nth)
      select seq, queue, band, tenant, rank, least(due_at, _now), type, 0, 0, 0, false, deduped, timeout_s, at_key, nth
      from placed where is_due
    ), later as (
      insert into scheduled (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect,
        deduped, timeout_s, failed, key, key_nth)
      select seq, queue, band, tenant, rank, due_at, type, 0, 0, 0, false, deduped, timeout_s, false, at_key, nth
      from placed where not is_due
    )
    select count(*), bool_or(is_due) into _moved, _due from placed;
    _left := _left - _moved;
    _woken := _woken or coalesce(_due, false);
  end loop;
  if _woken then
    perform wake_waiting();
  end if;
  return json_build_object('count', greatest(_limit - _left, 0));
end
$$;

-- age_v1: move jobs that have been ready for long up in their line, at most `_limit`.
-- role:   worker
-- guard:  a row another session is claiming is passed over
-- uses:   ready_line, job_pkey
create or replace function age_v1(_op json) returns json
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  _queue    text := _op->>'queue';
  _every_s  double precision := (_op->>'every_s')::double precision;
  _limit    integer := (_op->>'limit')::integer;
  _now      timestamptz := now_of(_op);
  _every    interval := _every_s * interval '1 second';
  _count    integer;
begin
  with old as materialized (
    select r.ctid as tid, j.rank > 0 as by_rank,
           greatest(j.band + j.rank - floor(extract(epoch from _now - r.due_at) / extract(epoch from _every)),
             0)::smallint as reached
    from ready r join job j on j.seq = r.seq
    where r.queue = _queue and (r.band > 0 or r.rank > 0) and r.due_at <= _now - _every
      and floor(extract(epoch from _now - r.due_at) / extract(epoch from _every)) > j.band + j.rank - case
        when j.rank > 0 then r.rank else r.band end
      and case when j.rank > 0 then r.rank else r.band end > 0
    order by r.queue, r.band, r.tenant, r.rank, r.due_at, r.seq limit greatest(_limit, 0)
    for update of r skip locked
  )
  update ready r set band = case when o.by_rank then r.band else o.reached end,
    rank = case when o.by_rank then o.reached else r.rank end
  from old o where r.ctid = o.tid;
  get diagnostics _count = row_count;
  return json_build_object('count', _count);
end
$$;
