-- isolation_state: how tenants are kept apart for the role that asks.
with place as (select oid, nspowner from pg_catalog.pg_namespace where nspname = %(schema)s),
function as (select p.* from pg_catalog.pg_proc p join place on place.oid = p.pronamespace),
engine as (select max(proowner) as oid from function where proname = 'enqueue_v1'),
relation as (
  select c.* from pg_catalog.pg_class c join place on place.oid = c.relnamespace where c.relname <> 'schema_version'
)
select current_user::text, (select rolsuper or rolbypassrls from pg_catalog.pg_roles where rolname = current_user),
  pg_get_userbyid((select oid from engine))::text, pg_get_userbyid((select nspowner from place))::text,
  array(select rolname::text from pg_catalog.pg_roles
        where oid in ((select oid from engine), (select nspowner from place)) and pg_has_role(oid, 'member')
        order by 1),
  array(select 'table ' || relname from relation where relkind = 'r' and not (relrowsecurity and relforcerowsecurity)
        union all
        select 'view ' || relname from relation
        where relkind = 'v' and not coalesce('security_invoker=true' = any(reloptions), false)
        union all
        select 'function ' || proname from function
        where proowner <> (select oid from engine) or proacl is null
           or (proname like '%%\_v1' and proname <> 'purge_v1' and not prosecdef)
        order by 1)
