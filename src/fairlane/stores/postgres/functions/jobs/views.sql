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
  coalesce(d.attempt, l.attempt, s.attempt, r.attempt, 0) as attempt,
  coalesce(d.attempts, l.attempts, s.attempts, r.attempts, 0) as attempts,
  coalesce(d.crashes, l.crashes, s.crashes, r.crashes, 0) as crashes, j.max_attempts, j.timeout_s, j.enqueued_at,
  j.due_at as scheduled_at, coalesce(d.due_at, l.due_at, s.due_at, r.due_at, j.due_at) as run_at,
  coalesce(d.started_at, l.started_at) as started_at, d.finished_at, coalesce(d.worker, l.worker) as worker,
  l.cancel_requested_at is not null as cancel_requested, d.result::text as result,
  coalesce(d.error_class, e.error_class) as error_class, coalesce(d.error_type, e.error_type) as error_type,
  case when d.error_type is not null then d.error_message else e.error_message end as last_error,
  case when d.error_type is not null then d.finished_at else e.ended_at end as last_error_at
from job j
left join ready r on r.seq = j.seq
left join scheduled s on s.seq = j.seq
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

-- The shapes that operators know from other systems (docs/operate/sql-views.md). With the schema on the search path
-- their SELECTs run as they are. json, not jsonb: one odd payload (an escaped NUL put in by hand) must not fail a
-- listing.
create or replace view jobs as
select seq as id, type, payload::json as payload, status, priority, attempts, max_attempts, scheduled_at, run_at,
       started_at, finished_at as completed_at, case when status = 'dead' then last_error end as error_message,
       last_error, last_error_at, correlation_id,
       (select p.seq from job p where p.id = job_record.parent_id) as parent_job_id, created_by, dedup_key,
       enqueued_at as created_at, coalesce(finished_at, last_error_at, started_at, enqueued_at) as updated_at,
       id as job_id, tenant, queue
from job_record;

create or replace view dead_letter_jobs as
select d.seq as id, row_to_json(j) as original_job, d.reason as error_message,
       jsonb_build_object('error_class', d.error_class, 'error_type', d.error_type,
       'fingerprint', d.fingerprint) as error_details, d.died_at, d.acknowledged_at is not null as acknowledged,
       d.acknowledged_by, d.acknowledged_at, d.status
from dead_letter d join jobs j on j.id = d.seq;

create or replace view circuit_breakers as
select name as service_name, state, failures as failure_count, successes as success_count, last_failure_at, opened_at,
  half_opened_at, updated_at
from breaker;

-- job_metrics: one row for each attempt that ran. `id` is unique up to a million attempts of a job; `queue_time_ms`
--         counts from when that attempt was due (for attempts from before this was recorded: when the job first was).
create or replace view job_metrics as
select (a.seq << 20) + a.attempt as id, j.type as job_type, a.outcome as status,
       (extract(epoch from a.ended_at - a.started_at) * 1000)::bigint as duration_ms,
       (extract(epoch from a.started_at - coalesce(a.due_at, j.due_at)) * 1000)::bigint as queue_time_ms,
       a.ended_at as recorded_at, j.id as job_id, a.attempt
from attempt_record a join job j using (seq) where a.started_at is not null;

create or replace view job_queue_health as
select type, status, count(*) as count, min(enqueued_at) as oldest_created_at,
       max(coalesce(finished_at, last_error_at)) as latest_at,
       avg(extract(epoch from finished_at - started_at)) as average_duration_s
from job_record group by type, status;
