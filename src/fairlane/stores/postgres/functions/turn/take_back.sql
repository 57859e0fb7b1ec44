-- take_back: end leases from outside, each by its cause; the caller has locked them, and calls end_nodes(ended_of(…))
--         once for all that it has ended: a second time would lock gates behind figures.
-- moves:  reclaim leased -> ready | held | dead | cancelled
-- guard:  the caller selected these leases `for update`
-- uses:   lease_pkey
--
-- worker_gone       recorded `lost`; a started attempt makes the job suspect, and counts a crash if it ran alone
-- start_by_passed   only prefetched, never started: recorded `released`
-- deadline_passed   ran past twice its timeout: dead as JobStuck
create or replace function take_back(_seqs bigint[], _cause text, _now timestamptz, _max_crashes integer) returns json
language plpgsql
set search_path from current
as $$
declare
  _told    json;
  _wake    boolean;
  _rates   jsonb[];
  _leased  timestamptz[];
begin
  with gone as (
    delete from lease l where l.seq = any(_seqs)
    returning l.*,
      l.crashes + case when _cause = 'worker_gone' and l.alone then 1 else 0 end as crashed,
      case when _cause = 'deadline_passed' and l.cancel_requested_at is null then 'dead'
           when l.cancel_requested_at is not null then 'cancelled'
           when _cause = 'worker_gone' and l.alone and l.crashes + 1 >= _max_crashes then 'dead'
           else 'ready' end as became,
      case when _cause = 'start_by_passed' then 'released' else 'lost' end as outcome
  ), told as (
    select g.*, j.id,
      case when outcome = 'released' or started_at is null then null
           when _cause = 'deadline_passed' then 'JobStuck'
           when became = 'dead' then 'Crashed' else 'WorkerLost' end as error_type
    from gone g join job j using (seq)
  ), worded as (
    select t.*, case when error_type is not null then 'transient' end as error_class,
      case error_type when 'JobStuck' then 'Job exceeded timeout threshold'
           when 'Crashed' then 'its process died ' || crashed || ' times while it ran alone'
           when 'WorkerLost' then 'its worker is gone' end as error_message,
      attempts + case when error_type = 'JobStuck' then 1 else 0 end as charged
    from told t
  ), ended as (
    insert into done (seq, status, finished_at, due_at, attempt, attempts, crashes, outcome, worker, leased_at,
                      deadline_at, started_at, error_class, error_type, error_message)
    select seq, became, _now, due_at, attempt, charged, crashed, outcome, worker, leased_at, deadline_at, started_at,
           error_class, error_type, error_message
    from worded where became <> 'ready'
  ), lived_on as (
    insert into attempt (seq, attempt, outcome, worker, leased_at, deadline_at, started_at, ended_at, error_class,
      error_type, error_message, due_at)
    select seq, attempt, outcome, worker, leased_at, deadline_at, started_at, _now, error_class, error_type,
      error_message, due_at
    from worded where became = 'ready'
  ), back as (
    insert into ready (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped,
      timeout_s, key, key_nth)
    select seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashed,
           suspect or (_cause = 'worker_gone' and started_at is not null), deduped, timeout_s, key, key_nth
    from worded where became = 'ready'
  ), buried as (
    insert into dead_letter (seq, reason, error_class, error_type, fingerprint, died_at, tenant, key)
    select seq, error_message, error_class, error_type, own_fingerprint(type, error_type), _now, tenant,
           case when placed and key_nth is not null then key end
    from worded where became = 'dead'
  ), freed as (
    delete from dedup_key k using worded w, job j
    where w.deduped and w.became <> 'ready' and j.seq = w.seq
      and k.tenant = j.tenant and k.type = j.type and k.key = j.dedup_key and k.seq = w.seq
  )
  select json_agg(json_build_object('seq', seq, 'id', id, 'attempt', attempt, 'worker', worker, 'cause', _cause,
    'became', became, 'type', type, 'tenant', tenant)
                  order by seq),
         bool_or(counted > 1 or became = 'ready'),
         array_agg(rates) filter (where started_at is null and rates is not null),
         array_agg(leased_at) filter (where started_at is null and rates is not null)
  into _told, _wake, _rates, _leased
  from worded;
  if _rates is not null then
    perform give_back(_rates, _leased);
  end if;
  if _wake then
    perform wake_waiting();
  end if;
  return _told;
end
$$;

-- ended_of: the jobs that ended for good, of what take_back has told.
create or replace function ended_of(_told jsonb) returns bigint[]
language sql immutable
set search_path from current
begin atomic
  select coalesce(array_agg((e->>'seq')::bigint), '{}')
  from jsonb_array_elements(_told) e where e->>'became' <> 'ready';
end;

-- end_unless_reclaiming: end a Turn's nodes, unless it is to reclaim: then they are `left`, to end together with those
--         that it reclaims. `moved`: how many nodes that let go.
-- uses:   see end_nodes
create or replace function end_unless_reclaiming(
  _ended bigint[], _completed boolean, _reclaim_limit integer, _now timestamptz, out "left" bigint[], out moved integer
)
language plpgsql
as $$
begin
  if _reclaim_limit > 0 and exists (select from worker w where w.expires_at <= _now) then
    "left" := _ended;
  else
    moved := end_node_jobs(_ended, _completed, 1000, _now);
  end if;
end
$$;
