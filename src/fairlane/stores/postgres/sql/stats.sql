-- stats_v1: counts by queue and status, each no higher than `_cap`.
-- uses:   ready, scheduled, held and lease whole (they hold only what is unfinished); done up to `_cap` rows
create function stats_v1(_tenant text, _cap integer, _at timestamptz default null) returns json
language sql
set search_path from current
begin atomic
  with r as (
    select queue, count(*) as ready, min(due_at) as oldest from ready where _tenant is null or tenant = _tenant group by queue
  ), s as (
    select queue, count(*) as scheduled, count(*) filter (where failed) as failed
    from scheduled where _tenant is null or tenant = _tenant group by queue
  ), l as (
    select queue, count(*) filter (where started_at is not null) as processing, count(*) filter (where started_at is null) as prefetched
    from lease where _tenant is null or tenant = _tenant group by queue
  ), h as (
    select queue, count(*) as held from held where _tenant is null or tenant = _tenant group by queue
  ), q as (
    select queue, coalesce(ready, 0) as ready, coalesce(scheduled, 0) as scheduled, coalesce(failed, 0) as failed, coalesce(held, 0) as held,
           coalesce(processing, 0) as processing, coalesce(prefetched, 0) as prefetched, oldest
    from r full join s using (queue) full join h using (queue) full join l using (queue)
  ), ended as (
    select kind, (
      select count(*) from (
        select from done d where d.status = kind
          and (_tenant is null or exists (select from job j where j.seq = d.seq and j.tenant = _tenant)) limit _cap
      ) c) as n
    from unnest(array['completed', 'dead', 'cancelled']) kind
  )
  select json_build_object(
    'now', coalesce(_at, clock_timestamp()),
    'queues', coalesce((
      select json_agg(json_build_object(
        'queue', queue, 'ready', least(ready, _cap), 'scheduled', least(scheduled, _cap), 'failed', least(failed, _cap),
        'processing', least(processing, _cap), 'held', least(held, _cap),
        'pending', least(ready + held + scheduled - failed + prefetched, _cap), 'oldest_due_at', oldest) order by queue)
      from q), '[]'),
    'completed', (select n from ended where kind = 'completed'),
    'dead', (select n from ended where kind = 'dead'),
    'cancelled', (select n from ended where kind = 'cancelled'),
    'dead_letters', coalesce((
      select json_object_agg(status, least(n, _cap)) from (
        select d.status, count(*) as n from dead_letter d
        where _tenant is null or exists (select from job j where j.seq = d.seq and j.tenant = _tenant)
        group by d.status) g), '{}'));
end;
