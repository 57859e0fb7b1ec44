-- private: takes the right to call functions from everybody (PUBLIC), which PostgreSQL gives to each new one.
-- Whoever reads a view calls the functions in it: those stay as they are.
do $private$
declare
  _found  record;
begin
  for _found in
    select p.oid::regprocedure as name from pg_proc p
    where p.pronamespace = quote_ident(current_schema())::regnamespace
      and (p.proacl is null or exists (select from aclexplode(p.proacl) a where a.grantee = 0))
      and not exists (select from pg_depend d where d.classid = 'pg_rewrite'::regclass
                      and d.refclassid = 'pg_proc'::regclass and d.refobjid = p.oid)
  loop
    execute format('revoke execute on function %s from public', _found.name);
  end loop;
end
$private$;
