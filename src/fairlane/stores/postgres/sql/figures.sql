create function add_buckets(_some jsonb, _more jsonb) returns jsonb
language sql immutable
begin atomic
  select coalesce(jsonb_object_agg(bucket, n), '{}')
  from (
    select b.key as bucket, sum(b.value::bigint) as n
    from (select * from jsonb_each_text(_some) union all select * from jsonb_each_text(_more)) b group by b.key
  ) summed;
end;

-- add_stats_v1: add a worker's figures to the minutes they belong to.
-- guard:  worker.stats_batch: a batch is added once, and only while the worker's row is there
-- uses:   worker_pkey, stat_minute_pkey
--
-- Minutes in the order of their key, so that two workers adding to the same ones wait for each other and never in a circle.
create function add_stats_v1(_worker uuid, _batch bigint, _rows json) returns json
language plpgsql
set search_path from current
as $$
declare
  _r record;
begin
  update worker set stats_batch = _batch where id = _worker and stats_batch < _batch;
  if not found then
    return json_build_object('added', false);
  end if;
  for _r in
    select * from json_to_recordset(_rows) as r (
      minute timestamptz, type text, queue text, tenant text, enqueued bigint, completed bigint, failed bigint, dead bigint, cancelled bigint,
      wait_us bigint, run_us bigint, wait_buckets jsonb, run_buckets jsonb)
    order by minute, type collate "C", queue collate "C", tenant collate "C"
  loop
    insert into stat_minute as s (minute, type, queue, tenant, enqueued, completed, failed, dead, cancelled, wait_us, run_us, wait_buckets, run_buckets)
    values (_r.minute, _r.type, _r.queue, _r.tenant, _r.enqueued, _r.completed, _r.failed, _r.dead, _r.cancelled, _r.wait_us, _r.run_us,
            _r.wait_buckets, _r.run_buckets)
    on conflict (minute, type, queue, tenant) do update
    set enqueued = s.enqueued + excluded.enqueued, completed = s.completed + excluded.completed, failed = s.failed + excluded.failed, dead = s.dead + excluded.dead,
        cancelled = s.cancelled + excluded.cancelled, wait_us = s.wait_us + excluded.wait_us, run_us = s.run_us + excluded.run_us,
        wait_buckets = add_buckets(s.wait_buckets, excluded.wait_buckets), run_buckets = add_buckets(s.run_buckets, excluded.run_buckets);
  end loop;
  return json_build_object('added', true);
end
$$;
