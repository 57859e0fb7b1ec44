-- place_of: where a limit stands among others of its kind.
create or replace function place_of(_rules limit_room[], _name text) returns integer
language plpgsql immutable  -- servers before 18 plan a function in SQL anew at every call
as $$
begin
  return array_position(array(select r.name from unnest(_rules) r), _name);
end
$$;

-- line_rates: by line, the rates that its claims count under: that of its queue, and its tenant's.
create or replace function line_rates(_lines claim_line[], _queues limit_room[]) returns jsonb[]
language plpgsql immutable
as $$
begin
  return array(
    select case when q.rate_count is null then l.rates
                else jsonb_build_array(jsonb_build_array('queue', q.name, '', q.period_s)) || coalesce(l.rates, '[]')
           end
    from unnest(_lines) with ordinality
      as l (queue, band, tenant, rank, due_at, seq, looked, room, rates, share, moved, ended, ord)
    left join unnest(_queues) q on q.name = l.queue
    order by l.ord);
end
$$;

-- type_rates: by type, the rates that its claims count under.
create or replace function type_rates(_rules limit_room[]) returns jsonb
language plpgsql immutable
as $$
begin
  return (
    select jsonb_object_agg(k.type, k.rates)
    from (
      select t.type, jsonb_agg(jsonb_build_array(r.kind, r.name, '', r.period_s)) as rates
      from unnest(_rules) r cross join unnest(r.types) as t (type)
      where r.rate_count is not null group by t.type
    ) k);
end
$$;

-- uses_of: how many claims count under a rate now, at most as many as it allows, and when the first of them was made.
-- uses:   rate_use_pkey
create or replace function uses_of(
  _kind text, _name text, _queue text, _count integer, _period_s double precision, _now timestamptz
) returns table (n integer, first_at timestamptz)
language sql stable
begin atomic
  select coalesce(sum(u.n), 0)::integer, min(u.at)
  from (
    select u.n, u.at from rate_use u
    where _count is not null and u.kind = _kind and u.name = _name and u.queue = _queue
      and u.at > _now - _period_s * interval '1 second' and u.n > 0
    order by u.at desc limit _count
  ) u;
end;

-- await_limit: lock a limit that another session is counting under; false: not within 10 ms.
--
-- For a Turn that settles. Such locks are held for one Turn, a few milliseconds; skipped, the place it has freed would
-- be empty for the 20 ms until it asks again. Those who wait are served before those who only try. Every wait ends by
-- itself, so that none is a deadlock.
create or replace function await_limit(_lock bigint) returns boolean
language plpgsql
set lock_timeout = '10ms'
as $$
begin
  perform pg_advisory_xact_lock(_lock);
  return true;
exception when lock_not_available or deadlock_detected then
  return false;
end
$$;

-- count_limits: lock and count the limits of queues or types that a claim needs and its Turn has not counted yet.
-- guard:  limit_lock: a limit that another session counts under has no room for us, none is overshot; only a Turn that
--         settles waits for it (await_limit); shared where the limit is wide and half of it free (mark_wide)
-- uses:   lease_counted, rate_use_pkey; reads no more rows than the limits allow, and none of leases where the limit is
--         wide and half of it more than all of them (held_by_all)
--
-- `_idle`: count without locks first, and lock only where there is room. Idle workers look often; their locks would
-- keep a worker that has just freed a place from claiming it.
create or replace function count_limits(
  inout rules limit_room[], _names text[], _now timestamptz, _idle boolean, out until timestamptz
)
language plpgsql
as $$
declare
  _needed  integer[];
  _locked  boolean[];
  _held    integer;
begin
  _needed := array(
    select r.ord
    from unnest(rules) with ordinality
      as r (kind, name, queue, running, rate_count, period_s, paused_until, types, room, ord)
    where r.room is null
      and (_names is null or case when r.kind = 'queue' then r.name = any(_names) else r.types && _names end)
    order by limit_lock(r.kind, r.name));  -- the same for all: two Turns do not wait for each other
  for _pass in case when _idle then 1 else 2 end .. 3 loop
    if _pass > 1 then
      _needed := array(
        select n.i from unnest(_needed) with ordinality as n (i, ord)
        where case when _pass = 3 then rules[n.i].room = -1 else not _idle or rules[n.i].room > 0 end order by n.ord);
      _locked := array(
        select case when _pass = 2 and r.wide then pg_try_advisory_xact_lock_shared(r.lock)
                    else pg_try_advisory_xact_lock(r.lock) or (_pass = 2 and not _idle and await_limit(r.lock)) end
        from (
          select limit_lock(rules[i].kind, rules[i].name) as lock, is_wide(rules[i]) as wide
          from unnest(_needed) with ordinality as n (i, ord) order by n.ord
        ) r);
    end if;
    exit when _needed = '{}';
    -- In statements of their own: they have to see what those who held the locks before have committed.
    _held := case when _pass < 3 and exists (select from unnest(rules) r where is_wide(r)) then held_by_all() end;
    select array_agg((r.kind, r.name, r.queue, r.running, r.rate_count, r.period_s, r.paused_until, r.types,
                      case when n.ord is null then r.room
                           when not _locked[n.ord] or r.paused_until > _now then 0
                           when _pass = 2 and r.paused_until = '-infinity'
                             and 2 * least(r.running - leases.n, r.rate_count - uses.n) < least(r.running, r.rate_count)
                           then -1  -- to be locked alone
                           else greatest(least(r.running - leases.n, r.rate_count - uses.n), 0)
                      end)::limit_room order by r.ord),
           least(until, min(case when n.ord is null then null
                    when not _locked[n.ord] then _now + interval '20 milliseconds'
                    when r.paused_until > _now then r.paused_until
                    when r.rate_count > 0 and uses.n >= r.rate_count
                    then uses.first_at + r.period_s * interval '1 second' end))
    into rules, until
    from unnest(rules) with ordinality
      as r (kind, name, queue, running, rate_count, period_s, paused_until, types, room, ord)
    left join unnest(_needed) with ordinality as n (i, ord) on n.i = r.ord
    cross join lateral (
      select case when n.ord is null or r.running is null then 0
                  when r.paused_until = '-infinity' and 2 * _held <= r.running then _held
                  when r.kind = 'queue' then (
                    select count(*) from (
                      select from lease l where l.counted = 3 and l.queue = r.name limit r.running) c)
                  else (
                    with recursive queues (queue) as (
                      (select l.queue from lease l where l.counted = 3 order by l.queue limit 1)
                      union all
                      select (
                        select l.queue from lease l where l.counted = 3 and l.queue > q.queue order by l.queue limit 1)
                      from queues q where q.queue is not null
                    )
                    select count(*) from (
                      select from queues q cross join lateral (
                        select from lease l
                        where l.counted = 3 and l.queue = q.queue and l.type = any(r.types) limit r.running
                      ) l limit r.running
                    ) c)
             end::integer as n
    ) leases
    cross join lateral (
      select * from uses_of(r.kind, r.name, '', case when n.ord is not null then r.rate_count end, r.period_s, _now)
    ) uses;
  end loop;
end
$$;

-- with_freed: limits on running, with the room that this Turn has made under them by ending jobs.
-- guard:  none is needed: as many leases come as have gone, in one commit, so whoever counts meanwhile counts no fewer
-- uses:   lease_counted; reads no more rows than the limits allow
--
-- A Turn that wants no more than it has freed neither locks a limit nor waits for one that counts under it. One that
-- wants more needs the lock, and makes do with what it has freed if it cannot have it at once. Counted all the same: a
-- limit may have been lowered.
create or replace function with_freed(
  _rules limit_room[], _freed freed_place[], _wanted bigint, _now timestamptz
) returns limit_room[]
language plpgsql
as $$
declare
  _r  limit_room;
  _f  freed_place;
  _n  integer;
begin
  for _i in 1 .. coalesce(cardinality(_rules), 0) loop
    _r := _rules[_i];
    continue when _r.running is null or _r.rate_count is not null or _r.paused_until > _now or is_wide(_r);
    _n := 0;
    foreach _f in array _freed loop
      _n := _n + (case when _r.kind = 'queue' then _f.queue = _r.name else _f.type = any(_r.types) end)::integer;
    end loop;
    if _n > 0 and (_wanted <= _n or not pg_try_advisory_xact_lock(limit_lock(_r.kind, _r.name))) then
      _rules[_i].room := greatest(least(_n, _r.running - running_under(_r)), 0);
    end if;
  end loop;
  return _rules;
end
$$;

-- running_under: how many leases a limit over a queue or types counts, no further than it allows.
-- uses:   lease_counted
create or replace function running_under(_r limit_room) returns integer
language plpgsql stable
as $$
declare
  _n      integer := 0;
  _queue  text := '';
begin
  if _r.kind = 'queue' then
    return (select count(*) from (select from lease l where l.counted = 3 and l.queue = _r.name limit _r.running) c);
  end if;
  while _n < _r.running loop
    _queue := (select l.queue from lease l where l.counted = 3 and l.queue > _queue order by l.queue limit 1);
    exit when _queue is null;
    _n := _n + (
      select count(*)
      from (select from lease l where l.counted = 3 and l.queue = _queue and l.type = any(_r.types)
            limit _r.running - _n) c);
  end loop;
  return _n;
end
$$;

-- tenant_rooms: how many more jobs each line may give by the limits of its tenant, and which rates count them.
-- uses:   limit_rule_pkey, lease_tenant, rate_use_pkey; reads no more rows than the limits allow
--
-- `_held`: no tenant has more leases than that; those of limits twice as large are not counted.
create or replace function tenant_rooms(
  inout lines claim_line[], _l claim_limits_v2, _now timestamptz, _held integer, out until timestamptz
)
language plpgsql
as $$
begin
  select array_agg((k.queue, k.band, k.tenant, k.rank, k.due_at, k.seq, k.looked, k.room, k.rates, k.share, k.moved,
                    k.ended)::claim_line order by k.ord), min(k.until)
  into lines, until
  from (
    select n.queue, n.band, n.tenant, n.rank, n.due_at, n.seq, n.looked, k.room, k.rates, n.share, n.moved, n.ended,
           n.ord, k.until
    from unnest(lines) with ordinality
      as n (queue, band, tenant, rank, due_at, seq, looked, room, rates, share, moved, ended, ord)
    cross join lateral (
      select min(x.room) as room, min(x.until) as until,
             jsonb_agg(jsonb_build_array('tenant', n.tenant, x.place, x.period_s))
               filter (where x.rate_count is not null) as rates
      from (
        select p.place, r.rate_count, r.period_s,
               case when r.paused_until > _now then 0
                    else greatest(least(r.running - leases.n, r.rate_count - uses.n), 0) end as room,
               case when r.paused_until > _now then r.paused_until
                    when r.rate_count > 0 and uses.n >= r.rate_count
                    then uses.first_at + r.period_s * interval '1 second' end as until
        from (values (''), (n.queue)) as p (place)
        left join limit_rule s on _l.own and s.kind = 'tenant' and s.name = n.tenant and s.queue = p.place
        left join unnest(_l.tenants) g on g.name = n.tenant and g.queue = p.place
        left join unnest(_l.tenants) e on e.name = '*' and e.queue = p.place and n.tenant <> 'system'
        cross join lateral (
          select nullif(coalesce(s.running, g.running, e.running), -1) as running,
                 nullif(coalesce(s.rate_count, g.rate_count, e.rate_count), -1) as rate_count,
                 coalesce(s.period_s, g.period_s, e.period_s) as period_s, s.paused_until
        ) r
        cross join lateral (
          select case when r.running is null then 0
                      when 2 * _held <= r.running then _held
                      when p.place = '' then (select count(*) from (
                        select from lease l where l.counted > 0 and l.tenant = n.tenant limit r.running) c)
                      else (select count(*) from (
                        select from lease l
                        where l.counted > 0 and l.tenant = n.tenant and l.queue = p.place limit r.running) c)
                 end::integer as n
        ) leases
        cross join lateral (select * from uses_of('tenant', n.tenant, p.place, r.rate_count, r.period_s, _now)) uses
        where r.running is not null or r.rate_count is not null or r.paused_until > _now
      ) x
    ) k
  ) k;
end
$$;

-- tenants_with_limits: those of these tenants that have limits of their own on claims, in one queue or (null) any.
-- uses:   limit_rule_claims
create or replace function tenants_with_limits(_tenants text[], _queue text) returns text[]
language plpgsql stable
as $$
begin
  return array(
    select distinct r.name from limit_rule r
    where r.kind = 'tenant' and r.name = any(_tenants) and (_queue is null or r.queue in ('', _queue))
      and (r.running is not null or r.rate_count is not null or r.paused_until is not null));
end
$$;

-- lines_with_room: the lines of one queue whose tenants have room, with that room (null: any number) and their rates.
-- guard:  limit_lock: a tenant whom another session is counting has no room for us; awaited by a Turn that settles, if
--         there is no other tenant
-- uses:   see tenant_rooms
--
-- A Turn locks at most 256 tenants: the server's table of locks holds some thousands for everybody. And it locks no
-- more than `_most` tenants with room (null: all), since others cannot claim for a locked one; `seen` is the last
-- tenant looked at then, null if that was all of them.
create or replace function lines_with_room(
  _now timestamptz, _most integer, inout lines claim_line[], inout l claim_limits_v2, out seen text
)
language plpgsql
as $$
declare
  -- What has to be free for a shared lock: half of the least that tenants are allowed, where all of that is wide.
  _half     integer := (
    select case when bool_and(is_wide(t)) then min(least(nullif(t.running, -1), nullif(t.rate_count, -1))) / 2 end
    from unnest(l.tenants) t where not l.own);
  -- Only a limit of every tenant makes it sure that each one has a limit at all; and `system` is not one of them.
  -- More than half of it may be in use: who needs a lock alone must not share it first.
  _wary     boolean := l.wary or (cardinality(lines) > 32 and _half is null)
    or coalesce(held_by_all() > _half, _half is not null)
    or exists (select from unnest(lines) n where n.tenant = 'system')
    or not exists (select from unnest(l.tenants) t where t.name = '*' and t.queue in ('', lines[1].queue));
  -- No more lines than may be locked: those behind them are for the next claim.
  _lot      integer := least(_most, greatest(256 - l.locks, 1));
  _counted  record;
  _end      integer := _lot;
  _limited  text[];
  _tried    boolean[];  -- by line: its tenant has a limit and room, so it needs a lock; null: it has no limit
  _locked   boolean[];
begin
  if lines = '{}' then
    return;
  elsif l.slots <= 0 then  -- only lines under no limit are left to have: nothing is counted for that
    lines := array(select n from unnest((tenant_rooms(lines, l, _now, 0)).lines) n where n.room is null);
    return;
  elsif l.tenants is null then  -- limits of single tenants cost the others one look
    _limited := tenants_with_limits(array(select n.tenant from unnest(lines) n), lines[1].queue);
    if cardinality(_limited) < cardinality(lines) then
      if _limited <> '{}' then
        select * into _counted
        from lines_with_room(_now, null, array(select n from unnest(lines) n where n.tenant = any(_limited)), l);
        l := _counted.l;
        lines := array(
          select case when c.tenant is not null then c else n.line end
          from (select n as line, row_number() over () as ord from unnest(lines) n) n
          left join unnest(_counted.lines) c on c.tenant = (n.line).tenant
          where c.tenant is not null or (n.line).tenant <> all(_limited) order by n.ord);
      end if;
      return;
    end if;
  end if;
  if _wary then
    select * into _counted
    from tenant_rooms(lines, l, _now, case when _half is not null then held_by_all() end);
    lines := _counted.lines;
    l.until := least(l.until, _counted.until);
    _end := (
      select n.ord
      from unnest(lines) with ordinality
        as n (queue, band, tenant, rank, due_at, seq, looked, room, rates, share, moved, ended, ord)
      where _most is not null and n.room is distinct from 0 order by n.ord offset _lot - 1 limit 1);
  end if;
  if _most is not null and _end < cardinality(lines) then
    lines := lines[:_end];
    seen := lines[_end].tenant;
  end if;
  select array_agg(n.tried order by n.ord), array_agg(n.locked order by n.ord) into _tried, _locked
  from (
    select n.tried, n.ord, case
      when n.tried and (not _wary or n.room >= _half) and _half is not null
      then n.nth + l.locks <= 256 and pg_try_advisory_xact_lock_shared(limit_lock('tenant', n.tenant))
      when n.tried
      then n.nth + l.locks <= 256 and (
        pg_try_advisory_xact_lock(limit_lock('tenant', n.tenant))
        or (not l.idle and cardinality(lines) = 1 and await_limit(limit_lock('tenant', n.tenant))))
      else n.tried is null end as locked
    from (
      select n.tenant, n.room, n.tried, n.ord, count(*) filter (where n.tried) over (order by n.ord) as nth
      from (
        select n.tenant, n.room, not _wary or n.room > 0 as tried, n.ord
        from unnest(lines) with ordinality
          as n (queue, band, tenant, rank, due_at, seq, looked, room, rates, share, moved, ended, ord)
      ) n
    ) n order by n.ord
  ) n;
  -- Counted in a statement after the locks: it has to see what those who held them before have committed.
  select * into _counted from tenant_rooms(lines, l, _now, case when _half is not null then held_by_all() end);
  if exists (select from unnest(_counted.lines) n where n.room < _half) then
    _locked := array(
      select n.locked
        and case when n.room < _half then pg_try_advisory_xact_lock(limit_lock('tenant', n.tenant)) else true end
      from unnest(_counted.lines, _locked) with ordinality
        as n (queue, band, tenant, rank, due_at, seq, looked, room, rates, share, moved, ended, locked, ord)
      order by n.ord);
    select * into _counted from tenant_rooms(lines, l, _now, null);
  end if;
  select array_agg((n.queue, n.band, n.tenant, n.rank, n.due_at, n.seq, n.looked, n.room, n.rates, n.share, n.moved,
                    n.ended)::claim_line order by n.ord) filter (where n.locked and n.room is distinct from 0),
         l.locks + count(*) filter (where n.tried and n.locked),
         least(l.until, _counted.until,
               case when bool_or(n.tried and not n.locked) then _now + interval '20 milliseconds' end)
  into lines, l.locks, l.until
  from unnest(_counted.lines, _tried, _locked) with ordinality
    as n (queue, band, tenant, rank, due_at, seq, looked, room, rates, share, moved, ended, tried, locked, ord);
  lines := coalesce(lines, '{}');
  l.wary := l.wary or cardinality(lines) < cardinality(_locked);
end
$$;

-- use_rates: record claims under rates (`_rates` of each lease); every 64th time remove what no rate counts any more.
-- guard:  the limits are locked by us
-- uses:   rate_use_pkey
create or replace function use_rates(_rates jsonb[], _claim_no bigint, _now timestamptz) returns void
language plpgsql
as $$
begin
  insert into rate_use as u (kind, name, queue, at, n)
  select k.rate->>0, k.rate->>1, k.rate->>2, _now, sum(l.n)
  from (select l.rates, count(*) as n from unnest(_rates) as l (rates) group by l.rates) l
  cross join lateral jsonb_array_elements(l.rates) as k (rate)
  group by 1, 2, 3
  on conflict (kind, name, queue, at) do update set n = u.n + excluded.n;
  if _claim_no % 64 = 0 then
    delete from rate_use u using (
      select distinct k.rate->>0 as kind, k.rate->>1 as name, k.rate->>2 as queue,
             (k.rate->>3)::double precision as period_s
      from unnest(_rates) as l (rates) cross join lateral jsonb_array_elements(l.rates) as k (rate)
    ) k
    where u.kind = k.kind and u.name = k.name and u.queue = k.queue
      and u.at <= _now - 2 * k.period_s * interval '1 second';
  end if;
end
$$;

-- give_back: attempts that never started no longer count under their rates; by lease: its rates, when it was made.
-- uses:   rate_use_pkey
create or replace function give_back(_rates jsonb[], _leased_at timestamptz[]) returns void
language plpgsql
as $$
declare
  _k record;
begin
  -- Each by its key, in order: two sessions that give back wait for each other, but never deadlock.
  for _k in
    select k.rate->>0 as kind, k.rate->>1 as name, k.rate->>2 as queue, l.at, count(*) as n
    from unnest(_rates, _leased_at) as l (rates, at) cross join lateral jsonb_array_elements(l.rates) as k (rate)
    group by 1, 2, 3, 4 order by 1, 2, 3, 4
  loop
    update rate_use set n = n - _k.n where kind = _k.kind and name = _k.name and queue = _k.queue and at = _k.at;
  end loop;
end
$$;
