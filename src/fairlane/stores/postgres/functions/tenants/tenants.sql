-- count_ready, count_held: how many jobs of one tenant are there over all queues, counted no further than `_cap`.
-- uses:   ready_line, held_line, one probe for each line there is
create or replace function count_ready(_tenant text, _cap integer) returns integer
language plpgsql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
begin
  return (
    with recursive lines (queue, band) as (
      (select r.queue, r.band from ready r order by r.queue, r.band limit 1)
      union all
      select n.queue, n.band from lines l cross join lateral (
        select r.queue, r.band from ready r where (r.queue, r.band) > (l.queue, l.band) order by r.queue, r.band limit 1
      ) n
    )
    select count(*) from (
      select from lines l cross join lateral (
        select from ready r where r.queue = l.queue and r.band = l.band and r.tenant = _tenant limit _cap
      ) r limit _cap
    ) c);
end
$$;

create or replace function count_held(_tenant text, _cap integer) returns integer
language plpgsql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
begin
  return (
    with recursive queues (queue) as (
      (select h.queue from held h where h.queue > '' order by h.queue limit 1)
      union all
      select (select h.queue from held h where h.queue > q.queue order by h.queue limit 1) from queues q
      where q.queue is not null
    )
    select count(*) from (
      select from queues q
        cross join lateral (select from held h where h.queue = q.queue and h.tenant = _tenant limit _cap) h limit _cap
    ) c);
end
$$;

-- tenant_record: one tenant as people see it; one never seen has the defaults.
-- uses:   tenant_pkey, pause_pkey, limit_rule_pkey, scheduled_tenant
create or replace function tenant_record(_name text) returns json
language plpgsql stable
set search_path from current
as $$
declare
  _cap  constant integer := 1000;  -- TENANT_COUNT_CAP
begin
  return (
    select json_build_object(
      'name', _name, 'weight', coalesce(t.weight, 1), 'tier', t.tier, 'seen_at', t.seen_at,
      'paused', exists (select from pause p where p.kind = 'tenant' and p.name = _name),
      'limits', coalesce((
        select json_agg(json_build_object('limit', r.said, 'by', r.by, 'at', r.at, 'paused_until', r.paused_until)
          order by r.queue)
        from limit_rule r where r.kind = 'tenant' and r.name = _name), '[]'),
      'ready', count_ready(_name, _cap),
      'scheduled', (select count(*) from (select from scheduled s where s.tenant = _name limit _cap) c),
      'held', count_held(_name, _cap),
      'leased', count_leases(_name, null, _cap))
    from (select _name as name) n left join tenant t using (name));
end
$$;

-- get_tenant_v1: one tenant, where the scope admits it; null otherwise.
-- role:   api
create or replace function get_tenant_v1(_op json) returns json
language plpgsql stable
set search_path from current
as $$
declare
  _tenant  text := scope_of(_op);
  _name    text := _op->>'name';
begin
  return case when _tenant is null or _tenant = _name then tenant_record(_name) end;
end
$$;

-- set_tenant_v1: set a tenant's weight and tier; null leaves the one it has.
-- role:   api
-- uses:   tenant_pkey
create or replace function set_tenant_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _name    text := _op->>'name';
  _weight  double precision := (_op->>'weight')::double precision;
  _tier    text := _op->>'tier';
  _by      text := _op->>'by';
  _notes   text := _op->>'notes';
  _now     timestamptz := now_of(_op);
  _was     tenant;
  _is      tenant;
begin
  insert into tenant (name, seen_at) values (_name, _now) on conflict do nothing;
  select * into _was from tenant where name = _name for update;
  _is := _was;
  _is.weight := coalesce(_weight, _was.weight);
  _is.tier := coalesce(_tier, _was.tier);
  if _is is distinct from _was then
    update tenant set weight = _is.weight, tier = _is.tier where name = _name;
    perform write_audit('tenant_set', _by, _notes, _name, 'tenant:' || _name,
                        json_build_object('weight', _was.weight, 'tier', _was.tier),
                        json_build_object('weight', _is.weight, 'tier', _is.tier), _now);
  end if;
  return tenant_record(_name);
end
$$;

-- page_tenants_v1: known tenants by name, behind `_after`.
-- role:   api
-- uses:   tenant_pkey
create or replace function page_tenants_v1(_op json) returns json
language plpgsql stable
set search_path from current
as $$
declare
  _tenant  text := scope_of(_op);
  _after   text := _op->>'after';
  _tier    text := _op->>'tier';
  _limit   integer := page_size(_op);
  _names   text[] := array(
    select t.name from tenant t
    where t.name > _after collate "C" and (_tenant is null or t.name = _tenant) and (_tier is null or t.tier = _tier)
    order by t.name limit _limit + 1);
begin
  return json_build_object(
    'tenants', coalesce((select json_agg(tenant_record(n.name) order by n.ord)
                         from unnest(_names[:_limit]) with ordinality as n (name, ord)), '[]'),
    'next', case when cardinality(_names) > _limit then _names[_limit] end);
end
$$;

-- has_tenants_v1: whether a tenant besides the application itself is known or has a job.
-- role:   worker, api, enqueue
-- uses:   tenant_pkey, two rows at most; both ends of job_tenant
create or replace function has_tenants_v1(_op json) returns json
language sql stable
set search_path from current
set enable_seqscan = off
set jit = off
return to_json(
  exists (select from (select t.name from tenant t order by t.name limit 2) t where t.name <> 'system')
  or coalesce((select j.tenant from job j order by j.tenant limit 1) <> 'system', false)
  or coalesce((select j.tenant from job j order by j.tenant desc limit 1) <> 'system', false));

-- add_tenants_v1: make tenants known that have jobs: the next names behind `_after`.
-- role:   worker
-- uses:   job_tenant, one probe for each name
create or replace function add_tenants_v1(_op json) returns json
language plpgsql
set search_path from current
set enable_seqscan = off
set jit = off
as $$
declare
  _after  text := _op->>'after';
  _limit  integer := (_op->>'limit')::integer;
  _names  text[];
  _added  integer;
begin
  with recursive found (tenant) as (
    (select j.tenant from job j where j.tenant > _after collate "C" order by j.tenant limit 1)
    union all
    select (select j.tenant from job j where j.tenant > f.tenant order by j.tenant limit 1) from found f
    where f.tenant is not null
  )
  select array_agg(f.tenant) into _names
  from (select f.tenant from found f where f.tenant is not null limit greatest(_limit, 0) + 1) f;
  insert into tenant (name, seen_at) select n, now_of(_op) from unnest(_names[:_limit]) n on conflict do nothing;
  get diagnostics _added = row_count;
  return json_build_object('added', _added, 'next', case when cardinality(_names) > _limit then _names[_limit] end);
end
$$;

-- read_weights_v1: the weights of tenants that have one of their own.
-- role:   worker
-- uses:   tenant_weight
create or replace function read_weights_v1(_op json) returns json
language sql stable
set search_path from current
begin atomic
  select json_build_object('weights', coalesce(json_object_agg(name, weight), '{}')) from tenant where weight <> 1;
end;
