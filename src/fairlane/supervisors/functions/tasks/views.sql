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
