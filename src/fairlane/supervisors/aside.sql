-- aside: puts the schema "queues" of another worker aside, as "queues_before", with its internal.run_function.
--
-- Refused while that worker holds a task: it would be processed twice, and its number means another task from then on.
-- From here to the end of the transaction nobody enqueues or leases: they wait, and then meet the new functions.
do $aside$
declare
  _held    bigint;
  _until   timestamptz;
  _bound   text;
begin
  if to_regnamespace('queues') is null or to_regclass('queues.schema_version') is not null then
    return;
  end if;
  if to_regclass('queues.task') is null or to_regclass('queues.task_lease') is null
    or to_regclass('queues.task_completed') is null then
    raise exception 'schema "queues" has no tables task, task_lease and task_completed: there is nothing to take over'
      using errcode = 'duplicate_schema', hint = 'Rename that schema, or install the supervisors in another database.';
  end if;
  if to_regnamespace('queues_before') is not null then
    raise exception 'schema "queues_before" exists, and "queues" would be put aside under that name'
      using errcode = 'duplicate_schema', hint = 'Rename it.';
  end if;
  lock table queues.task, queues.task_lease, queues.task_completed in access exclusive mode;
  select count(distinct l.task_id), max(l.expires_at) into _held, _until
  from queues.task_lease l
  where l.expires_at > clock_timestamp()
    and not exists (select from queues.task_completed c where c.task_id = l.task_id);
  if _held > 0 then
    raise exception 'the worker that is there holds tasks (%) until %', _held, to_char(_until at time zone 'UTC',
      'YYYY-MM-DD HH24:MI:SS "UTC"')
      using errcode = 'duplicate_schema', hint = 'Stop it and run this again, at the latest after that time.';
  end if;
  select string_agg(distinct d.objid::regprocedure::text, ', ') into _bound
  from pg_depend d join pg_proc p on p.oid = d.objid
  where d.classid = 'pg_proc'::regclass and p.prosqlbody is not null and p.pronamespace <> 'queues'::regnamespace and (
    d.refclassid = 'pg_proc'::regclass
      and d.refobjid in (select oid from pg_proc where pronamespace = 'queues'::regnamespace)
    or d.refclassid = 'pg_class'::regclass
      and d.refobjid in (select oid from pg_class where relnamespace = 'queues'::regnamespace));
  if _bound is not null then
    raise exception 'functions written with "begin atomic" are bound to the old queue: %', _bound
      using errcode = 'duplicate_schema', hint = 'Create them again with a body between $$ and $$, and run this again.';
  end if;
  select string_agg(format('alter table %s drop constraint %I;', c.conrelid::regclass, c.conname), ' ') into _bound
  from pg_constraint c join pg_class old on old.oid = c.confrelid join pg_class t on t.oid = c.conrelid
  where c.contype = 'f' and old.relnamespace = 'queues'::regnamespace and t.relnamespace <> old.relnamespace;
  if _bound is not null then
    raise exception 'tables refer to the tables of the old queue, which get no new tasks'
      using errcode = 'duplicate_schema', hint = format('Run this, and then the take-over again: %s', _bound);
  end if;
  alter schema queues rename to queues_before;
  if to_regprocedure('internal.run_function(text, jsonb)') is not null then
    alter function internal.run_function(text, jsonb) set schema queues_before;
  end if;
end
$aside$;
