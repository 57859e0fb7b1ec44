-- workflow_record: a workflow as people see it, with its figures.
create or replace view workflow_record as
select w.id, w.seq, w.name, w.tenant,
       case when t.completed + t.dead + t.cancelled + t.skipped < t.total
            then case when t.total - t.waiting - t.completed - t.dead - t.cancelled - t.skipped > 0
                        or exists (select from gate g
                                   where g.workflow = w.seq and g.state in ('opening', 'closing', 'skipping'))
                      then 'running' else 'blocked' end
            when t.dead > 0 then 'failed'
            when t.cancelled > 0 then 'cancelled' else 'completed' end as status,
       json_build_object('total', t.total, 'waiting', t.waiting, 'completed', t.completed, 'dead', t.dead,
                         'cancelled', t.cancelled, 'skipped', t.skipped) as tally,
       w.idempotency_key, coalesce(w.correlation_id, w.id::text) as correlation_id, w.created_by, w.enqueued_at,
       w.cancelled_at
from workflow w
cross join lateral (
  select coalesce(sum(total), 0) as total, coalesce(sum(waiting), 0) as waiting,
         coalesce(sum(completed), 0) as completed, coalesce(sum(dead), 0) as dead,
         coalesce(sum(cancelled), 0) as cancelled, coalesce(sum(skipped), 0) as skipped
  from tally where workflow = w.seq
) t;

-- workflow_seq: the number of a workflow that the scope of an operation admits; null: there is none.
-- uses:   workflow_id_key
create or replace function workflow_seq(_id uuid, _tenant text) returns bigint
language sql stable
set search_path from current
begin atomic
  select seq from workflow where id = _id and (_tenant is null or tenant = _tenant);
end;

-- get_workflow_v1: one workflow, and the dead letters it waits for; null: none in this scope.
-- role:   worker, api
-- uses:   workflow_id_key, tally_pkey, node_pkey
create or replace function get_workflow_v1(_op json) returns json
language plpgsql stable
set search_path from current
as $$
declare
  _seq bigint := workflow_seq((_op->>'id')::uuid, scope_of(_op));
begin
  return (
    select json_build_object('workflow', row_to_json(r), 'dead', array(
      select n.seq from node n join dead_letter d on d.seq = n.seq
      where n.workflow = _seq and d.status = 'pending_review'
        and (r.tally->>'dead')::integer > 0 order by n.n limit 100))
    from workflow_record r where r.seq = _seq);
end
$$;

-- page_workflows_v1: one page of workflows, newest first.
-- role:   api
-- uses:   workflow_tenant or workflow_pkey; tally_pkey
create or replace function page_workflows_v1(_op json) returns json
language plpgsql stable
set search_path from current
set enable_seqscan = off
set jit = off
as $$
declare
  _tenant  text := scope_of(_op);
  _name    text := _op->>'name';
  _before  bigint := row_id(_op->>'before');
  _limit   integer := page_size(_op);
  _seqs    bigint[];
begin
  _seqs := array(
    select w.seq from workflow w
    where (_tenant is null or w.tenant = _tenant) and (_name is null or w.name = _name)
      and (_before is null or w.seq < _before)
    order by w.seq desc limit _limit + 1);
  return json_build_object('workflows', coalesce((
    select json_agg(row_to_json(r) order by r.seq desc) from workflow_record r
    where r.seq = any(_seqs[:_limit])), '[]'),
    'next', case when cardinality(_seqs) > _limit then _seqs[_limit] end);
end
$$;

-- page_nodes_v1: nodes of a workflow in the order of adding.
-- role:   api
-- uses:   node_pkey; job_pkey and the fact tables by seq
create or replace function page_nodes_v1(_op json) returns json
language plpgsql stable
set search_path from current
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
  _seq    bigint := workflow_seq((_op->>'workflow')::uuid, scope_of(_op));
  _after  integer := (_op->>'after')::integer;
  _limit  integer := greatest(1, least((_op->>'limit')::integer, 1000));
  _nodes  node[];
begin
  _nodes := array(select k from node k where k.workflow = _seq and k.n > _after order by k.n limit _limit + 1);
  return json_build_object(
    'nodes', coalesce((
      select json_agg(json_build_object(
        'n', n.n, 'name', n.name, 'gate', n.gate, 'counts_for', n.counts_for, 'waiting', h.seq is not null,
        'job_id', r.id, 'job_seq', r.seq, 'type', r.type, 'status', r.status, 'attempts', r.attempts,
        'enqueued_at', r.enqueued_at, 'started_at', r.started_at, 'finished_at', r.finished_at,
        'last_error', r.last_error) order by n.n)
      from unnest(_nodes[:_limit]) n join job_record r on r.seq = n.seq
      left join held h on h.seq = n.seq and h.queue = ''), '[]'),
    'next', case when cardinality(_nodes) > _limit then (_nodes[_limit]).n end);
end
$$;

-- list_gates_v1: all gates of a workflow.
-- role:   api
-- uses:   gate_pkey
create or replace function list_gates_v1(_op json) returns json
language plpgsql stable
set search_path from current
as $$
declare
  _seq bigint := workflow_seq((_op->>'workflow')::uuid, scope_of(_op));
begin
  return json_build_object('gates', coalesce((
    select json_agg(json_build_object(
      'n', g.n, 'opens', g.opens, 'waits', g.waits, 'failed', g.failed, 'counts_for', g.counts_for,
      'everyone', g.everyone, 'state', g.state) order by g.n)
    from gate g where g.workflow = _seq), '[]'));
end
$$;

-- read_results_v1: how nodes stand and what they returned, in the order of the names.
-- role:   worker, api
-- uses:   node_name, job_pkey and the fact tables by seq
create or replace function read_results_v1(_op json) returns json
language plpgsql stable
set search_path from current
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
  _seq    bigint := workflow_seq((_op->>'workflow')::uuid, scope_of(_op));
  _names  text[] := array(select json_array_elements_text(_op->'names'));
begin
  return json_build_object('results', coalesce((
    select json_agg(json_build_object('name', n.name, 'job_id', r.id, 'status', r.status, 'result', r.result,
                                      'type', r.type, 'finished_at', r.finished_at) order by a.ord)
    from unnest(_names) with ordinality as a (name, ord)
    join node n on n.workflow = _seq and n.name = a.name join job_record r on r.seq = n.seq), '[]'));
end
$$;
