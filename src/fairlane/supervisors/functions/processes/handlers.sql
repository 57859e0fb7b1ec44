-- handlers_sql: the before, success and error handler of a process with a channel.
create or replace function handlers_sql(_names jsonb) returns text
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  return queues.fill($sql$
-- Makes what the provider is given. Yours to replace. Null: there is nothing to deliver, the process stops.
do $own$ begin
if to_regprocedure('{domain}.build_{noun}_payload(bigint)') is null then
  create function {domain}.build_{noun}_payload(_{foo}_task_id bigint) returns jsonb
  language plpgsql security definer set search_path = {domain}, pg_temp
  as $body$ begin raise exception 'write {domain}.build_{noun}_payload: what the provider is given'; end $body$;
end if;
end $own$;

-- Before a delivery. Nothing is delivered for a process that is over, or for an attempt that has failed: another one
-- follows it. So end a dead letter that is reprocessed late, and a task whose worker died behind its last handler.
create or replace function {domain}.get_{noun}_payload(_payload jsonb) returns jsonb
language plpgsql security definer set search_path = {domain}, pg_temp
as $body$
declare
  _attempt   {foo}_attempt;
  _over      text;
  _provider  jsonb;
begin
  if coalesce(_payload->>'{foo}_attempt_id', '') !~ '^[0-9]{1,18}$' then
    return '{"status": "missing_attempt_id"}';
  end if;
  select * into _attempt from {foo}_attempt where {foo}_attempt_id = (_payload->>'{foo}_attempt_id')::bigint;
  if not found then
    return '{"status": "attempt_not_found"}';
  end if;
  _over := case
    when has_{foo}_succeeded_attempt(_attempt.{foo}_task_id) then 'already_succeeded'
    when has_{foo}_stopped(_attempt.{foo}_task_id) then 'already_stopped'
    when exists (select from {foo}_attempt_failed where {foo}_attempt_id = _attempt.{foo}_attempt_id)
      then 'already_failed' end;
  if _over is not null then
    return jsonb_build_object('status', _over);
  end if;
  _provider := build_{noun}_payload(_attempt.{foo}_task_id);
  if _provider is null then
    return '{"status": "validation_failed", "validation_failure_message": "there is nothing to deliver"}';
  end if;
  return jsonb_build_object('status', 'succeeded', 'payload', _provider);
end
$body$;

-- After a delivery: the fact, once. A success that comes after the supervisor has given its attempt up counts while the
-- process has not stopped. The task's row is locked first, as by the supervisor.
create or replace function {domain}.record_{noun}_success(_payload jsonb) returns jsonb
language plpgsql security definer set search_path = {domain}, pg_temp
as $body$
declare
  _attempt        {foo}_attempt;
  _has_succeeded  boolean;
begin
  if coalesce(_payload->'original_payload'->>'{foo}_attempt_id', '') !~ '^[0-9]{1,18}$' then
    return '{"status": "missing_attempt_id"}';
  end if;
  select * into _attempt from {foo}_attempt
  where {foo}_attempt_id = (_payload->'original_payload'->>'{foo}_attempt_id')::bigint;
  if not found then
    return '{"status": "attempt_not_found"}';
  end if;
  perform from {foo}_task where {foo}_task_id = _attempt.{foo}_task_id for no key update;
  if has_{foo}_stopped(_attempt.{foo}_task_id) then
    return '{"status": "already_stopped"}';
  end if;
  _has_succeeded := has_{foo}_succeeded_attempt(_attempt.{foo}_task_id);
  insert into {foo}_attempt_succeeded ({foo}_attempt_id) values (_attempt.{foo}_attempt_id) on conflict do nothing;
  if not _has_succeeded then
    perform after_{foo}(_attempt.{foo}_task_id, null);
  end if;
  return '{"status": "succeeded"}';
end
$body$;

-- After a delivery that failed. One that cannot succeed ends the process, unless another attempt has succeeded.
create or replace function {domain}.record_{noun}_failure(_payload jsonb) returns jsonb
language plpgsql security definer set search_path = {domain}, pg_temp
as $body$
declare
  _attempt  {foo}_attempt;
begin
  if coalesce(_payload->'original_payload'->>'{foo}_attempt_id', '') !~ '^[0-9]{1,18}$' then
    return '{"status": "missing_attempt_id"}';
  end if;
  select * into _attempt from {foo}_attempt
  where {foo}_attempt_id = (_payload->'original_payload'->>'{foo}_attempt_id')::bigint;
  if not found then
    return '{"status": "attempt_not_found"}';
  end if;
  perform from {foo}_task where {foo}_task_id = _attempt.{foo}_task_id for no key update;
  if exists (select from {foo}_attempt_succeeded where {foo}_attempt_id = _attempt.{foo}_attempt_id) then
    return '{"status": "already_succeeded"}';
  end if;
  insert into {foo}_attempt_failed ({foo}_attempt_id, error_message)
  values (_attempt.{foo}_attempt_id, _payload->>'error') on conflict do nothing;
  if _payload->>'validation_failure_message' is not null
    and not has_{foo}_succeeded_attempt(_attempt.{foo}_task_id) then
    insert into {foo}_stopped ({foo}_task_id, restarts, status, error_message)
    values (_attempt.{foo}_task_id, count_{foo}_restarts(_attempt.{foo}_task_id), 'validation_failed',
            _payload->>'validation_failure_message')
    on conflict do nothing;
    if found then
      perform after_{foo}(_attempt.{foo}_task_id, _payload->>'validation_failure_message');
    end if;
  end if;
  return '{"status": "succeeded"}';
end
$body$;
$sql$, _names);
end
$$;
