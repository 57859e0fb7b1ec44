-- process_tables: the root task, its attempts and how they ended, and the views under a task's own name.
create or replace function process_tables(_names jsonb) returns text
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  return queues.fill($sql$
-- {domain}.{foo}: a process that its supervisor drives. Facts are written once and never changed.
create schema if not exists {domain};

create table if not exists {domain}.{foo}_task (
  {foo}_task_id bigserial primary key,
  {subject} {type} not null unique{references},
  created_at timestamptz not null default now()
);
create table if not exists {domain}.{foo}_attempt (
  {foo}_attempt_id bigserial primary key,
  {foo}_task_id bigint not null references {domain}.{foo}_task,
  created_at timestamptz not null default now()
);
alter table {domain}.{foo}_attempt add column if not exists queue_task_id bigint;  -- of the channel
create index if not exists {foo}_attempt_task on {domain}.{foo}_attempt ({foo}_task_id);
create table if not exists {domain}.{foo}_attempt_succeeded (
  {foo}_attempt_id bigint primary key references {domain}.{foo}_attempt,
  created_at timestamptz not null default now()
);
create table if not exists {domain}.{foo}_attempt_failed (
  {foo}_attempt_id bigint primary key references {domain}.{foo}_attempt,
  error_message text,
  created_at timestamptz not null default now()
);
-- Given up: no further attempt can succeed, or there were too many.
create table if not exists {domain}.{foo}_stopped (
  {foo}_task_id bigint primary key references {domain}.{foo}_task,
  status text not null,
  error_message text not null,
  created_at timestamptz not null default now()
);

-- The same facts by their task.
create or replace view {domain}.{foo}_task_succeeded as
select a.{foo}_task_id, min(s.created_at) as created_at
from {domain}.{foo}_attempt_succeeded s join {domain}.{foo}_attempt a using ({foo}_attempt_id) group by 1;
create or replace view {domain}.{foo}_task_failed as
select a.{foo}_task_id, f.{foo}_attempt_id, f.error_message, f.created_at
from {domain}.{foo}_attempt_failed f join {domain}.{foo}_attempt a using ({foo}_attempt_id);
$sql$, _names);
end
$$;

-- process_facts: what a supervisor reads before it decides.
create or replace function process_facts(_names jsonb) returns text
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  return queues.fill($sql$
-- Input: facts.
create or replace function {domain}.has_{foo}_succeeded_attempt(_{foo}_task_id bigint) returns boolean
language sql stable security definer set search_path = {domain}, pg_temp
as $body$
  select exists (
    select from {foo}_attempt a join {foo}_attempt_succeeded s using ({foo}_attempt_id)
    where a.{foo}_task_id = _{foo}_task_id)
$body$;
create or replace function {domain}.count_{foo}_failed_attempts(_{foo}_task_id bigint) returns integer
language sql stable security definer set search_path = {domain}, pg_temp
as $body$
  select count(*)::integer from {foo}_attempt a join {foo}_attempt_failed f using ({foo}_attempt_id)
  where a.{foo}_task_id = _{foo}_task_id
$body$;
create or replace function {domain}.count_{foo}_attempts(_{foo}_task_id bigint) returns integer
language sql stable security definer set search_path = {domain}, pg_temp
as $body$
  select count(*)::integer from {foo}_attempt a where a.{foo}_task_id = _{foo}_task_id
$body$;
create or replace function {domain}.is_{foo}_stuck({argument} {type}) returns boolean
language sql stable security definer set search_path = {domain}, pg_temp
as $body$
  select exists (
    select from {foo}_task t where t.{subject} = {argument} and not has_{foo}_succeeded_attempt(t.{foo}_task_id)
      and (count_{foo}_failed_attempts(t.{foo}_task_id) >= {max_attempts}
           or exists (select from {foo}_stopped s where s.{foo}_task_id = t.{foo}_task_id)))
$body$;
$sql$, _names);
end
$$;

-- process_kickoff: starts a process once for its subject; a message says what is wrong with the input.
create or replace function process_kickoff(_names jsonb) returns text
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  return queues.fill($sql$
-- Starts the process. One that has been started already is left alone.
create or replace function {domain}.kickoff_{foo}(
  {argument} {type}, _scheduled_at timestamptz default now(), out validation_failure_message text
)
language plpgsql security definer set search_path = {domain}, pg_temp
as $body$
declare
  _{foo}_task_id bigint;
begin
  if {argument} is null then
    validation_failure_message := '{name} is required';
    return;
  end if;$sql$ || case when _names->>'table' = '' then '' else $sql$
  if not exists (select from {table} where {subject} = {argument}) then
    validation_failure_message := format('there is no {table} with {name} %s', {argument});
    return;
  end if;$sql$ end || $sql$
  insert into {foo}_task ({subject}) values ({argument}) on conflict do nothing
  returning {foo}_task_id into _{foo}_task_id;
  if _{foo}_task_id is not null then
    perform queues.enqueue('db_function', jsonb_build_object(
      'task_type', 'db_function', 'db_function', '{domain}.{foo}_supervisor', '{foo}_task_id', _{foo}_task_id),
      _scheduled_at);
  end if;
end
$body$;
$sql$, _names);
end
$$;

-- process_grants: the worker calls the supervisor and the handlers; nobody else calls anything but their owner.
create or replace function process_grants(_names jsonb) returns text
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  _handlers  text[] := case when _names->>'channel' = 'db_function' then '{}'
    else array['get_{noun}_payload', 'record_{noun}_success', 'record_{noun}_failure'] end;
  _own       text[] := case when _names->>'channel' = 'db_function' then array['run_{foo}(bigint)']
    else array['build_{noun}_payload(bigint)'] end;
begin
  return queues.fill(format($sql$
-- Grants. Who may start the process is yours to say:
--   grant usage on schema {domain} to app; grant execute on function {domain}.kickoff_{foo} to app;
revoke all on function %s from public;
grant usage on schema {domain} to worker_service_user;
grant execute on function %s to worker_service_user;
$sql$,
    (select string_agg('{domain}.' || f, ', ') from unnest(array[
      'has_{foo}_succeeded_attempt(bigint)', 'count_{foo}_failed_attempts(bigint)', 'count_{foo}_attempts(bigint)',
      'is_{foo}_stuck({type})', 'kickoff_{foo}({type}, timestamptz)', 'after_{foo}(bigint, text)',
      '{foo}_supervisor(jsonb)'] || _own || array(select h || '(jsonb)' from unnest(_handlers) h)) f),
    (select string_agg('{domain}.' || f || '(jsonb)', ', ') from unnest('{foo}_supervisor'::text || _handlers) f)),
    _names);
end
$$;
