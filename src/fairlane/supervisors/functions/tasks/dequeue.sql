-- dequeue_next_available_task: lease the first task that is due and that nobody holds; null: there is none.
-- moves:  all of turn_v2 (promote, reclaim, claim ready -> leased)
-- guard:  see turn_v2: the ready row is ours by `for update skip locked`
-- uses:   ready_supervisors, scheduled_due, worker whole (as many rows as workers and leased tasks)
--
-- Who dequeues by SQL is a worker of Fairlane with one task and a heartbeat of five minutes: its row is made with the
-- lease and goes with it, and whoever takes a Turn, or dequeues, reclaims it when it has lapsed. Pauses and limits that
-- people have set hold as for every worker. Of several tenants the one whose task is due first is served.
create or replace function dequeue_next_available_task() returns task
language plpgsql security definer
set search_path from current
set enable_seqscan = off
as $$
declare
  _worker  constant uuid := gen_random_uuid();
  _now     constant timestamptz := clock_timestamp();
  _first   record;
  _seq     bigint;
  _task    task;
begin
  if exists (select from scheduled where due_at <= _now) then
    perform promote(1000, _now);
  end if;
  if exists (select from worker where expires_at <= _now) then
    perform reclaim_lapsed(100, _now, 3);
  end if;
  select r.tenant, r.band into _first from ready r
  where r.queue = 'supervisors' and not exists (select from pause p where p.kind = 'tenant' and p.name = r.tenant)
  order by r.due_at, r.seq limit 1;
  if not found then  -- nothing is written for a poll in vain
    return null;
  end if;
  insert into worker (id, name, registered_at, renewed_at, expires_at, queues, types, figures)
  values (_worker, format('queues %s %s', session_user, pg_backend_pid()), _now, _now, _now + interval '5 minutes',
          '{supervisors}', '{}',
          '{"schema.version": 1e6, "schema.functions": 1e6}');  -- of no old release: these functions are replaced whole
  select t.seq into _seq
  from turn_v2(_worker, 1, null, null, null, null, null, null, null, json_build_array(json_build_object(
    'lane', 'queues', 'queues', array['supervisors'], 'limit', 1, 'start', 1, 'timeout_s', 300,
    'takes', json_build_array(json_build_object(
      'queue', 'supervisors', 'band', _first.band, 'tenant', _first.tenant, 'limit', 1)))),
    false, 0, 0, _now) t
  where t.seq is not null;
  if _seq is null then
    perform forget_worker(_worker);
    return null;
  end if;
  select * into _task from task where task_id = _seq;
  return _task;
end
$$;

-- renew_task: hold a task for five more minutes from now; when the lease then expires. Null: it is no longer leased.
-- guard:  the worker's row is locked before the lease, as by those who reclaim
-- uses:   lease_pkey, worker_pkey
--
-- A worker of Fairlane keeps its leases by its own heartbeat; this is for those who dequeue by SQL.
create or replace function renew_task(_task_id bigint) returns timestamptz
language plpgsql security definer
set search_path from current
as $$
declare
  _worker   uuid := (select worker from lease where seq = _task_id and lane = 'queues' and queue = 'supervisors');
  _expires  timestamptz := clock_timestamp() + interval '5 minutes';
begin
  update worker set renewed_at = clock_timestamp(), expires_at = _expires where id = _worker;
  update lease set deadline_at = _expires + interval '5 minutes' where seq = _task_id and worker = _worker;
  return case when found then _expires end;
end
$$;
