-- Signals meet the jobs that wait for them under one lock for each (tenant, name, key), held until the commit: a job
-- that goes to wait looks for the signal, and a signal for the job, and each sees what the other has committed. Only
-- workers' own short transactions take it. An emission on a caller's connection leaves the delivery to them, whatever
-- the isolation level of its transaction and however long that lasts. (tests/races/test_signals.py)

-- lock_signals: wait until nobody else registers or delivers under these keys; in one order, so that none deadlock.
create or replace function lock_signals(_keys text[]) returns void
language plpgsql
set search_path from current
as $$
begin
  perform pg_advisory_xact_lock(k.lock)
  from (
    select distinct hashtextextended(current_schema() || ' signal ' || key, 0) as lock
    from unnest(_keys) key order by lock
  ) k;
end
$$;

create or replace function signal_key(_tenant text, _name text, _key text) returns text
language sql immutable parallel safe
return length(_tenant) || ':' || length(_name) || ':' || _tenant || _name || _key;

-- unheard_signal: the oldest signal of this name and key that a job has not had; null: there is none.
-- uses:   signal_name, step_pkey
create or replace function unheard_signal(_seq bigint, _tenant text, _name text, _key text) returns signal
language plpgsql
set search_path from current
set enable_seqscan = off
set jit = off
as $$
declare
  _found signal;
begin
  select g.* into _found from signal g
  where g.tenant = _tenant and g.name = _name and g.key = _key
    and not exists (select from step t where t.seq = _seq and t.signal = g.id)
  order by g.at, g.id limit 1;
  return _found;
end
$$;

-- end_wait: record the step in which a job waited, with its signal or without one.
-- uses:   step_pkey, wait_pkey
create or replace function end_wait(
  _seq bigint, _n integer, _name text, _key text, _attempt integer, _signal uuid, _data text, _now timestamptz
) returns void
language plpgsql
set search_path from current
as $$
begin
  insert into step (seq, n, kind, name, key, attempt, at, result, signal)
  values (_seq, _n, 'wait', _name, _key, _attempt, _now, _data, _signal) on conflict do nothing;
  delete from wait where seq = _seq;
end
$$;

-- suspend: record sleeps, and what jobs wait for that has not been emitted yet.
-- guard:  the jobs are in `scheduled`, put there by this transaction
-- uses:   wait_pkey, scheduled_pkey
create or replace function suspend(_jobs json, _now timestamptz) returns void
language plpgsql
set search_path from current
as $$
declare
  _j       record;
  _signal  signal;
begin
  perform lock_signals(array(
    select signal_key(j.tenant, j.suspension->>'name', coalesce(j.suspension->>'key', ''))
    from json_to_recordset(_jobs) as j (tenant text, suspension json) where (j.suspension->>'signal')::boolean));
  for _j in
    select j.seq, j.attempt, j.tenant, j.due_at, s.n, s.name, coalesce(s.signal, false) as signal,
           coalesce(s.key, '') as key
    from json_to_recordset(_jobs) as j (seq bigint, attempt integer, tenant text, due_at timestamptz, suspension json)
    cross join json_to_record(j.suspension) as s (n integer, name text, signal boolean, key text)
    where not exists (select from step t where t.seq = j.seq and t.n = s.n)
  loop
    if not _j.signal then
      insert into step (seq, n, kind, name, attempt, at, until)
      values (_j.seq, _j.n, 'sleep', _j.name, _j.attempt, _now, _j.due_at);
      continue;
    end if;
    _signal := unheard_signal(_j.seq, _j.tenant, _j.name, _j.key);
    if _signal.id is not null then
      perform end_wait(_j.seq, _j.n, _j.name, _j.key, _j.attempt, _signal.id, _signal.data, _now);
      update scheduled set due_at = _now where seq = _j.seq;
    else
      insert into wait (seq, attempt, n, tenant, name, key, until)
      values (_j.seq, _j.attempt, _j.n, _j.tenant, _j.name, _j.key, _j.due_at)
      on conflict (seq) do update set attempt = excluded.attempt, n = excluded.n, tenant = excluded.tenant,
        name = excluded.name, key = excluded.key, until = excluded.until;
    end if;
  end loop;
end
$$;

-- take_signal_v1: record the signal that a running attempt waits for, if it is there, or that its time is over.
-- role:   worker
-- guard:  see holds_lease: held until the step is in
-- uses:   lease_pkey, see unheard_signal
create or replace function take_signal_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _seq      bigint := (_op->>'seq')::bigint;
  _attempt  integer := (_op->>'attempt')::integer;
  _n        integer := (_op->>'n')::integer;
  _name     text := _op->>'name';
  _key      text := coalesce(_op->>'key', '');
  _now      timestamptz := now_of(_op);
  _tenant   text;
  _until    timestamptz;
  _signal   signal;
begin
  if not holds_lease(_op) then
    return json_build_object('accepted', false);
  end if;
  _tenant := (select tenant from lease where seq = _seq);
  if step_of(_seq, _n) is null then
    _signal := unheard_signal(_seq, _tenant, _name, _key);
    select until into _until from wait where seq = _seq and n = _n;
    if _signal.id is null and (_until is null or _until > _now) then
      return json_build_object('accepted', true, 'left_s', extract(epoch from _until - _now)::double precision);
    end if;
    perform end_wait(_seq, _n, _name, _key, _attempt, _signal.id, _signal.data, _now);
  end if;
  return json_build_object('accepted', true, 'step', step_of(_seq, _n));
end
$$;

-- deliver: end the waits of up to `_limit` jobs for these signals, oldest signal first; returns how many.
-- moves:  none: a job whose wait ends is due now, in `scheduled`
-- guard:  the job is in `scheduled` with the attempt that went to wait; one that somebody else moves at this moment
--         is passed over, and the signal stays undelivered
-- uses:   signal_pkey, wait_signal, scheduled_pkey
create or replace function deliver(_ids uuid[], _limit integer, _now timestamptz) returns integer
language plpgsql
set search_path from current
set enable_seqscan = off
set jit = off
as $$
declare
  _count  integer := 0;
  _g      signal;
  _w      record;
begin
  perform lock_signals(array(select signal_key(tenant, name, key) from signal where id = any(_ids)));
  for _g in select * from signal where id = any(_ids) order by at, id loop
    for _w in
      select w.seq, w.n, w.attempt from wait w join scheduled s on s.seq = w.seq and s.attempt = w.attempt
      where w.tenant = _g.tenant and w.name = _g.name and w.key = _g.key
        and not exists (select from step t where t.seq = w.seq and t.signal = _g.id)
      order by w.seq limit _limit - _count for update of s skip locked
    loop
      perform end_wait(_w.seq, _w.n, _g.name, _g.key, _w.attempt, _g.id, _g.data, _now);
      update scheduled set due_at = _now where seq = _w.seq;
      _count := _count + 1;
    end loop;
    update signal set undelivered = false where id = _g.id and not exists (
      select from wait w join scheduled s on s.seq = w.seq and s.attempt = w.attempt
      where w.tenant = _g.tenant and w.name = _g.name and w.key = _g.key
        and not exists (select from step t where t.seq = w.seq and t.signal = _g.id));
  end loop;
  if _count > 0 then
    perform wake_waiting();
  end if;
  return _count;
end
$$;

-- emit_v1: keep a signal, and end the waits of up to 1,000 jobs (DELIVER_LIMIT) for it unless `deliver` is false.
-- role:   worker, api, enqueue
-- uses:   signal_pkey, see deliver
create or replace function emit_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _id   uuid := (_op->>'id')::uuid;
  _now  timestamptz := now_of(_op);
begin
  insert into signal (id, tenant, name, key, at, undelivered, data)
  values (_id, _op->>'tenant', _op->>'name', coalesce(_op->>'key', ''), _now, true,
          coalesce(_op->>'data_text', (_op->'data')::text))
  on conflict do nothing;
  if not found then
    return json_build_object('repeated', true);
  end if;
  if not coalesce((_op->>'deliver')::boolean, true) then
    -- At the commit of the caller, by which time others may wait than now: who is woken delivers it.
    perform pg_notify(current_schema() || '_wake', '');
    return json_build_object('repeated', false, 'delivered', 0);
  end if;
  return json_build_object('repeated', false, 'delivered', deliver(array[_id], 1000, _now));
end
$$;

-- deliver_v1: end waits for signals that have not reached all who wait, oldest signal first.
-- role:   worker
-- uses:   signal_undelivered, see deliver
create or replace function deliver_v1(_op json) returns json
language plpgsql
set search_path from current
set enable_seqscan = off
set jit = off
as $$
declare
  _limit  integer := at_most(_op);
  _ids    uuid[] := array(
    select id from signal where undelivered order by at, id limit _limit for update skip locked);
  _count  integer := 0;
begin
  if _ids <> '{}' then
    _count := deliver(_ids, _limit, now_of(_op));
  end if;
  return json_build_object('count', _count, 'more', _limit in (_count, cardinality(_ids)));
end
$$;

-- list_signals_v1: the newest signals that are kept, newest first.
-- role:   api
-- uses:   signal_at
create or replace function list_signals_v1(_op json) returns json
language plpgsql stable
set search_path from current
as $$
declare
  _tenant  text := scope_of(_op);
  _name    text := _op->>'name';
  _key     text := _op->>'key';
begin
  return json_build_object('signals', coalesce((
    select json_agg(row_to_json(g) order by g.at desc, g.id desc)
    from (
      select * from signal
      where (_tenant is null or tenant = _tenant) and (_name is null or name = _name) and (_key is null or key = _key)
      order by at desc, id desc limit page_size(_op)
    ) g), '[]'));
end
$$;

-- wait_of: the signal a job waits for now; null: none.
-- uses:   wait_pkey, scheduled_pkey
create or replace function wait_of(_seq bigint) returns json
language plpgsql stable
set search_path from current
as $$
begin
  return (
    select row_to_json(w) from wait w join scheduled s on s.seq = w.seq and s.attempt = w.attempt where w.seq = _seq);
end
$$;
