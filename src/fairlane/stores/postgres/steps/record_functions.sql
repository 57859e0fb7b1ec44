-- record_functions: records the functions of this release.
-- Functions of this transaction are those of this release.
insert into schema_version (version, phase, name, checksum, members, obsolete)
select {release}, 'functions', 'functions', '{checksum}', found.members, array(
  select distinct m from schema_version v, unnest(v.members || v.obsolete) m
  where v.phase = 'functions' and m <> all(found.members) order by m)
from (
  select array(
    select format('function %I(%s)', p.proname, pg_get_function_identity_arguments(p.oid))
    from pg_proc p join pg_namespace n on n.oid = p.pronamespace
    where n.nspname = current_schema() and p.xmin = pg_current_xact_id()::xid
    union all
    select format('view %I', v) from unnest(array[{views}]::text[]) v
    union all
    select format('type %I', t) from unnest(array[{types}]::text[]) t) as members
) found
on conflict (version, phase) do update
set checksum = excluded.checksum, members = excluded.members, obsolete = excluded.obsolete, applied_at = now();
-- The newest release answers for all before it: what it has again is obsolete no more.
update schema_version set members = '{}', obsolete = '{}' where phase = 'functions' and version < {release};
