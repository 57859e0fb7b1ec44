-- job_record: a job as people see it, its status derived from its facts. Listings start from the fact table of the
--         asked status and join this by seq; read through the view alone, a status takes up to 1.7 s to find at a
--         million rows.
create or replace view job_record as
select
  j.seq, j.id, j.type,
  case when d.seq is not null then d.status
       when l.seq is not null then case when l.started_at is not null then 'processing' else 'pending' end
       when s.failed then 'failed'
       else 'pending' end as status,
  j.tenant, j.queue, j.band + j.rank as priority, j.category, j.payload::text as payload, j.payload_version,
  coalesce(j.idempotency_key, j.id::text) as idempotency_key, j.dedup_key,
  coalesce(j.correlation_id, j.id::text) as correlation_id, j.parent_id, j.created_by,
  coalesce(flat(j.refs), '{}') as refs, coalesce(flat(j.headers), '{}') as headers,
  coalesce(d.attempt, l.attempt, s.attempt, r.attempt, h.attempt, 0) as attempt,
  coalesce(d.attempts, l.attempts, s.attempts, r.attempts, h.attempts, 0) as attempts,
  coalesce(d.crashes, l.crashes, s.crashes, r.crashes, h.crashes, 0) as crashes,
  j.max_attempts, j.timeout_s, j.enqueued_at, j.due_at as scheduled_at,
  coalesce(d.due_at, l.due_at, s.due_at, r.due_at, h.due_at, j.due_at) as run_at,
  coalesce(d.started_at, l.started_at) as started_at, d.finished_at, coalesce(d.worker, l.worker) as worker,
  l.cancel_requested_at is not null as cancel_requested, d.result::text as result,
  coalesce(d.error_class, e.error_class) as error_class, coalesce(d.error_type, e.error_type) as error_type,
  case when d.error_type is not null then d.error_message else e.error_message end as last_error,
  case when d.error_type is not null then d.finished_at else e.ended_at end as last_error_at, j.key
from job j
left join ready r on r.seq = j.seq
left join scheduled s on s.seq = j.seq
left join held h on h.seq = j.seq
left join lease l on l.seq = j.seq
left join done d on d.seq = j.seq
left join lateral (
  select a.error_class, a.error_type, a.error_message, a.ended_at from attempt a
  where a.seq = j.seq and a.error_type is not null and d.error_type is null
  order by a.attempt desc limit 1
) e on true;

-- attempt_record: every ended attempt, those the job survived and the one that ended it.
create or replace view attempt_record as
select seq, attempt, outcome, worker, leased_at, deadline_at, started_at, ended_at, error_class, error_type,
  error_message, traceback, due_at
from attempt
union all
select seq, attempt, outcome, worker, leased_at, deadline_at, started_at, finished_at, error_class, error_type,
  error_message, traceback, due_at
from done where leased_at is not null;
