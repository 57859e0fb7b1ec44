-- add_gates: gates of a workflow, numbered from `_first` on.
create or replace function add_gates(_workflow bigint, _gates json, _first integer) returns void
language plpgsql
set search_path from current
as $$
begin
  insert into gate (workflow, n, opens, waits, counts_for, everyone)
  select _workflow, _first + g.ord - 1, g.opens, g.waits, _first + g.counts_for, coalesce(g.everyone, false)
  from rows from (json_to_recordset(_gates) as (opens text, waits integer, counts_for integer, everyone boolean))
    with ordinality as g (opens, waits, counts_for, everyone, ord);
end
$$;

-- add_nodes: jobs of a workflow with the gates they wait behind and count for. `_held`: queues without room; `_joins`:
--         gates that all of them count for. Returns whether some are ready.
-- moves:  enqueue new -> ready | scheduled | held
-- guard:  the caller has found none of the ids
create or replace function add_nodes(
  _workflow bigint, _jobs json, _nodes json, _first_node integer, _first_gate integer, _held text[], _joins integer[],
  _now timestamptz
) returns boolean
language plpgsql
set search_path from current
set enable_nestloop = off
set enable_mergejoin = off
set jit = off
as $$
declare
  _ready boolean;
begin
  with input as materialized (
    select nextval(pg_get_serial_sequence('job', 'seq')) as seq, j.* from job_specs(_jobs, _now) j
  ), shape as (
    select s.ord, s.name, s.gate, s.counts_for
    from rows from (json_to_recordset(_nodes) as (name text, gate integer, counts_for integer[]))
      with ordinality as s (name, gate, counts_for, ord)
  ), whole as materialized (
    select i.*, (_first_node + i.ord - 1)::integer as n, s.name, _first_gate + s.gate as behind,
           array(select _first_gate + c from unnest(s.counts_for) c) || _joins as counts,
           case when s.gate is not null then '' when i.queue = any(_held) then i.queue end as line
    from input i join shape s on s.ord = i.ord
  ), added as (
    insert into job (seq, id, type, tenant, queue, band, rank, payload, payload_version, max_attempts, timeout_s,
                     category, correlation_id, parent_id, created_by, refs, headers, retry, enqueued_at, due_at, key,
                     key_terms)
    select seq, coalesce(id, gen_random_uuid()), type, tenant, queue, band, rank, payload, payload_version,
           max_attempts, timeout_s, category, correlation_id, parent_id, created_by, refs, headers, retry, _now, due_at,
           key, key_terms
    from whole
  ), kept_back as (
    insert into held (seq, queue, band, tenant, rank, due_at, type, deduped, timeout_s)
    select seq, line, band, tenant, rank, due_at, type, true, timeout_s from whole where line is not null
  ), now_ready as (
    insert into ready (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped,
      timeout_s, key, key_nth)
    select seq, queue, band, tenant, rank, due_at, type, 0, 0, 0, false, true, timeout_s, key, key_nth(key_terms, seq)
    from whole
    where line is null and due_at <= _now
  ), later as (
    insert into scheduled (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped,
      timeout_s, failed, since, key, key_nth)
    select seq, queue, band, tenant, rank, due_at, type, 0, 0, 0, false, true, timeout_s, false,
           case when due_at <> all((select fixed_instants(_jobs))::timestamptz[]) then _now end, key,
           key_nth(key_terms, seq)
    from whole
    where line is null and due_at > _now
  ), noded as (
    insert into node (workflow, n, seq, gate, name, counts_for)
    select _workflow, n, seq, behind, name, counts from whole
  ), tallied as (
    insert into tally as t (workflow, n, total, waiting)
    select _workflow, w.n >> 6, count(*), count(w.behind) from whole w group by w.n >> 6
    on conflict (workflow, n) do update
    set total = t.total + excluded.total, waiting = t.waiting + excluded.waiting
  )
  select coalesce(bool_or(line is null and due_at <= _now), false) into _ready from whole;
  return _ready;
end
$$;

-- nodes_room: the refusal of new nodes by the capacity, a pause or a tenant's limit; null: there is room, but in the
--         queues `held`.
-- uses:   see count_waiting
create or replace function nodes_room(
  _jobs json, _capacity integer, _limits json, out depth integer, out refused json, out held text[]
)
language plpgsql stable
set search_path from current
as $$
declare
  _hit     json;
  _groups  enqueue_group[];
begin
  if _capacity is not null then
    select count(*) into depth from (
      (select 1 from ready limit _capacity) union all (select 1 from scheduled limit _capacity)
      union all (select 1 from held limit _capacity) limit _capacity
    ) waiting;
    if depth + json_array_length(_jobs) > _capacity then
      refused := json_build_object('full', true, 'depth', depth);
      return;
    end if;
  end if;
  if exists (select from refusal) then
    refused := refused_by_pause(_jobs, depth);
    if refused is not null then
      return;
    end if;
  end if;
  if _limits is not null or exists (select from limit_rule where kind = 'tenant') then
    select g.groups, g.refused into _groups, _hit from enqueue_groups(_jobs, last_limits(_limits), null) g;
    if _hit is null then
      _hit := (select limit_hit(g::enqueue_group) from unnest(_groups) g where g.when_full = 'reject' limit 1);
    end if;
    if _hit is not null then
      refused := json_build_object('refused', _hit, 'depth', depth);
      return;
    end if;
    held := array(select g.queue from unnest(_groups) g where g.when_full = 'hold');
  end if;
end
$$;

-- enqueue_workflow_v1: put a whole workflow in, or nothing of it.
-- role:   worker, api, enqueue
-- moves:  enqueue new -> ready | scheduled | held
-- guard:  workflow_id_key, workflow_key; what is taken is an answer, never an error
-- uses:   workflow_id_key, workflow_key, job_id_key
create or replace function enqueue_workflow_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _now       timestamptz := now_of(_op);
  _jobs      json := _op->'jobs';
  _notify    text := coalesce(_op->>'notify', 'if_waiting');
  _spec      record;
  _old       workflow;
  _room      record;
  _workflow  bigint;
  _ready     boolean;
begin
  select * into _spec from json_to_record(_op->'workflow') as w (
    id uuid, name text, tenant text, idempotency_key text, correlation_id text, created_by text);
  select * into _old from workflow where id = _spec.id;
  if found then
    return json_build_object('id', _old.id, 'disposition', case
      when _old.name = _spec.name and _old.tenant = _spec.tenant
           and _old.idempotency_key is not distinct from _spec.idempotency_key then 'replayed' else 'conflict' end);
  end if;
  select * into _old from workflow where tenant = _spec.tenant and idempotency_key = _spec.idempotency_key;
  if found then
    return json_build_object('id', _old.id, 'disposition', 'duplicate');
  end if;
  if exists (select from json_to_recordset(_jobs) as i (id uuid) join job j on j.id = i.id) then
    return json_build_object('id', _spec.id, 'disposition', 'conflict');
  end if;
  select * into _room from nodes_room(_jobs, (_op->>'capacity')::integer, nullif(_op->>'limits', '[]')::json);
  if _room.refused is not null then
    return _room.refused;
  end if;
  -- A key that another session is just inserting makes us wait for its commit.
  insert into workflow (id, name, tenant, idempotency_key, correlation_id, created_by, enqueued_at, nodes, gates)
  values (_spec.id, _spec.name, _spec.tenant, _spec.idempotency_key, _spec.correlation_id, _spec.created_by, _now,
          json_array_length(_jobs), json_array_length(_op->'gates'))
  on conflict do nothing returning seq into _workflow;
  if _workflow is null then
    return enqueue_workflow_v1(_op);
  end if;
  perform add_gates(_workflow, _op->'gates', 0);
  _ready := add_nodes(_workflow, _jobs, _op->'nodes', 0, 0, _room.held, '{}', _now);
  if _ready and (_notify = 'always' or (_notify = 'if_waiting' and exists (select from worker where waiting))) then
    perform pg_notify(current_schema() || '_wake', '');
  end if;
  return json_build_object('disposition', 'created', 'id', _spec.id, 'depth', _room.depth);
end
$$;

-- node_end: how the end of a node counts, with what people did about it; null: it has not ended.
create or replace function node_end(_status text, _letter text, _skipped boolean) returns text
language sql immutable parallel safe
return case when _status is null then null
            when _status = 'completed' or _letter = 'resolved' then 'completed'
            when _status = 'dead' and _letter is distinct from 'discarded' then 'dead'
            when _skipped then 'skipped' else 'cancelled' end;

-- hold_still: lock an unfinished job where it is, so that it cannot end before we commit. False: it has ended.
-- uses:   lease_pkey, ready_pkey, scheduled_pkey, held_pkey, done_pkey
create or replace function hold_still(_seq bigint) returns boolean
language plpgsql
set search_path from current
as $$
begin
  -- A job on its way from one place to the next is in none that we have looked at yet: look again.
  for _try in 1 .. 100 loop
    perform from lease where seq = _seq for update;
    if found then return true; end if;
    perform from ready where seq = _seq for update;
    if found then return true; end if;
    perform from scheduled where seq = _seq for update;
    if found then return true; end if;
    perform from held where seq = _seq for update;
    if found then return true; end if;
    if exists (select from done where seq = _seq) then return false; end if;
  end loop;
  return false;
end
$$;

-- add_nodes_v1: add nodes to a workflow that is there; names that are taken are left out.
-- role:   worker, api
-- moves:  enqueue new -> ready | scheduled | held
-- guard:  the workflow's row is locked; see holds_lease, where one is given; parents cannot end meanwhile
--         (tests/faults/test_keys_in_opposite_order.py)
-- uses:   workflow_id_key, node_name, lease_pkey
create or replace function add_nodes_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _tenant  text := scope_of(_op);
  _now     timestamptz := now_of(_op);
  _seq     bigint := (_op->>'seq')::bigint;
  _w       workflow;
  _new     integer[];
  _total   integer;
  _jobs    json;
  _room    record;
  _joins   integer[];
  _p       record;
  _n       node;
  _ended   text;
  _counts  gate_count[] := '{}';
  _step    record;
begin
  -- The workflow before jobs, jobs before gates: as who cancels a workflow, and who ends nodes.
  select * into _w from workflow where id = (_op->>'workflow')::uuid and (_tenant is null or tenant = _tenant)
  for update;
  if not found then
    return json_build_object('refused', 'not_found');
  end if;
  if _seq is not null and not holds_lease(_op) then
    return json_build_object('refused', 'lease_lost');
  end if;
  perform hold_still(k.seq) from (
    select k.seq from json_array_elements(_op->'behind') b join node k on k.workflow = _w.seq and k.name = b->>0
    order by k.seq) k;
  _new := array(
    select s.ord from rows from (json_to_recordset(_op->'nodes') as (name text)) with ordinality as s (name, ord)
    where not exists (select from node k where k.workflow = _w.seq and k.name = s.name) order by s.ord);
  if _new = '{}' then
    return json_build_object('added', 0);
  end if;
  perform from gate where workflow = _w.seq and everyone order by n for update;
  if exists (select from gate where workflow = _w.seq and everyone and state <> 'waiting') then
    return json_build_object('refused', 'ended');
  end if;
  if _w.cancelled_at is not null or exists (
    select from json_array_elements(_op->'behind') b
    where not exists (select from node k where k.workflow = _w.seq and k.name = b->>0)
  ) then
    return json_build_object('refused', 'not_allowed');
  end if;
  _total := _w.nodes + cardinality(_new);
  if _total > coalesce((_op->>'max_nodes')::integer, 100000) then
    return json_build_object('refused', 'not_allowed', 'total', _total);
  end if;
  _jobs := (
    select json_agg(e.value order by e.ord) from json_array_elements(_op->'jobs') with ordinality as e (value, ord)
    where e.ord = any(_new));
  select * into _room from nodes_room(_jobs, (_op->>'capacity')::integer, nullif(_op->>'limits', '[]')::json);
  if _room.refused is not null then
    return json_build_object('refused', 'not_allowed', 'receipt', _room.refused);
  end if;
  _joins := array(select n from gate where workflow = _w.seq and everyone order by n);
  perform add_gates(_w.seq, _op->'gates', _w.gates);
  perform add_nodes(
    _w.seq, _jobs,
    (select json_agg(e.value order by e.ord) from json_array_elements(_op->'nodes') with ordinality as e (value, ord)
     where e.ord = any(_new)),
    _w.nodes, _w.gates, _room.held, _joins, _now);
  update gate set waits = waits + cardinality(_new) where workflow = _w.seq and n = any(_joins);
  update workflow set nodes = _total, gates = gates + json_array_length(_op->'gates')
  where seq = _w.seq;
  for _p in
    select k.n, k.seq, _w.gates + (b.value->>1)::integer as gate
    from json_array_elements(_op->'behind') b (value) join node k on k.workflow = _w.seq and k.name = b.value->>0
    order by k.seq
  loop
    perform hold_still(_p.seq);
    update node set counts_for = counts_for || _p.gate where workflow = _w.seq and n = _p.n returning * into _n;
    _ended := (
      select node_end(d.status, l.status, _n.skipped) from done d left join dead_letter l on l.seq = d.seq
      where d.seq = _n.seq);
    if _n.again then
      _ended := coalesce(_ended, 'dead');  -- tried again: its first end counts
    end if;
    if _ended is not null then
      _counts := _counts || (
        _w.seq, _p.gate, (_ended = 'completed')::integer, 1, (_ended in ('dead', 'cancelled'))::integer,
        (_ended = 'cancelled')::integer, (_ended = 'skipped')::integer)::gate_count;
    end if;
  end loop;
  _counts := array(
    select (c.workflow, c.gate, sum(c.completed), sum(c.ended), sum(c.failed), sum(c.cancelled),
            sum(c.skipped))::gate_count
    from unnest(_counts) c group by c.workflow, c.gate order by c.workflow, c.gate);
  select * into _step from move_nodes(count_ends(_counts), false, cardinality(_new), _now);
  perform end_nodes(_step.ended, _now);
  if _step.changes <> '{}' then
    perform change_tallies(_step.changes);
  end if;
  perform wake_waiting();
  return json_build_object('added', cardinality(_new));
end
$$;
