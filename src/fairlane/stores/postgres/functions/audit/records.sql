-- write_audit: add one audit record, in the transaction of the act.
create or replace function write_audit(
  _action text, _by text, _notes text, _tenant text, _target text, _before json, _after json, _now timestamptz
) returns void
language sql
set search_path from current
begin atomic
  insert into audit (at, by, action, tenant, target, notes, before, after)
  values (_now, _by, _action, _tenant, _target, _notes, _before, _after);
end;
