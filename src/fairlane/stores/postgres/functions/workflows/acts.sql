-- What people do with workflows, and what acts on dead letters mean to nodes.

-- A node that is to run again: its number, its jobs' numbers, the id of the new one, and how the old one stands.
create type node_again as (
  n integer, old bigint, seq bigint, id uuid, has_ended boolean, ended text, waits boolean
);

create or replace function workflow_act(_refused text, _seq bigint, _jobs integer) returns json
language sql stable
set search_path from current
begin atomic
  select json_build_object(
    'refused', _refused, 'jobs', _jobs, 'workflow', (select row_to_json(r) from workflow_record r where r.seq = _seq));
end;

-- cancel_nodes: end the nodes of a workflow that are ready or scheduled, and ask leased ones to stop. `_patient`: wait
--         for whoever is moving one; who has locked the gates must not.
-- moves:  cancel ready -> cancelled, cancel scheduled -> cancelled
-- uses:   node_pkey, ready_pkey, scheduled_pkey, lease_pkey
create or replace function cancel_nodes(
  _workflow bigint, _patient boolean, _now timestamptz, out ended bigint[], out asked integer
)
language plpgsql
set search_path from current
set enable_seqscan = off
set jit = off
as $$
declare
  _free bigint[];
begin
  _free := array(select r.seq from node n join ready r on r.seq = n.seq where n.workflow = _workflow
                 order by r.seq for update of r skip locked);
  with gone as (
    delete from ready r using node n
    where n.workflow = _workflow and r.seq = n.seq and (_patient or r.seq = any(_free))
    returning r.seq, r.due_at, r.attempt, r.attempts, r.crashes, r.tenant, r.key, r.placed
  ), written as (
    insert into done (seq, status, finished_at, due_at, attempt, attempts, crashes)
    select seq, 'cancelled', _now, due_at, attempt, attempts, crashes from gone
  )
  select coalesce(array_agg(seq), '{}'), count(knock_at(tenant, key)) filter (where placed) into ended, asked from gone;
  _free := array(select s.seq from node n join scheduled s on s.seq = n.seq where n.workflow = _workflow
                 order by s.seq for update of s skip locked);
  with gone as (
    delete from scheduled s using node n
    where n.workflow = _workflow and s.seq = n.seq and (_patient or s.seq = any(_free))
    returning s.seq, s.due_at, s.attempt, s.attempts, s.crashes, s.tenant, s.key, s.placed
  ), written as (
    insert into done (seq, status, finished_at, due_at, attempt, attempts, crashes)
    select seq, 'cancelled', _now, due_at, attempt, attempts, crashes from gone
  )
  select ended || coalesce(array_agg(seq), '{}'), count(knock_at(tenant, key)) filter (where placed) into ended, asked
  from gone;
  _free := array(select l.seq from node n join lease l on l.seq = n.seq where n.workflow = _workflow
                 order by l.seq for update of l skip locked);
  update lease l set cancel_requested_at = _now from node n
  where n.workflow = _workflow and l.seq = n.seq and l.cancel_requested_at is null
    and (_patient or l.seq = any(_free));
  get diagnostics asked = row_count;
end
$$;

-- cancel_workflow_v1: end every unfinished node, or ask it to stop; all gates close that have not opened.
-- role:   api
-- moves:  cancel ready -> cancelled, cancel scheduled -> cancelled, cancel held -> cancelled
-- guard:  jobs first, then the gates, then what is held, as everywhere (see end_nodes); nodes let go meanwhile are
--         looked for once the gates are shut
-- uses:   workflow_id_key, node_pkey, gate_pkey, held_pkey
create or replace function cancel_workflow_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _now      timestamptz := now_of(_op);
  _w        workflow;
  _before   text;
  _changes  tally_change[];
  _ended    bigint[];
  _asked    integer;
  _more     record;
  _waited   bigint[];
begin
  select * into _w from workflow where seq = workflow_seq((_op->>'id')::uuid, scope_of(_op)) for update;
  if not found then
    return workflow_act('not_found', null, 0);
  end if;
  _before := (select status from workflow_record where seq = _w.seq);
  select c.ended, c.asked into _ended, _asked from cancel_nodes(_w.seq, true, _now) c;
  perform from gate where workflow = _w.seq order by n for update;
  with gone as (
    delete from held h using node n where n.workflow = _w.seq and h.seq = n.seq returning h.seq, h.due_at, h.queue
  ), written as (
    insert into done (seq, status, finished_at, due_at, attempt, attempts, crashes)
    select seq, 'cancelled', _now, due_at, 0, 0, 0 from gone
  )
  select _ended || coalesce(array_agg(seq), '{}'), coalesce(array_agg(seq) filter (where queue = ''), '{}')
  into _ended, _waited from gone;
  update gate set state = case state when 'opening' then 'open' when 'skipping' then 'skipped' else 'closed' end
  where workflow = _w.seq and state in ('waiting', 'opening', 'closing', 'skipping');
  select c.ended, c.asked into _more from cancel_nodes(_w.seq, false, _now) c;
  _ended := _ended || _more.ended;
  _changes := array(
    select (_w.seq, n.n >> 6, -count(*) filter (where n.seq = any(_waited)), 0, 0, count(*), 0)::tally_change
    from node n where n.workflow = _w.seq and n.seq = any(_ended) group by n.n >> 6);
  if _changes <> '{}' then
    perform change_tallies(_changes);
  end if;
  if _w.cancelled_at is null then
    update workflow set cancelled_at = _now where seq = _w.seq;
    perform write_audit(
      'workflow_cancel', _op->>'by', _op->>'notes', _w.tenant, 'workflow:' || _w.id,
      json_build_object('status', _before),
      (select json_build_object('status', r.status) from workflow_record r where r.seq = _w.seq), _now);
  end if;
  return workflow_act(null, _w.seq, cardinality(_ended) + _asked + _more.asked);
end
$$;

-- recount: set every gate of a workflow by how its nodes stand, once those of `_again` have not ended; one that is
--         ending its nodes goes on with that.
-- guard:  the caller has locked the gates
-- uses:   node_pkey, gate_pkey, done_pkey, dead_letter_pkey
create or replace function recount(_workflow bigint, _again integer[]) returns void
language plpgsql
set search_path from current
as $$
begin
  with stands as (
    select n.counts_for, n.again and a.n is null as again,
           case when a.n is null then node_end(d.status, l.status, n.skipped) end as ended
    from node n left join unnest(_again) a (n) on a.n = n.n
    left join done d on d.seq = n.seq left join dead_letter l on l.seq = n.seq
    where n.workflow = _workflow
  ), direct as (
    select c.gate, count(*) as members, count(*) filter (where s.ended = 'completed') as completed,
           count(*) filter (where s.ended is not null or s.again) as ended,
           count(*) filter (where s.again or s.ended in ('dead', 'cancelled')) as failed,
           count(*) filter (where s.ended = 'cancelled') as cancelled,
           count(*) filter (where s.ended = 'skipped') as skipped
    from stands s cross join lateral unnest(s.counts_for) c (gate) group by c.gate
  ), parts as (
    select g.counts_for as gate, p.failed,
           case when g.opens = 'completed' and p.cancelled > 0 then 'closed'
                when g.opens = 'completed' and p.skipped > 0 then 'skipped'
                when p.members > case g.opens when 'completed' then p.completed else p.ended end then 'waiting'
                else 'open' end as state
    from gate g join direct p on p.gate = g.n where g.workflow = _workflow and g.counts_for is not null
  ), together as (
    select * from direct
    union all
    select p.gate, count(*), count(*) filter (where p.state = 'open'), count(*) filter (where p.state <> 'waiting'),
           count(*) filter (where p.state = 'closed' or p.state = 'open' and p.failed > 0),
           count(*) filter (where p.state = 'closed'), count(*) filter (where p.state = 'skipped')
    from parts p group by p.gate
  ), whole as (
    select gate, sum(members) as members, sum(completed) as completed, sum(ended) as ended, sum(failed) as failed,
           sum(cancelled) as cancelled, sum(skipped) as skipped
    from together group by gate
  ), anew as (
    select g.n, w.members - case g.opens when 'completed' then w.completed else w.ended end as waits, w.failed,
           case when g.opens = 'completed' and w.cancelled > 0
                then case g.state when 'closing' then g.state else 'closed' end
                when g.opens = 'completed' and w.skipped > 0
                then case g.state when 'skipping' then g.state else 'skipped' end
                when w.members > case g.opens when 'completed' then w.completed else w.ended end then 'waiting'
                when g.opens = 'failed' and w.failed = 0
                then case g.state when 'skipping' then g.state else 'skipped' end
                else 'open' end as state
    from gate g join whole w on w.gate = g.n where g.workflow = _workflow
  )
  update gate g set waits = a.waits, failed = a.failed, state = a.state,
    reached = case when a.state = g.state then g.reached else -1 end
  from anew a where g.workflow = _workflow and g.n = a.n;
end
$$;

-- is_shut: whether a gate of this state lets no node go, unless it is counted anew.
create or replace function is_shut(_state text) returns boolean language sql immutable parallel safe
return _state in ('closing', 'closed', 'skipping', 'skipped');

-- retry_workflow_v1: run nodes again, each as a new job like the one it had. One that did not complete goes on
--         behind its durable steps.
-- role:   api
-- moves:  enqueue new -> ready | held
-- guard:  the workflow and its gates are locked; no node that is asked for is unfinished, but for those that wait
-- uses:   workflow_id_key, node_name, gate_pkey, step_pkey
create or replace function retry_workflow_v1(_op json) returns json
language plpgsql
set search_path from current
set jit = off
as $$
declare
  _now      timestamptz := now_of(_op);
  _by       text := _op->>'by';
  _w        workflow;
  _before   text;
  _changes  tally_change[];
  _step     record;
  _again    node_again[];
begin
  select * into _w from workflow where seq = workflow_seq((_op->>'id')::uuid, scope_of(_op)) for update;
  if not found then
    return workflow_act('not_found', null, 0);
  end if;
  _before := (select status from workflow_record where seq = _w.seq);
  -- Letters before gates, as settle_letter has them. (tests/faults/test_keys_in_opposite_order.py)
  perform from node n join dead_letter l on l.seq = n.seq where n.workflow = _w.seq order by l.seq for update of l;
  perform from gate where workflow = _w.seq order by n for update;
  _again := array(
    select (n.n, n.seq, 0, (a.value->>1)::uuid, d.seq is not null, node_end(d.status, l.status, n.skipped),
            h.seq is not null)::node_again
    from json_array_elements(_op->'again') a (value)
    left join node n on n.workflow = _w.seq and n.name = a.value->>0
    left join done d on d.seq = n.seq left join dead_letter l on l.seq = n.seq
    left join held h on h.seq = n.seq and h.queue = '');
  if _again = '{}' or exists (select from unnest(_again) a where a.n is null or not (a.has_ended or a.waits)) then
    return workflow_act('not_allowed', _w.seq, 0);
  end if;
  _again := array(
    select (a.n, a.old, nextval(pg_get_serial_sequence('job', 'seq')), a.id, true, a.ended, false)::node_again
    from unnest(_again) a where a.has_ended);
  begin
    perform recount(_w.seq, array(select a.n from unnest(_again) a));
    if exists (
      select from node n join gate g on g.workflow = n.workflow and g.n = n.gate
      left join unnest(_again) a on a.n = n.n left join done d on d.seq = n.seq left join held h on h.seq = n.seq
      where n.workflow = _w.seq and case when a.n is not null then is_shut(g.state)
                                         else g.state <> 'open' and d.seq is null and h.seq is null end
    ) then
      raise exception using errcode = 'FL001';  -- the gates stay as they were
    end if;
  exception when sqlstate 'FL001' then
    return workflow_act('not_allowed', _w.seq, 0);
  end;
  insert into job (seq, id, type, tenant, queue, band, rank, payload, payload_version, max_attempts, timeout_s,
                   category, correlation_id, parent_id, created_by, refs, headers, retry, enqueued_at, due_at, key,
                   key_terms, key_order)
  select a.seq, a.id, j.type, j.tenant, j.queue, j.band, j.rank, j.payload, j.payload_version, j.max_attempts,
         j.timeout_s, j.category, j.correlation_id, j.parent_id, _by, j.refs, j.headers, j.retry, _now, _now, j.key,
         j.key_terms, coalesce(j.key_order, j.seq)
  from unnest(_again) a join job j on j.seq = a.old;
  insert into step (seq, n, kind, name, key, attempt, at, ran_s, result, until, signal)
  select a.seq, s.n, s.kind, s.name, s.key, s.attempt, s.at, s.ran_s, s.result, s.until, s.signal
  from unnest(_again) a join step s on s.seq = a.old
  where not exists (select from done d where d.seq = a.old and d.status = 'completed');
  update dead_letter d set status = 'retried', closed_by = _by, closed_at = _now, notes = _op->>'notes',
    reprocessed_as = a.id, reprocess_count = d.reprocess_count + 1, key = null
  from unnest(_again) a where d.seq = a.old and d.status = 'pending_review';
  update node n set seq = a.seq, again = false, skipped = false
  from unnest(_again) a where n.workflow = _w.seq and n.n = a.n;
  _changes := array(
    select (_w.seq, a.n >> 6, 0, -count(*) filter (where a.ended = 'completed'),
            -count(*) filter (where a.ended = 'dead'), -count(*) filter (where a.ended = 'cancelled'),
            -count(*) filter (where a.ended = 'skipped'))::tally_change
    from unnest(_again) a group by a.n >> 6);
  -- What waited behind a gate that is open now goes on with them.
  select * into _step from move_nodes(array(
    select (g.workflow, g.n, 'opening', -1)::gate_turn from gate g
    where g.workflow = _w.seq and g.state = 'open' and g.counts_for is null order by g.n), false, 1000000, _now);
  _changes := _changes || _step.changes;
  with placed as materialized (
    select j.*, n.n, n.gate is null or g.state = 'open' as free
    from unnest(_again) a join job j on j.seq = a.seq join node n on n.workflow = _w.seq and n.n = a.n
    left join gate g on g.workflow = n.workflow and g.n = n.gate
  ), now_ready as (
    insert into ready (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped,
      timeout_s, key, key_nth)
    select seq, queue, band, tenant, rank, _now, type, exists (select from step s where s.seq = p.seq)::integer, 0, 0,
           false, true, timeout_s, key, key_nth(key_terms, key_order)
    from placed p where free
  ), kept_back as (
    insert into held (seq, queue, band, tenant, rank, due_at, type, deduped, timeout_s)
    select seq, '', band, tenant, rank, _now, type, true, timeout_s from placed where not free
  )
  select _changes || array(
    select (_w.seq, p.n >> 6, count(*), 0, 0, 0, 0)::tally_change from placed p where not p.free group by p.n >> 6)
  into _changes;
  perform change_tallies(_changes);
  update workflow set cancelled_at = null where seq = _w.seq;
  perform write_audit(
    'workflow_retry', _by, _op->>'notes', _w.tenant, 'workflow:' || _w.id, json_build_object('status', _before),
    (select json_build_object('status', r.status, 'jobs', cardinality(_again)) from workflow_record r
     where r.seq = _w.seq), _now);
  perform wake_waiting();
  return workflow_act(null, _w.seq, cardinality(_again));
end
$$;

-- replace_job: a dead letter is tried again; where the dead job stood for a node, the new one does. Whether it has to
--         wait; null: no node.
-- uses:   node_seq, gate_pkey
create or replace function replace_job(_dead bigint, _new bigint) returns boolean
language plpgsql
set search_path from current
as $$
declare
  _n       node;
  _g       gate;
  _waits   boolean;
begin
  select * into _n from node where seq = _dead;
  if not found then
    return null;
  end if;
  select * into _g from gate where workflow = _n.workflow and n = _n.gate for update;
  _waits := _g.n is not null and _g.state <> 'open' and (_g.state <> 'opening' or _n.n > _g.reached);
  update node set seq = _new, again = true where seq = _dead;
  perform change_tallies(array[(_n.workflow, _n.n >> 6, _waits::integer, 0, -1, 0, 0)::tally_change]);
  return _waits;
end
$$;

-- has_other_job: a dead job was a node's that has another one now, or whose gate has closed: it cannot be tried again.
-- uses:   node_seq, gate_pkey
create or replace function has_other_job(_dead job) returns boolean
language plpgsql stable
set search_path from current
as $$
declare
  _n node;
begin
  select * into _n from node where seq = _dead.seq;
  if not found then
    return coalesce(_dead.headers->>'fairlane-workflow' is not null, false);
  end if;
  return exists (select from gate where workflow = _n.workflow and n = _n.gate and is_shut(state));
end
$$;

-- settle_letter: a dead letter is closed; if it is a node's, its children go on, or end, too.
-- uses:   node_seq
create or replace function settle_letter(_dead bigint, _status text, _now timestamptz) returns void
language plpgsql
set search_path from current
as $$
declare
  _n         node;
  _resolved  integer := (_status = 'resolved')::integer;
  _step      record;
begin
  select * into _n from node where seq = _dead;
  if not found then
    return;
  end if;
  select * into _step from move_nodes(count_ends(array(
    select (_n.workflow, g, _resolved, 0, 0, 1 - _resolved, 0)::gate_count from unnest(_n.counts_for) g order by g)),
    false, 1000, _now);
  perform end_nodes(_step.ended, _now);
  perform change_tallies(
    _step.changes || (_n.workflow, _n.n >> 6, 0, _resolved, -1, 1 - _resolved, 0)::tally_change);
end
$$;
