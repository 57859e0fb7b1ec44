-- The audit and its seals are written once: no setting of a session opens them. A purge, which only the owner of the
-- tables can do, switches these triggers off and on again.
create or replace function append_only() returns trigger
language plpgsql
set search_path from current
as $$
begin
  raise exception 'table %.% is append-only: % is refused', tg_table_schema, tg_table_name, lower(tg_op)
    using errcode = 'restrict_violation', hint = 'Audit records are never changed or removed.';
end
$$;

create or replace function leaves_sealed() returns trigger
language plpgsql
set search_path from current
as $$
begin
  if exists (select from audit_seal where audit_id = old.id) then
    return old;
  end if;
  raise exception 'audit record % is not sealed yet: it stays in %.%', old.id, tg_table_schema, tg_table_name
    using errcode = 'restrict_violation';
end
$$;
