-- audit_instant: when an act happened. Where roles are separated only the engine's own clock says so: whoever calls its
-- functions cannot date a record back.
create or replace function audit_instant(_now timestamptz) returns timestamptz
language sql volatile
return case when pg_has_role(session_user, current_user, 'member') then _now else clock_timestamp() end;

-- write_audit: add one audit record, in the transaction of the act.
create or replace function write_audit(
  _action text, _by text, _notes text, _tenant text, _target text, _before json, _after json, _now timestamptz
) returns void
language sql
set search_path from current
begin atomic
  insert into audit (at, by, action, tenant, target, notes, before, after)
  values (audit_instant(_now), _by, _action, _tenant, _target, _notes, _before, _after);
end;
