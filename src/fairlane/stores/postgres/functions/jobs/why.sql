-- limit_states: the limits a job is under, and how far they are used.
-- uses:   limit_rule_pkey, rate_use_pkey, lease (small: as many rows as jobs in flight)
create or replace function limit_states(
  _queue text, _tenant text, _type text, _given limit_room[], _cap integer, _now timestamptz
) returns json
language plpgsql stable
set search_path from current
as $$
begin
  return (
    with said as (
      select kind, name, queue, running, rate_count, period_s, paused_until, types, false as kept from unnest(_given)
      union all
      select kind, name, queue, running, rate_count, period_s, paused_until, types, true from limit_rule r
      where r.kind = 'named' or (r.kind = 'queue' and r.name = _queue) or (r.kind = 'type' and r.name = _type)
         or (r.kind = 'tenant' and r.name = any(said_of(_tenant)) and r.queue in ('', _queue))
    ), merged as (
      select kind, name, queue,
             coalesce(max(running) filter (where kept), max(running)) as running,
             coalesce(max(rate_count) filter (where kept), max(rate_count)) as rate_count,
             coalesce(max(period_s) filter (where kept), max(period_s)) as period_s,
             max(paused_until) as paused_until,
             case when kind = 'type' then array[name]
               else coalesce(max(types) filter (where kept), max(types)) end as types
      from said group by kind, name, queue
    ), keys as (
      select 1 as place, 'queue' as kind, _queue as name, '' as queue
      union all select 2, 'tenant', _tenant, ''
      union all select 3, 'tenant', _tenant, _queue
      union all select 4, 'type', _type, ''
      union all select 5, 'named', m.name, '' from merged m where m.kind = 'named' and _type = any(m.types)
    ), ruled as (
      select k.*, m.types, nullif(coalesce(m.running, e.running), -1) as running,
             nullif(coalesce(m.rate_count, e.rate_count), -1) as rate_count,
             coalesce(m.period_s, e.period_s) as period_s,
             case when m.paused_until > _now then m.paused_until end as paused_until
      from keys k
      left join merged m on m.kind = k.kind and m.name = k.name and m.queue = k.queue
      left join merged e on k.kind = 'tenant' and e.kind = 'tenant' and e.name = '*' and e.queue = k.queue
        and k.name <> 'system'
    )
    select json_agg(json_build_object(
      'kind', r.kind, 'name', r.name, 'queue', r.queue, 'running', r.running,
      'leases', case when r.running is null then 0 else (
        select count(*) from (
          select from lease l
          where case r.kind
                  when 'queue' then l.queue = r.name
                  when 'tenant' then l.tenant = r.name and (r.queue = '' or l.queue = r.queue)
                  else l.type = any(r.types) end
          limit _cap) c) end,
      'rate', case when r.rate_count is not null
                   then json_build_object('count', r.rate_count, 'period_s', r.period_s) end,
      'starts', least(coalesce(u.n, 0), _cap),
      'free_at', greatest(r.paused_until, u.free_at)) order by r.place, r.name collate "C")
    from ruled r
    cross join lateral (
      select max(w.so_far) as n,
             max(w.at) filter (where r.rate_count > 0 and w.so_far >= r.rate_count)
               + r.period_s * interval '1 second' as free_at
      from (
        select u.at, sum(u.n) over (order by u.at desc) as so_far from rate_use u
        where r.rate_count is not null and u.kind = r.kind and u.name = r.name and u.queue = r.queue
          and u.at > _now - r.period_s * interval '1 second' and u.n > 0
      ) w
    ) u
    where r.running is not null or r.rate_count is not null or r.paused_until is not null);
end
$$;

-- why_v1: the facts about a job's waiting; null: there is no such job of this tenant.
-- role:   api
-- uses:   job_id_key, ready_line, see limit_states
create or replace function why_v1(_op json) returns json
language plpgsql stable
set search_path from current
set enable_seqscan = off
set jit = off
as $$
declare
  _tenant  text := scope_of(_op);
  _id      uuid := (_op->>'id')::uuid;
  _limits  json := last_limits(_op->'limits');
  _now     timestamptz := now_of(_op);
  _j       job;
  _r       ready;
  _l       lease;
  _line    claim_line;
  _place   text;
  _cap     constant integer := 1000;  -- TENANT_COUNT_CAP
begin
  select * into _j from job where id = _id and (_tenant is null or tenant = _tenant);
  if not found then
    return null;
  end if;
  select * into _r from ready where seq = _j.seq;
  select * into _l from lease where seq = _j.seq;
  _line.queue := _r.queue;
  _line.band := _r.band;
  _place := case when _r.seq is not null then 'ready'
                 when exists (select from scheduled where seq = _j.seq) then 'scheduled'
                 when exists (select from held where seq = _j.seq) then 'held'
                 when _l.seq is not null then 'leased'
                 else (select status from done where seq = _j.seq) end;
  return json_build_object(
    'now', _now, 'waits_for', wait_of(_j.seq),
    'job', (select row_to_json(r) from job_record r where r.seq = _j.seq), 'place', _place,
    'ahead', (select count(*) from (
      select from ready r where r.queue = _r.queue and r.band = _r.band and r.tenant = _r.tenant
        and (r.rank, r.due_at, r.seq) < (_r.rank, _r.due_at, _r.seq) limit _cap) c),
    'more_urgent', (
      select count(*) from (select from ready r where r.queue = _r.queue and r.band < _r.band limit _cap) c),
    'tenants', case when _r.seq is null then 0 else least(_cap, cardinality(
      array_remove(tenants_after(_line, '', null, _cap + 1), _r.tenant))) end,
    'pauses', coalesce((
      select json_agg(row_to_json(p) order by p.kind) from pause p
      where (p.kind, p.name) in (('queue', _j.queue), ('tenant', _j.tenant), ('type', _j.type))), '[]'),
    'limits', coalesce(
      case when _place not in ('completed', 'dead', 'cancelled')
           then limit_states(_j.queue, _j.tenant, _j.type, given_limits(_limits), _cap, _now) end, '[]'),
    'waiting_limit', (select t.waiting from tenant_terms(_j.tenant, _j.queue, _limits) t),
    'workers', (
      select count(*) from worker w where w.expires_at > _now and (w.queues = '{}' or _j.queue = any(w.queues))),
    'knowing', (
      select count(*) from worker w
      where w.expires_at > _now and (w.queues = '{}' or _j.queue = any(w.queues))
        and (w.types = '{}' or _j.type = any(w.types))),
    'suspect', coalesce(_r.suspect, (select s.suspect from scheduled s where s.seq = _j.seq),
                        (select h.suspect from held h where h.seq = _j.seq), _l.suspect, false),
    'worker_until', (select w.expires_at from worker w where w.id = _l.worker),
    'key', case when _j.key is not null and _place not in ('completed', 'dead', 'cancelled')
                then key_use(_j.tenant, _j.key) end,
    'key_ahead', key_ahead(_j.seq));
end
$$;
