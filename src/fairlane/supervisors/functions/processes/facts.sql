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
-- Given up: no further attempt can succeed, or there were too many. Once for each time it was started.
create table if not exists {domain}.{foo}_stopped (
  {foo}_task_id bigint not null references {domain}.{foo}_task,
  status text not null,
  error_message text not null,
  created_at timestamptz not null default now()
);
alter table {domain}.{foo}_stopped add column if not exists restarts integer not null default 0;
alter table {domain}.{foo}_stopped drop constraint if exists {foo}_stopped_pkey;
create unique index if not exists {foo}_stopped_once on {domain}.{foo}_stopped ({foo}_task_id, restarts);
-- Started again by somebody. Failures of before count no more.
create table if not exists {domain}.{foo}_restarted (
  {foo}_task_id bigint not null references {domain}.{foo}_task,
  restarts integer not null,
  failed_attempts integer not null,
  restarted_by text not null,
  notes text,
  created_at timestamptz not null default now(),
  primary key ({foo}_task_id, restarts)
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
create or replace function {domain}.count_{foo}_restarts(_{foo}_task_id bigint) returns integer
language sql stable security definer set search_path = {domain}, pg_temp
as $body$
  select count(*)::integer from {foo}_restarted r where r.{foo}_task_id = _{foo}_task_id
$body$;
-- Since it was started, or started again.
create or replace function {domain}.count_{foo}_new_failures(_{foo}_task_id bigint) returns integer
language sql stable security definer set search_path = {domain}, pg_temp
as $body$
  select count_{foo}_failed_attempts(_{foo}_task_id) - coalesce(max(r.failed_attempts), 0)
  from {foo}_restarted r where r.{foo}_task_id = _{foo}_task_id
$body$;
create or replace function {domain}.has_{foo}_stopped(_{foo}_task_id bigint) returns boolean
language sql stable security definer set search_path = {domain}, pg_temp
as $body$
  select exists (
    select from {foo}_stopped s
    where s.{foo}_task_id = _{foo}_task_id and s.restarts = count_{foo}_restarts(_{foo}_task_id))
$body$;
create or replace function {domain}.is_{foo}_stuck({argument} {type}) returns boolean
language sql stable security definer set search_path = {domain}, pg_temp
as $body$
  select exists (
    select from {foo}_task t where t.{subject} = {argument} and not has_{foo}_succeeded_attempt(t.{foo}_task_id)
      and (count_{foo}_new_failures(t.{foo}_task_id) >= {max_attempts} or has_{foo}_stopped(t.{foo}_task_id)))
$body$;
$sql$, _names);
end
$$;

-- process_kickoff: starts a process once for its subject, and again; a message says what is wrong with the input.
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

-- Starts it again after it has stopped, or where nobody looks after it any more. A look that still waits ends by
-- itself.
create or replace function {domain}.restart_{foo}(
  {argument} {type}, _notes text default null, _by text default session_user, out validation_failure_message text
)
language plpgsql security definer set search_path = {domain}, pg_temp
as $body$
declare
  _{foo}_task_id bigint;
  _restarts integer;
begin
  select t.{foo}_task_id into _{foo}_task_id from {foo}_task t where t.{subject} = {argument} for no key update;
  if not found then
    validation_failure_message := format('no process of {name} %s was started', coalesce({argument}::text, 'null'));
    return;
  end if;
  if has_{foo}_succeeded_attempt(_{foo}_task_id) then
    validation_failure_message := format('the process of {name} %s has succeeded', {argument});
    return;
  end if;
  _restarts := count_{foo}_restarts(_{foo}_task_id) + 1;
  insert into {foo}_restarted ({foo}_task_id, restarts, failed_attempts, restarted_by, notes)
  values (_{foo}_task_id, _restarts, count_{foo}_failed_attempts(_{foo}_task_id), coalesce(_by, session_user), _notes);
  perform queues.enqueue('db_function', jsonb_build_object(
    'task_type', 'db_function', 'db_function', '{domain}.{foo}_supervisor', '{foo}_task_id', _{foo}_task_id,
    'restarts', _restarts));
end
$body$;

-- The same for those that have stopped, the first to stop first; how many.
create or replace function {domain}.restart_stopped_{foo}(
  _notes text default null, _by text default session_user, _limit integer default 1000
) returns integer
language plpgsql security definer set search_path = {domain}, pg_temp
as $body$
declare
  _stopped record;
  _number integer := 0;
begin
  for _stopped in
    select t.{subject} as subject from {foo}_stopped s join {foo}_task t using ({foo}_task_id)
    where s.restarts = count_{foo}_restarts(s.{foo}_task_id) and not has_{foo}_succeeded_attempt(s.{foo}_task_id)
    order by s.created_at, s.{foo}_task_id limit _limit
  loop
    perform restart_{foo}(_stopped.subject, _notes, _by);
    _number := _number + 1;
  end loop;
  return _number;
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
--   grant usage on schema {domain} to app;
--   grant execute on function {domain}.kickoff_{foo}, {domain}.restart_{foo} to app;
revoke all on function %s from public;
grant usage on schema {domain} to worker_service_user;
grant execute on function %s to worker_service_user;
$sql$,
    (select string_agg('{domain}.' || f, ', ') from unnest(array[
      'has_{foo}_succeeded_attempt(bigint)', 'count_{foo}_failed_attempts(bigint)', 'count_{foo}_attempts(bigint)',
      'count_{foo}_restarts(bigint)', 'count_{foo}_new_failures(bigint)', 'has_{foo}_stopped(bigint)',
      'is_{foo}_stuck({type})', 'kickoff_{foo}({type}, timestamptz)', 'restart_{foo}({type}, text, text)',
      'restart_stopped_{foo}(text, text, integer)', 'after_{foo}(bigint, text)', '{foo}_supervisor(jsonb)']
      || _own || array(select h || '(jsonb)' from unnest(_handlers) h)) f),
    (select string_agg('{domain}.' || f || '(jsonb)', ', ') from unnest('{foo}_supervisor'::text || _handlers) f)),
    _names);
end
$$;
