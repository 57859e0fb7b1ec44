-- What is granted to the worker beyond the contract, and what is risky about it.
--
-- A security definer function acts as its owner. Whoever may call it and make objects in a place where it looks for
-- unqualified names can have their own code run as that owner. Only the worker may call it, so only what the worker may
-- make counts: objects in a schema of the function's path, and temporary ones, which are looked for first where the
-- path does not name pg_temp.
with granted as (
  select p.oid, n.oid as home, n.nspname, p.oid::regprocedure::text as name, p.prosecdef,
         p.proargtypes::text = 'jsonb'::regtype::oid::text and p.prorettype = 'jsonb'::regtype and not p.proretset
           as has_shape,
         p.proacl is null or exists (select from aclexplode(p.proacl) a where a.grantee = 0) as is_public,
         (select split_part(s, '=', 2) from unnest(p.proconfig) s where s like 'search_path=%') as path
  from pg_proc p join pg_namespace n on n.oid = p.pronamespace
  where p.prokind = 'f' and p.oid <> all(array[
      'queues.dequeue_next_available_task()', 'queues.complete_task(bigint)', 'queues.fail_task(bigint, text)',
      'queues.renew_task(bigint)', 'internal.run_function(text, jsonb)']::regprocedure[])
    and exists (select from aclexplode(p.proacl) a join pg_roles r on r.oid = a.grantee
                where r.rolname = 'worker_service_user' and a.privilege_type = 'EXECUTE')
), place as (
  select g.oid, trim(both ' "' from s) as name
  from granted g, unnest(string_to_array(g.path, ',')) s
)
select name, says, remedy
from granted g, lateral (
  select 'it does not take one jsonb and return jsonb: no task can name it' as says,
         format('revoke execute on function %s from worker_service_user;', name) as remedy
  where not has_shape
  union all
  select 'it is not security definer: it has the rights of the worker, which reads no table',
         format('alter function %s security definer;', name)
  where has_shape and not prosecdef
  union all
  select 'everybody may execute it', format('revoke execute on function %s from public;', name)
  where has_shape and prosecdef and is_public
  union all
  select 'it has no search_path of its own: its caller decides what the unqualified names in it mean',
         format('alter function %s set search_path = %I, pg_temp;', name, nspname)
  where has_shape and prosecdef and path is null
  union all
  select format('the worker may make objects in schema %s, where it looks for unqualified names', p.name),
         format('revoke create on schema %I from public, worker_service_user;', p.name)
  from place p
  where p.oid = g.oid and has_shape and prosecdef and p.name <> 'pg_temp'
    and has_schema_privilege('worker_service_user', to_regnamespace(quote_ident(p.name)), 'create')
  union all
  select 'it looks for unqualified tables among temporary ones first, which the worker may make',
         format('alter function %s set search_path = %s, pg_temp;', name, path)
  where has_shape and prosecdef and path <> '""' and path !~ '(^|[ ,])"?pg_temp"?(,|$)'
    and has_database_privilege('worker_service_user', current_database(), 'temporary')
) f
order by name, says
