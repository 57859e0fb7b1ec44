-- What people and programs ask, as functions: an answer needs the right to ask, and no right on any table (docs/guides/isolation.md).
-- Listings are planned for what is asked, from texts that stand here: values travel as parameters, never in the text.

create function attempts_of(_seq bigint) returns json language sql stable
begin atomic
  select coalesce(json_agg(row_to_json(a) order by a.attempt), '[]')
  from (
    select attempt, outcome, worker, leased_at, started_at, ended_at, error_class, error_type, error_message, traceback
    from attempt_record where seq = _seq
  ) a;
end;

-- get_job_v1: one job with its attempts and what it said of itself; null: none in this scope.
-- uses:   job_id_key
create function get_job_v1(_tenant text, _id uuid) returns json
language plpgsql stable
set search_path from current
as $$
begin
  return (
    select json_build_object(
      'job', row_to_json(r), 'attempts', attempts_of(r.seq), 'progress', (select n.progress from note n where n.seq = r.seq),
      'log', coalesce((
        select json_agg(json_build_object('at', g.at, 'attempt', g.attempt, 'message', g.message) order by g.n)
        from log_line g where g.seq = r.seq), '[]'))
    from job_record r where r.id = _id and (_tenant is null or r.tenant = _tenant));
end
$$;

-- job_records: jobs by their numbers, newest first, each as JSON text.
-- uses:   primary keys alone
--
-- Apart from the search for the numbers, which is planned anew each time: with these joins in it a page of dead letters took 1.6 ms, not 0.4.
create function job_records(_seqs bigint[]) returns setof text
language plpgsql stable
set search_path from current
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
begin
  return query select row_to_json(r)::text from unnest(_seqs) p (seq) join job_record r using (seq) order by p.seq desc;
end
$$;

-- dead_letter_records: the same for dead letters, all in one JSON text; null: none.
create function dead_letter_records(_seqs bigint[]) returns text
language plpgsql stable
set search_path from current
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
begin
  return (select json_agg(row_to_json(r) order by r.id desc) from unnest(_seqs) p (seq) join dead_letter_record r on r.id = p.seq);
end
$$;

-- as_id: the id that a text is, written as `id::text` does; null: it is none.
create function as_id(_text text) returns uuid language sql immutable parallel safe
return case when _text ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then _text::uuid end;

-- keyed: the jobs that bear an idempotency key, one for each tenant at most; a job without one of its own has its id for one.
-- uses:   idempotency_key_pkey, once for each tenant that has keys; job_id_key
create function keyed(_tenant text, _key text) returns bigint[] language sql stable
begin atomic
  with recursive t (tenant) as (
    select case when _tenant is null then (select min(k.tenant) from idempotency_key k) else _tenant end
    union all
    select (select min(k.tenant) from idempotency_key k where k.tenant > t.tenant) from t where t.tenant is not null and _tenant is null
  )
  select array(
    select k.seq from t join idempotency_key k on k.tenant = t.tenant and k.key = _key
    union
    select j.seq from job j where j.id = as_id(_key) and j.idempotency_key is null);
end;

-- page_jobs_v1: jobs that match, newest first, each as JSON text.
-- uses:   the fact tables of the asked statuses, from their newest end; job_pkey
create function page_jobs_v1(_tenant text, _before bigint, _limit integer, _where json) returns setof text
language plpgsql stable
set search_path from current
as $$
declare
  _w        record;
  _matching text;
  _lined    text;
  _picks    text;
  _keyed    bigint[];
  _seqs     bigint[];
begin
  select * into _w from json_to_record(_where) as w (
    statuses text[], queue text, type text, category text, created_by text, parent_id uuid, enqueued_from timestamptz,
    enqueued_before timestamptz, correlation_id text, idempotency_key text);
  if _w.idempotency_key is not null then
    _keyed := keyed(_tenant, _w.idempotency_key);
  end if;
  -- What waits and what runs says these of itself: no other job is looked at.
  _lined := concat_ws(' and ', 'true',
    case when _tenant is not null then 'f.tenant = $2' end,
    case when _before is not null then 'f.seq < $3' end,
    case when _w.queue is not null then 'f.queue = $4' end,
    case when _w.type is not null then 'f.type = $5' end);
  _matching := concat_ws(' and ', 'true',
    case when _tenant is not null then 'j.tenant = $2' end,
    case when _before is not null then 'j.seq < $3' end,
    case when _w.queue is not null then 'j.queue = $4' end,
    case when _w.type is not null then 'j.type = $5' end,
    case when _w.category is not null then 'j.category = $6' end,
    case when _w.created_by is not null then 'j.created_by = $7' end,
    case when _w.parent_id is not null then 'j.parent_id = $8' end,
    case when _w.enqueued_from is not null then 'j.enqueued_at >= $9' end,
    case when _w.enqueued_before is not null then 'j.enqueued_at < $10' end,
    -- A job without a correlation of its own has its id for one.
    case when as_id(_w.correlation_id) is not null then '(j.correlation_id = $11 or (j.id = as_id($11) and j.correlation_id is null))'
         when _w.correlation_id is not null then 'j.correlation_id = $11' end,
    case when _w.idempotency_key is not null then 'j.seq = any($12)' end);
  -- Every dead job has a dead letter: `done` would be searched through all that completed.
  select string_agg(format('(select j.seq from %s where %s and %s order by j.seq desc limit $1)', p.facts,
                           case when p.is_lined then concat_ws(' and ', p.which, _lined) else p.which end, _matching), ' union all ')
  into _picks
  from (values
    ('pending', 'ready f join job j using (seq)', 'true', true),
    ('pending', 'held f join job j using (seq)', 'true', true),
    ('pending', 'scheduled f join job j using (seq)', 'not f.failed', true),
    ('pending', 'lease f join job j using (seq)', 'f.started_at is null', true),
    ('processing', 'lease f join job j using (seq)', 'f.started_at is not null', true),
    ('failed', 'scheduled f join job j using (seq)', 'f.failed', true),
    ('completed', 'done f join job j using (seq)', 'f.status = ''completed''', false),
    ('cancelled', 'done f join job j using (seq)', 'f.status = ''cancelled''', false),
    ('dead', 'dead_letter f join job j using (seq)', 'true', false),
    ('any', 'job j', 'true', false)
  ) p (status, facts, which, is_lined)
  where p.status = any(coalesce(_w.statuses, '{any}'));
  execute format('select array(select seq from (%s) p order by seq desc limit $1)', _picks) into _seqs
  using _limit, _tenant, _before, _w.queue, _w.type, _w.category, _w.created_by, _w.parent_id, _w.enqueued_from, _w.enqueued_before,
        _w.correlation_id, _keyed;
  return query select job_records(_seqs);
end
$$;

-- get_dead_letter_v1: one dead letter with the attempts of its job; null: none in this scope.
-- uses:   dead_letter_pkey
create function get_dead_letter_v1(_tenant text, _id bigint) returns json
language plpgsql stable
set search_path from current
as $$
begin
  return (
    select json_build_object('dead_letter', row_to_json(d), 'attempts', attempts_of(d.id))
    from dead_letter_record d
    where d.id = _id and (_tenant is null or exists (select from job j where j.seq = d.id and j.tenant = _tenant)));
end
$$;

-- page_dead_letters_v1: dead letters that match, newest first, as one JSON text; and how many match on all pages, counted up to `_cap`.
-- uses:   dead_letter_status, dead_letter_fingerprint or dead_letter_pkey; job_pkey
create function page_dead_letters_v1(
  _tenant text, _before bigint, _limit integer, _cap integer, _where json, out total bigint, out letters text
)
language plpgsql stable
set search_path from current
as $$
declare
  _w        record;
  _matching text;
  _of_jobs  text;
  _seqs     bigint[];
begin
  select * into _w from json_to_record(_where) as w (
    status text, acknowledged boolean, queue text, type text, error_class text, error_type text, fingerprint text, correlation_id text);
  _of_jobs := concat_ws(' and ',
    case when _tenant is not null then 'j.tenant = $3' end,
    case when _w.queue is not null then 'j.queue = $6' end,
    case when _w.type is not null then 'j.type = $7' end,
    case when _w.correlation_id is not null then 'coalesce(j.correlation_id, j.id::text) = $11' end);
  -- Letters first, then each one's job (offset 0 holds the planner to that): it would rather read all jobs, 110 ms at a million.
  _matching := 'from dead_letter d' || case
      when _of_jobs = '' then ''
      when _tenant is not null then ' join job j using (seq)'
      else ' cross join lateral (select * from job o where o.seq = d.seq offset 0) j' end
    || ' where ' || concat_ws(' and ', 'true', nullif(_of_jobs, ''),
    case when _w.status is not null then 'd.status = $5' end,
    case when _w.error_class is not null then 'd.error_class = $8' end,
    case when _w.error_type is not null then 'd.error_type = $9' end,
    case when _w.fingerprint is not null then 'd.fingerprint = $10' end,
    case _w.acknowledged when true then 'd.acknowledged_at is not null' when false then 'd.acknowledged_at is null' end);
  execute format(
    'select (select count(*) from (select 1 %1$s limit $2) m), array(select d.seq %1$s %2$s order by d.seq desc limit $1)',
    _matching, case when _before is not null then 'and d.seq < $4' end)
  into total, _seqs
  using _limit, _cap, _tenant, _before, _w.status, _w.queue, _w.type, _w.error_class, _w.error_type, _w.fingerprint, _w.correlation_id;
  letters := dead_letter_records(_seqs);
end
$$;

-- page_audit_v1: audit records, newest first, each as JSON text.
-- uses:   audit_pkey from its newest end, or audit_target
create function page_audit_v1(_tenant text, _before bigint, _limit integer, _action text, _target text) returns setof text
language plpgsql stable
set search_path from current
set plan_cache_mode = force_custom_plan
as $$
begin
  return query
    select row_to_json(a)::text
    from (
      select id, at, by, action, tenant, target, notes, before, after from audit
      where (_tenant is null or tenant = _tenant) and (_action is null or action = _action) and (_target is null or target = _target)
        and (_before is null or id < _before)
      order by id desc limit _limit
    ) a;
end
$$;

-- read_stats_v1: figures of minutes from `_since` to before `_until`, oldest first; with `_step_s`, summed by steps and by what `_by` names.
-- uses:   stat_minute_pkey
create function read_stats_v1(
  _since timestamptz, _until timestamptz, _type text, _queue text, _tenant text, _limit integer, _step_s integer default null, _by text default null
) returns json
language plpgsql stable
set search_path from current
set plan_cache_mode = force_custom_plan
as $$
begin
  if _step_s is not null then
    return (
      -- Read once for the sums and once for each histogram: put by for all three, a day of 20 rows a minute took half as long again.
      with picked as not materialized (
        select date_bin(_step_s * interval '1 second', minute, _since) as step,
               case _by when 'type' then type when 'queue' then queue when 'tenant' then tenant else '' end as named, s.*
        from stat_minute s
        where minute >= _since and minute < _until and (_type is null or type = _type) and (_queue is null or queue = _queue)
          and (_tenant is null or tenant = _tenant)
      ), sums as (
        select step, named, sum(enqueued) as enqueued, sum(completed) as completed, sum(failed) as failed, sum(dead) as dead, sum(cancelled) as cancelled,
               sum(wait_us) as wait_us, sum(run_us) as run_us
        from picked group by step, named
      ), waits as (
        select step, named, json_object_agg(key, n) as buckets
        from (select step, named, b.key, sum(b.value::bigint) as n from picked, jsonb_each_text(wait_buckets) b group by step, named, b.key) w
        group by step, named
      ), runs as (
        select step, named, json_object_agg(key, n) as buckets
        from (select step, named, b.key, sum(b.value::bigint) as n from picked, jsonb_each_text(run_buckets) b group by step, named, b.key) r
        group by step, named
      )
      select json_build_object('rows', coalesce(json_agg(row_to_json(s) order by s.minute, s.type, s.queue, s.tenant), '[]'))
      from (
        select step as minute, case _by when 'type' then named else '' end as type, case _by when 'queue' then named else '' end as queue,
               case _by when 'tenant' then named else '' end as tenant, enqueued, completed, failed, dead, cancelled, wait_us, run_us,
               coalesce(w.buckets, '{}') as wait_buckets, coalesce(r.buckets, '{}') as run_buckets
        from sums left join waits w using (step, named) left join runs r using (step, named)
        order by step, named limit _limit
      ) s);
  end if;
  return (
    select json_build_object('rows', coalesce(json_agg(row_to_json(s) order by s.minute, s.type, s.queue, s.tenant), '[]'))
    from (
      select * from stat_minute
      where minute >= _since and minute < _until and (_type is null or type = _type) and (_queue is null or queue = _queue)
        and (_tenant is null or tenant = _tenant)
      order by minute, type, queue, tenant limit _limit
    ) s);
end
$$;

-- list_workers_v1: every registered worker, with the number of its leases.
-- uses:   worker and lease whole (as many rows as jobs in flight)
create function list_workers_v1(_at timestamptz default null) returns json
language plpgsql stable
set search_path from current
as $$
begin
  return (
    select json_build_object(
      'now', coalesce(_at, clock_timestamp()),
      'workers', coalesce(json_agg(row_to_json(w) order by w.registered_at, w.id), '[]'))
    from (
      select id, name, registered_at, renewed_at, expires_at, queues, types, waiting, figures,
             coalesce(l.leases, 0) as leases
      from worker left join (select worker, count(*) as leases from lease group by worker) l on l.worker = worker.id
    ) w);
end
$$;

-- list_schedules_v1: schedules by name; with `_due` those that are to fire now, by their time.
-- uses:   schedule_due, schedule_pkey
create function list_schedules_v1(_due boolean, _limit integer, _at timestamptz default null) returns json
language plpgsql stable
set search_path from current
as $$
declare
  _now timestamptz := coalesce(_at, clock_timestamp());
begin
  if _due then
    return (
      select json_build_object('schedules', coalesce(json_agg(row_to_json(s) order by s.next_at, s.name), '[]'))
      from (select * from schedule where paused_at is null and next_at <= _now order by next_at, name limit _limit) s);
  end if;
  return (
    select json_build_object('schedules', coalesce(json_agg(row_to_json(s) order by s.name), '[]'))
    from (select * from schedule order by name limit _limit) s);
end
$$;

-- list_breakers_v1: every breaker, by name.
create function list_breakers_v1() returns json
language sql stable
set search_path from current
begin atomic
  select json_build_object('breakers', coalesce(json_agg(row_to_json(b) order by b.name), '[]')) from breaker b;
end;

-- read_weights_v1: the weights of tenants that have one of their own.
-- uses:   tenant_weight
create function read_weights_v1() returns json
language sql stable
set search_path from current
begin atomic
  select json_build_object('weights', coalesce(json_object_agg(name, weight), '{}')) from tenant where weight <> 1;
end;
