-- Reads jobs. A caller needs the right to call, and no right on any table (docs/guides/isolation.md). Listings are
-- planned for the filter that is given, from texts that stand here: values travel as parameters, never in the text.

create or replace function attempts_of(_seq bigint) returns json language sql stable
begin atomic
  select coalesce(json_agg(row_to_json(a) order by a.attempt), '[]')
  from (
    select attempt, outcome, worker, leased_at, case when worker is not null then deadline_at end as expires_at,
      started_at, ended_at, error_class, error_type, error_message, traceback
    from attempt_record where seq = _seq
  ) a;
end;

-- get_job_v1: one job with its attempts, progress, log and steps; null: none in this scope.
-- role:   api
-- uses:   job_id_key
create or replace function get_job_v1(_op json) returns json
language plpgsql stable
set search_path from current
as $$
declare
  _tenant  text := scope_of(_op);
  _id      uuid := (_op->>'id')::uuid;
begin
  return (
    select json_build_object(
      'job', row_to_json(r), 'attempts', attempts_of(r.seq),
      'progress', (select n.progress from note n where n.seq = r.seq), 'log', coalesce((
        select json_agg(json_build_object('at', g.at, 'attempt', g.attempt, 'message', g.message) order by g.n)
        from log_line g where g.seq = r.seq), '[]'),
      'steps', steps_of(r.seq), 'waits_for', wait_of(r.seq))
    from job_record r where r.id = _id and (_tenant is null or r.tenant = _tenant));
end
$$;

-- get_status_v1: how one job stands, without its payload and its history; null: none in this scope.
-- role:   api
-- uses:   job_id_key and the primary keys of the facts
create or replace function get_status_v1(_op json) returns json
language plpgsql stable
set search_path from current
as $$
declare
  _tenant  text := scope_of(_op);
  _id      uuid := (_op->>'id')::uuid;
begin
  return (
    select json_build_object(
      'status', r.status, 'type', r.type, 'run_at', r.run_at, 'finished_at', r.finished_at,
      'error_type', r.error_type, 'last_error', r.last_error, 'result', r.result)
    from job_record r where r.id = _id and (_tenant is null or r.tenant = _tenant));
end
$$;

-- job_records: jobs by their numbers, newest first, as a JSON array.
-- uses:   primary keys alone
--
-- Kept apart from the search for the numbers, which is planned anew each time: with these joins in it a page of dead
-- letters took 1.6 ms, not 0.4.
create or replace function job_records(_seqs bigint[]) returns json
language plpgsql stable
set search_path from current
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
begin
  return (
    select coalesce(json_agg(row_to_json(r) order by p.seq desc), '[]')
    from unnest(_seqs) p (seq) join job_record r using (seq));
end
$$;

-- as_id: the id that a text is, written as `id::text` does; null: it is none.
create or replace function as_id(_text text) returns uuid language sql immutable parallel safe
return case when _text ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then _text::uuid end;

-- keyed: the jobs that bear an idempotency key, one for each tenant at most; a job without one of its own has its id
--         for one.
-- uses:   idempotency_key_pkey, once for each tenant that has keys; job_id_key
create or replace function keyed(_tenant text, _key text) returns bigint[] language sql stable
begin atomic
  with recursive t (tenant) as (
    select case when _tenant is null then (select min(k.tenant) from idempotency_key k) else _tenant end
    union all
    select (select min(k.tenant) from idempotency_key k where k.tenant > t.tenant) from t
    where t.tenant is not null and _tenant is null
  )
  select array(
    select k.seq from t join idempotency_key k on k.tenant = t.tenant and k.key = _key
    union
    select j.seq from job j where j.id = as_id(_key) and j.idempotency_key is null);
end;

-- page_jobs_v1: one page of jobs that match, newest first, and where the next page begins.
-- role:   api
-- uses:   the fact tables of the asked statuses, from their newest end; job_pkey
create or replace function page_jobs_v1(_op json) returns json
language plpgsql stable
set search_path from current
as $$
declare
  _tenant    text := scope_of(_op);
  _before    bigint := row_id(_op->>'before');
  _limit     integer := page_size(_op);
  _w         record;
  _matching  text;
  _lined     text;
  _picks     text;
  _keyed     bigint[];
  _seqs      bigint[];
begin
  select * into _w from json_to_record(_op->'where') as w (
    statuses text[], queue text, type text, category text, created_by text, parent_id uuid, enqueued_from timestamptz,
    enqueued_before timestamptz, started_before timestamptz, correlation_id text, idempotency_key text);
  if _w.idempotency_key is not null then
    _keyed := keyed(_tenant, _w.idempotency_key);
  end if;
  -- Rows of waiting and running jobs carry these fields: no other job is read.
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
    case when as_id(_w.correlation_id) is not null
      then '(j.correlation_id = $11 or (j.id = as_id($11) and j.correlation_id is null))'
         when _w.correlation_id is not null then 'j.correlation_id = $11' end,
    case when _w.idempotency_key is not null then 'j.seq = any($12)' end,
    case when _w.started_before is not null
      then 'exists (select from lease l where l.seq = j.seq and l.started_at < $13)' end);
  -- Every dead job has a dead letter: `done` would be searched through all that completed.
  select string_agg(format('(select j.seq from %s where %s and %s order by j.seq desc limit $1)', p.facts,
                           case when p.is_lined then concat_ws(' and ', p.which, _lined) else p.which end, _matching),
                             ' union all ')
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
  where p.status = any(
    coalesce(_w.statuses, case when _w.started_before is not null then '{processing}'::text[] else '{any}' end));
  execute format('select array(select seq from (%s) p order by seq desc limit $1)', _picks) into _seqs
  using _limit + 1, _tenant, _before, _w.queue, _w.type, _w.category, _w.created_by, _w.parent_id, _w.enqueued_from,
        _w.enqueued_before, _w.correlation_id, _keyed, _w.started_before;
  return json_build_object(
    'jobs', job_records(_seqs[:_limit]), 'next', case when cardinality(_seqs) > _limit then _seqs[_limit] end);
end
$$;
