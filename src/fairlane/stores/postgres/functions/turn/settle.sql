-- own_fingerprint: groups failures that Fairlane itself reports, by job type and error type.
create or replace function own_fingerprint(
  _type text, _error_type text
) returns text language sql immutable parallel safe
return left(encode(sha256(convert_to(_type || ':' || _error_type, 'UTF8')), 'hex'), 16);

-- own_failure: the failure of an attempt whose process died under it.
create or replace function own_failure(
  _type text, _crashes integer, _dead boolean
) returns json language sql immutable parallel safe
return json_build_object(
  'error_class', 'transient',
  'error_type', case when _dead then 'Crashed' else 'WorkerLost' end,
  'message', case when _dead then 'its process died ' || _crashes || ' times while it ran alone'
  else 'its worker is gone' end,
    'fingerprint', own_fingerprint(_type, case when _dead then 'Crashed' else 'WorkerLost' end));

create or replace function recorded_as(_kind text) returns text language sql immutable parallel safe
return case _kind when 'retried' then 'failed' when 'died' then 'dead' when 'crashed' then 'lost' else _kind end;

-- put_off_at: when a series of snoozes for one reason began; null: none has. A series has one record, the newest of the
--         job, apart from attempts that were given back.
-- uses:   attempt_pkey
create or replace function put_off_at(_seq bigint, _error_type text) returns timestamptz
language plpgsql stable
set search_path from current
as $$
begin
  return (
    select case when a.outcome = 'snoozed' and a.error_type = _error_type then a.ended_at end from attempt a
    where a.seq = _seq and a.outcome <> 'released' order by a.attempt desc limit 1);
end
$$;

-- is_recorded: whether this is how an attempt of this worker ended.
-- uses:   done_pkey, attempt_pkey
create or replace function is_recorded(_seq bigint, _attempt integer, _worker uuid, _outcome text) returns boolean
language plpgsql stable
set search_path from current
as $$
begin
  return exists (
    select from done d where d.seq = _seq and (d.attempt, d.worker, d.outcome) = (_attempt, _worker, _outcome)
    union all
    select from attempt a
    where (a.seq, a.attempt) = (_seq, _attempt) and (a.worker, a.outcome) = (_worker, _outcome));
end
$$;

-- settle_outcomes: end attempts whose lease is still this worker's. `refused`: the others; `freed`: places under
--         running limits; `ended`: jobs that may be nodes, for end_nodes. A Turn calls that once, for all: it locks
--         gates before figures. (tests/faults/test_keys_in_opposite_order.py)
-- moves:  complete leased -> completed, retry leased -> scheduled, snooze leased -> scheduled, die leased -> dead,
--         stop leased -> cancelled, release leased -> ready | held, reclaim leased -> ready | held | dead | cancelled
--         (crashed)
-- guard:  lease (seq, attempt, claim_no, worker) exists; an outcome recorded already under that attempt and worker is
--         accepted again, and so is one of which nothing is to be recorded
-- uses:   lease_pkey
create or replace function settle_outcomes(
  _worker uuid, outcomes json, _now timestamptz, _max_crashes integer, out refused json, out freed freed_place[],
  out ended bigint[]
)
language plpgsql
set search_path from current
as $$
declare
  _settled   bigint[];
  _attempts  integer[];
  _claim_nos bigint[];
  _rates     jsonb[];
  _leased    timestamptz[];
  _back      boolean;
  _suspended json;
begin
  with o as materialized (
    select * from json_to_recordset(outcomes) as o (
      kind text, seq bigint, attempt integer, claim_no bigint, ran_s double precision, ended_ago_s double precision,
      result json, delay_s double precision, failure json, charged boolean, reason text, recorded boolean,
      give_up_s double precision, suspension json)
  ), ended_here as (
    delete from lease l using o
    where l.seq = o.seq and l.attempt = o.attempt and l.worker = _worker
      and l.claim_no = coalesce(o.claim_no, l.claim_no)
    returning l.*, o.claim_no as named_claim, coalesce(o.recorded, true) as recorded, o.kind, o.result, o.delay_s,
      o.failure, o.reason, o.give_up_s, o.suspension,
      case when o.kind = 'snoozed' and o.failure is not null
           then put_off_at(l.seq, o.failure->>'error_type') end as put_off_at,
      l.crashes + case o.kind when 'crashed' then 1 else 0 end as crashed,
      l.attempts + case when o.kind = 'retried' or (o.kind = 'died' and coalesce(o.charged, true))
                        then 1 else 0 end as charged,
      _now - coalesce(o.ended_ago_s, 0) * interval '1 second' as ended_at,
      coalesce(l.started_at, _now - (coalesce(o.ended_ago_s, 0) + o.ran_s) * interval '1 second') as began_at,
      case o.kind when 'completed' then 'completed' when 'died' then 'dead' when 'cancelled' then 'cancelled'
        else case when l.cancel_requested_at is not null then 'cancelled'
                  when o.kind = 'crashed' and l.crashes + 1 >= _max_crashes then 'dead' end end as status,
      recorded_as(o.kind) as outcome
  ), judged as (
    select *, case when status is null and put_off_at + give_up_s * interval '1 second' <= _now then 'dead' end
      as given_up
    from ended_here
  ), gone as (
    select seq, queue, band, tenant, rank, due_at, type, attempt, worker, leased_at, deadline_at, suspect, deduped,
           timeout_s, key, key_nth, placed and key_nth is not null as keeps_place, kind, recorded, result, delay_s,
           suspension, reason, crashed, charged, counted, rates, ended_at, began_at, named_claim,
           coalesce(status, given_up) as status, coalesce(given_up, outcome) as outcome,
           recorded or (kind = 'snoozed' and failure is not null and put_off_at is null) as kept,
           not recorded or (kind = 'released' and began_at is null) as is_unused,
           case kind when 'crashed' then own_failure(type, crashed, status = 'dead') else failure end as failure
    from judged
  ), ended as (
    insert into done (seq, status, finished_at, due_at, attempt, attempts, crashes, outcome, worker, leased_at,
                      deadline_at, started_at, error_class, error_type, error_message, traceback, result)
    select seq, status, ended_at, due_at, attempt, charged, crashed, outcome, worker, leased_at, deadline_at, began_at,
           failure->>'error_class', failure->>'error_type', coalesce(failure->>'message', reason),
           failure->>'traceback', result
    from gone where status is not null
  ), lived_on as (
    insert into attempt (seq, attempt, outcome, worker, leased_at, deadline_at, started_at, ended_at,
                         error_class, error_type, error_message, traceback, due_at)
    select seq, attempt, outcome, worker, leased_at, deadline_at, began_at, ended_at,
           failure->>'error_class', failure->>'error_type', failure->>'message', failure->>'traceback', due_at
    from gone where status is null and kept
  ), later as (
    insert into scheduled (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped,
                           timeout_s, failed, put_off, since, key, key_nth, placed)
    select seq, queue, band, tenant, rank, _now + delay_s * interval '1 second', type, attempt, charged, crashed,
           suspect and not recorded, deduped, timeout_s, kind = 'retried', kind = 'snoozed' and failure is not null,
           _now, key, key_nth, keeps_place
    from gone where status is null and kind in ('retried', 'snoozed')
  ), given_back as (
    insert into ready (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped,
      timeout_s, key, key_nth)
    select seq, queue, band, tenant, rank, due_at, type, attempt, charged, crashed,
           suspect or kind = 'crashed', deduped, timeout_s, key, key_nth
    from gone where status is null and kind in ('released', 'crashed')
  ), buried as (
    insert into dead_letter (seq, reason, error_class, error_type, fingerprint, died_at, tenant, key)
    select seq, left(failure->>'message', 2000), failure->>'error_class', failure->>'error_type',
           failure->>'fingerprint', ended_at, tenant, case when keeps_place then key end
    from gone where status = 'dead'
  ), freed as (
    delete from dedup_key k using gone g, job j
    where g.deduped and g.status is not null and j.seq = g.seq
      and k.tenant = j.tenant and k.type = j.type and k.key = j.dedup_key and k.seq = g.seq
  )
  select array_agg(seq), array_agg(attempt), array_agg(coalesce(named_claim, 0)),
         array_agg((queue, type, tenant)::freed_place) filter (where counted > 1),
         array_agg(rates) filter (where is_unused and rates is not null),
         array_agg(leased_at) filter (where is_unused and rates is not null),
         bool_or(status is null and kind in ('released', 'crashed')),
         json_agg(json_build_object(
           'seq', seq, 'attempt', attempt, 'tenant', tenant, 'due_at', _now + delay_s * interval '1 second',
           'suspension', suspension)) filter (where status is null and suspension is not null),
         array_agg(seq) filter (where deduped and status is not null)
  into _settled, _attempts, _claim_nos, freed, _rates, _leased, _back, _suspended, ended from gone;
  if _rates is not null then
    perform give_back(_rates, _leased);
  end if;
  if _suspended is not null then
    perform suspend(_suspended, _now);
  end if;
  if _back then
    perform wake_waiting();
  end if;

  refused := (
    select json_agg(json_build_object('seq', o.seq, 'attempt', o.attempt, 'claim_no', o.claim_no) order by o.ord)
    from rows from (json_to_recordset(outcomes) as (kind text, seq bigint, attempt integer, claim_no bigint,
      recorded boolean)) with ordinality as o (kind, seq, attempt, claim_no, recorded, ord)
    where o.recorded is distinct from false
      and (o.seq, o.attempt, coalesce(o.claim_no, 0)) not in (select * from unnest(_settled, _attempts, _claim_nos))
      and not is_recorded(o.seq, o.attempt, _worker, recorded_as(o.kind))
  );
end
$$;

-- settle: settle_outcomes by itself, with what its ends mean to workflows.
-- moves:  see settle_outcomes and end_nodes
-- guard:  see settle_outcomes
-- uses:   lease_pkey
create or replace function settle(
  _worker uuid, outcomes json, _now timestamptz, _max_crashes integer default 3, out refused json,
  out freed freed_place[]
)
language plpgsql
set search_path from current
as $$
declare
  _ended bigint[];
begin
  select s.refused, s.freed, s.ended into refused, freed, _ended
  from settle_outcomes(_worker, outcomes, _now, _max_crashes) s;
  if _ended is not null then
    perform end_nodes(_ended, _now);
  end if;
end
$$;
