-- The limits of one tenant in one queue, and how many jobs of a call they concern.
create type enqueue_group as (
  tenant text, queue text, jobs integer, waiting integer, when_full text, payload_bytes integer, found integer,
  created integer
);

-- tenant_terms: what is in force for one tenant's enqueues to one queue: the particular before the general, people's
--         before the code's.
-- uses:   limit_rule_pkey
create or replace function tenant_terms(
  _tenant text, _queue text, _limits json, out waiting integer, out when_full text, out payload_bytes integer
)
language plpgsql stable
set search_path from current
as $$
begin
  select nullif((array_agg(s.waiting order by s.place) filter (where s.waiting is not null))[1], -1),
         coalesce((array_agg(s.when_full order by s.place) filter (where s.when_full is not null))[1], 'warn'),
         nullif((array_agg(s.payload_bytes order by s.place) filter (where s.payload_bytes is not null))[1], -1)
  into waiting, when_full, payload_bytes
  from (
    select array[(r.name = '*')::integer, (r.queue = '')::integer, 0] as place, r.waiting, r.when_full, r.payload_bytes
    from limit_rule r where r.kind = 'tenant' and r.name = any(said_of(_tenant)) and r.queue in (_queue, '')
    union all
    select array[(g.name = '*')::integer, (coalesce(g.queue, '') = '')::integer, 1], g.waiting, g.when_full,
      g.payload_bytes
    from json_to_recordset(_limits) as g (kind text, name text, queue text, waiting integer, when_full text,
      payload_bytes integer)
    where g.kind = 'tenant' and g.name = any(said_of(_tenant)) and coalesce(g.queue, '') in (_queue, '')
  ) s;
end
$$;

-- enqueue_groups: tenants whose limits these jobs may run into, and the refusal of a payload that is too long.
-- `careful`: some may have to be held or refused.
-- uses:   see count_waiting
--
-- `_terms`: the code's limits for these very tenants and queues, merged by the caller; used where people have set none.
create or replace function enqueue_groups(
  jobs json, _limits json, _terms json, out groups enqueue_group[], out refused json, out careful boolean
)
language plpgsql stable
set search_path from current
as $$
begin
  if _terms is not null and not exists (select from limit_rule where kind = 'tenant') then
    groups := array(
      select (t.tenant, t.queue, t.jobs, t.waiting, t.when_full, t.payload_bytes, null, 0)::enqueue_group
      from json_to_recordset(_terms) as t (tenant text, queue text, jobs integer, waiting integer, when_full text,
        payload_bytes integer)
      order by t.tenant collate "C", t.queue collate "C");
  else
    groups := array(
    select (g.tenant, g.queue, g.jobs, t.waiting, t.when_full, t.payload_bytes, null, 0)::enqueue_group
    from (
      select coalesce(j.tenant, 'system') as tenant, coalesce(j.queue, 'default') as queue, count(*)::integer as jobs
      from json_to_recordset(jobs) as j (tenant text, queue text) group by 1, 2
    ) g
    cross join lateral tenant_terms(g.tenant, g.queue, _limits) t
    where t.waiting is not null or t.payload_bytes is not null
    order by g.tenant collate "C", g.queue collate "C");
  end if;
  if exists (select from unnest(groups) g where g.payload_bytes is not null) then
    select json_build_object('tenant', g.tenant, 'queue', g.queue, 'cause', 'payload_bytes', 'limit', g.payload_bytes,
                             'found', j.size, 'policy', 'reject')
    into refused
    from (
      select coalesce(j.tenant, 'system') as tenant, coalesce(j.queue, 'default') as queue, j.ord,
             octet_length(coalesce(j.payload_text, j.payload::text, '{}')) as size
      from rows from (json_to_recordset(jobs) as (tenant text, queue text, payload json, payload_text text))
        with ordinality as j (tenant, queue, payload, payload_text, ord)
    ) j
    join unnest(groups) g on g.tenant = j.tenant and g.queue = j.queue
    where j.size > g.payload_bytes order by j.ord limit 1;
  end if;
  if refused is null then
    groups := array(
      select (g.tenant, g.queue, g.jobs, g.waiting, g.when_full, g.payload_bytes, c.n, 0)::enqueue_group
      from unnest(groups) with ordinality as g (tenant, queue, jobs, waiting, when_full, payload_bytes, found, created,
        ord)
      cross join lateral (select count_waiting(g.tenant, g.queue, g.waiting, true) as n) c
      where g.waiting is not null and c.n + g.jobs > g.waiting
      order by g.ord);
    careful := exists (select from unnest(groups) g where g.when_full <> 'warn');
  end if;
end
$$;

create or replace function limit_hit(_g enqueue_group) returns json
language sql immutable
return json_build_object('tenant', _g.tenant, 'queue', _g.queue, 'cause', 'waiting', 'limit', _g.waiting,
                         'found', _g.found, 'policy', _g.when_full);

-- limit_hits: the limits that what was created has run into.
create or replace function limit_hits(jobs json, _receipts json, _groups enqueue_group[]) returns json
language sql immutable
begin atomic
  select json_agg(limit_hit(g.one) order by g.ord)
  from (
    select g::enqueue_group as one, g.waiting - g.found as room,
           row_number() over (order by g.tenant collate "C", g.queue collate "C") as ord, g.tenant, g.queue
    from unnest(_groups) g
  ) g
  where g.room < (
    select count(*)
    from rows from (json_to_recordset(jobs) as (tenant text, queue text),
      json_to_recordset(_receipts) as (disposition text))
      as j (tenant, queue, disposition)
    where j.disposition = 'created' and coalesce(j.tenant, 'system') = g.tenant
      and coalesce(j.queue, 'default') = g.queue);
end;
