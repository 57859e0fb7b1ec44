-- enqueue: schedule a task, in the transaction of the caller.
-- moves:  enqueue new -> ready | scheduled
-- guard:  see enqueue_one_v1, which takes a third of the time of enqueue_v1
--
-- For supervisors, handlers and kickoff functions; workers never enqueue. The tenant, the correlation id, the parent
-- and the trace are those of the task that is just processed, which a channel worker sets for its transaction. The
-- number of the new task is in the setting fairlane.task_id, until the next enqueue or the end of the transaction.
--
-- select queues.enqueue('db_function', '{"db_function": "comms.send_email_supervisor", "send_email_task_id": 123}');
create or replace function enqueue(_task_type text, _payload jsonb, _scheduled_at timestamptz default now())
returns void
language plpgsql security definer
set search_path from current
as $$
declare
  _at      timestamptz := coalesce(_scheduled_at, now());
  _id      uuid := gen_random_uuid();
  _trace   json := nullif(current_setting('fairlane.trace', true), '')::json;
  _answer  json;
begin
  if _task_type is null or _task_type !~ '^[A-Za-z_][A-Za-z0-9_.-]{0,127}$' then
    raise exception 'task type %: expected a name such as email, of letters, digits and _ . -',
      coalesce(quote_literal(_task_type), 'null') using errcode = 'invalid_parameter_value';
  end if;
  if jsonb_typeof(_payload) is distinct from 'object' then
    raise exception 'payload of task type %: expected a JSON object, got %', _task_type,
      coalesce('a JSON ' || jsonb_typeof(_payload), 'null') using errcode = 'invalid_parameter_value';
  end if;
  if _at not between '0002-01-01 00:00+00' and '9998-12-31 00:00+00' then
    raise exception 'scheduled at %: expected an instant of the years 2 to 9998', _at
      using errcode = 'invalid_parameter_value';
  end if;
  if _trace is not null then
    _trace := (
      select json_object_agg(name, _trace->>name)
      from unnest(array['traceparent', 'tracestate', 'sentry-trace', 'baggage']) name where _trace->>name is not null);
  end if;
  _answer := enqueue_one_v1(
    _id => _id, _type => _task_type, _queue => 'supervisors', _payload => _payload::text, _run_at => _at,
    _tenant => coalesce(nullif(current_setting('fairlane.tenant', true), ''), 'system'),
    _correlation_id => nullif(current_setting('fairlane.correlation_id', true), ''),
    _parent_id => nullif(current_setting('fairlane.parent_id', true), '')::uuid,
    _timeout_s => 300, _max_attempts => 5, _retry => '{"by_policy":true}', _priority => 5::smallint,
    _priority_scope => null, _payload_version => 1, _category => null, _created_by => null, _refs => null,
    _headers => _trace, _delay_s => null, _at => null, _notify => 'if_waiting', _limits => null, _waiting => null);
  if json_typeof(_answer) <> 'number' and json_array_length(_answer->'receipts') is distinct from 1 then
    raise exception 'task of type % is refused: %', _task_type, _answer
      using errcode = 'configuration_limit_exceeded',  -- passes by itself: the worker runs the caller again
            hint = 'A limit is reached, or a pause that refuses new jobs is in force.';
  end if;
  perform set_config('fairlane.task_id', case json_typeof(_answer) when 'number' then _answer::text
    else (select seq::text from job where id = _id) end, true);
end
$$;
