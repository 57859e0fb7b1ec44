-- require_task: raises unless there is a task of this number.
-- uses:   job_pkey
create or replace function require_task(_task_id bigint) returns void
language plpgsql
set search_path from current
as $$
begin
  if not exists (select from job where seq = _task_id and queue = 'supervisors') then
    raise exception 'there is no task %', coalesce(_task_id::text, 'null') using errcode = 'no_data_found',
      hint = 'It was never enqueued, or retention has removed it.';
  end if;
end
$$;

-- complete_task: a task is never processed again; of one that is completed already nothing changes.
-- moves:  claim ready | scheduled | held -> leased, complete leased -> completed
-- guard:  lease (seq, attempt, worker) exists; the worker's row is locked before it, as by those who reclaim
-- uses:   done_pkey, lease_pkey, ready_pkey, scheduled_pkey, held_pkey
--
-- The contract knows no fence: whoever names a task ends it, also when the lease has expired meanwhile and the task
-- waits again, or somebody else holds it.
create or replace function complete_task(_task_id bigint) returns void
language plpgsql security definer
set search_path from current
as $$
declare
  _lease  lease;
  _now    timestamptz;
  _end    record;
begin
  perform require_task(_task_id);
  for _try in 1 .. 20 loop  -- it may be on its way from one place to another
    if exists (select from done where seq = _task_id) then
      return;
    end if;
    select * into _lease from lease where seq = _task_id;
    if not found then
      _lease := lease_unheld(_task_id);
      continue when _lease.seq is null;
    elsif _lease.lane = 'queues' then
      perform from worker where id = _lease.worker for update;
    else
      perform from worker where id = _lease.worker for key share;
    end if;
    _now := clock_timestamp();
    select s.refused, s.freed into _end
    from settle_completed(
      _lease.worker, array[_task_id], array[_lease.attempt],
      array[extract(epoch from _now - coalesce(_lease.started_at, _now))::float8], array[0::float8],
      array[null::text], _now) s;
    if _end.refused is null then
      if _lease.lane = 'queues' then
        perform forget_worker(_lease.worker);
      end if;
      if _end.freed is not null then
        perform wake_waiting();
      end if;
      return;
    end if;
  end loop;
  raise exception 'task % is being moved by others again and again', _task_id using errcode = 'serialization_failure',
    hint = 'Call complete_task again.';
end
$$;

-- lease_unheld: lease a task that waits, for its completion in the same transaction; null: it waits no more.
-- moves:  claim ready | scheduled | held -> leased
-- guard:  the row that waited is ours by its deletion
-- uses:   ready_pkey, scheduled_pkey, held_pkey
create or replace function lease_unheld(_task_id bigint) returns lease
language plpgsql
set search_path from current
as $$
declare
  _lease  lease;
  _now    timestamptz := clock_timestamp();
begin
  with waited as (
    delete from ready where seq = _task_id
    returning seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped, timeout_s
  ), later as (
    delete from scheduled where seq = _task_id
    returning seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped, timeout_s
  ), kept as (
    delete from held where seq = _task_id
    returning seq, queue, band, tenant, rank, due_at, type, 0, 0, 0, false, deduped, timeout_s
  )
  insert into lease (seq, worker, claim_no, nth, lane, leased_at, started_at, deadline_at, queue, band, tenant, rank,
                     due_at, type, attempt, attempts, crashes, suspect, deduped, timeout_s)
  select w.seq, gen_random_uuid(), 1, 1, 'queues', _now, _now,
         _now + 2 * coalesce(w.timeout_s, 0) * interval '1 second', w.queue, w.band, w.tenant, w.rank, w.due_at, w.type,
         w.attempt + 1, w.attempts, w.crashes, w.suspect, w.deduped, w.timeout_s
  from (select * from waited union all select * from later union all select * from kept) w
  returning * into _lease;
  return _lease;
end
$$;

-- fail_task: record that a task failed; it neither ends the task nor gives it back.
-- uses:   error_pkey
--
-- Each call also clears up to 100 errors of tasks that retention has removed: among the oldest, where most of them are,
-- and from a place by chance on, as the oldest may be of tasks that stay.
create or replace function fail_task(_task_id bigint, _error_message text) returns void
language plpgsql security definer
set search_path from current
as $$
declare
  _place  bigint;
begin
  perform require_task(_task_id);
  select min(error_id) + floor(random() * (max(error_id) - min(error_id))) into _place from error;
  delete from error where error_id = any(array(
    select e.error_id from error e
    where not exists (select from job j where j.seq = e.task_id) and e.error_id = any(
      array(select o.error_id from error o order by o.error_id limit 50)
      || array(select o.error_id from error o where o.error_id >= _place order by o.error_id limit 50))
    for update of e skip locked));
  insert into error (task_id, error_message) values (_task_id, left(coalesce(_error_message, ''), 2000));
end
$$;

-- refuse_changes: the views of the contract are read, not written.
create or replace function refuse_changes() returns trigger
language plpgsql
as $$
begin
  raise exception 'queues.% is immutable: % is refused', tg_table_name, lower(tg_op)
    using errcode = 'restrict_violation',
    hint = 'Tasks are made by queues.enqueue and ended by queues.complete_task.';
end
$$;
create or replace trigger immutable instead of insert or update or delete on task
  for each row execute function refuse_changes();
create or replace trigger immutable instead of insert or update or delete on task_lease
  for each row execute function refuse_changes();
create or replace trigger immutable instead of insert or update or delete on task_completed
  for each row execute function refuse_changes();
