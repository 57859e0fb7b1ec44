-- knock_at: note that somebody may be let in at a key from an instant on, at once unless it is said; once for each
--         transaction.
-- uses:   knock_key
create or replace function knock_at(_tenant text, _key text, _at timestamptz default '-infinity') returns void
language plpgsql
set search_path from current
as $$
begin
  insert into knock (tenant, key, at)
  select _tenant, _key, _at
  where not exists (
    select from knock k where k.tenant = _tenant and k.key = _key and k.at = _at
      and k.xmin = pg_current_xact_id()::xid);
end
$$;

-- What a key allows its first held job.
create type key_room as (tenant text, key text, room integer, rates jsonb, again_at timestamptz);

-- job_key_terms: what is in force at a key: what people have set for its name, field by field before what `_terms`, the
--         key as a job brings it along, says. Null: no limit.
-- uses:   limit_rule_pkey
create or replace function job_key_terms(
  _key text, _terms json, out running integer, out rate_count integer, out period_s double precision,
  out ordered boolean, out paused_until timestamptz
)
language plpgsql stable
set search_path from current
as $$
begin
  ordered := coalesce((_terms->>'ordered')::boolean, false);
  select l.running, l.rate_count, l.period_s, l.paused_until into running, rate_count, period_s, paused_until
  from limit_rule l where l.kind = 'key' and l.name = split_part(_key, ':', 1) and l.queue = '';
  running := nullif(coalesce(running, (_terms->>'running')::integer, 1), -1);
  if rate_count is null then
    rate_count := (_terms->'rate'->>'count')::integer;
    period_s := (_terms->'rate'->>'period_s')::double precision;
  end if;
  rate_count := nullif(rate_count, -1);
  if ordered then
    running := least(coalesce(running, 1), 1);
  end if;
end
$$;

-- place_holders: who has a place at a key, no more than `_limit` of them.
-- uses:   ready_key, lease_key, scheduled_key, dead_letter_key
create or replace function place_holders(_tenant text, _key text, _limit integer) returns table (
  seq bigint, state text, since timestamptz
)
language sql stable
begin atomic
  (select r.seq, 'ready', r.due_at from ready r where r.tenant = _tenant and r.key = _key and r.placed limit _limit)
  union all
  (select l.seq, 'leased', l.leased_at from lease l where l.tenant = _tenant and l.key = _key and l.placed limit _limit)
  union all
  (select s.seq, 'scheduled', s.due_at from scheduled s where s.tenant = _tenant and s.key = _key and s.placed
   limit _limit)
  union all
  (select d.seq, 'dead', d.died_at from dead_letter d join job j on j.seq = d.seq
   where d.key = _key and j.tenant = _tenant limit _limit)
  limit _limit;
end;

-- key_rooms: how many more may be let in at each of these keys, and when to look again. Only keys where some are held.
-- guard:  the keys are locked by us: who held them before has committed what it let in
-- uses:   held_key, job_pkey, see place_holders, rate_use_pkey; reads no more rows than the limits allow
create or replace function key_rooms(_tenants text[], _keys text[], _now timestamptz) returns key_room[]
language plpgsql
set search_path from current
as $$
begin
  return array(
    select (k.tenant, k.key, case when t.paused_until > _now then 0 else least(
              case when t.running is not null
                   then t.running - (select count(*) from place_holders(k.tenant, k.key, t.running)) end,
              case when t.rate_count is not null then t.rate_count - u.n - (
                select count(*) from ready r where r.tenant = k.tenant and r.key = k.key and r.placed) end) end,
            case when t.rate_count is not null
                 then jsonb_build_array(jsonb_build_array('key', k.key, k.tenant, t.period_s)) end,
            case when t.paused_until > _now then t.paused_until
                 when t.rate_count is not null
                 then coalesce(u.first_at, _now) + t.period_s * interval '1 second' end)::key_room
    from unnest(_tenants, _keys) as k (tenant, key)
    cross join lateral (
      select h.seq from held h where h.tenant = k.tenant and h.key = k.key
      order by h.key_nth, h.band, h.rank, h.due_at, h.seq limit 1) f
    join job j on j.seq = f.seq
    cross join lateral job_key_terms(k.key, j.key_terms) t
    cross join lateral uses_of('key', k.key, k.tenant, t.rate_count, t.period_s, _now) u);
end
$$;

-- let_in: let jobs in that are held at keys which somebody has knocked at, at most `_limit` keys; returns who was.
-- moves:  unhold held -> ready
-- guard:  a lock on each key: one session counts its places at a time; where another does, the knock stays
-- uses:   knock_at, held_key, see key_rooms
--
-- Nobody waits: an enqueue and whoever frees a place only add a knock, and claims know nothing of keys. Counted is in a
-- statement after the locks, which sees what those who held them before have committed. (tests/races/test_job_keys.py)
create or replace function let_in(_now timestamptz, _limit integer default 256) returns bigint[]
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_hashjoin = on
set jit = off
as $$
declare
  _tids     tid[];
  _tenants  text[];
  _keys     text[];
  _rooms    key_room[];
  _seqs     bigint[];
begin
  select array_agg(k.tid), array_agg(k.tenant), array_agg(k.key) into _tids, _tenants, _keys
  from (
    select k.ctid as tid, k.tenant, k.key from knock k where k.at <= _now order by k.at limit 4 * _limit
    for update skip locked
  ) k;
  if _tids is null then
    return null;
  end if;
  select array_agg(k.tenant), array_agg(k.key) into _tenants, _keys
  from (
    select distinct k.tenant, k.key from unnest(_tenants, _keys) as k (tenant, key) limit _limit
  ) k
  where pg_try_advisory_xact_lock(limit_lock('key', k.tenant || chr(1) || k.key));
  delete from knock k using unnest(_tenants, _keys) as l (tenant, key)
  where k.ctid = any(_tids) and k.tenant = l.tenant and k.key = l.key;
  _rooms := key_rooms(_tenants, _keys, _now);
  with picked as (
    select h.tid, r.rates
    from unnest(_rooms) r
    cross join lateral (
      select h.ctid as tid from held h where h.tenant = r.tenant and h.key = r.key
      order by h.key_nth, h.band, h.rank, h.due_at, h.seq limit case when r.room < 0 then 0 else r.room end
      for update skip locked
    ) h
  ), gone as (
    delete from held h using picked p where h.ctid = p.tid returning h.*, p.rates
  ), came as (
    insert into ready (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped,
                       timeout_s, put_off, key, key_nth, placed, rates)
    select seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped, timeout_s,
           put_off, key, key_nth, true, rates
    from gone returning seq
  )
  select array_agg(seq) into _seqs from came;
  perform knock_at(r.tenant, r.key, r.again_at)
  from unnest(_rooms) r
  where r.again_at is not null and exists (select from held h where h.tenant = r.tenant and h.key = r.key);
  return _seqs;
end
$$;

-- next_knock: when somebody may be let in at a key next; null: only where something happens before.
-- uses:   knock_at
create or replace function next_knock(_now timestamptz) returns timestamptz
language sql stable
set search_path from current
return (select greatest(k.at, _now) from knock k order by k.at limit 1);
