-- The shapes that operators know from other systems (docs/operate/sql-views.md). With the schema on the search path
-- their SELECTs run as they are.

-- jobs: `failed` is what has failed and waits for its next try, whatever it waits for: its backoff, a breaker, a pause.
create or replace view jobs as
select seq as id, type, as_jsonb(payload) as payload,
       case when status = 'pending' and attempts > 0 then 'failed' else status end as status, priority, attempts,
       max_attempts, scheduled_at, run_at, started_at, finished_at as completed_at,
       case when status = 'dead' then last_error end as error_message, last_error, last_error_at, correlation_id,
       (select p.seq from job p where p.id = job_record.parent_id) as parent_job_id, created_by, dedup_key,
       enqueued_at as created_at, coalesce(finished_at, last_error_at, started_at, enqueued_at) as updated_at,
       id as job_id, tenant, queue
from job_record;

create or replace view dead_letter_jobs as
select d.seq as id, to_jsonb(j) as original_job, d.reason as error_message,
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
select type, status, count(*) as count, min(created_at) as oldest_created_at,
       max(coalesce(completed_at, last_error_at)) as latest_at,
       avg(extract(epoch from completed_at - started_at)) as average_duration_s
from jobs group by type, status;

-- Changes of these views act through the audited functions, as the role that types them; what no function stands for is
-- refused, with what to do instead. A row that has moved on since the statement began is left out of its count.

-- not_made: the columns that a statement sets to what its act has not made of them. An instant that the act sets may be
--         given, and is the act's own then.
create or replace function not_made(_old jsonb, _new jsonb, _after jsonb) returns text
language sql volatile
return (
  select string_agg(n.key, ', ' order by n.key) from jsonb_each(_new) n
  where n.value is distinct from coalesce(_old->n.key, 'null') and n.value is distinct from _after->n.key
    and not (n.key like '%\_at' and 'null' not in (n.value, _after->n.key)
             and (n.key = 'updated_at' or _after->n.key is distinct from _old->n.key)
             and (n.value#>>'{}')::timestamptz
                 <= greatest(clock_timestamp(), (_after->>n.key)::timestamptz) + interval '1 minute')
);

-- refuse_change: refuses what no act stands for, and says what to do instead.
create or replace function refuse_change() returns trigger
language plpgsql
as $$
begin
  raise exception 'view "%" takes no %', tg_table_name, lower(tg_op)
    using errcode = 'feature_not_supported', hint = case tg_table_name || ' ' || lower(tg_op)
      when 'jobs insert' then 'Enqueue it: select enqueue_v1(''[{"type": "…", "payload": {…}}]'').'
      when 'jobs delete' then 'Cancel it: update jobs set status = ''cancelled''. Retention removes what has ended.'
      when 'dead_letter_jobs insert' then 'Bury a job: update jobs set status = ''dead'', error_message = ''…''.'
      when 'dead_letter_jobs delete' then 'Close it: update dead_letter_jobs set status = ''discarded''.'
      when 'circuit_breakers delete' then 'Reset it: update circuit_breakers set state = ''closed''.'
      else 'It is counted from jobs and their attempts, which leave with retention.' end;
end
$$;

-- change_job: resets, fails, buries or cancels a job by its new status; nothing else of a job changes.
create or replace function change_job() returns trigger
language plpgsql
set search_path from current
as $$
declare
  _act      text := case when new.status = 'pending' and old.status = 'processing' then 'reset'
                         when new.status is distinct from old.status then new.status end;
  _op       json := json_build_object(
    'scope', json_build_object('tenant', old.tenant), 'id', old.job_id, 'by', session_user, 'notes', 'update of jobs',
    'reason', coalesce(nullif(new.last_error, old.last_error), new.error_message, 'set in SQL'),
    'retry_delay_s', greatest(extract(epoch from nullif(new.run_at, old.run_at) - clock_timestamp()), 0));
  _answer   json;
  _after    jobs;
  _columns  text;
begin
  if new is not distinct from old then
    return new;
  end if;
  _answer := case _act when 'reset' then reset_v1(_op) when 'failed' then fail_v1(_op) when 'dead' then bury_v1(_op)
                       when 'cancelled' then cancel_v1(_op) end;
  select * into _after from jobs where id = old.id;
  if _answer->>'refused' is not null and _after.status is distinct from old.status then
    return null;
  elsif _answer is null or _answer->>'refused' is not null then
    raise exception 'job % is %: its % cannot be set%', old.id, old.status,
      case when _act is null then not_made(to_jsonb(old), to_jsonb(new), to_jsonb(old)) else 'status' end,
      coalesce(' to ' || quote_literal(_act), '')
      using errcode = 'feature_not_supported', hint = case
        when _act = 'paused' then 'Pause its type or queue: `fairlane tasks pause`, `fairlane queues pause`, or '
          'select pause_v1(''{"kind": "type", "name": "…", "by": "…"}'').'
        when old.status = 'dead' then 'Try it again as a new job: update dead_letter_jobs set status = ''retried''.'
        when old.status = 'failed' and _act = 'pending' then 'It runs again by itself; see run_at.'
        else 'Its status can be: failed, dead, cancelled, and pending while it is in processing.' end;
  end if;
  if _act in ('failed', 'dead') then  -- either column has named the reason
    new.last_error := _after.last_error;
    new.error_message := _after.error_message;
  end if;
  new.status := _after.status;
  _columns := not_made(to_jsonb(old), to_jsonb(new), to_jsonb(_after));
  if _columns is not null then
    raise exception 'job %: % cannot be set', old.id, _columns using errcode = 'feature_not_supported',
      hint = 'Set the status alone: what belongs to it follows.';
  end if;
  return _after;
end
$$;

-- change_dead_letter: acknowledges, resolves, discards or reprocesses a dead letter.
create or replace function change_dead_letter() returns trigger
language plpgsql
set search_path from current
as $$
declare
  _op       jsonb := jsonb_build_object(
    'scope', jsonb_build_object('tenant', old.original_job->'tenant'), 'id', old.id, 'by', session_user,
    'notes', 'update of dead_letter_jobs by ' || session_user, 'new_job_id', gen_random_uuid());
  _answer   json;
  _after    dead_letter_jobs;
  _columns  text;
begin
  if new is not distinct from old then
    return new;
  end if;
  if new.acknowledged and not old.acknowledged then
    _answer := acknowledge_v1((_op || jsonb_build_object('by', coalesce(new.acknowledged_by, session_user)))::json);
  end if;
  _answer := case when new.status is not distinct from old.status then _answer else case new.status
    when 'resolved' then resolve_v1(_op::json) when 'discarded' then discard_v1(_op::json)
    when 'retried' then reprocess_v1(_op::json) end end;
  select * into _after from dead_letter_jobs where id = old.id;
  _columns := not_made(to_jsonb(old), to_jsonb(new), to_jsonb(_after));
  if _answer->>'refused' is not null and _after.status is distinct from old.status then
    return null;
  elsif _answer is null or _answer->>'refused' is not null or _columns is not null then
    raise exception 'dead letter % is %: % cannot be set', old.id, old.status, coalesce(_columns, 'this')
      using errcode = 'feature_not_supported', hint = 'Set acknowledged = true (and acknowledged_by), '
        'or status = ''resolved'', ''discarded'' or ''retried'', which makes a new job.';
  end if;
  return _after;
end
$$;

-- change_breaker: resets a breaker, or opens it until somebody resets it; also one that was not known. Who moves an
--         instant of an open one, as `opened_at` to let it try again, does not mean to keep it open.
create or replace function change_breaker() returns trigger
language plpgsql
set search_path from current
as $$
declare
  _op       json := json_build_object('name', new.service_name, 'by', session_user, 'notes', 'set in circuit_breakers');
  _answer   json;
  _after    circuit_breakers;
  _columns  text := 'service_name';
begin
  if new.service_name is not null and new.service_name = coalesce(old.service_name, new.service_name) then
    _answer := case when new.state = 'closed' then reset_breaker_v1(_op)
                    when new.state = 'open' and (new is not distinct from old or old.state is distinct from 'open')
                    then force_breaker_v1(_op) end;
    select * into _after from circuit_breakers where service_name = new.service_name;
    _columns := not_made(to_jsonb(old), to_jsonb(new), to_jsonb(_after));
  end if;
  if _answer is null or _columns is not null then
    raise exception 'breaker %: % cannot be set', new.service_name, coalesce(_columns, 'this')
      using errcode = 'feature_not_supported', hint = 'Set state = ''closed'', which resets it, '
        'or ''open'', until somebody resets it; it is half open by itself.';
  end if;
  return _after;
end
$$;

create or replace trigger change instead of update on jobs for each row execute function change_job();
create or replace trigger refuse instead of insert or delete on jobs for each row execute function refuse_change();
create or replace trigger change instead of update on dead_letter_jobs
  for each row execute function change_dead_letter();
create or replace trigger refuse instead of insert or delete on dead_letter_jobs
  for each row execute function refuse_change();
create or replace trigger change instead of insert or update on circuit_breakers
  for each row execute function change_breaker();
create or replace trigger refuse instead of delete on circuit_breakers for each row execute function refuse_change();
create or replace trigger refuse instead of insert or update or delete on job_metrics
  for each row execute function refuse_change();
create or replace trigger refuse instead of insert or update or delete on job_queue_health
  for each row execute function refuse_change();
