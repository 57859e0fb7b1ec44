-- One tenant in one queue, as an enqueue's jobs meet its limits.
create type enqueue_group as (
  tenant text, queue text, jobs integer, waiting integer, when_full text, payload_bytes integer, found integer, created integer
);

-- tenant_terms: what is in force for one tenant's enqueues to one queue: the particular before the general, people's before the code's.
-- uses:   limit_rule_pkey
create function tenant_terms(_tenant text, _queue text, _limits json, out waiting integer, out when_full text, out payload_bytes integer)
language plpgsql stable
set search_path from current
as $$
begin
  select nullif((array_agg(s.waiting order by s.place) filter (where s.waiting is not null))[1], -1),
         coalesce((array_agg(s.when_full order by s.place) filter (where s.when_full is not null))[1], 'warn'),
         nullif((array_agg(s.payload_bytes order by s.place) filter (where s.payload_bytes is not null))[1], -1)
  into waiting, when_full, payload_bytes
  from (
    select array[(r.name = '*')::integer, (r.queue = '')::integer, 0] as place, r.waiting, r.when_full, r.payload_bytes
    from limit_rule r where r.kind = 'tenant' and r.name = any(said_of(_tenant)) and r.queue in (_queue, '')
    union all
    select array[(g.name = '*')::integer, (coalesce(g.queue, '') = '')::integer, 1], g.waiting, g.when_full, g.payload_bytes
    from json_to_recordset(_limits) as g (kind text, name text, queue text, waiting integer, when_full text, payload_bytes integer)
    where g.kind = 'tenant' and g.name = any(said_of(_tenant)) and coalesce(g.queue, '') in (_queue, '')
  ) s;
end
$$;

-- count_leases: how many leases one tenant has, in one queue or (null) in all, counted no further than `_limit`.
-- uses:   lease_tenant; where no limit over tenants is known, lease (small: as many rows as jobs in flight)
create function count_leases(_tenant text, _queue text, _limit integer) returns integer
language plpgsql stable
set search_path from current
set enable_seqscan = on
as $$
begin
  if not exists (select from counted where kind = 'tenant') then
    return (select count(*) from (select from lease l where l.tenant = _tenant and (_queue is null or l.queue = _queue) limit _limit) l);
  elsif _queue is null then
    return (select count(*) from (select from lease l where l.counted > 0 and l.tenant = _tenant limit _limit) l);
  else
    return (select count(*) from (select from lease l where l.counted > 0 and l.tenant = _tenant and l.queue = _queue limit _limit) l);
  end if;
end
$$;

-- count_waiting: how many jobs of one tenant wait or run in one queue, counted no further than `_limit`.
-- uses:   ready_line (one probe for each band), scheduled_tenant, lease_tenant, held_line; reads no more than `_limit` rows
create function count_waiting(_tenant text, _queue text, _limit integer, _with_held boolean) returns integer
language plpgsql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  _n     integer := count_leases(_tenant, _queue, _limit);
  _band  smallint := -1;
begin
  -- Band by band: a recursive query over them took as long again as the counting.
  while _n < _limit loop
    select r.band into _band from ready r where r.queue = _queue and r.band > _band order by r.band limit 1;
    exit when not found;
    _n := _n + (select count(*) from (select from ready r where r.queue = _queue and r.band = _band and r.tenant = _tenant limit _limit - _n) r);
  end loop;
  if _n < _limit then
    _n := _n + (select count(*) from (
      (select from scheduled s where s.tenant = _tenant and s.queue = _queue limit _limit)
      union all
      (select from held h where _with_held and h.queue = _queue and h.tenant = _tenant limit _limit)
    ) waiting);
  end if;
  return least(_limit, _n);
end
$$;

-- enqueue_groups: tenants whose limits these jobs may run into, and the refusal of a payload that is too long.
-- `careful`: some may have to be held or refused.
-- uses:   see count_waiting
--
-- `_terms`: what the code's limits come to for these very tenants and queues, put together by the caller; used where people have set none.
create function enqueue_groups(jobs json, _limits json, _terms json, out groups enqueue_group[], out refused json, out careful boolean)
language plpgsql stable
set search_path from current
as $$
begin
  if _terms is not null and not exists (select from limit_rule where kind = 'tenant') then
    groups := array(
      select (t.tenant, t.queue, t.jobs, t.waiting, t.when_full, t.payload_bytes, null, 0)::enqueue_group
      from json_to_recordset(_terms) as t (tenant text, queue text, jobs integer, waiting integer, when_full text, payload_bytes integer)
      order by t.tenant collate "C", t.queue collate "C");
  else
    groups := array(
    select (g.tenant, g.queue, g.jobs, t.waiting, t.when_full, t.payload_bytes, null, 0)::enqueue_group
    from (
      select coalesce(j.tenant, 'system') as tenant, coalesce(j.queue, 'default') as queue, count(*)::integer as jobs
      from json_to_recordset(jobs) as j (tenant text, queue text) group by 1, 2
    ) g
    cross join lateral tenant_terms(g.tenant, g.queue, _limits) t
    where t.waiting is not null or t.payload_bytes is not null
    order by g.tenant collate "C", g.queue collate "C");
  end if;
  if exists (select from unnest(groups) g where g.payload_bytes is not null) then
    select json_build_object('tenant', g.tenant, 'queue', g.queue, 'cause', 'payload_bytes', 'limit', g.payload_bytes, 'found', j.size,
                             'policy', 'reject')
    into refused
    from (
      select coalesce(j.tenant, 'system') as tenant, coalesce(j.queue, 'default') as queue, j.ord,
             octet_length(coalesce(j.payload_text, j.payload::text, '{}')) as size
      from rows from (json_to_recordset(jobs) as (tenant text, queue text, payload json, payload_text text))
        with ordinality as j (tenant, queue, payload, payload_text, ord)
    ) j
    join unnest(groups) g on g.tenant = j.tenant and g.queue = j.queue
    where j.size > g.payload_bytes order by j.ord limit 1;
  end if;
  if refused is null then
    groups := array(
      select (g.tenant, g.queue, g.jobs, g.waiting, g.when_full, g.payload_bytes, c.n, 0)::enqueue_group
      from unnest(groups) with ordinality as g (tenant, queue, jobs, waiting, when_full, payload_bytes, found, created, ord)
      cross join lateral (select count_waiting(g.tenant, g.queue, g.waiting, true) as n) c
      where g.waiting is not null and c.n + g.jobs > g.waiting
      order by g.ord);
    careful := exists (select from unnest(groups) g where g.when_full <> 'warn');
  end if;
end
$$;

create function limit_hit(_g enqueue_group) returns json
language sql immutable
return json_build_object('tenant', _g.tenant, 'queue', _g.queue, 'cause', 'waiting', 'limit', _g.waiting, 'found', _g.found,
                         'policy', _g.when_full);

-- limit_hits: the limits that what was created has run into.
create function limit_hits(jobs json, _receipts json, _groups enqueue_group[]) returns json
language sql immutable
begin atomic
  select json_agg(limit_hit(g.one) order by g.ord)
  from (
    select g::enqueue_group as one, g.waiting - g.found as room, row_number() over (order by g.tenant collate "C", g.queue collate "C") as ord,
           g.tenant, g.queue
    from unnest(_groups) g
  ) g
  where g.room < (
    select count(*)
    from rows from (json_to_recordset(jobs) as (tenant text, queue text), json_to_recordset(_receipts) as (disposition text))
      as j (tenant, queue, disposition)
    where j.disposition = 'created' and coalesce(j.tenant, 'system') = g.tenant and coalesce(j.queue, 'default') = g.queue);
end;

-- unhold_v1: let held jobs go on where their tenant has room again.
-- moves:  unhold held -> ready, unhold held -> scheduled
-- guard:  one call at a time: two would both count the same room
-- uses:   held_line, see count_waiting
create function unhold_v1(_limits json, _limit integer, _at timestamptz default null) returns json
language plpgsql
set search_path from current
set enable_seqscan = off
set jit = off
as $$
declare
  _now     timestamptz := coalesce(_at, clock_timestamp());
  _left    integer := _limit;
  _woken   boolean := false;
  _queue   text := '';
  _tenant  text := '';
  _room    integer;
  _moved   integer;
  _due     boolean;
begin
  -- Jobs are let go by duties of those who also know the code's limits: time to have an index count what enqueues will ask for.
  if _limits is not null and not exists (select from counted where kind = 'tenant') then
    perform count_from_now_on(null, null, 'waiting');
  end if;
  delete from rate_use where at < _now - interval '1 day';  -- the longest period a rate may have
  if not pg_try_advisory_xact_lock(limit_lock('unhold', '')) then
    return json_build_object('count', 0);
  end if;
  while _left > 0 loop
    select h.queue, h.tenant into _queue, _tenant from held h where (h.queue, h.tenant) > (_queue, _tenant) order by h.queue, h.tenant limit 1;
    exit when not found;
    _room := (select t.waiting from tenant_terms(_tenant, _queue, _limits) t);
    _room := coalesce(_room - count_waiting(_tenant, _queue, _room, false), _left);
    continue when _room <= 0;
    with freed as (
      delete from held h where h.seq = any(array(
        select f.seq from held f where f.queue = _queue and f.tenant = _tenant order by f.seq limit least(_room, _left) for update skip locked))
      returning h.*
    ), due as (
      insert into ready (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped, timeout_s)
      select seq, queue, band, tenant, rank, due_at, type, 0, 0, 0, false, deduped, timeout_s from freed where due_at <= _now
    ), later as (
      insert into scheduled (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped, timeout_s, failed)
      select seq, queue, band, tenant, rank, due_at, type, 0, 0, 0, false, deduped, timeout_s, false from freed where due_at > _now
    )
    select count(*), bool_or(due_at <= _now) into _moved, _due from freed;
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
-- guard:  a row another session is claiming is passed over
-- uses:   ready_line, job_pkey
create function age_v1(_queue text, _every_s double precision, _limit integer, _at timestamptz default null) returns json
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  _now    timestamptz := coalesce(_at, clock_timestamp());
  _every  interval := _every_s * interval '1 second';
  _count  integer;
begin
  with old as materialized (
    select r.ctid as tid, j.rank > 0 as by_rank,
           greatest(j.band + j.rank - floor(extract(epoch from _now - r.due_at) / extract(epoch from _every)), 0)::smallint as reached
    from ready r join job j on j.seq = r.seq
    where r.queue = _queue and (r.band > 0 or r.rank > 0) and r.due_at <= _now - _every
      and floor(extract(epoch from _now - r.due_at) / extract(epoch from _every)) > j.band + j.rank - case when j.rank > 0 then r.rank else r.band end
      and case when j.rank > 0 then r.rank else r.band end > 0
    order by r.queue, r.band, r.tenant, r.rank, r.due_at, r.seq limit greatest(_limit, 0)
    for update of r skip locked
  )
  update ready r set band = case when o.by_rank then r.band else o.reached end, rank = case when o.by_rank then o.reached else r.rank end
  from old o where r.ctid = o.tid;
  get diagnostics _count = row_count;
  return json_build_object('count', _count);
end
$$;
