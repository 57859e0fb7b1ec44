-- knock_at: note that somebody may be let in at a key from an instant on, at once unless it is said; once for each
--         transaction.
-- uses:   knock_key
create or replace function knock_at(_tenant text, _key text, _at timestamptz default '-infinity') returns void
language plpgsql
set search_path from current
as $$
begin
  insert into knock (at, tenant, key)
  select _at, _tenant, _key
  where not exists (
    select from knock k where k.at = _at and k.tenant = _tenant and k.key = _key
      and k.xmin = pg_current_xact_id()::xid);
end
$$;

-- next_knock: when somebody may be let in at a key next.
-- uses:   knock_key
create or replace function next_knock(_now timestamptz) returns timestamptz
language sql stable
set search_path from current
return (select greatest(k.at, _now) from knock k order by k.at limit 1);

-- key_rule: what people have set for the name of a key.
-- uses:   limit_rule_pkey
create or replace function key_rule(_key text) returns setof limit_rule
language sql stable
begin atomic
  select l.* from limit_rule l where l.kind = 'key' and l.name = split_part(_key, ':', 1) and l.queue = '';
end;

-- key_terms_in_force: what a key allows: what people have set for its name, field by field before what the first held
--         job brings along. Null: no limit.
create or replace function key_terms_in_force(_terms json, _rule limit_rule) returns table (
  running integer, rate_count integer, period_s double precision, ordered boolean, paused_until timestamptz
)
language sql stable
begin atomic
  select case when t.ordered then least(coalesce(t.running, 1), 1) else t.running end, nullif(t.rate_count, -1),
         t.period_s, t.ordered, _rule.paused_until
  from (
    select coalesce((_terms->>'ordered')::boolean, false) as ordered,
           nullif(coalesce(_rule.running, (_terms->>'running')::integer, 1), -1) as running,
           coalesce(_rule.rate_count, (_terms->'rate'->>'count')::integer) as rate_count,
           case when _rule.rate_count is null then (_terms->'rate'->>'period_s')::double precision
                else _rule.period_s end as period_s
  ) t;
end;

-- place_holders: who has a place at a key, no more than `_limit` of them; only ordered jobs keep theirs when they are
--         scheduled again or die.
-- uses:   ready_key, lease_key, scheduled_key, dead_letter_key
create or replace function place_holders(_tenant text, _key text, _limit integer, _ordered boolean) returns table (
  seq bigint, state text, since timestamptz
)
language sql stable
begin atomic
  (select r.seq, 'ready', r.due_at from ready r where r.tenant = _tenant and r.key = _key and r.placed limit _limit)
  union all
  (select l.seq, 'leased', l.leased_at from lease l where l.tenant = _tenant and l.key = _key and l.placed limit _limit)
  union all
  (select s.seq, 'scheduled', s.due_at from scheduled s
   where _ordered and s.tenant = _tenant and s.key = _key and s.placed limit _limit)
  union all
  (select d.seq, 'dead', d.died_at from dead_letter d where _ordered and d.tenant = _tenant and d.key = _key
   limit _limit)
  limit _limit;
end;

-- A key to look at again: from an instant on, or where the job that comes first now brings other terms along.
create type later_knock as (tenant text, key text, at timestamptz, terms text);

-- let_in: let jobs in that are held at keys which somebody has knocked at, after at most `_limit` knocks; returns who.
-- moves:  let_in held -> ready
-- guard:  a lock on each key: one session counts its places at a time; where another does, the knock stays
-- uses:   knock_key, held_key, job_pkey, limit_rule_pkey, see place_holders and uses_of; reads no more rows than the
--         limits allow
--
-- Nobody waits: an enqueue and whoever frees a place only add a knock, and claims know nothing of keys. Places are
-- counted in a statement after the locks, which sees what those who held them before have committed.
-- (tests/races/test_job_keys.py)
create or replace function let_in(_now timestamptz, _limit integer default 500) returns bigint[]
language plpgsql
set search_path from current
set enable_seqscan = off
set jit = off
as $$
declare
  _tenants  text[];
  _keys     text[];
  _locked   boolean[];
  _seqs     bigint[];
  _again    later_knock[];
begin
  with gone as (
    delete from knock k where k.ctid = any(array(
      select y.ctid from knock y where y.at <= _now order by y.at limit _limit for update skip locked))
    returning k.tenant, k.key
  )
  select array_agg(k.tenant), array_agg(k.key),
         array_agg(pg_try_advisory_xact_lock(limit_lock('key', k.tenant || chr(1) || k.key)))
  into _tenants, _keys, _locked
  from (select distinct g.tenant, g.key from gone g) k;
  if _tenants is null then
    return null;
  end if;
  perform knock_at(k.tenant, k.key) from unnest(_tenants, _keys, _locked) as k (tenant, key, locked) where not k.locked;
  with room as materialized (
    select k.tenant, k.key,
           case when t.paused_until > _now then 0 else least(
             case when t.running is not null
                  then t.running - (select count(*) from place_holders(k.tenant, k.key, t.running, t.ordered)) end,
             case when t.rate_count is not null then t.rate_count - u.n - (
               select count(*) from ready r where r.tenant = k.tenant and r.key = k.key and r.placed) end) end as n,
           case when t.rate_count is not null
                then jsonb_build_array(jsonb_build_array('key', k.key, k.tenant, t.period_s)) end as rates,
           case when t.paused_until > _now then t.paused_until
                when t.rate_count is not null
                then coalesce(u.first_at, _now) + t.period_s * interval '1 second' end as again_at,
           j.key_terms::text as terms
    from unnest(_tenants, _keys, _locked) as k (tenant, key, locked)
    cross join lateral (
      select h.seq from held h where h.tenant = k.tenant and h.key = k.key
      order by h.key_nth, h.band, h.rank, h.due_at, h.seq limit 1) f
    cross join lateral (select j.key_terms from job j where j.seq = f.seq limit 1) j  -- by its number, always
    left join lateral key_rule(k.key) l on true
    cross join lateral key_terms_in_force(j.key_terms, l) t
    cross join lateral uses_of('key', k.key, k.tenant, t.rate_count, t.period_s, _now) u
    where k.locked
  ), picked as (
    select h.tid, r.rates
    from room r
    cross join lateral (
      select h.ctid as tid from held h where h.tenant = r.tenant and h.key = r.key
      order by h.key_nth, h.band, h.rank, h.due_at, h.seq limit case when r.n < 0 then 0 else r.n end
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
  select (select array_agg(c.seq) from came c),
         (select array_agg((r.tenant, r.key, r.again_at, r.terms)::later_knock) from room r
          where r.again_at is not null or (r.n > 0) is not false)
  into _seqs, _again;
  if _again is not null then
    perform knock_at(
      a.tenant, a.key, case when j.key_terms::text is distinct from a.terms then '-infinity' else a.at end)
    from unnest(_again) a
    cross join lateral (
      select h.seq from held h where h.tenant = a.tenant and h.key = a.key
      order by h.key_nth, h.band, h.rank, h.due_at, h.seq limit 1) f
    cross join lateral (select j.key_terms from job j where j.seq = f.seq limit 1) j
    where a.at is not null or j.key_terms::text is distinct from a.terms;
  end if;
  return _seqs;
end
$$;
