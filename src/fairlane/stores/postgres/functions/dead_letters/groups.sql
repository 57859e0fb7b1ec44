-- group_dead_letters_v1: dead letters that match, the newest 10,000 of them, put together by fingerprint.
-- role:   api
-- uses:   dead_letter_status, dead_letter_fingerprint or dead_letter_pkey from its newest end, job_pkey
--
-- Planned anew for the conditions that are given. `offset 0` makes the planner go from the letters to their jobs and
-- sort only what was found: without statistics it read and sorted all 60,000 letters, 181,159 pages instead of 30,302.
-- Servers before 18 also read every job to name one group. (tests/plans/test_statistics_and_alerts.py)
create or replace function group_dead_letters_v1(_op json) returns json
language plpgsql stable
set search_path from current
set plan_cache_mode = force_custom_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
as $$
declare
  _tenant          text := scope_of(_op);
  _status          text := _op->'where'->>'status';
  _acknowledged    boolean := (_op->'where'->>'acknowledged')::boolean;
  _error_class     text := _op->'where'->>'error_class';
  _error_type      text := _op->'where'->>'error_type';
  _fingerprint     text := _op->'where'->>'fingerprint';
  _queue           text := _op->'where'->>'queue';
  _type            text := _op->'where'->>'type';
  _category        text := _op->'where'->>'category';
  _correlation_id  text := _op->'where'->>'correlation_id';
  _limit           integer := at_most(_op);
begin
  return (
    with found as materialized (
      select d.seq, d.fingerprint, d.died_at, j.tenant
      from dead_letter d cross join lateral (select * from job where job.seq = d.seq offset 0) j
      where (_status is null or d.status = _status)
        and (_fingerprint is null or d.fingerprint = _fingerprint)
        and (_error_class is null or d.error_class = _error_class)
        and (_error_type is null or d.error_type = _error_type)
        and (_acknowledged is null or (d.acknowledged_at is not null) = _acknowledged)
        and (_tenant is null or j.tenant = _tenant)
        and (_queue is null or j.queue = _queue)
        and (_type is null or j.type = _type)
        and (_category is null or j.category = _category)
        and (_correlation_id is null or coalesce(j.correlation_id, j.id::text) = _correlation_id)
      order by d.seq desc limit 10000
    ), grouped as (
      select fingerprint, count(*) as count, count(distinct tenant) as tenants, min(died_at) as first_at,
             max(died_at) as last_at, max(seq) as newest
      from found group by fingerprint order by count(*) desc, fingerprint limit _limit
    )
    select json_build_object('groups', coalesce(json_agg(row_to_json(r) order by r.count desc, r.fingerprint), '[]'))
    from (
      select g.*, d.error_type, d.reason, j.type
      from grouped g
      cross join lateral (select * from dead_letter where dead_letter.seq = g.newest offset 0) d
      cross join lateral (select * from job where job.seq = g.newest offset 0) j
    ) r);
end
$$;
