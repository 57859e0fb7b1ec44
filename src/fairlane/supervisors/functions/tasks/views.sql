-- task: what was asked for. A task is a job of the queue "supervisors"; its id is the job's number.
create or replace view task with (security_invoker = true) as
select seq as task_id, type::text as task_type, payload::jsonb as payload, enqueued_at,
       due_at::timestamptz as scheduled_at
from job where queue = 'supervisors';

-- task_lease: every claim of a task: the live one, and those that ended. A task is claimed while one has not expired.
--         A worker has the task's timeout to end it, and is stopped for good after twice that: the core's deadline.
create or replace view task_lease with (security_invoker = true) as
select (l.seq << 20) + l.attempt as task_lease_id, l.seq as task_id, l.leased_at,
       l.deadline_at - case when l.started_at is null then 0 else coalesce(l.timeout_s, 0) end * interval '1 second'
         as expires_at
from lease l where l.queue = 'supervisors'
union all
select (a.seq << 20) + a.attempt, a.seq, a.leased_at,
       least(a.deadline_at - coalesce(j.timeout_s, 0) * interval '1 second', a.ended_at)
from attempt a join job j on j.seq = a.seq where j.queue = 'supervisors'
union all
select (d.seq << 20) + d.attempt, d.seq, d.leased_at, d.deadline_at - coalesce(j.timeout_s, 0) * interval '1 second'
from done d join job j on j.seq = d.seq where j.queue = 'supervisors' and d.leased_at is not null;

-- task_completed: the tasks that are never processed again, however they ended.
create or replace view task_completed with (security_invoker = true) as
select d.seq as task_id, d.finished_at as completed_at
from done d join job j on j.seq = d.seq where j.queue = 'supervisors';

-- task_outcome: how a task ended that is never processed again: completed, cancelled, dead and of what, or removed.
--         Null: it waits, or is being processed. A dead one that was reprocessed ends as the last of its new jobs does.
-- uses:   job_pkey, done_pkey, dead_letter_pkey, job_id_key
--
-- For supervisors. Stable, so that it sees what the query sees that calls it: a worker commits facts before it
-- completes a task, and who sees it completed sees them.
create or replace function task_outcome(_task_id bigint) returns text
language plpgsql stable security definer
set search_path from current
as $$
declare
  _last  bigint := _task_id;
  _done  record;
begin
  while _task_id is not null loop  -- ends: a letter's new job is younger than the letter
    if not exists (select from job where seq = _last and queue = 'supervisors') then
      return 'removed';
    end if;
    select status, error_message into _done from done where seq = _last;
    if _done.status is distinct from 'dead' then
      return _done.status;
    end if;
    select j.seq into _last
    from dead_letter l left join job j on j.id = l.reprocessed_as where l.seq = _last and l.reprocessed_as is not null;
    if not found then
      return concat_ws(': ', _done.status, _done.error_message);
    end if;
  end loop;
  return null;
end
$$;
