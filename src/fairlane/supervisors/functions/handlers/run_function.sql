-- run_function: call a supervisor or handler by its name, with the rights of the caller.
--
-- The name is looked up in the catalog, and what is called is put together from what the catalog says: no text of the
-- caller becomes SQL. It runs only what was granted to the worker by name, is granted to nobody at large, and cannot be
-- led astray: (jsonb) returns jsonb, security definer, with a search path of its own that has pg_temp last.
create or replace function internal.run_function(function_name text, payload jsonb) returns jsonb
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
  _parts   text[];
  _found   record;
  _fault   text;
  _answer  jsonb;
begin
  begin
    _parts := parse_ident(function_name);
  exception when invalid_parameter_value then
    _parts := null;
  end;
  if cardinality(_parts) is distinct from 2 then
    _fault := 'it is not of the form schema.function';
  else
    select n.nspname, p.proname, p.prosecdef,
           exists (select from unnest(p.proconfig) s where s ~ '^search_path=(.*, ?)?"?pg_temp"?$') as is_pinned,
           exists (select from aclexplode(p.proacl) a join pg_roles r on r.oid = a.grantee
                   where r.rolname = 'worker_service_user' and a.privilege_type = 'EXECUTE') as is_granted,
           p.proacl is null or exists (select from aclexplode(p.proacl) a where a.grantee = 0) as is_public
    into _found
    from pg_proc p join pg_namespace n on n.oid = p.pronamespace
    where n.nspname = _parts[1] and p.proname = _parts[2] and p.prokind = 'f' and p.provariadic = 0
      and p.proargtypes::text = 'jsonb'::regtype::oid::text and p.prorettype = 'jsonb'::regtype and not p.proretset;
    _fault := case
      when not found then 'there is no function of this name that takes one jsonb and returns jsonb'
      when not _found.is_granted then 'it is not granted to worker_service_user'
      when _found.is_public then 'everybody may execute it; revoke that from public'
      when not _found.prosecdef then 'it is not security definer'
      when not _found.is_pinned then 'it has no search_path of its own that ends with pg_temp' end;
  end if;
  if _fault is not null then
    raise exception 'the worker may not run function %: %',
      coalesce(quote_literal(left(function_name, 200)), 'null'), _fault
      using errcode = 'insufficient_privilege',
            hint = 'See docs/guides/supervisors.md for what a supervisor or handler needs.';
  end if;
  execute format('select %I.%I($1)', _found.nspname, _found.proname) into _answer using payload;
  return _answer;
end
$$;
