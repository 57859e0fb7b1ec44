-- run_function: call a supervisor or handler by its name, with the rights of the caller. Without a payload it only
--         checks that it may be called.
--
-- The name is looked up in the catalog, and what is called is put together from what the catalog says: no text of the
-- caller becomes SQL. It runs only what was granted to the worker by name: (jsonb) returns jsonb. Its search path is
-- its own, else the caller's, as if the caller had called it.
create or replace function internal.run_function(function_name text, payload jsonb) returns jsonb
language plpgsql security invoker
as $$
declare
  _path    pg_catalog.text := pg_catalog.current_setting('search_path');
  _parts   pg_catalog.text[];
  _found   record;
  _fault   pg_catalog.text;
  _remedy  pg_catalog.text;
  _call    pg_catalog.text;
  _answer  pg_catalog.jsonb;
begin
  perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);  -- nothing below is the caller's own
  begin
    _parts := parse_ident(function_name);
  exception when invalid_parameter_value then
    _parts := null;
  end;
  if cardinality(_parts) is distinct from 2 then
    _fault := 'it is not of the form schema.function';
    _remedy := 'Name a function such as comms.send_email_supervisor; cancel a task that names none.';
  else
    select format('%I.%I', n.nspname, p.proname) as name, quote_ident(n.nspname) as home,
           has_schema_privilege('worker_service_user', n.oid, 'usage') as is_reachable,
           exists (select from aclexplode(p.proacl) a join pg_roles r on r.oid = a.grantee
                   where r.rolname = 'worker_service_user' and a.privilege_type = 'EXECUTE') as is_granted
    into _found
    from pg_proc p join pg_namespace n on n.oid = p.pronamespace
    where n.nspname = _parts[1] and p.proname = _parts[2] and p.prokind = 'f' and p.provariadic = 0
      and p.proargtypes::text = 'jsonb'::regtype::oid::text and p.prorettype = 'jsonb'::regtype and not p.proretset;
    if not found then
      _fault := 'there is no function of this name that takes one jsonb and returns jsonb';
      _remedy := 'Create it, or cancel the task.';
    elsif not _found.is_granted then
      _fault := 'it is not granted to worker_service_user';
      _remedy := format('grant execute on function %s(jsonb) to worker_service_user;', _found.name);
    elsif not _found.is_reachable then
      _fault := 'its schema is closed to worker_service_user';
      _remedy := format('grant usage on schema %s to worker_service_user;', _found.home);
    end if;
  end if;
  if _fault is not null then
    raise exception 'the worker may not run function %: %',
      coalesce(quote_literal(left(function_name, 200)), 'null'), _fault
      using errcode = 'insufficient_privilege', hint = _remedy,
            constraint = 'internal.run_function';  -- by this the worker knows that nothing was called
  end if;
  if payload is null then
    return null;
  end if;
  _call := 'select ' || _found.name || '($1)';
  perform set_config('search_path', _path, true);
  execute _call into _answer using payload;
  return _answer;
end
$$;
