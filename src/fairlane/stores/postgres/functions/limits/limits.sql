-- limit_lock: the lock that a session holds while it counts under a limit. It sets no search path, so it is inlined.
create or replace function limit_lock(_kind text, _name text) returns bigint
language sql stable parallel safe
return hashtextextended(current_schema() || ':' || _kind || ':' || _name, 4);

-- said_of: the names whose limits hold for a tenant: its own and `*`, which leaves out the application's own jobs.
create or replace function said_of(_tenant text) returns text[]
language sql immutable parallel safe
return case when _tenant = 'system' then array[_tenant] else array[_tenant, '*'] end;

-- last_limits: the code's limits, of each thing the one given last; null: none are given.
create or replace function last_limits(_limits json) returns json
language sql immutable
begin atomic
  select json_agg(g.one order by g.nth)
  from (
    select distinct on (l.one->>'kind', l.one->>'name', coalesce(l.one->>'queue', '')) l.one, l.nth
    from json_array_elements(_limits) with ordinality as l (one, nth)
    order by l.one->>'kind', l.one->>'name', coalesce(l.one->>'queue', ''), l.nth desc
  ) g;
end;

-- limits: all that people have set, by kind, name, queue.
create or replace function limits(_changed boolean) returns json
language sql stable
set search_path from current
begin atomic
  select json_build_object('changed', _changed, 'limits', coalesce(
    json_agg(json_build_object('limit', said, 'by', by, 'at', at, 'paused_until', paused_until)
      order by kind, name, queue), '[]'))
  from limit_rule;
end;

-- list_limits_v1: all that people have set, by kind, name, queue.
-- role:   worker, api, enqueue
create or replace function list_limits_v1(_op json) returns json
language sql stable
set search_path from current
return limits(false);

-- wake_waiting: notify waiting workers that there may be work for them.
-- uses:   worker_waiting
create or replace function wake_waiting() returns void
language plpgsql
set search_path from current
as $$
begin
  if exists (select from worker where waiting) then
    perform pg_notify(current_schema() || '_wake', '');
  end if;
end
$$;

-- What a lease that ended was counted under.
create type freed_place as (queue text, type text, tenant text);

-- wake_for_room: notify waiting workers, unless the claim at hand has taken again all places that were freed.
-- uses:   lease_pkey, counted_pkey, worker_waiting
--
-- A worker under a limit claims again in the Turn that settles. Were the others woken each time they would find
-- nothing, and by counting keep it from counting: four processes under a limit of three made 1,700 Turns for 300 jobs.
-- Where none waits nothing is compared: that took 3 of 23 us a job.
create or replace function wake_for_room(_freed freed_place[], _claimed bigint[]) returns void
language plpgsql
as $$
begin
  if exists (select from worker where waiting) and exists (
    select k.* from unnest(_freed) f
    cross join lateral (
      values ('queue', f.queue, ''), ('type', f.type, ''), ('tenant', f.tenant, f.queue)
    ) k (kind, name, queue)
    where exists (
      select from counted c
      where c.kind = k.kind and c.name = case k.kind when 'tenant' then 'running' else k.name end)
    except all
    select k.* from lease l
    cross join lateral (
      values ('queue', l.queue, ''), ('type', l.type, ''), ('tenant', l.tenant, l.queue)
    ) k (kind, name, queue)
    where l.seq = any(_claimed)
  ) then
    perform wake_waiting();
  end if;
end
$$;

-- count_from_now_on: mark live leases of these queues and types, or all because of their tenants, and all that come, so
--         that an index counts them.
-- guard:  the rows of all workers are locked, so no Turn is half way; none registers meanwhile (renew_v1)
-- uses:   lease (small: as many rows as jobs in flight)
create or replace function count_from_now_on(_queues text[], _types text[], _tenants text) returns void
language plpgsql
set search_path from current
as $$
begin
  perform pg_advisory_xact_lock(limit_lock('worker', ''));
  perform from worker order by id for update;
  insert into counted (kind, name)
  select 'queue', q from unnest(_queues) q
  union select 'type', t from unnest(_types) t
  union select 'tenant', _tenants where _tenants is not null
  on conflict do nothing;
  update lease set counted = 3 where counted < 3 and (queue = any(_queues) or type = any(_types));
  if _tenants is not null then
    update lease set counted = case _tenants when 'running' then 2 else 1 end
    where counted < case _tenants when 'running' then 2 else 1 end;
  end if;
  update claim_made m set held = (select count(*) from lease l where l.worker = m.worker and l.counted > 1);
end
$$;

-- is_said: whether a record holds anything but a pause.
create or replace function is_said(_r limit_rule) returns boolean
language sql immutable
return num_nonnulls(_r.running, _r.rate_count, _r.waiting, _r.when_full, _r.enqueue_count, _r.payload_bytes,
  _r.types) > 0;

create or replace function audit_limit(
  _action text, _was limit_rule, _is limit_rule, _by text, _notes text, _now timestamptz
) returns void
language plpgsql
set search_path from current
as $$
declare
  _one limit_rule := case when _is.kind is null then _was else _is end;
begin
  perform write_audit(
    _action, _by, _notes, case when _one.kind = 'tenant' and _one.name <> '*' then _one.name end,
    'limit:' || _one.kind || ':' || _one.name || case when _one.queue <> '' then '@' || _one.queue else '' end,
    case when is_said(_was) then _was.said end, case when _is.kind is not null then _is.said end, _now);
end
$$;

-- set_limit_v1: set what is allowed to one thing; a pause stays. What is set already is not set again.
-- role:   api
-- guard:  the rows of all workers are locked: a Turn that began without it is over
-- uses:   limit_rule_pkey
create or replace function set_limit_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _limit  json := _op->'limit';
  _by     text := _op->>'by';
  _notes  text := _op->>'notes';
  _now    timestamptz := now_of(_op);
  _new    limit_rule;
  _old    limit_rule;
begin
  select g.kind, g.name, coalesce(g.queue, ''), _limit, g.running, (g.rate->>'count')::integer,
         (g.rate->>'period_s')::double precision, g.waiting, g.when_full, (g.enqueue_rate->>'count')::integer,
         (g.enqueue_rate->>'period_s')::double precision, g.payload_bytes, nullif(g.types, '{}'), _by, _now,
         null::timestamptz
  into _new
  from json_to_record(_limit) as g (
    kind text, name text, queue text, running integer, rate json, waiting integer, when_full text, enqueue_rate json,
    payload_bytes integer, types text[]);
  perform count_from_now_on(
    case when _new.kind = 'queue' and _new.running is not null then array[_new.name] end,
    case when _new.kind = 'type' and _new.running is not null then array[_new.name]
         when _new.kind = 'named' then _new.types end,
    case when _new.kind <> 'tenant' then null
         when _new.running is not null then 'running'
         when _new.waiting is not null then 'waiting' end);
  select * into _old from limit_rule where (kind, name, queue) = (_new.kind, _new.name, _new.queue) for update;
  if found and (_old.running, _old.rate_count, _old.period_s, _old.waiting, _old.when_full, _old.enqueue_count,
                _old.enqueue_s, _old.payload_bytes, _old.types)
     is not distinct from (_new.running, _new.rate_count, _new.period_s, _new.waiting, _new.when_full,
                           _new.enqueue_count, _new.enqueue_s, _new.payload_bytes, _new.types) then
    return limits(false);
  end if;
  _new.paused_until := _old.paused_until;
  delete from limit_rule where (kind, name, queue) = (_new.kind, _new.name, _new.queue);
  insert into limit_rule values (_new.*);
  perform audit_limit('limit_set', _old, _new, _by, _notes, _now);
  if _new.kind = 'key' then
    perform hold_again(_new.name);
  end if;
  perform wake_waiting();
  return limits(true);
end
$$;

-- clear_limit_v1: take back what was set for one thing, pause and all.
-- role:   api
-- uses:   limit_rule_pkey
create or replace function clear_limit_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _kind   text := _op->>'kind';
  _name   text := _op->>'name';
  _queue  text := _op->>'queue';
  _by     text := _op->>'by';
  _notes  text := _op->>'notes';
  _old    limit_rule;
begin
  delete from limit_rule where (kind, name, queue) = (_kind, _name, _queue) returning * into _old;
  if not found then
    return limits(false);
  end if;
  if is_said(_old) then
    perform audit_limit('limit_clear', _old, null, _by, _notes, now_of(_op));
  end if;
  if _kind = 'key' then
    perform count_from_now_on(null, null, null);  -- Turns that began before are over: none lets in by the old limit
    perform hold_again(_name);
  end if;
  perform wake_waiting();
  return limits(true);
end
$$;

-- pause_limit_v1: let nothing under one limit be claimed for a while; never shortens an earlier pause.
-- role:   worker, api
-- uses:   limit_rule_pkey
create or replace function pause_limit_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _limit  json := json_build_object('kind', _op->'kind', 'name', _op->'name', 'queue', _op->'queue');
  _for_s  double precision := (_op->>'for_s')::double precision;
  _by     text := _op->>'by';
  _now    timestamptz := now_of(_op);
  _until  timestamptz := _now + _for_s * interval '1 second';
begin
  insert into limit_rule as r (kind, name, queue, said, by, at, paused_until)
  values (_limit->>'kind', _limit->>'name', coalesce(_limit->>'queue', ''), _limit, _by, _now, _until)
  on conflict (kind, name, queue) do update set paused_until = greatest(r.paused_until, excluded.paused_until)
  returning paused_until into _until;
  if _op->>'kind' = 'key' then
    perform hold_again(_op->>'name');
  end if;
  return json_build_object('until', _until);
end
$$;

-- Tokens that a call wants of one tenant's rate of enqueues.
create type token_want as (tenant text, n integer, most integer, period_s double precision);

-- token_wants: of these tenants those with a rate of enqueues in force, by name.
-- uses:   limit_rule_pkey
create or replace function token_wants(_counts json, _limits json) returns token_want[]
language plpgsql stable
set search_path from current
set enable_seqscan = off
as $$
begin
  return (
    select array_agg((w.tenant, w.n, r.n, r.s)::token_want order by w.tenant collate "C")
    from (select c.key as tenant, c.value::integer as n from json_each_text(_counts) c) w
    cross join lateral (
      select said.n, said.s
      from (
        select l.name = '*' as every, 0 as given, l.enqueue_count as n, l.enqueue_s as s
        from limit_rule l where l.kind = 'tenant' and l.name = any(said_of(w.tenant)) and l.queue = ''
        union all
        select g.name = '*', 1, (g.enqueue_rate->>'count')::integer, (g.enqueue_rate->>'period_s')::double precision
        from json_to_recordset(_limits) as g (kind text, name text, queue text, enqueue_rate json)
        where g.kind = 'tenant' and g.name = any(said_of(w.tenant)) and coalesce(g.queue, '') = ''
      ) said
      where said.n is not null order by said.every, said.given limit 1
    ) r
    where r.n <> -1);
end
$$;

-- take_tokens_v1: take tokens of tenants' rates of enqueues, for all of them or for none.
-- role:   worker, api, enqueue
-- guard:  locks on the tenants' tokens; always in a transaction of its own, so nobody waits for long
-- uses:   see token_wants, rate_use_pkey
create or replace function take_tokens_v1(_op json) returns json
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  _counts  json := _op->'counts';
  _limits  json := last_limits(_op->'limits');
  _now     timestamptz := now_of(_op);
  _wants   token_want[] := token_wants(_counts, _limits);
  _short   json;
begin
  if _wants is null then
    return json_build_object('granted', true);
  end if;
  -- Tenants share 256 locks, taken in order: a call for thousands of tenants must not fill the server's table of locks,
  -- nor two calls wait for each other.
  perform pg_advisory_xact_lock(limit_lock('enqueue', l.nth::text))
  from (select distinct hashtextextended(w.tenant, 0) & 255 as nth from unnest(_wants) w order by 1) l;
  -- Read after the wait: an earlier instant would count tokens of later ones, and not be counted by those after it.
  _now := now_of(_op);
  select json_build_object(
    'granted', false, 'tenant', w.tenant, 'rate', json_build_object('count', w.most, 'period_s', w.period_s),
    'retry_at', (
      select t.at + w.period_s * interval '1 second'
      from (
        select u.at, sum(u.n) over (order by u.at) as freed
        from rate_use u where u.kind = 'enqueue' and u.name = w.tenant and u.queue = ''
          and u.at > _now - w.period_s * interval '1 second'
      ) t
      where w.n <= w.most and t.freed >= used.n + w.n - w.most order by t.at limit 1))
  into _short
  from unnest(_wants) w
  cross join lateral (
    select coalesce(sum(u.n), 0) as n
    from rate_use u where u.kind = 'enqueue' and u.name = w.tenant and u.queue = ''
      and u.at > _now - w.period_s * interval '1 second'
  ) used
  where used.n + w.n > w.most order by w.tenant collate "C" limit 1;
  if _short is not null then
    return _short;
  end if;
  delete from rate_use u using unnest(_wants) w
  where u.kind = 'enqueue' and u.name = w.tenant and u.queue = ''
    and u.at <= _now - greatest(w.period_s * interval '1 second', interval '1 hour');
  insert into rate_use as u (kind, name, queue, at, n)
  select 'enqueue', w.tenant, '', _now, w.n from unnest(_wants) w where w.n > 0
  on conflict (kind, name, queue, at) do update set n = u.n + excluded.n;
  return json_build_object('granted', true);
end
$$;
