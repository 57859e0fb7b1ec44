-- Unfinished jobs of one queue. `delayed`: scheduled for the first time, or snoozed.
create type queue_count as (
  queue text collate "C", ready bigint, delayed bigint, failed bigint, held bigint, processing bigint,
  prefetched bigint, oldest timestamptz
);

-- oldest_ready: the earliest due time among a queue's ready jobs.
-- uses:   ready_line: some 32 rows of each line and no more
--
-- A few rows of a line, then straight to the next line. A seek for every line took 1,070 ms where 200,000 tenants have
-- one job each, this 84; for a hundred tenants with 2,000 jobs each 2 ms instead of a scan's 26.
create or replace function oldest_ready(_queue text) returns timestamptz
language sql stable
set search_path from current
begin atomic
  with recursive look (band, tenant, rank, oldest) as (
    select (-1)::smallint, '' collate "C", (-1)::smallint, null::timestamptz
    union all
    select n.* from look l cross join lateral (
      select (array_agg(r.band))[count(*)], (array_agg(r.tenant))[count(*)], (array_agg(r.rank))[count(*)],
        min(r.due_at)
      from (
        select r.band, r.tenant, r.rank, r.due_at from ready r
        where r.queue = _queue and (r.band, r.tenant, r.rank) > (l.band, l.tenant, l.rank)
        order by r.band, r.tenant, r.rank, r.due_at limit 32
      ) r having count(*) > 0
    ) n
  )
  select min(oldest) from look;
end;

-- count_queues: everybody's unfinished jobs by queue, each number counted no further than `_limit`.
-- uses:   ready_line, scheduled_queue and held_line (a seek for each queue, then up to `_limit` rows), lease whole
--         (what is in flight); for the oldest see oldest_ready
create or replace function count_queues(_limit bigint) returns setof queue_count
language sql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
begin atomic
  with recursive ready_queue (queue) as (
    (select r.queue from ready r order by r.queue limit 1)
    union all
    select n.queue from ready_queue q
      cross join lateral (select r.queue from ready r where r.queue > q.queue order by r.queue limit 1) n
  ), scheduled_queue (queue) as (
    (select s.queue from scheduled s order by s.queue limit 1)
    union all
    select n.queue from scheduled_queue q
      cross join lateral (select s.queue from scheduled s where s.queue > q.queue order by s.queue limit 1) n
  ), held_queue (queue) as (
    (select h.queue from held h where h.queue > '' order by h.queue limit 1)
    union all
    select n.queue from held_queue q
      cross join lateral (select h.queue from held h where h.queue > q.queue order by h.queue limit 1) n
  ), r as (
    select q.queue, (select count(*) from (select from ready r where r.queue = q.queue limit _limit) c) as ready,
      oldest_ready(q.queue) as oldest
    from ready_queue q
  ), s as (
    select q.queue, (select count(*)
      from (select from scheduled s where s.queue = q.queue and not s.failed limit _limit) c) as delayed,
           (select count(*) from (select from scheduled s
             where s.queue = q.queue and s.failed limit _limit) c) as failed
    from scheduled_queue q
  ), h as (
    select q.queue, (select count(*) from (select from held h where h.queue = q.queue limit _limit) c) as held
    from held_queue q
  ), l as (
    select l.queue, count(l.started_at) as processing, count(*) - count(l.started_at) as prefetched from lease l
    group by l.queue
  )
  select queue, coalesce(ready, 0), coalesce(delayed, 0), coalesce(failed, 0), coalesce(held, 0),
    coalesce(processing, 0), coalesce(prefetched, 0), oldest
  from r full join s using (queue) full join h using (queue) full join l using (queue);
end;

-- count_queues: one tenant's.
-- uses:   ready_line (a seek for each queue and band of anybody), scheduled_tenant, held_line, lease whole
create or replace function count_queues(_tenant text, _limit bigint) returns setof queue_count
language sql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
begin atomic
  with recursive line (queue, band) as (
    (select r.queue, r.band from ready r order by r.queue, r.band limit 1)
    union all
    select n.queue, n.band from line l cross join lateral (
      select r.queue, r.band from ready r where (r.queue, r.band) > (l.queue, l.band) order by r.queue, r.band limit 1
    ) n
  ), head (queue, band, rank, due_at) as (
    select l.queue, l.band, n.rank, n.due_at from line l cross join lateral (
      select r.rank, r.due_at from ready r where r.queue = l.queue and r.band = l.band and r.tenant = _tenant
      order by r.rank, r.due_at limit 1
    ) n
    union all
    select h.queue, h.band, n.rank, n.due_at from head h cross join lateral (
      select r.rank, r.due_at from ready r
      where r.queue = h.queue and r.band = h.band and r.tenant = _tenant and r.rank > h.rank
      order by r.rank, r.due_at limit 1
    ) n
  ), scheduled_queue (queue) as (
    (select s.queue from scheduled s where s.tenant = _tenant order by s.queue limit 1)
    union all
    select n.queue from scheduled_queue q cross join lateral (
      select s.queue from scheduled s where s.tenant = _tenant and s.queue > q.queue order by s.queue limit 1
    ) n
  ), held_queue (queue) as (
    (select h.queue from held h where h.queue > '' order by h.queue limit 1)
    union all
    select n.queue from held_queue q
      cross join lateral (select h.queue from held h where h.queue > q.queue order by h.queue limit 1) n
  ), r as (
    select b.queue, sum(n)::bigint as ready, min(b.oldest) as oldest
    from (select queue, band, min(due_at) as oldest from head group by queue, band) b
    cross join lateral (
      select count(*) as n
      from (select from ready r where r.queue = b.queue and r.band = b.band and r.tenant = _tenant limit _limit) c
    ) n
    group by b.queue
  ), s as (
    select q.queue,
           (select count(*) from (select from scheduled s
             where s.tenant = _tenant and s.queue = q.queue and not s.failed limit _limit) c) as delayed,
           (select count(*) from (select from scheduled s
             where s.tenant = _tenant and s.queue = q.queue and s.failed limit _limit) c) as failed
    from scheduled_queue q
  ), h as (
    select q.queue, n.held from held_queue q
    cross join lateral (select count(*) as held
      from (select from held h where h.queue = q.queue and h.tenant = _tenant limit _limit) c) n
    where n.held > 0
  ), l as (
    select l.queue, count(l.started_at) as processing, count(*) - count(l.started_at) as prefetched
    from lease l where l.tenant = _tenant group by l.queue
  )
  select queue, coalesce(ready, 0), coalesce(delayed, 0), coalesce(failed, 0), coalesce(held, 0),
    coalesce(processing, 0), coalesce(prefetched, 0), oldest
  from r full join s using (queue) full join h using (queue) full join l using (queue);
end;

-- sample_share: which part of a table, in percent, about 256 pages are.
create or replace function sample_share(_table regclass) returns real
language sql stable
return least(100, 25600.0 / greatest(1, pg_relation_size(_table) / current_setting('block_size')::integer));

-- sample_queues: about how many jobs are ready, scheduled and held by queue, from some 256 pages of each table that is
--         asked for; true where it has no more.
-- uses:   ready, scheduled and held by samples
--
-- `repeatable` reads the same pages each time: figures that somebody watches change with the table, not with the draw.
create or replace function sample_queues(
  _tenant text, _ready boolean, _scheduled boolean, _held boolean
) returns setof queue_count
language plpgsql stable
set search_path from current
as $$
declare
  _of_ready      real := case when _ready then sample_share('ready') else 0 end;
  _of_scheduled  real := case when _scheduled then sample_share('scheduled') else 0 end;
  _of_held       real := case when _held then sample_share('held') else 0 end;
begin
  return query
    select s.queue, sum(s.ready)::bigint, sum(s.delayed)::bigint, sum(s.failed)::bigint, sum(s.held)::bigint,
      0::bigint, 0::bigint, null::timestamptz
    from (
      select r.queue, count(*) * 100 / _of_ready as ready, 0 as delayed, 0 as failed, 0 as held
      from ready r tablesample system (_of_ready) repeatable (0) where _tenant is null or r.tenant = _tenant
      group by r.queue
      union all
      select s.queue, 0, count(*) filter (where not s.failed) * 100 / _of_scheduled,
        count(*) filter (where s.failed) * 100 / _of_scheduled, 0
      from scheduled s tablesample system (_of_scheduled) repeatable (0) where _tenant is null or s.tenant = _tenant
      group by s.queue
      union all
      select h.queue, 0, 0, 0, count(*) * 100 / _of_held
      from held h tablesample system (_of_held) repeatable (0) where _tenant is null or h.tenant = _tenant
      group by h.queue
    ) s
    group by s.queue;
end
$$;

-- roughly: numbers over `_cap` replaced by estimates from a sample, never by less than `_cap`.
create or replace function roughly(_counts queue_count[], _tenant text, _cap bigint) returns queue_count[]
language plpgsql stable
set search_path from current
as $$
declare
  _ready      boolean;
  _scheduled  boolean;
  _held       boolean;
begin
  select bool_or(c.ready > _cap), bool_or(greatest(c.delayed, c.failed) > _cap), bool_or(c.held > _cap)
  into _ready, _scheduled, _held from unnest(_counts) c;
  if not (_ready or _scheduled or _held) then
    return _counts;
  end if;
  return array(
    select (
      c.queue,
      case when c.ready > _cap then greatest(s.ready, _cap) else c.ready end,
      case when c.delayed > _cap then greatest(s.delayed, _cap) else c.delayed end,
      case when c.failed > _cap then greatest(s.failed, _cap) else c.failed end,
      case when c.held > _cap then greatest(s.held, _cap) else c.held end,
      c.processing, c.prefetched, c.oldest)::queue_count
    from unnest(_counts) c left join sample_queues(_tenant, _ready, _scheduled, _held) s using (queue));
end
$$;

-- count_ended: jobs by how they ended, each number no higher than `_cap`. `_unfinished`: how many of the tenant's are
--         not; null: too many to know.
-- uses:   of everybody up to `_cap` rows of each kind, by done_otherwise; of a tenant job_tenant and done_pkey
--
-- One tenant's and everybody's are asked for apart: in one statement, "or no tenant is given" made each row of `done` a
-- look at its job, 250 ms at a million.
create or replace function count_ended(_tenant text, _cap integer, _unfinished bigint) returns json
language plpgsql stable
set search_path from current
set plan_cache_mode = force_custom_plan
as $$
declare
  _dead       bigint;
  _cancelled  bigint;
  _others     bigint;
  _completed  bigint;
begin
  if _tenant is null then
    return json_build_object(
      'completed', (select count(*) from (select from done where status = 'completed' limit _cap) c),
      'dead', (select count(*) from (select from done where status = 'dead' limit _cap) c),
      'cancelled', (select count(*) from (select from done where status = 'cancelled' limit _cap) c));
  end if;
  select count(*) into _dead
  from (select from job j join done d using (seq) where j.tenant = _tenant and d.status = 'dead' limit _cap) c;
  select count(*) into _cancelled
  from (select from job j join done d using (seq) where j.tenant = _tenant and d.status = 'cancelled' limit _cap) c;
  if _dead < _cap and _cancelled < _cap and _unfinished is not null then
    -- What is neither unfinished nor ended otherwise has completed: counted in the index of jobs alone, 1 ms for 5,000
    -- where looking each up took 18.
    _others := _unfinished + _dead + _cancelled;
    select count(*) - _others into _completed from (select from job j where j.tenant = _tenant limit _cap + _others) c;
  else
    select count(*) into _completed from (
      select from job j cross join lateral (select d.status from done d where d.seq = j.seq offset 0) d
      where j.tenant = _tenant and d.status = 'completed' limit _cap) c;
  end if;
  return json_build_object('completed', greatest(_completed, 0), 'dead', _dead, 'cancelled', _cancelled);
end
$$;

-- count_letters: everybody's dead letters by status, each number no higher than `_cap`.
-- uses:   dead_letter_status. Left to itself the planner read the table, to its end for a status that few have.
create or replace function count_letters(_cap integer) returns json
language sql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
begin atomic
  select json_object_agg(kind, n) from unnest(array['pending_review', 'retried', 'resolved', 'discarded']) kind
  cross join lateral (select count(*) as n from (select from dead_letter d where d.status = kind limit _cap) c) g
    where n > 0;
end;

-- count_newest_letters: those of a tenant that are among the newest `_newest` of their status.
-- uses:   dead_letter_status from its newest end; then job_tenant and dead_letter_pkey, or job_pkey for each of those
--         letters, whichever are fewer
create or replace function count_newest_letters(_tenant text, _newest integer) returns json
language plpgsql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_sort = off
set jit = off
as $$
declare
  _kinds  constant text[] := array['pending_review', 'retried', 'resolved', 'discarded'];
  _froms  bigint[];  -- by status, the oldest that counts
begin
  _froms := array(
    select coalesce((
      select d.seq from dead_letter d where d.status = k.kind
      order by d.seq desc offset greatest(_newest, 1) - 1 limit 1), 0)
    from unnest(_kinds) with ordinality as k (kind, ord) order by k.ord);
  if _newest <= 0 then
    return null;
  elsif (select count(*) from (
    select from job j where j.tenant = _tenant and j.seq >= (select min(f) from unnest(_froms) f) limit _newest + 1) c
  ) <= _newest then
    return (
      select json_object_agg(status, n) from (
        select d.status, count(*) as n
        from job j cross join lateral (select d.status from dead_letter d where d.seq = j.seq offset 0) d
        where j.tenant = _tenant and j.seq >= _froms[array_position(_kinds, d.status)]
          and j.seq >= (select min(f) from unnest(_froms) f)
        group by d.status) g);
  end if;
  return (
    select json_object_agg(kind, n) from unnest(_kinds) kind
    cross join lateral (
      select count(*) as n
      from (select d.seq from dead_letter d where d.status = kind order by d.seq desc limit _newest) d
      cross join lateral (select j.tenant from job j where j.seq = d.seq offset 0) j where j.tenant = _tenant
    ) g where n > 0);
end
$$;

-- count_letters: a tenant's, all of them.
-- uses:   job_tenant and dead_letter_pkey, or dead_letter whole and job_pkey, whichever are fewer
create or replace function count_letters(_tenant text, _cap integer) returns json
language plpgsql stable
set search_path from current
set plan_cache_mode = force_custom_plan
as $$
begin
  return (
    select json_object_agg(status, least(n, _cap))
    from (select d.status, count(*) as n from job j join dead_letter d using (seq) where j.tenant = _tenant
      group by d.status) g);
end
$$;

-- sample_share: which part of a table, in percent, about `_pages` pages are.
create or replace function sample_share(_table regclass, _pages integer) returns real
language sql stable
return least(100, 100.0 * _pages / greatest(1, pg_relation_size(_table) / current_setting('block_size')::integer));

-- count_types: everybody's pending jobs by type, from about `_pages` pages of each table; true where it has no more.
-- uses:   ready, scheduled and held by samples (see sample_queues), lease whole
create or replace function count_types(_pages integer) returns json
language plpgsql stable
set search_path from current
as $$
declare
  _of_ready      real := sample_share('ready', _pages);
  _of_scheduled  real := sample_share('scheduled', _pages);
  _of_held       real := sample_share('held', _pages);
begin
  return (
    select json_object_agg(t.type, t.n) from (
      select p.type, greatest(sum(p.n)::bigint, 1) as n from (
        select r.type, count(*) * 100 / _of_ready as n
        from ready r tablesample system (_of_ready) repeatable (0) group by r.type
        union all
        select s.type, count(*) * 100 / _of_scheduled
        from scheduled s tablesample system (_of_scheduled) repeatable (0) where not s.failed group by s.type
        union all
        select h.type, count(*) * 100 / _of_held
        from held h tablesample system (_of_held) repeatable (0) group by h.type
        union all
        select l.type, count(*) from lease l where l.started_at is null group by l.type
      ) p group by p.type
    ) t);
end
$$;

-- count_types: a tenant's, no more than `_most` of each place and of each of its lines of ready jobs.
-- uses:   ready_line (a seek for each queue and band of anybody), scheduled_tenant, held and lease whole
create or replace function count_types(_tenant text, _most integer) returns json
language sql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
begin atomic
  with recursive line (queue, band) as (
    (select r.queue, r.band from ready r order by r.queue, r.band limit 1)
    union all
    select n.queue, n.band from line l cross join lateral (
      select r.queue, r.band from ready r where (r.queue, r.band) > (l.queue, l.band) order by r.queue, r.band limit 1
    ) n
  )
  select json_object_agg(t.type, t.n) from (
    select p.type, count(*) as n from (
      select r.type from line l cross join lateral (
        select r.type from ready r where r.queue = l.queue and r.band = l.band and r.tenant = _tenant limit _most) r
      union all
      (select s.type from scheduled s where s.tenant = _tenant and not s.failed limit _most)
      union all
      (select h.type from held h where h.tenant = _tenant limit _most)
      union all
      select l.type from lease l where l.tenant = _tenant and l.started_at is null
    ) p group by p.type
  ) t;
end;

-- get_stats_v1: counts by queue and status, each no higher than `cap`; with `rough`, estimates where they are. No
--         `parts`: all but `types`.
-- role:   worker, api, enqueue
-- uses:   see count_queues, sample_queues, count_ended and count_letters
--
-- Stable: all of its counts are of one moment.
create or replace function get_stats_v1(_op json) returns json
language plpgsql stable
set search_path from current
as $$
declare
  _tenant      text := scope_of(_op);
  _cap         integer := (_op->>'cap')::integer;
  _rough       boolean := (_op->>'rough')::boolean;
  _parts       text[] := case
    when _op->'parts' is not null then array(select json_array_elements_text(_op->'parts')) end;
  _counts      queue_count[] := '{}';
  _queues      json;
  _unfinished  bigint;
  _ended       json;
  _letters     json;
  _types       json;
begin
  if _parts is null or 'queues' = any(_parts) or ('ended' = any(_parts) and _tenant is not null) then
    if _tenant is null then
      _counts := array(select c from count_queues(_cap + 1::bigint) c);
    else
      _counts := array(select c from count_queues(_tenant, _cap + 1::bigint) c);
    end if;
  end if;
  if _parts is null or 'ended' = any(_parts) then
    select case when count(*) filter (where greatest(c.ready, c.delayed, c.failed, c.held) > _cap) = 0
                then coalesce(sum(c.ready + c.delayed + c.failed + c.held + c.processing + c.prefetched), 0) end
    into _unfinished from unnest(_counts) c;
    _ended := count_ended(_tenant, _cap, _unfinished);
  end if;
  if _parts is null or 'dead_letters' = any(_parts) then
    _letters := case when _tenant is null then count_letters(_cap)
                     when _rough then count_newest_letters(_tenant, _cap)
                     else count_letters(_tenant, _cap) end;
  end if;
  if _parts is null or 'queues' = any(_parts) then
    if _rough then
      _counts := roughly(_counts, _tenant, _cap);
    end if;
    select json_agg(json_build_object(
      'queue', c.queue, 'ready', least(c.ready, m.most), 'scheduled', least(c.delayed + c.failed, m.most),
      'failed', least(c.failed, m.most), 'processing', least(c.processing, m.most), 'held', least(c.held, m.most),
      'pending', least(c.ready + c.held + c.delayed + c.prefetched, m.most), 'oldest_due_at', c.oldest)
        order by c.queue)
    into _queues from unnest(_counts) c cross join (select case when not _rough then _cap end as most) m;
  end if;
  if 'types' = any(_parts) then
    -- Some 80 rows fit on a page; a few are half empty.
    _types := case when _tenant is null then count_types(greatest(256, case when _rough then 0 else _cap / 40 end))
                   else count_types(_tenant, greatest(_cap, 1000)) end;
  end if;
  return json_build_object(
    'now', now_of(_op), 'queues', coalesce(_queues, '[]'), 'completed', coalesce(_ended -> 'completed', '0'),
    'dead', coalesce(_ended -> 'dead', '0'), 'cancelled', coalesce(_ended -> 'cancelled', '0'),
    'dead_letters', coalesce(_letters, '{}'), 'pending_types', coalesce(_types, '{}'));
end
$$;
