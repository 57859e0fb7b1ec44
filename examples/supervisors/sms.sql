-- SMS: as e-mail, through another channel.
create schema if not exists comms;

create table comms.sms_message (
  sms_message_id bigserial primary key,
  to_number text,
  body text not null
);

select queues.create_process(
  'comms.send_sms', 'comms.sms_message.sms_message_id', _channel => 'sms', _noun => 'sms', _base_s => 2);

create or replace function comms.build_sms_payload(_send_sms_task_id bigint) returns jsonb
language sql stable security definer set search_path = comms, pg_temp
as $$
  select jsonb_build_object('to_number', m.to_number, 'body', m.body)
  from send_sms_task t join sms_message m using (sms_message_id)
  where t.send_sms_task_id = _send_sms_task_id and m.to_number is not null
$$;
