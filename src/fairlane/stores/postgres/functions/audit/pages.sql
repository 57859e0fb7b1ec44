-- page_audit_v1: one page of audit records, newest first, and where the next page begins.
-- role:   api
-- uses:   audit_pkey from its newest end, or audit_target
create or replace function page_audit_v1(_op json) returns json
language plpgsql stable
set search_path from current
set plan_cache_mode = force_custom_plan
as $$
declare
  _tenant  text := scope_of(_op);
  _before  bigint := row_id(_op->>'before');
  _limit   integer := page_size(_op);
  _action  text := _op->>'action';
  _target  text := _op->>'target';
  _found   json[] := array(
    select row_to_json(a)
    from (
      select id, at, by, action, tenant, target, notes, before, after from audit
      where (_tenant is null or tenant = _tenant) and (_action is null or action = _action)
        and (_target is null or target = _target)
        and (_before is null or id < _before)
      order by id desc limit _limit + 1
    ) a);
begin
  return json_build_object(
    'records', array_to_json(_found[:_limit]),
    'next', case when cardinality(_found) > _limit then _found[_limit]->'id' end);
end
$$;
