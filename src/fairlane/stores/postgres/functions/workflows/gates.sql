-- What has ended of that which counts for one gate; changes of figures; a gate that has opened or closed.
create type gate_count as (
  workflow bigint, gate integer, completed integer, ended integer, failed integer, cancelled integer, skipped integer
);
create type tally_change as (
  workflow bigint, n integer, waiting integer, completed integer, dead integer, cancelled integer, skipped integer
);
create type gate_turn as (workflow bigint, gate integer, state text, reached integer);

-- end_nodes: count jobs that have ended, as far as they are nodes, and move what waits for them; nodes that end by it
--         are counted in turn. Returns how many nodes moved, at most `_limit`.
-- moves:  see end_node_jobs
-- guard:  see end_node_jobs
create or replace function end_nodes(_seqs bigint[], _now timestamptz, _limit integer default 1000) returns integer
language plpgsql
set search_path from current
as $$
begin
  return end_node_jobs(_seqs, false, _limit, _now);
end
$$;

-- end_node_jobs: end_nodes; `_completed`: all of them have run and completed, which need not be looked up.
-- moves:  unhold held -> ready | scheduled, cancel held -> cancelled
-- guard:  the caller has written how they ended
-- uses:   node_seq, done_pkey, gate_pkey, tally_pkey
--
-- Rows are locked in one order everywhere: leases, gates by number, held jobs, then the figures. Two Turns that end
-- parents of the same nodes wait for each other; neither waits for the other twice. (tests/races/test_workflows.py)
create or replace function end_node_jobs(_seqs bigint[], _completed boolean, _limit integer, _now timestamptz)
returns integer
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
  _counts   gate_count[];
  _changes  tally_change[];
  _all      tally_change[] := '{}';
  _step     record;
  _moved    integer := 0;
begin
  while _seqs <> '{}' loop
    with ended as materialized (
      select n.workflow, n.n, n.counts_for, n.again,
             case when n.skipped then 'skipped' when _completed then 'completed' else d.status end as status,
             n.gate is not null and g.state <> 'open' and (g.state <> 'opening' or n.n > g.reached) as waited
      from node n
      left join lateral (select k.status from done k where not _completed and k.seq = n.seq) d on true
      left join lateral (
        select k.state, k.reached from gate k where not _completed and k.workflow = n.workflow and k.n = n.gate
      ) g on true
      where n.seq = any(_seqs) and (_completed or d.status is not null)
    )
    select array(
      select (e.workflow, c.gate, count(*) filter (where e.status = 'completed'), count(*) filter (where not e.again),
              count(*) filter (where not e.again and e.status in ('dead', 'cancelled')),
              count(*) filter (where e.status = 'cancelled'),
              count(*) filter (where e.status = 'skipped'))::gate_count
      from ended e cross join lateral unnest(e.counts_for) c (gate) group by e.workflow, c.gate
    ), array(
      select (e.workflow, e.n >> 6, -count(*) filter (where e.waited), count(*) filter (where e.status = 'completed'),
              count(*) filter (where e.status = 'dead'), count(*) filter (where e.status = 'cancelled'),
              count(*) filter (where e.status = 'skipped'))::tally_change
      from ended e group by e.workflow, e.n >> 6
    ) into _counts, _changes;
    exit when _changes = '{}';
    _all := _all || _changes;
    select * into _step from move_nodes(count_ends(_counts), false, _limit - _moved, _now);
    _all := _all || _step.changes;
    _moved := _moved + _step.moved;
    _seqs := _step.ended;
    _completed := false;
  end loop;
  if _all <> '{}' then
    perform change_tallies(_all);
  end if;
  return _moved;
end
$$;

-- count_ends: bring ends to their gates, and from gates that count for others to those; returns what opens or closes.
-- guard:  gates are locked by number, those that count for others before those: a nested loop keeps the order of `c`
-- uses:   gate_pkey
create or replace function count_ends(_counts gate_count[]) returns gate_turn[]
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
  _turned     gate_turn[] := '{}';
  _more       gate_turn[];
  _following  gate_count[];
begin
  while _counts <> '{}' loop
    with counted as (
      update gate g
      set waits = g.waits - case g.opens when 'completed' then c.completed else c.ended end,
          failed = g.failed + c.failed,
          state = case
            when g.opens = 'completed' and c.cancelled > 0 then 'closed'
            when g.opens = 'completed' and c.skipped > 0 then 'skipped'
            when g.waits > case g.opens when 'completed' then c.completed else c.ended end then 'waiting'
            when g.opens = 'failed' and g.failed + c.failed = 0 then 'skipped'
            else 'open' end
      from (select * from unnest(_counts) order by workflow, gate) c
      where g.workflow = c.workflow and g.n = c.gate and g.state = 'waiting'
      returning g.workflow, g.n, g.state, g.failed, g.counts_for
    )
    select array(
      select (k.workflow, k.n, case k.state when 'open' then 'opening' when 'closed' then 'closing'
                else 'skipping' end, -1)::gate_turn
      from counted k where k.state <> 'waiting' and k.counts_for is null order by k.workflow, k.n
    ), array(
      select (k.workflow, k.counts_for, count(*) filter (where k.state = 'open'),
              count(*) filter (where k.state = 'open'), count(*) filter (where k.state = 'open' and k.failed > 0),
              count(*) filter (where k.state = 'closed'), count(*) filter (where k.state = 'skipped'))::gate_count
      from counted k where k.state <> 'waiting' and k.counts_for is not null
      group by k.workflow, k.counts_for
    ) into _more, _following;
    _turned := _turned || _more;
    _counts := _following;
  end loop;
  return _turned;
end
$$;

-- move_nodes: let the nodes behind gates go, or end them, at most `_limit`. `changes`: of figures, for who counts the
--         ends, too; `ended`: jobs that ended by it. `_going_on`: the gates have been moving nodes before.
-- moves:  unhold held -> ready | scheduled, cancel held -> cancelled
-- guard:  the caller has locked the gates
-- uses:   node_gate, held_pkey, job_pkey, step_pkey
create or replace function move_nodes(
  _turned gate_turn[], _going_on boolean, _limit integer, _now timestamptz, out moved integer, out ended bigint[],
  out changes tally_change[]
)
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
  _all    gate_turn[] := _turned;
  _left   integer := greatest(_limit, 0);
  _found  integer;
  _t      gate_turn;
  _last   integer;
  _wake   boolean;
begin
  moved := 0;
  ended := '{}';
  changes := '{}';
  if _turned = '{}' then
    return;
  end if;
  select count(*) into _found from (
    select from unnest(_turned) t join node n on n.workflow = t.workflow and n.gate = t.gate and n.n > t.reached
    limit _left + 1) b;
  if _found > _left then
    -- More than fit: gate after gate, each as far as it goes.
    _all := '{}';
    foreach _t in array _turned loop
      select count(*), max(b.n) into _found, _last from (
        select n.n from node n where n.workflow = _t.workflow and n.gate = _t.gate and n.n > _t.reached
        order by n.n limit _left) b;
      _left := _left - _found;
      update gate g set reached = coalesce(_last, _t.reached), state = case
        when not exists (select from node n where n.workflow = _t.workflow and n.gate = _t.gate
                           and n.n > coalesce(_last, _t.reached))
        then case _t.state when 'opening' then 'open' when 'closing' then 'closed' else 'skipped' end
        else _t.state end
      where g.workflow = _t.workflow and g.n = _t.gate;
      _all := _all || (_t.workflow, _t.gate, _t.state, _t.reached)::gate_turn;
    end loop;
  elsif _going_on then
    update gate g set state = case t.state when 'opening' then 'open' when 'closing' then 'closed' else 'skipped' end
    from unnest(_turned) t where g.workflow = t.workflow and g.n = t.gate;
  end if;
  -- Two statements: the common one, which lets nodes go, begins in two thirds of the time without the other's tables.
  if exists (select from unnest(_all) t where t.state = 'opening') then
    with freed as (
      delete from held h using unnest(_all) t, node n, gate g
      where t.state = 'opening' and n.workflow = t.workflow and n.gate = t.gate and n.n > t.reached and h.seq = n.seq
        and g.workflow = t.workflow and g.n = t.gate and (g.state <> t.state or n.n <= g.reached)
      returning h.seq, h.band, h.tenant, h.rank, h.due_at, h.type, h.deduped, h.timeout_s, n.workflow, n.n
    ), placed as materialized (
      -- With steps of another job its attempts begin behind the first: that is how a worker knows of them.
      -- One that was due at its enqueue is due, also where that lies in the future: the clock was set back since.
      select f.*, j.queue, f.due_at <= _now or j.due_at <= j.enqueued_at as is_due, j.key,
             key_nth(j.key_terms, coalesce(j.key_order, j.seq)) as key_nth,
             exists (select from step s where s.seq = f.seq)::integer as attempt
      from freed f join job j on j.seq = f.seq
    ), due as (
      insert into ready (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped,
        timeout_s, key, key_nth)
      select seq, queue, band, tenant, rank, _now, type, attempt, 0, 0, false, deduped, timeout_s, key, key_nth
      from placed where is_due
    ), later as (
      insert into scheduled (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect,
        deduped, timeout_s, failed, key, key_nth)
      select seq, queue, band, tenant, rank, due_at, type, attempt, 0, 0, false, deduped, timeout_s, false, key, key_nth
      from placed where not is_due
    ), figures as (
      select p.workflow, p.n >> 6 as n, count(*)::integer as count, bool_or(p.is_due) as due from placed p
      group by p.workflow, p.n >> 6
    )
    select coalesce(sum(f.count), 0), coalesce(array_agg((f.workflow, f.n, -f.count, 0, 0, 0, 0)::tally_change), '{}'),
           bool_or(f.due)
    into moved, changes, _wake from figures f;
  end if;
  if exists (select from unnest(_all) t where t.state <> 'opening') then
    with gone as (
      delete from held h using unnest(_all) t, node n, gate g
      where t.state <> 'opening' and n.workflow = t.workflow and n.gate = t.gate and n.n > t.reached and h.seq = n.seq
        and g.workflow = t.workflow and g.n = t.gate and (g.state <> t.state or n.n <= g.reached)
      returning h.seq, h.due_at, t.state, n.workflow, n.n
    ), written as (
      insert into done (seq, status, finished_at, due_at, attempt, attempts, crashes)
      select seq, 'cancelled', _now, due_at, 0, 0, 0 from gone
    ), skipped as (
      update node n set skipped = true from gone g where g.state = 'skipping' and n.workflow = g.workflow and n.n = g.n
    )
    select coalesce(array_agg(seq), '{}') into ended from gone;
    moved := moved + cardinality(ended);
  end if;
  if _wake then
    perform wake_waiting();
  end if;
end
$$;

-- change_tallies: write changes of figures.
-- guard:  rows are locked by number: a nested loop keeps the order of `c`
-- uses:   tally_pkey
create or replace function change_tallies(_changes tally_change[]) returns void
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
  update tally t
  set waiting = t.waiting + c.waiting, completed = t.completed + c.completed, dead = t.dead + c.dead,
      cancelled = t.cancelled + c.cancelled, skipped = t.skipped + c.skipped
  from (
    select c.workflow, c.n, sum(c.waiting) as waiting, sum(c.completed) as completed, sum(c.dead) as dead,
           sum(c.cancelled) as cancelled, sum(c.skipped) as skipped
    from unnest(_changes) c group by c.workflow, c.n order by c.workflow, c.n
  ) c
  where t.workflow = c.workflow and t.n = c.n;
end
$$;

-- advance_v1: let go, or end, nodes behind gates that have opened or closed and still have some.
-- role:   worker
-- moves:  unhold held -> ready | scheduled, cancel held -> cancelled
-- guard:  gates that somebody else moves are passed over
-- uses:   gate_moving
create or replace function advance_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _limit   integer := at_most(_op);
  _now     timestamptz := now_of(_op);
  _turned  gate_turn[];
  _step    record;
  _count   integer;
begin
  select coalesce(array_agg((m.workflow, m.n, m.state, m.reached)::gate_turn order by m.workflow, m.n), '{}')
  into _turned
  from (
    select g.* from gate g where g.state in ('opening', 'closing', 'skipping') order by g.workflow, g.n limit _limit
    for update skip locked
  ) m;
  select * into _step from move_nodes(_turned, true, _limit, _now);
  _count := _step.moved + end_nodes(_step.ended, _now, _limit - _step.moved);
  if _step.changes <> '{}' then
    perform change_tallies(_step.changes);
  end if;
  return json_build_object('count', _count);
end
$$;
