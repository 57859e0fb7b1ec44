-- dead_letter_records: dead letters by their numbers, newest first, as a JSON array. Planned as job_records is.
create or replace function dead_letter_records(_seqs bigint[]) returns json
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
    select coalesce(json_agg(row_to_json(r) order by r.id desc), '[]')
    from unnest(_seqs) p (seq) join dead_letter_record r on r.id = p.seq);
end
$$;

-- get_dead_letter_v1: one dead letter with the attempts of its job; null: none in this scope.
-- role:   api
-- uses:   dead_letter_pkey
create or replace function get_dead_letter_v1(_op json) returns json
language plpgsql stable
set search_path from current
as $$
declare
  _tenant  text := scope_of(_op);
  _id      bigint := row_id(_op->>'id');
begin
  return (
    select json_build_object('dead_letter', row_to_json(d), 'attempts', attempts_of(d.id))
    from dead_letter_record d
    where d.id = _id and (_tenant is null or exists (select from job j where j.seq = d.id and j.tenant = _tenant)));
end
$$;

-- page_dead_letters_v1: one page of dead letters that match, newest first, where the next page begins, and how many
--         match on all pages, counted up to `cap` (100,000, COUNT_CAP, by callers of older releases).
-- role:   api
-- uses:   dead_letter_status, dead_letter_fingerprint or dead_letter_pkey; job_pkey
create or replace function page_dead_letters_v1(_op json) returns json
language plpgsql stable
set search_path from current
as $$
declare
  _tenant    text := scope_of(_op);
  _before    bigint := row_id(_op->>'before');
  _limit     integer := page_size(_op);
  _w         record;
  _matching  text;
  _of_jobs   text;
  _seqs      bigint[];
  _total     bigint;
begin
  select * into _w from json_to_record(_op->'where') as w (
    status text, acknowledged boolean, queue text, type text, error_class text, error_type text, fingerprint text,
    correlation_id text, category text);
  _of_jobs := concat_ws(' and ',
    case when _tenant is not null then 'j.tenant = $3' end,
    case when _w.queue is not null then 'j.queue = $6' end,
    case when _w.type is not null then 'j.type = $7' end,
    case when _w.category is not null then 'j.category = $12' end,
    case when _w.correlation_id is not null then 'coalesce(j.correlation_id, j.id::text) = $11' end);
  -- Letters first, then each one's job: without `offset 0` the planner reads all jobs, 110 ms at a million.
  _matching := 'from dead_letter d' || case
      when _of_jobs = '' then ''
      when _tenant is not null then ' join job j using (seq)'
      else ' cross join lateral (select * from job o where o.seq = d.seq offset 0) j' end
    || ' where ' || concat_ws(' and ', 'true', nullif(_of_jobs, ''),
    case when _w.status is not null then 'd.status = $5' end,
    case when _w.error_class is not null then 'd.error_class = $8' end,
    case when _w.error_type is not null then 'd.error_type = $9' end,
    case when _w.fingerprint is not null then 'd.fingerprint = $10' end,
    case _w.acknowledged when true then 'd.acknowledged_at is not null'
      when false then 'd.acknowledged_at is null' end);
  execute format(
    'select (select count(*) from (select 1 %1$s limit $2) m), '
    'array(select d.seq %1$s %2$s order by d.seq desc limit $1)',
    _matching, case when _before is not null then 'and d.seq < $4' end)
  into _total, _seqs
  using _limit + 1, coalesce((_op->>'cap')::integer, 100000), _tenant, _before, _w.status, _w.queue, _w.type,
    _w.error_class, _w.error_type, _w.fingerprint, _w.correlation_id, _w.category;
  return json_build_object(
    'dead_letters', dead_letter_records(_seqs[:_limit]),
    'next', case when cardinality(_seqs) > _limit then _seqs[_limit] end, 'total', _total);
end
$$;
