-- first_functions: drops functions of the time before they were recorded.
-- Functions that were created before they were recorded cannot be replaced one by one: all of them go.
do $first$
declare
  _found record;
begin
  if exists (select from schema_version where phase = 'functions') then
    return;
  end if;
  for _found in
    select 'view' as kind, format('%I', c.relname) as name, 1 as nth
    from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = current_schema() and c.relkind = 'v'
    union all
    select 'function', p.oid::regprocedure::text, 2
    from pg_proc p join pg_namespace n on n.oid = p.pronamespace
    where n.nspname = current_schema() and not exists (select from pg_trigger t where t.tgfoid = p.oid)
    union all
    select 'type', format('%I', c.relname), 3
    from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = current_schema() and c.relkind = 'c'
    order by nth
  loop
    execute format('drop %s if exists %s cascade', _found.kind, _found.name);
  end loop;
end
$first$;
