-- One limit on claims as a Turn sees it: what is in force, and how much room is left; null: not counted yet.
create type limit_room as (
  kind text, name text, queue text, running integer, rate_count integer, period_s double precision, paused_until timestamptz,
  types text[], room integer
);

create type claim_limits as (
  limited boolean,           -- some limit is in force
  tenants limit_room[],      -- given for tenants, and what holds for every tenant
  own boolean,               -- people have set something for single tenants: looked up for each
  queues limit_room[],
  types limit_room[],        -- of types, and named ones over several
  counted_queues text[],     -- these and the following two: how leases are marked
  counted_types text[],
  counted smallint,
  idle boolean,              -- the Turn settles nothing
  wary boolean,              -- count without locks first: tenants without room were met
  locks integer,             -- tenants locked so far
  until timestamptz
);

-- given_limits: what the code allows to claims, as rows.
create or replace function given_limits(_limits json) returns limit_room[]
language sql stable
begin atomic
  select array_agg((g.kind, g.name, coalesce(g.queue, ''), g.running, (g.rate->>'count')::integer, (g.rate->>'period_s')::double precision,
                    null, nullif(g.types, '{}'), null)::limit_room)
  from json_to_recordset(_limits) as g (kind text, name text, queue text, running integer, rate json, types text[]);
end;

-- count_given: see to it that leases under limits that only the code gives are found by an index, whoever claimed them.
-- guard:  before this Turn locks its worker's row: see count_from_now_on
-- uses:   counted_pkey
create or replace function count_given(_given limit_room[]) returns void
language plpgsql
set search_path from current
as $$
declare
  _queues   text[];
  _types    text[];
  _tenants  text;
begin
  select array_agg(k.name) filter (where k.kind = 'queue'), array_agg(k.name) filter (where k.kind = 'type'),
         max(k.name) filter (where k.kind = 'tenant')
  into _queues, _types, _tenants
  from (
    select distinct g.kind, case when g.kind = 'tenant' then 'running' else g.name end as name
    from unnest(_given) g where g.running is not null and g.kind <> 'named'
    union
    select 'type', t.name from unnest(_given) g cross join unnest(g.types) as t (name) where g.kind = 'named'
    except
    select c.kind, c.name from counted c
  ) k;
  if _queues is not null or _types is not null or _tenants is not null then
    perform count_from_now_on(_queues, _types, _tenants);
  end if;
end
$$;

-- counting_only: how leases are marked, where no limit holds anything back.
-- uses:   counted_pkey
create or replace function counting_only() returns claim_limits
language sql stable
set search_path from current
begin atomic
  select (false, null, false, null, null, array_agg(c.name) filter (where c.kind = 'queue'), array_agg(c.name) filter (where c.kind = 'type'),
          coalesce(max(case c.name when 'running' then 2 else 1 end) filter (where c.kind = 'tenant'), 0), false, false, 0, null)::claim_limits
  from counted c;
end;

-- claim_limits: what the code gives and what people have set, put together: for the same thing, field by field, people's wins.
-- uses:   limit_rule_claims, limit_rule_pkey
create or replace function claim_limits(_given limit_room[], _now timestamptz) returns claim_limits
language plpgsql
set search_path from current
as $$
declare
  _l claim_limits;
begin
  with said as (
    select kind, name, queue, running, rate_count, period_s, paused_until, types, false as kept from unnest(_given)
    union all
    select kind, name, queue, running, rate_count, period_s, paused_until, types, true from limit_rule where kind = any(array['queue', 'type', 'named'])
    union all
    select kind, name, queue, running, rate_count, period_s, paused_until, types, true from limit_rule where kind = 'tenant' and name = '*'
    union all
    select r.kind, r.name, r.queue, r.running, r.rate_count, r.period_s, r.paused_until, r.types, true
    from unnest(_given) g join limit_rule r on r.kind = 'tenant' and r.name = g.name and r.queue = g.queue
    where g.kind = 'tenant' and g.name <> '*'
  ), merged as (
    select kind, name, queue,
           coalesce(max(running) filter (where kept), max(running)) as running,
           coalesce(max(rate_count) filter (where kept), max(rate_count)) as rate_count,
           coalesce(max(period_s) filter (where kept), max(period_s)) as period_s,
           max(paused_until) as paused_until,
           case when kind = 'type' then array[name] else coalesce(max(types) filter (where kept), max(types)) end as types
    from said group by kind, name, queue
  ), judged as (
    select m.*, coalesce(m.running >= 0 or m.rate_count >= 0 or m.paused_until > _now, false) as holds from merged m
  ), shown as (
    select kind, holds, types, (kind, name, queue, case when kind = 'tenant' then running else nullif(running, -1) end,
                  case when kind = 'tenant' then rate_count else nullif(rate_count, -1) end, period_s, paused_until, types, null)::limit_room as one
    from judged
  )
  select coalesce(bool_or(holds), false), array_agg(one) filter (where kind = 'tenant'), array_agg(one) filter (where kind = 'queue' and holds),
         array_agg(one) filter (where kind in ('type', 'named') and holds and types is not null)
  into _l.limited, _l.tenants, _l.queues, _l.types
  from shown;
  select exists (select from limit_rule r where r.kind = 'tenant' and r.name <> '*'
                   and (r.running is not null or r.rate_count is not null or r.paused_until is not null)),
         _l.limited or exists (select from limit_rule r where r.kind = 'tenant' and r.name <> '*'
                                 and (r.running is not null or r.rate_count is not null or r.paused_until is not null)
                                 and (r.running >= 0 or r.rate_count >= 0 or r.paused_until > _now))
  into _l.own, _l.limited;
  select c.counted_queues, c.counted_types, c.counted into _l.counted_queues, _l.counted_types, _l.counted from counting_only() c;
  _l.locks := 0;
  _l.wary := false;
  return _l;
end
$$;

-- open_rules: lock and count those limits of queues or types that this claim needs and that were not counted before in this Turn.
-- guard:  limit_lock: a limit that another session is counting under has no room for us; nobody waits, nothing is overshot
-- uses:   lease_counted, rate_use_pkey; reads no more rows than the limits allow
--
-- `_idle`: count without the lock first, and lock only where there is room. Workers with nothing to do look often; by their locks they would keep
-- those who have just freed a place, and may claim it at once, from doing so.
create or replace function open_rules(inout rules limit_room[], _names text[], _now timestamptz, _idle boolean, out until timestamptz)
language plpgsql
set search_path from current
as $$
declare
  _needed  integer[];
  _locked  boolean[];
begin
  _needed := array(
    select r.ord from unnest(rules) with ordinality as r (kind, name, queue, running, rate_count, period_s, paused_until, types, room, ord)
    where r.room is null and (_names is null or case when r.kind = 'queue' then r.name = any(_names) else r.types && _names end)
    order by r.ord);
  if _needed = '{}' then
    return;
  end if;
  _locked := array_fill(true, array[cardinality(_needed)]);
  for _pass in case when _idle then 1 else 2 end .. 2 loop
    if _pass = 2 then
      _needed := array(select n.i from unnest(_needed) with ordinality as n (i, ord) where not _idle or rules[n.i].room > 0 order by n.ord);
      exit when _needed = '{}';
      _locked := array(
        select pg_try_advisory_xact_lock(limit_lock(r.kind, r.name)) from (
          select rules[i].kind, rules[i].name from unnest(_needed) with ordinality as n (i, ord) order by n.ord
        ) r);
    end if;
    -- In a statement of its own: it has to see what those who held the locks before have committed.
    select array_agg((r.kind, r.name, r.queue, r.running, r.rate_count, r.period_s, r.paused_until, r.types,
                      case when n.ord is null then r.room
                           when not _locked[n.ord] or r.paused_until > _now then 0
                           else greatest(least(r.running - leases.n, r.rate_count - uses.n), 0) end)::limit_room order by r.ord),
           least(until, min(case when n.ord is null then null
                    when not _locked[n.ord] then _now + interval '20 milliseconds'
                    when r.paused_until > _now then r.paused_until
                    when r.rate_count > 0 and uses.n >= r.rate_count then uses.first_at + r.period_s * interval '1 second' end))
    into rules, until
    from unnest(rules) with ordinality as r (kind, name, queue, running, rate_count, period_s, paused_until, types, room, ord)
    left join unnest(_needed) with ordinality as n (i, ord) on n.i = r.ord
    cross join lateral (
      select case when n.ord is null or r.running is null then 0
                  when r.kind = 'queue' then (
                    select count(*) from (select from lease l where l.counted = 3 and l.queue = r.name limit r.running) c)
                  else (
                    with recursive queues (queue) as (
                      (select l.queue from lease l where l.counted = 3 order by l.queue limit 1)
                      union all
                      select (select l.queue from lease l where l.counted = 3 and l.queue > q.queue order by l.queue limit 1)
                      from queues q where q.queue is not null
                    )
                    select count(*) from (
                      select from queues q cross join lateral (
                        select from lease l where l.counted = 3 and l.queue = q.queue and l.type = any(r.types) limit r.running
                      ) l limit r.running
                    ) c)
             end::integer as n
    ) leases
    cross join lateral (
      select coalesce(sum(u.n), 0)::integer as n, min(u.at) as first_at
      from (
        select u.n, u.at from rate_use u
        where n.ord is not null and u.kind = r.kind and u.name = r.name and u.queue = '' and u.at > _now - r.period_s * interval '1 second'
          and u.n > 0
        order by u.at desc limit r.rate_count
      ) u
    ) uses;
  end loop;
end
$$;

-- tenant_rooms: how many more of each tenant's jobs may be claimed from one queue; null: no limit. And the rates a claim counts under.
-- uses:   limit_rule_pkey, lease_tenant, rate_use_pkey; reads no more rows than the limits allow
create or replace function tenant_rooms(
  _tenants text[], _queue text, _l claim_limits, _now timestamptz, out rooms integer[], out rates jsonb[], out until timestamptz
)
language plpgsql
set search_path from current
as $$
begin
  select array_agg(k.room order by k.ord), array_agg(k.rates order by k.ord), min(k.until) into rooms, rates, until
  from (
    select t.ord, min(x.room) as room, min(x.until) as until,
           jsonb_agg(jsonb_build_array('tenant', t.tenant, x.place, x.period_s)) filter (where x.rate_count is not null) as rates
    from unnest(_tenants) with ordinality as t (tenant, ord)
    left join lateral (
      select p.place, r.rate_count, r.period_s,
             case when r.paused_until > _now then 0 else greatest(least(r.running - leases.n, r.rate_count - uses.n), 0) end as room,
             case when r.paused_until > _now then r.paused_until
                  when r.rate_count > 0 and uses.n >= r.rate_count then uses.first_at + r.period_s * interval '1 second' end as until
      from (values (''), (_queue)) as p (place)
      left join limit_rule s on _l.own and s.kind = 'tenant' and s.name = t.tenant and s.queue = p.place
      left join unnest(_l.tenants) g on g.name = t.tenant and g.queue = p.place
      left join unnest(_l.tenants) e on e.name = '*' and e.queue = p.place and t.tenant <> 'system'
      cross join lateral (
        select nullif(coalesce(s.running, g.running, e.running), -1) as running,
               nullif(coalesce(s.rate_count, g.rate_count, e.rate_count), -1) as rate_count,
               coalesce(s.period_s, g.period_s, e.period_s) as period_s, s.paused_until
      ) r
      cross join lateral (
        select case when r.running is null then 0
                    when p.place = '' then (select count(*) from (select from lease l where l.counted > 0 and l.tenant = t.tenant limit r.running) c)
                    else (select count(*) from (select from lease l where l.counted > 0 and l.tenant = t.tenant and l.queue = p.place limit r.running) c)
               end::integer as n
      ) leases
      cross join lateral (
        select coalesce(sum(u.n), 0)::integer as n, min(u.at) as first_at
        from (
          select u.n, u.at from rate_use u
          where r.rate_count is not null and u.kind = 'tenant' and u.name = t.tenant and u.queue = p.place
            and u.at > _now - r.period_s * interval '1 second' and u.n > 0
          order by u.at desc limit r.rate_count
        ) u
      ) uses
      where r.running is not null or r.rate_count is not null or r.paused_until > _now
    ) x on true
    group by t.ord
  ) k;
end
$$;

-- meet: of these tenants those that have room in one queue, how much (null: no limit), and the rates their claims count under.
-- guard:  limit_lock: a tenant whom another session is counting has no room for us
-- uses:   see tenant_rooms
--
-- At most 256 tenants are locked in one Turn: the server's table of locks holds some thousands for everybody. And of those found to have
-- room no more than `_most` (null: all), for whom we lock others cannot claim: `seen`, the last one looked at then, null if that were all.
create or replace function meet(
  _queue text, _now timestamptz, _most integer, inout tenants text[], inout l claim_limits, out rooms integer[], out rates jsonb[], out seen text
)
language plpgsql
set search_path from current
as $$
declare
  _counted   record;
  _end       integer;
  _lockable  boolean[];
  _locked    boolean[];
  _missed    boolean;
  -- Only a limit of every tenant makes it sure that each one met has a limit at all; and `system` is not one of them.
  _wary      boolean := l.wary or cardinality(tenants) > 32 or 'system' = any(tenants) or not exists (select from unnest(l.tenants) t where t.name = '*' and t.queue in ('', _queue));
begin
  if tenants = '{}' then
    return;
  end if;
  if _wary then
    select * into _counted from tenant_rooms(tenants, _queue, l, _now);
    l.until := least(l.until, _counted.until);
    _end := (
      select r.ord from unnest(_counted.rooms) with ordinality as r (room, ord) where _most is not null and (r.room > 0 or r.room is null)
      order by r.ord offset _most - 1 limit 1);
    if _end < cardinality(tenants) then
      tenants := tenants[:_end];
      seen := tenants[_end];
    end if;
    _lockable := array(
      select r.room > 0 from unnest(_counted.rooms) with ordinality as r (room, ord) where r.ord <= cardinality(tenants) order by r.ord);
  else
    _lockable := array_fill(true, array[cardinality(tenants)]);
  end if;
  _locked := array(
    select case when t.yes then t.nth + l.locks <= 256 and pg_try_advisory_xact_lock(limit_lock('tenant', t.tenant)) else t.yes is null end
    from (
      select t.tenant, t.yes, count(*) filter (where t.yes) over (order by t.ord) as nth, t.ord
      from unnest(tenants, _lockable) with ordinality as t (tenant, yes, ord)
    ) t order by t.ord);
  -- Counted in a statement after the locks: it has to see what those who held them before have committed.
  select * into _counted from tenant_rooms(tenants, _queue, l, _now);
  l.locks := l.locks + (select count(*) from unnest(_lockable, _locked) as t (yes, locked) where t.yes and t.locked);
  _missed := exists (select from unnest(_lockable, _locked) as t (yes, locked) where t.yes and not t.locked);
  l.until := least(l.until, _counted.until, case when _missed then _now + interval '20 milliseconds' end);
  select array_agg(t.tenant order by t.ord), array_agg(t.room order by t.ord), array_agg(t.rates order by t.ord)
  into tenants, rooms, rates
  from unnest(tenants, _locked, _counted.rooms, _counted.rates) with ordinality as t (tenant, locked, room, rates, ord)
  where t.locked and (t.room > 0 or t.room is null);
  tenants := coalesce(tenants, '{}');
  l.wary := l.wary or cardinality(tenants) < cardinality(_locked);
end
$$;

-- use_rates: write down what was claimed under rates, so many for each line; now and then forget what no rate looks at any more.
-- guard:  the limits are locked by us
-- uses:   rate_use_pkey
create or replace function use_rates(_rates jsonb[], _counts integer[], _claim_no bigint, _now timestamptz) returns void
language plpgsql
set search_path from current
as $$
begin
  insert into rate_use as u (kind, name, queue, at, n)
  select k.rate->>0, k.rate->>1, k.rate->>2, _now, sum(c.n)
  from unnest(_rates, _counts) as c (rates, n) cross join lateral jsonb_array_elements(c.rates) as k (rate)
  where c.n > 0 group by 1, 2, 3
  on conflict (kind, name, queue, at) do update set n = u.n + excluded.n;
  if _claim_no % 64 = 0 then
    delete from rate_use u using (
      select distinct k.rate->>0 as kind, k.rate->>1 as name, k.rate->>2 as queue, (k.rate->>3)::double precision as period_s
      from unnest(_rates) as c (rates) cross join lateral jsonb_array_elements(c.rates) as k (rate)
    ) k
    where u.kind = k.kind and u.name = k.name and u.queue = k.queue and u.at <= _now - 2 * k.period_s * interval '1 second';
  end if;
end
$$;

-- give_back: claims that never started no longer count under their rates; `_rates` of each lease, side by side with when it was leased.
-- uses:   rate_use_pkey
create or replace function give_back(_rates jsonb[], _leased_at timestamptz[]) returns void
language plpgsql
set search_path from current
as $$
declare
  _k record;
begin
  -- Each by its key, in order: two sessions giving back wait for each other and never in a circle.
  for _k in
    select k.rate->>0 as kind, k.rate->>1 as name, k.rate->>2 as queue, l.at, count(*) as n
    from unnest(_rates, _leased_at) as l (rates, at) cross join lateral jsonb_array_elements(l.rates) as k (rate)
    group by 1, 2, 3, 4 order by 1, 2, 3, 4
  loop
    update rate_use set n = n - _k.n where kind = _k.kind and name = _k.name and queue = _k.queue and at = _k.at;
  end loop;
end
$$;
