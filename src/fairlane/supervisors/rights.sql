-- rights: who may do what with the queue contract. Every migration of it runs this behind its own changes, and so does
-- the isolation of the store; where the contract is not installed it does nothing.
--
--   functions  belong to who owns the functions of the core, and act as that one
--   tables     and views belong to who owns those of the core; nobody else reads them but who may read jobs
--   worker_service_user  calls dequeue, complete, fail, renew and run_function; no right on any table
--   who may enqueue jobs may enqueue tasks, and make processes in schemas of their own
do $rights$
declare
  _engine  name;
  _owner   name;
  _prefix  text;
  _found   record;
begin
  if to_regprocedure('internal.run_function(text, jsonb)') is null or to_regclass('queues.error') is null then
    return;
  end if;
  if not exists (select from pg_catalog.pg_roles where rolname = 'worker_service_user') then
    create role worker_service_user nologin;
  end if;
  select pg_get_userbyid(p.proowner) into _engine from pg_catalog.pg_proc p
  where p.pronamespace = {schema}::regnamespace and p.proname = 'enqueue_v1';
  select pg_get_userbyid(c.relowner) into _owner from pg_catalog.pg_class c
  where c.relnamespace = {schema}::regnamespace and c.relname = 'job';

  execute format('alter schema queues owner to %I', _owner);
  for _found in
    select c.relname as name, case c.relkind when 'v' then 'view' else 'table' end as kind
    from pg_catalog.pg_class c
    where c.relnamespace = 'queues'::regnamespace and c.relkind in ('r', 'v') and pg_get_userbyid(c.relowner) <> _owner
  loop
    execute format('alter %s queues.%I owner to %I', _found.kind, _found.name, _owner);
  end loop;
  revoke all on all tables in schema queues from public, worker_service_user;
  execute format('grant usage, create on schema queues to %I', _engine);
  execute format('grant usage, create on schema internal to %I', _engine);
  for _found in
    select p.oid::regprocedure as name from pg_catalog.pg_proc p
    where p.pronamespace = 'queues'::regnamespace or p.oid = 'internal.run_function(text, jsonb)'::regprocedure
  loop
    execute format('alter function %s owner to %I', _found.name, _engine);
    execute format('revoke all on function %s from public, worker_service_user', _found.name);
  end loop;
  revoke all on schema queues from public;
  if _engine <> _owner then  -- isolated: the engine owns no schema
    execute format('revoke create on schema queues from %I', _engine);
    execute format('revoke create on schema internal from %I', _engine);
    execute format('grant select on queues.task, queues.task_lease, queues.task_completed to %I', _engine);
    execute format('grant select, insert, update, delete on queues.error to %I', _engine);  -- update: to lock
    _prefix := left(_engine, -length('_engine'));
    execute format('grant usage on schema queues to %I, %I, %I', _prefix || '_enqueue', _prefix || '_api',
                   _prefix || '_read');
    for _found in
      select p.oid::regprocedure as name from pg_catalog.pg_proc p where p.pronamespace = 'queues'::regnamespace
        and (p.proname in ('enqueue', 'task_outcome', 'create_process', 'fill') or p.proname ~ '^process_|_sql$')
    loop
      execute format('grant execute on function %s to %I, %I', _found.name, _prefix || '_enqueue', _prefix || '_api');
    end loop;
    execute format('grant select on queues.task, queues.task_lease, queues.task_completed to %I, %I',
                   _prefix || '_api', _prefix || '_read');
  end if;
  for _found in  -- supervisors of whoever was let enqueue look at their tasks, too, once there is a release that can
    select distinct a.grantee::regrole as name from pg_catalog.pg_proc p, aclexplode(p.proacl) a
    where p.oid = 'queues.enqueue(text, jsonb, timestamptz)'::regprocedure and a.privilege_type = 'EXECUTE'
      and to_regprocedure('queues.task_outcome(bigint)') is not null
  loop
    execute format('grant execute on function queues.task_outcome to %s', _found.name);
  end loop;
  grant usage on schema queues, internal to worker_service_user;
  grant execute on function queues.dequeue_next_available_task, queues.complete_task, queues.fail_task,
    queues.renew_task, internal.run_function to worker_service_user;
end
$rights$;
