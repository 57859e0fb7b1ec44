-- move: enqueues what is open in "queues_before", each task once, in the order of its number, at its time.
--
-- Numbers of tasks go on above the old ones: a worker that still names an old task names no other. Who could enqueue,
-- and who owns functions of the worker, may enqueue here.
-- The worker loses the right to call the old queue's functions: the check of its functions is about the team's own.
do $move$
declare
  _task    record;
  _who     record;
  _old     record;
  _next    bigint;
  _moved   bigint := 0;
  _lost    text;
begin
  if to_regclass('queues_before.task') is null then
    return;
  end if;
  with own as (
    select relnamespace as home, relname as name from pg_class where relkind <> 'i'
    union select pronamespace, proname from pg_proc
    union select typnamespace, typname from pg_type where typtype in ('d', 'e', 'r')
  )
  select string_agg(format('%s names queues.%s', p.oid::regprocedure, o.name), ', ') into _lost
  from own o join pg_proc p
    on p.prosrc ~ format('\mqueues"?\s*\.\s*"?%s\M', regexp_replace(o.name, '(\W)', '\\\1', 'g'))
  where o.home = 'queues_before'::regnamespace
    and o.name not in (select n.name from own n where n.home = 'queues'::regnamespace)
    and p.pronamespace not in (o.home, 'queues'::regnamespace, 'pg_catalog'::regnamespace);
  if _lost is not null then
    raise exception 'functions name what Fairlane''s queue does not have: %', _lost
      using errcode = 'duplicate_schema',
            hint = 'Create them without it, or move it to a schema of your own, and run this again.';
  end if;
  create table if not exists queues_before.moved (
    task_id      bigint primary key,
    new_task_id  bigint not null,
    moved_at     timestamptz not null default now()
  );
  select greatest(max(task_id) + 1, nextval(pg_get_serial_sequence({job}, 'seq'))) into _next from queues_before.task;
  perform setval(pg_get_serial_sequence({job}, 'seq'), _next, false);
  for _task in
    select t.task_id, t.task_type::text, t.payload::jsonb, t.scheduled_at
    from queues_before.task t
    where not exists (select from queues_before.task_completed c where c.task_id = t.task_id)
      and not exists (select from queues_before.moved m where m.task_id = t.task_id)
    order by t.task_id
  loop
    perform queues.enqueue(_task.task_type, _task.payload, _task.scheduled_at);
    insert into queues_before.moved (task_id, new_task_id)
    values (_task.task_id, current_setting('fairlane.task_id')::bigint);
    _moved := _moved + 1;
  end loop;
  perform set_config('fairlane.moved', _moved::text, true);
  for _old in
    select p.oid::regprocedure as name from pg_proc p
    where p.pronamespace = 'queues_before'::regnamespace and pg_has_role(p.proowner, 'usage')
      and exists (select from aclexplode(p.proacl) a where a.grantee = 'worker_service_user'::regrole)
  loop
    execute format('revoke execute on function %s from worker_service_user', _old.name);
  end loop;
  for _who in
    select r.rolname as name from pg_roles r
    where r.rolname not in ('worker_service_user', current_user) and not r.rolsuper and (
      exists (select from pg_proc p, aclexplode(p.proacl) a
              where p.pronamespace = 'queues_before'::regnamespace and p.proname = 'enqueue' and a.grantee = r.oid)
      or exists (select from pg_proc p, aclexplode(p.proacl) a
                 where p.proowner = r.oid and a.grantee = 'worker_service_user'::regrole)
      or exists (select from pg_proc p, pg_namespace n, aclexplode(n.nspacl) a
                 where n.oid = p.pronamespace and n.nspname = 'queues_before' and p.proname = 'enqueue'
                   and p.proacl is null and a.grantee = r.oid))
  loop
    execute format('grant usage on schema queues to %I', _who.name);
    execute format('grant execute on function queues.enqueue, queues.task_outcome to %I', _who.name);
  end loop;
end
$move$;
