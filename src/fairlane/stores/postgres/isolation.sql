-- Isolation by the database: roles, forced row-level security, functions that act as the engine.
-- (docs/guides/isolation.md)
--
--   owner    no log-in; owns schema, tables and views; has no policy, so that even it reads no tenant's rows
--   engine   no log-in; owns the functions; alone has a policy over all tenants
--   worker   calls what workers call; no right on any table
--   api      calls what applications call; reads the tables of the tenant that is set
--   enqueue  calls what enqueueing needs, and reads no table
--   tokens   makes credentials
--   read     reads the tables of the tenant that is set, and calls nothing
--
-- May be run any number of times. Every migration runs it behind its own changes, in the same transaction: without a
-- prefix it takes the one the schema was isolated with, and does nothing where it never was.
-- A table or function that is named nowhere below belongs to the engine alone. (tests/isolation/test_catalog.py)
do $isolate$
declare
  _schema  constant text := {schema};
  _prefix  constant text := coalesce({prefix}, (
    select left(r.rolname, -length('_engine'))
    from pg_catalog.pg_policy p
    join pg_catalog.pg_class c on c.oid = p.polrelid join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    join pg_catalog.pg_roles r on r.oid = any(p.polroles)
    where n.nspname = _schema and c.relname = 'job' and p.polname = 'fairlane_engine'));
  _owner   constant text := _prefix || '_owner';
  _engine  constant text := _prefix || '_engine';
  _api     constant text := _prefix || '_api';
  _read    constant text := _prefix || '_read';
  _callers constant text[] := array(select _prefix || '_' || key from jsonb_object_keys({calls}) as k (key));
  _others  constant text := (select string_agg(quote_ident(r), ', ') from unnest(_callers || _read) r);
  -- Nothing set, and '' as a pool leaves it behind, are no tenant.
  _tenant  constant text := $$nullif(current_setting('fairlane.tenant', true), '')$$;
  _of_job  constant text := format(
    $$exists (select from %I.job j where j.seq = %%1$I.seq and j.tenant = %s)$$, _schema, _tenant);
  _named   constant text := format($$kind = 'tenant' and name = %s$$, _tenant);
  _calls   constant jsonb := {calls};
  _found   record;
  _whose   text;
  _policies text;
  _obsolete text[];
begin
  if _prefix is null then
    return;
  end if;
  foreach _whose in array array[_owner, _engine, _read] || _callers loop
    if not exists (select from pg_catalog.pg_roles where rolname = _whose) then
      execute format('create role %I nologin', _whose);
    end if;
    select rolsuper or rolbypassrls as bypasses, rolcanlogin as logs_in into _found
    from pg_catalog.pg_roles where rolname = _whose;
    if _found.bypasses or _found.logs_in then
      raise exception 'role "%" % ', _whose,
        case when _found.bypasses then 'is superuser or has BYPASSRLS' else 'can log in' end
        using errcode = 'invalid_role_specification', hint = 'Choose another prefix, or drop the role.';
    end if;
  end loop;
  -- Who hands things over must be able to act for those who receive them.
  if not (select rolsuper from pg_catalog.pg_roles where rolname = current_user) then
    foreach _whose in array array[_owner, _engine] loop
      if current_setting('server_version_num')::integer < 160000 then
        if not pg_has_role(_whose, 'member') then
          execute format('grant %I to current_user', _whose);
        end if;
      elsif not (pg_has_role(_whose, 'set') and pg_has_role(_whose, 'usage')) then
        execute format('grant %I to current_user with inherit true, set true', _whose);
      end if;
    end loop;
  end if;

  -- What belongs to whom. Nothing that is right already is altered: each change locks its table against everybody.
  execute format('alter schema %I owner to %I', _schema, _owner);
  for _found in
    select c.relname as name, case c.relkind when 'v' then 'view' when 'c' then 'type' else 'table' end as kind
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = _schema and c.relkind in ('r', 'v', 'c') and pg_get_userbyid(c.relowner) <> _owner
  loop
    execute format('alter %s %I.%I owner to %I', _found.kind, _schema, _found.name, _owner);
  end loop;
  execute format('grant usage, create on schema %I to %I', _schema, _engine);
  for _found in
    select p.oid::regprocedure as name
    from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
    where n.nspname = _schema and pg_get_userbyid(p.proowner) <> _engine
  loop
    execute format('alter function %s owner to %I', _found.name, _engine);
  end loop;
  execute format('revoke all on schema %I from public', _schema);
  execute format('revoke create on schema %I from %I', _schema, _engine);
  execute format('grant usage on schema %I to %s', _schema, _others);

  -- Tables. The list of versions has no tenants and is written by migrations: it is left to the owner.
  execute format(
    'revoke all on all tables in schema %I from public, %I, %s', _schema, _engine, _others);
  execute format('grant select, insert, update, delete on all tables in schema %I to %I', _schema, _engine);
  execute format('grant usage on all sequences in schema %I to %I', _schema, _engine);
  execute format('revoke update, delete on %1$I.audit, %1$I.audit_seal from %2$I', _schema, _engine);
  execute format('revoke all on %I.schema_version from %I', _schema, _engine);
  for _found in
    select c.relname as name, c.relrowsecurity and c.relforcerowsecurity as is_forced, t.condition
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    left join (values
      ('job', 'tenant = ' || _tenant), ('ready', 'tenant = ' || _tenant), ('scheduled', 'tenant = ' || _tenant),
      ('held', 'tenant = ' || _tenant), ('lease', 'tenant = ' || _tenant), ('stat_minute', 'tenant = ' || _tenant),
      ('stat_half_hour', 'tenant = ' || _tenant),
      ('idempotency_key', 'tenant = ' || _tenant), ('dedup_key', 'tenant = ' || _tenant),
      ('audit', 'tenant = ' || _tenant), ('event', 'tenant = ' || _tenant), ('workflow', 'tenant = ' || _tenant),
      ('attempt', _of_job), ('done', _of_job), ('dead_letter', _of_job), ('note', _of_job), ('log_line', _of_job),
      ('node', _of_job),
      ('step', _of_job), ('wait', 'tenant = ' || _tenant), ('signal', 'tenant = ' || _tenant),
      ('tenant', 'name = ' || _tenant), ('pause', _named), ('limit_rule', _named)
    ) t (name, condition) on t.name = c.relname
    where n.nspname = _schema and c.relkind = 'r' and c.relname <> 'schema_version'
  loop
    if not _found.is_forced then
      execute format('alter table %I.%I enable row level security, force row level security', _schema, _found.name);
    end if;
    _policies := md5(concat_ws(' ', _engine, _api, _read, _found.condition));
    if _policies is distinct from (
      select obj_description(p.oid, 'pg_policy') from pg_catalog.pg_policy p
      where p.polrelid = format('%I.%I', _schema, _found.name)::regclass and p.polname = 'fairlane_engine'
    ) then
      execute format('drop policy if exists fairlane_engine on %I.%I', _schema, _found.name);
      execute format(
        'create policy fairlane_engine on %I.%I for all to %I using (true) with check (true)',
        _schema, _found.name, _engine);
      execute format('drop policy if exists fairlane_tenant on %I.%I', _schema, _found.name);
      if _found.condition is not null then
        execute format(
          'create policy fairlane_tenant on %1$I.%2$I for all to %3$I, %4$I using (%5$s) with check (%5$s)',
          _schema, _found.name, _api, _read, format(_found.condition, _found.name));
      end if;
      execute format('comment on policy fairlane_engine on %I.%I is %L', _schema, _found.name, _policies);
    end if;
    if _found.condition is not null then
      execute format('grant select on %I.%I to %I, %I', _schema, _found.name, _api, _read);
    end if;
  end loop;

  -- Views read with the rights of who asks.
  for _found in
    select c.relname as name from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = _schema and c.relkind = 'v' and not coalesce('security_invoker=true' = any(c.reloptions), false)
  loop
    execute format('alter view %I.%I set (security_invoker = true)', _schema, _found.name);
  end loop;
  execute format(
    'grant select on %1$I.job_record, %1$I.attempt_record, %1$I.dead_letter_record, %1$I.jobs, %1$I.dead_letter_jobs, '
    '%1$I.job_metrics, %1$I.job_queue_health to %2$I, %3$I', _schema, _api, _read);
  execute format(  -- their triggers call what the api role may call, and refuse the rest
    'grant insert, update, delete on %1$I.jobs, %1$I.dead_letter_jobs to %2$I', _schema, _api);

  -- Functions: what somebody may call runs as the engine, wherever the caller stands; what only they call has no other
  -- callers. Those of earlier releases stay as they are: older code calls them until the schema is contracted.
  execute format('select array(select distinct unnest(obsolete) from %I.schema_version)', _schema) into _obsolete;
  for _found in
    select p.oid::regprocedure as name, p.prosecdef as is_definer,
           array(select _prefix || '_' || key from jsonb_each(_calls) where value ? p.proname) as callers
    from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
    where n.nspname = _schema
      and format('function %I(%s)', p.proname, pg_get_function_identity_arguments(p.oid)) <> all(_obsolete)
  loop
    execute format('revoke all on function %s from public, %s', _found.name, _others);
    if (_found.callers <> '{}') <> _found.is_definer then
      execute format(
        'alter function %s security %s', _found.name, case when _found.is_definer then 'invoker' else 'definer' end);
    end if;
    foreach _whose in array _found.callers loop
      execute format('grant execute on function %s to %I', _found.name, _whose);
    end loop;
  end loop;
  execute format('grant execute on function %1$I.flat(json), %1$I.as_jsonb(text), %1$I.not_made(jsonb, jsonb, jsonb) '
                 'to %2$I, %3$I', _schema, _api, _read);
end
$isolate$;
