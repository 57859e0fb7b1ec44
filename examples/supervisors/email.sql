-- E-mail: one process for each message. (docs/guides/supervisors.md)
create schema if not exists comms;

create table comms.email_message (
  email_message_id bigserial primary key,
  to_address text,
  subject text not null,
  body text not null
);

-- comms.send_email_task, _attempt, _attempt_succeeded, _attempt_failed; comms.send_email_supervisor;
-- comms.get_email_payload, comms.record_email_success, comms.record_email_failure; comms.kickoff_send_email
select queues.create_process(
  'comms.send_email', 'comms.email_message.email_message_id', _channel => 'email', _noun => 'email', _base_s => 2);

-- The one function that is ours: what the mail server is given. Null: there is nobody to write to, the process ends.
create or replace function comms.build_email_payload(_send_email_task_id bigint) returns jsonb
language sql stable security definer set search_path = comms, pg_temp
as $$
  select jsonb_build_object('to_address', m.to_address, 'subject', m.subject, 'text', m.body)
  from send_email_task t join email_message m using (email_message_id)
  where t.send_email_task_id = _send_email_task_id and m.to_address is not null
$$;
