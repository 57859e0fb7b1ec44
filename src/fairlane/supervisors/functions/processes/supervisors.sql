-- supervisor_sql: the supervisor itself; `_output` is how an attempt is made and what is done with it.
create or replace function supervisor_sql(_names jsonb, _output text) returns text
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  return queues.fill(replace($sql$
-- Called once when the process is over: `_error_message` is null if it succeeded. Again for one that stops after it was
-- started again. Yours to replace.
do $own$ begin
if to_regprocedure('{domain}.after_{foo}(bigint, text)') is null then
  create function {domain}.after_{foo}(_{foo}_task_id bigint, _error_message text) returns void
  language plpgsql security definer set search_path = {domain}, pg_temp as $body$ begin end $body$;
end if;
end $own$;

-- Drives the process: it runs again and again until the process is over, and makes one attempt at a time.
create or replace function {domain}.{foo}_supervisor(_payload jsonb) returns jsonb
language plpgsql security definer set search_path = {domain}, pg_temp
as $body$
declare
  _max_attempts   constant integer := {max_attempts};
  _task           {foo}_task;
  _attempt_id     bigint;
  _restarts       integer;
  _num_failures   integer;
  _new_failures   integer;
  _num_attempts   integer;
  _next_check_at  timestamptz;
  _result         jsonb;
begin
  -- Input
  if coalesce(_payload->>'{foo}_task_id', '') !~ '^[0-9]{1,18}$' then
    return '{"status": "missing_task_id"}';
  end if;
  -- Facts stay: a process that has succeeded needs no lock, and its last check writes nothing.
  if has_{foo}_succeeded_attempt((_payload->>'{foo}_task_id')::bigint) then
    return '{"status": "succeeded"}';
  end if;
  -- Handlers lock this row first, too; no key update: others may write facts that refer to it.
  select * into _task from {foo}_task where {foo}_task_id = (_payload->>'{foo}_task_id')::bigint for no key update;
  if not found then
    return '{"status": "task_not_found"}';
  end if;
  -- Again: it may have succeeded while this waited for the row.
  if has_{foo}_succeeded_attempt(_task.{foo}_task_id) then
    return '{"status": "succeeded"}';
  end if;
  _restarts := count_{foo}_restarts(_task.{foo}_task_id);
  if _payload->'restarts' < to_jsonb(_restarts) then  -- it was started again since: another look follows that
    return '{"status": "succeeded"}';
  end if;
  select jsonb_build_object('status', s.status) into _result from {foo}_stopped s
  where s.{foo}_task_id = _task.{foo}_task_id and s.restarts = _restarts;
  if found then
    return _result;
  end if;
  _num_failures := count_{foo}_failed_attempts(_task.{foo}_task_id);
  _num_attempts := count_{foo}_attempts(_task.{foo}_task_id);
  -- A task that was cancelled, died or was removed calls no handler: nobody else writes the fact of its attempt.
  if _num_attempts > _num_failures then
    insert into {foo}_attempt_failed ({foo}_attempt_id, error_message)
    select a.{foo}_attempt_id, 'no result: its task is ' || queues.task_outcome(a.queue_task_id)
    from {foo}_attempt a
    where a.{foo}_task_id = _task.{foo}_task_id and queues.task_outcome(a.queue_task_id) is not null
      and not exists (select from {foo}_attempt_failed f where f.{foo}_attempt_id = a.{foo}_attempt_id)
      and not exists (select from {foo}_attempt_succeeded s where s.{foo}_attempt_id = a.{foo}_attempt_id)
    on conflict do nothing;
    _num_failures := count_{foo}_failed_attempts(_task.{foo}_task_id);
  end if;

  -- Compute
  _new_failures := count_{foo}_new_failures(_task.{foo}_task_id);
  if _new_failures >= _max_attempts then
    insert into {foo}_stopped ({foo}_task_id, restarts, status, error_message)
    values (_task.{foo}_task_id, _restarts, 'max_attempts_reached', format('%s attempts have failed', _new_failures));
    perform after_{foo}(_task.{foo}_task_id, format('%s attempts have failed', _new_failures));
    return '{"status": "max_attempts_reached"}';
  end if;
  _next_check_at := now() + least({cap_s}, {base_s} * 2.0 ^ least(_new_failures, 30)) * interval '1 second';

  -- Output
  if _num_attempts = _num_failures then
    insert into {foo}_attempt ({foo}_task_id) values (_task.{foo}_task_id) returning {foo}_attempt_id into _attempt_id;
  end if;
<output>  perform queues.enqueue('db_function', _payload || jsonb_build_object('restarts', _restarts), _next_check_at);
  return '{"status": "succeeded"}';
end
$body$;
$sql$, '<output>', _output), _names);
end
$$;

-- process_of_sql: a process whose work is SQL alone: the supervisor does it.
create or replace function process_of_sql(_names jsonb) returns text
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  return queues.fill($sql$
-- Does the work of one attempt, in a transaction with its fact. Yours to replace. It answers with an envelope:
--   {"status": "succeeded"}, {"status": "waiting"}: ask again at the next check,
--   {"status": "…", "error": "…"}: failed,
--   {"validation_failure_message": "…"}: it cannot succeed, the process stops. What it raises is a failed attempt.
do $own$ begin
if to_regprocedure('{domain}.run_{foo}(bigint)') is null then
  create function {domain}.run_{foo}(_{foo}_task_id bigint) returns jsonb
  language plpgsql security definer set search_path = {domain}, pg_temp
  as $body$ begin raise exception 'write {domain}.run_{foo}: it does the work of the process'; end $body$;
end if;
end $own$;
$sql$, _names) || queues.supervisor_sql(_names, $sql$  _attempt_id := coalesce(_attempt_id, (
    select max({foo}_attempt_id) from {foo}_attempt where {foo}_task_id = _task.{foo}_task_id));
  begin
    _result := run_{foo}(_task.{foo}_task_id);
  exception when others then
    _result := jsonb_build_object('status', 'failed', 'error', sqlerrm);
  end;
  if _result->>'status' = 'succeeded' then
    insert into {foo}_attempt_succeeded ({foo}_attempt_id) values (_attempt_id);
    perform after_{foo}(_task.{foo}_task_id, null);
    return '{"status": "succeeded"}';
  end if;
  if _result->>'status' is distinct from 'waiting' then
    insert into {foo}_attempt_failed ({foo}_attempt_id, error_message)
    values (_attempt_id, coalesce(_result->>'validation_failure_message', _result->>'error', _result->>'status',
                                  'run_{foo} answered nothing'));
  end if;
  if _result ? 'validation_failure_message' then
    insert into {foo}_stopped ({foo}_task_id, restarts, status, error_message)
    values (_task.{foo}_task_id, _restarts, 'validation_failed', _result->>'validation_failure_message');
    perform after_{foo}(_task.{foo}_task_id, _result->>'validation_failure_message');
    return '{"status": "validation_failed"}';
  end if;
$sql$);
end
$$;

-- process_of_channel: a process whose attempts a provider delivers: the supervisor enqueues them.
create or replace function process_of_channel(_names jsonb) returns text
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  return queues.supervisor_sql(_names, $sql$  if _attempt_id is not null then
    perform queues.enqueue('{channel}', jsonb_build_object(
      'task_type', '{channel}', '{foo}_task_id', _task.{foo}_task_id, '{foo}_attempt_id', _attempt_id,
      '{name}', _task.{subject}, 'before_handler', '{domain}.get_{noun}_payload',
      'success_handler', '{domain}.record_{noun}_success', 'error_handler', '{domain}.record_{noun}_failure'));
    update {foo}_attempt set queue_task_id = current_setting('fairlane.task_id')::bigint
    where {foo}_attempt_id = _attempt_id;
  end if;
$sql$) || queues.handlers_sql(_names);
end
$$;
