-- The database of a team that has the document's Go worker: written after the document, and by nobody who knows Fairlane.
do $$ begin
  create role worker_service_user nologin;
exception when duplicate_object then null;  -- another database of this server has it
end $$;
create schema queues;
create schema internal;
create schema comms;

create table queues.task (
  task_id bigserial primary key,
  task_type text not null check (task_type in ('db_function', 'email', 'sms', 'file_delete')),
  payload jsonb not null,
  enqueued_at timestamptz not null default now(),
  scheduled_at timestamptz not null default now()
);
create table queues.task_lease (
  task_lease_id bigserial primary key,
  task_id bigint not null references queues.task,
  leased_at timestamptz not null default now(),
  expires_at timestamptz not null
);
create table queues.task_completed (
  task_id bigint primary key references queues.task,
  completed_at timestamptz not null default now()
);
create table queues.error (
  error_id bigserial primary key,
  task_id bigint references queues.task,
  error_message text,
  created_at timestamptz not null default now()
);

create function queues.enqueue(_task_type text, _payload jsonb, _scheduled_at timestamptz default now()) returns void
language sql security definer as $$
  insert into queues.task (task_type, payload, scheduled_at) values (_task_type, _payload, _scheduled_at);
$$;

create function queues.dequeue_next_available_task() returns queues.task
language plpgsql security definer as $$
declare
  _task queues.task;
begin
  select t.* into _task from queues.task t
  where t.scheduled_at <= now()
    and not exists (select 1 from queues.task_completed c where c.task_id = t.task_id)
    and not exists (select 1 from queues.task_lease l where l.task_id = t.task_id and l.expires_at > now())
  order by t.scheduled_at, t.task_id
  limit 1 for update skip locked;
  if _task.task_id is null then
    return null;
  end if;
  insert into queues.task_lease (task_id, expires_at) values (_task.task_id, now() + interval '5 minutes');
  return _task;
end $$;

create function queues.complete_task(_task_id bigint) returns void language sql security definer as $$
  insert into queues.task_completed (task_id) values (_task_id) on conflict do nothing;
$$;

create function queues.fail_task(_task_id bigint, _error_message text) returns void language sql security definer as $$
  insert into queues.error (task_id, error_message) values (_task_id, _error_message);
$$;

create function internal.run_function(function_name text, payload jsonb) returns jsonb
language plpgsql security invoker as $$
declare
  _result jsonb;
begin
  execute 'select ' || function_name || '($1)' into _result using payload;
  return _result;
end $$;

create function internal.mask(_address text) returns text language sql as $$ select left(_address, 1) || '***' $$;

-- Facts
create table comms.email_message (
  email_message_id bigserial primary key, to_address text, subject text not null, body text not null);
create table comms.send_email_task (
  send_email_task_id bigserial primary key,
  email_message_id bigint not null unique references comms.email_message,
  created_at timestamptz default now());
create table comms.send_email_attempt (
  send_email_attempt_id bigserial primary key,
  send_email_task_id bigint not null references comms.send_email_task,
  created_at timestamptz default now());
create table comms.send_email_attempt_succeeded (
  send_email_attempt_id bigint primary key references comms.send_email_attempt,
  created_at timestamptz default now());
create table comms.send_email_attempt_failed (
  send_email_attempt_id bigint primary key references comms.send_email_attempt,
  error_message text, created_at timestamptz default now());

create function comms.has_send_email_succeeded_attempt(_send_email_task_id bigint) returns boolean language sql stable as $$
  select exists (select 1 from comms.send_email_attempt a join comms.send_email_attempt_succeeded s
    on s.send_email_attempt_id = a.send_email_attempt_id where a.send_email_task_id = _send_email_task_id)
$$;
create function comms.count_send_email_failed_attempts(_send_email_task_id bigint) returns integer language sql stable as $$
  select count(*)::integer from comms.send_email_attempt a join comms.send_email_attempt_failed f
    on f.send_email_attempt_id = a.send_email_attempt_id where a.send_email_task_id = _send_email_task_id
$$;
create function comms.count_send_email_attempts(_send_email_task_id bigint) returns integer language sql stable as $$
  select count(*)::integer from comms.send_email_attempt where send_email_task_id = _send_email_task_id
$$;

create function comms.kickoff_send_email(
  _email_message_id bigint, _scheduled_at timestamptz default now(), out validation_failure_message text
) language plpgsql security definer as $$
declare
  _send_email_task_id bigint;
begin
  if not exists (select 1 from comms.email_message where email_message_id = _email_message_id) then
    validation_failure_message := 'email message not found';
    return;
  end if;
  insert into comms.send_email_task (email_message_id) values (_email_message_id) on conflict do nothing
  returning send_email_task_id into _send_email_task_id;
  if _send_email_task_id is not null then
    perform queues.enqueue('db_function', jsonb_build_object('task_type', 'db_function',
      'db_function', 'comms.send_email_supervisor', 'send_email_task_id', _send_email_task_id), _scheduled_at);
  end if;
end $$;

create function comms.send_email_supervisor(_payload jsonb) returns jsonb language plpgsql security definer as $$
declare
  _task_id bigint := (_payload->>'send_email_task_id')::bigint;
  _max_attempts constant integer := 3;
  _num_failures integer;
  _attempt_id bigint;
begin
  perform 1 from comms.send_email_task where send_email_task_id = _task_id for update;
  if not found then
    return jsonb_build_object('status', 'task_not_found');
  end if;
  if comms.has_send_email_succeeded_attempt(_task_id) then
    return jsonb_build_object('status', 'succeeded');
  end if;
  _num_failures := comms.count_send_email_failed_attempts(_task_id);
  if _num_failures >= _max_attempts then
    return jsonb_build_object('status', 'max_attempts_reached');
  end if;
  if comms.count_send_email_attempts(_task_id) = _num_failures then
    insert into comms.send_email_attempt (send_email_task_id) values (_task_id)
    returning send_email_attempt_id into _attempt_id;
    perform queues.enqueue('email', jsonb_build_object('task_type', 'email', 'send_email_attempt_id', _attempt_id,
      'before_handler', 'comms.get_email_payload', 'success_handler', 'comms.record_email_success',
      'error_handler', 'comms.record_email_failure'));
  end if;
  perform queues.enqueue('db_function', _payload, now() + (2 ^ _num_failures) * interval '1 second');
  return jsonb_build_object('status', 'succeeded');
end $$;

create function comms.get_email_payload(payload jsonb) returns jsonb language plpgsql security definer as $$
declare
  _message comms.email_message;
begin
  select m.* into _message from comms.send_email_attempt a
  join comms.send_email_task t on t.send_email_task_id = a.send_email_task_id
  join comms.email_message m on m.email_message_id = t.email_message_id
  where a.send_email_attempt_id = (payload->>'send_email_attempt_id')::bigint;
  if _message.to_address is null then
    return jsonb_build_object('success', false, 'validation_failure_message', 'the message has no address');
  end if;
  return jsonb_build_object('success', true, 'payload', jsonb_build_object(
    'to_address', _message.to_address, 'subject', _message.subject, 'text', _message.body));
end $$;

create function comms.record_email_success(payload jsonb) returns jsonb language plpgsql security definer as $$
begin
  insert into comms.send_email_attempt_succeeded (send_email_attempt_id)
  values ((payload->'original_payload'->>'send_email_attempt_id')::bigint) on conflict do nothing;
  return jsonb_build_object('success', true);
end $$;

create function comms.record_email_failure(payload jsonb) returns jsonb language plpgsql security definer as $$
begin
  insert into comms.send_email_attempt_failed (send_email_attempt_id, error_message)
  values ((payload->'original_payload'->>'send_email_attempt_id')::bigint, payload->>'error') on conflict do nothing;
  return jsonb_build_object('success', true);
end $$;

-- Security and grants
grant usage on schema queues, internal, comms to worker_service_user;
grant execute on function queues.dequeue_next_available_task, queues.complete_task, queues.fail_task,
  internal.run_function, comms.send_email_supervisor, comms.get_email_payload, comms.record_email_success,
  comms.record_email_failure to worker_service_user;
