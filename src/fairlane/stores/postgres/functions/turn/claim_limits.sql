-- One limit on claims as a Turn sees it: what is in force, and how much room is left; null: not counted yet.
create type limit_room as (
  kind text, name text, queue text, running integer, rate_count integer, period_s double precision,
  paused_until timestamptz, types text[], room integer
);

create type claim_limits_v2 as (
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
  until timestamptz,
  slots integer              -- how many more jobs of the Want at hand may be under a limit; null: any number
);

-- given_limits: what the code allows to claims, as rows.
create or replace function given_limits(_limits json) returns limit_room[]
language sql stable
begin atomic
  select array_agg((g.kind, g.name, coalesce(g.queue, ''), g.running, (g.rate->>'count')::integer,
                    (g.rate->>'period_s')::double precision, null, nullif(g.types, '{}'), null)::limit_room)
  from json_to_recordset(_limits) as g (kind text, name text, queue text, running integer, rate json, types text[]);
end;

-- count_given: see to it that leases under limits that only the code gives are found by an index, whoever claimed them.
-- guard:  before this Turn locks its worker's row: see count_from_now_on
-- uses:   counted_pkey
create or replace function count_given(_given limit_room[]) returns void
language plpgsql
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

-- counting_only_v2: how leases are marked, where no limit holds anything back.
-- uses:   counted_pkey
create or replace function counting_only_v2() returns claim_limits_v2
language sql stable
begin atomic
  select (false, null, false, null, null,
          array_agg(c.name) filter (where c.kind = 'queue'), array_agg(c.name) filter (where c.kind = 'type'),
          coalesce(max(case c.name when 'running' then 2 else 1 end) filter (where c.kind = 'tenant'), 0),
          false, false, 0, null, null)::claim_limits_v2
  from counted c;
end;

-- is_wide: a limit that several Turns may claim under at once, as mark_wide has found.
create or replace function is_wide(_rule limit_room) returns boolean
language sql immutable parallel safe
return coalesce((_rule).paused_until = '-infinity', false);

-- mark_wide: find the limits that are wide for a Turn that wants `_wanted` jobs, and mark them by a pause long over.
-- guard:  limit_lock of one of 16 slots
--
-- Under a wide limit up to 16 Turns claim side by side, each at most a 32nd of it, while each sees half of it free:
-- what the others have claimed and not committed is less than that half. They share the limit's lock; a Turn that sees
-- less needs it alone. With one lock for each claim, 16 processes under a limit that never bound got 27 jobs a Turn.
-- Of which more than half is in use is not wide: Turns that shared its lock and then each needed it alone kept each
-- other from it, and eight claimers used 34 places of 64 on average, now 55. (tests/faults/test_limits_in_use.py)
create or replace function mark_wide(inout l claim_limits_v2, _wanted bigint, _now timestamptz)
language plpgsql
as $$
declare
  _least   bigint := 32 * greatest(_wanted, 1);
  _held    integer;
  _marked  limit_room[];
begin
  if not exists (
    select from unnest(l.tenants || l.queues || l.types) r
    where greatest(r.running, r.rate_count) >= _least and (r.paused_until > _now) is not true
  ) or not exists (
    select from generate_series(0, 15) n
    where pg_try_advisory_xact_lock(limit_lock('slot', ((pg_backend_pid() + n) % 16)::text))
  ) then
    return;
  end if;
  if not l.own then
    _marked := with_wide(l.tenants, _least, null, _now);
    if not exists (select from unnest(_marked) r where not is_wide(r)) then
      l.tenants := _marked;
    end if;
  end if;
  _held := held_by_all();
  l.queues := with_wide(l.queues, _least, _held, _now);
  l.types := with_wide(l.types, _least, _held, _now);
end
$$;

-- is_half_free: whether half of a limit over a queue or types is free; `_held`: there are no more leases than that,
--         null: not known.
-- uses:   lease_counted, rate_use_pkey; reads no more rows than the limit allows
create or replace function is_half_free(_r limit_room, _held integer, _now timestamptz) returns boolean
language plpgsql stable
as $$
begin
  return (_r.running is null or coalesce(2 * _held <= _r.running, false) or 2 * running_under(_r) <= _r.running)
    and (_r.rate_count is null or 2 * (
      select u.n from uses_of(_r.kind, _r.name, '', _r.rate_count, _r.period_s, _now) u) <= _r.rate_count);
end
$$;

-- with_wide: the same limits, marked where they allow `_least` at once and in a period, and half of it is free.
create or replace function with_wide(_rules limit_room[], _least bigint, _held integer, _now timestamptz)
returns limit_room[]
language plpgsql stable
as $$
begin
  return (
    select array_agg((r.kind, r.name, r.queue, r.running, r.rate_count, r.period_s, case
      when least(nullif(r.running, -1), nullif(r.rate_count, -1)) >= _least and (r.paused_until > _now) is not true
        and (r.kind = 'tenant' or is_half_free(_rules[r.ord], _held, _now))  -- of each tenant: lines_with_room
      then '-infinity' else r.paused_until end, r.types, r.room)::limit_room order by r.ord)
    from unnest(_rules) with ordinality
      as r (kind, name, queue, running, rate_count, period_s, paused_until, types, room, ord));
end
$$;

-- claim_limits_v2: what the code gives and what people have set; for the same thing, field by field, people's wins.
-- uses:   limit_rule_claims, limit_rule_pkey
create or replace function claim_limits_v2(_given limit_room[], _now timestamptz) returns claim_limits_v2
language plpgsql
as $$
declare
  _l claim_limits_v2 := counting_only_v2();
begin
  with said as (
    select kind, name, queue, running, rate_count, period_s, paused_until, types, false as kept from unnest(_given)
    union all
    select kind, name, queue, running, rate_count, period_s, paused_until, types, true from limit_rule
    where kind = any(array['queue', 'type', 'named'])
    union all
    select kind, name, queue, running, rate_count, period_s, paused_until, types, true from limit_rule
    where kind = 'tenant' and name = '*'
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
           case when kind = 'type' then array[name]
                else coalesce(max(types) filter (where kept), max(types)) end as types
    from said group by kind, name, queue
  ), judged as (
    select kind, types, coalesce(running >= 0 or rate_count >= 0 or paused_until > _now, false) as holds,
           (kind, name, queue, case when kind = 'tenant' then running else nullif(running, -1) end,
            case when kind = 'tenant' then rate_count else nullif(rate_count, -1) end,
            period_s, paused_until, types, null)::limit_room as rule
    from merged
  )
  select coalesce(bool_or(holds), false), array_agg(rule) filter (where kind = 'tenant'),
         array_agg(rule) filter (where kind = 'queue' and holds),
         array_agg(rule) filter (where kind in ('type', 'named') and holds and types is not null),
         exists (select from limit_rule r where r.kind = 'tenant' and r.name <> '*'
                   and (r.running is not null or r.rate_count is not null or r.paused_until is not null))
  into _l.limited, _l.tenants, _l.queues, _l.types, _l.own
  from judged;
  if _l.own and not _l.limited then
    _l.limited := exists (select from limit_rule r where r.kind = 'tenant' and r.name <> '*'
                            and (r.running is not null or r.rate_count is not null or r.paused_until is not null)
                            and (r.running >= 0 or r.rate_count >= 0 or r.paused_until > _now));
  end if;
  return _l;
end
$$;
