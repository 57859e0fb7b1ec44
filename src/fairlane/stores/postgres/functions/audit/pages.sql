-- page_audit_v1: audit records, newest first, each as JSON text.
-- uses:   audit_pkey from its newest end, or audit_target
create or replace function page_audit_v1(_tenant text, _before bigint, _limit integer, _action text, _target text) returns setof text
language plpgsql stable
set search_path from current
set plan_cache_mode = force_custom_plan
as $$
begin
  return query
    select row_to_json(a)::text
    from (
      select id, at, by, action, tenant, target, notes, before, after from audit
      where (_tenant is null or tenant = _tenant) and (_action is null or action = _action) and (_target is null or target = _target)
        and (_before is null or id < _before)
      order by id desc limit _limit
    ) a;
end
$$;
