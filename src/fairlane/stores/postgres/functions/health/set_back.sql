-- bring_back_v1: after the server's clock was set back, what began in the future begins now.
-- role:   worker
-- guard:  one call at a time; rows that somebody is changing are passed over: they get instants of now by it
-- uses:   worker, lease, duty, alert, breaker whole (small); rate_use_at; ready_pkey, scheduled_pkey
create or replace function bring_back_v1(_op json) returns json
language plpgsql
set search_path from current
set enable_seqscan = off
set jit = off
as $$
declare
  _limit     integer := at_most(_op);
  _now       timestamptz := now_of(_op);
  _behind_s  double precision := coalesce((_op->>'behind_s')::double precision, 0);
  _to        bigint;
  _seen      timestamptz;
  _seqs      bigint[];
  _ready     integer;
  _moved     integer := 0;
begin
  perform pg_advisory_xact_lock(limit_lock('set_back', ''));
  _to := (select examined_to from set_back);
  if _behind_s = 0 and _to is null then
    _seen := greatest(
      (select max(renewed_at) from worker), (select max(taken_at) from duty),
      (select enqueued_at from job order by seq desc limit 1));
    if _seen > _now + interval '2 seconds' then  -- CLOCK_HELD_S
      _behind_s := extract(epoch from _seen - _now);
    end if;
  end if;
  if _behind_s > 0 then
    perform begin_now(_now);
    _to := 9223372036854775807;
    update set_back set at = _now, behind_s = _behind_s, examined_to = _to;
  end if;
  if _to is null then
    return json_build_object('now', _now);
  end if;
  _seqs := array(
    (select seq from ready where seq < _to order by seq desc limit _limit)
    union all (select seq from scheduled where seq < _to order by seq desc limit _limit)
    order by seq desc limit _limit);
  with late as (
    select seq from ready where seq = any(_seqs) and due_at > _now for update skip locked
  )
  update ready r set due_at = _now from late l where r.seq = l.seq;
  get diagnostics _ready = row_count;
  with late as materialized (
    select seq, due_at, _now + greatest(due_at - since, interval '0') as due_now from scheduled
    where seq = any(_seqs) and since > _now for update skip locked
  ), slept as (
    update step t set until = l.due_now from late l where t.seq = l.seq and t.kind = 'sleep' and t.until = l.due_at
  ), waited as (
    update wait w set until = l.due_now from late l where w.seq = l.seq and w.until = l.due_at
  ), moved as (
    update scheduled s set due_at = l.due_now, since = _now from late l where s.seq = l.seq returning s.seq
  )
  select count(*) into _moved from moved;
  update set_back
  set examined_to = case when cardinality(_seqs) >= _limit then coalesce(_seqs[cardinality(_seqs)], _to) end;
  return json_build_object(
    'now', _now, 'behind_s', _behind_s, 'moved', _moved + _ready, 'more', cardinality(_seqs) >= _limit);
end
$$;

-- begin_now: let everything that few rows say begin now if it began in the future.
create or replace function begin_now(_now timestamptz) returns void
language plpgsql
set search_path from current
as $$
begin
  update worker
  set expires_at = _now + (expires_at - renewed_at), renewed_at = _now, registered_at = least(registered_at, _now)
  where renewed_at > _now;
  with late as (
    select seq from lease where greatest(leased_at, started_at, due_at) > _now for update skip locked
  )
  update lease l
  set deadline_at = l.deadline_at - greatest(coalesce(l.started_at, l.leased_at) - _now, interval '0'),
      leased_at = least(l.leased_at, _now), due_at = least(l.due_at, _now),
      started_at = case when l.started_at is not null then least(l.started_at, _now) end
  from late where l.seq = late.seq;
  update duty set taken_at = _now where taken_at > _now;
  update alert
  set since = least(since, _now), fired_at = case when fired_at > _now then _now else fired_at end,
      told_at = case when told_at > _now then _now else told_at end,
      resolved_at = case when resolved_at > _now then _now else resolved_at end
  where greatest(since, fired_at, told_at, resolved_at) > _now;
  update breaker
  set retry_at = case when opened_at > _now then _now + (retry_at - opened_at) else retry_at end,
      opened_at = case when opened_at > _now then _now else opened_at end,
      half_opened_at = case when half_opened_at > _now then _now else half_opened_at end,
      last_failure_at = case when last_failure_at > _now then _now else last_failure_at end,
      updated_at = least(updated_at, _now)
  where updated_at > _now;
  update limit_rule set paused_until = null where paused_until > _now;
  update knock set at = '-infinity' where at > _now;
  with late as (
    delete from rate_use where at > _now returning kind, name, queue, n
  )
  insert into rate_use as u (kind, name, queue, at, n)
  select kind, name, queue, _now, sum(n) from late group by kind, name, queue
  on conflict (kind, name, queue, at) do update set n = u.n + excluded.n;
end
$$;

-- read_set_back_v1: when a worker last noticed that the clock was set back.
-- role:   worker, api
create or replace function read_set_back_v1(_op json) returns json
language sql volatile
set search_path from current
begin atomic
  select json_build_object('now', now_of(_op), 'at', at, 'behind_s', behind_s) from set_back;
end;
