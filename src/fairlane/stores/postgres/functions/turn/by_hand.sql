-- Jobs claimed, completed and failed by hand, from any language that speaks SQL (docs/guides/by-hand.md). Each claim is
-- a worker of its own that holds one job; its id is the claim's token. The client's verbs do the same with Turns.

-- claim_v1: the next ready job of these queues, or no row. It is the caller's until complete_claim_v1, fail_claim_v1 or
--         release_claim_v1, and at most for `lease_s`: then it runs again, and what comes later is refused.
-- role:   worker
-- moves:  claim ready -> leased
-- guard:  those of a Turn
-- uses:   ready_line
create or replace function claim_v1(
  queues text[] default '{default}', types text[] default null, lease_s double precision default 300,
  worker text default 'by hand'
) returns table (
  token uuid, id uuid, type text, tenant text, queue text, payload json, attempt integer, attempts integer,
  max_attempts integer, correlation_id text, idempotency_key text, lease_until timestamptz
)
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  _token  uuid := gen_random_uuid();
  _queues constant text[] := queues;
  _types  constant text[] := types;
  _until  timestamptz;
  _got    record;
begin
  perform check_lease(lease_s);
  _until := register_claim(_token, lease_s, worker);
  select t.seq, t.attempt into _got from turn_v2(
    _token, 1, null, null, null, null, null, null, null, json_build_array(json_strip_nulls(json_build_object(
      'lane', 'by hand', 'queues', _queues, 'types', _types, 'limit', 1, 'start', 1, 'look', 10000,
      'cursor', any_ready_tenant(_queues))))) t
  where t.seq is not null;
  if not found then
    perform forget_worker(_token);
    return;
  end if;
  perform hold_claim(_token, lease_s);
  return query
  select _token, j.id, j.type::text, j.tenant::text, j.queue::text, j.payload, l.attempt, l.attempts::integer,
         j.max_attempts::integer, coalesce(j.correlation_id, j.id::text),
         coalesce(j.idempotency_key, j.id::text), _until
  from job j join lease l on l.seq = j.seq where j.seq = _got.seq;
end
$$;

-- renew_claim_v1: keep a claimed job for `lease_s` from now. Returns when the lease ends then.
-- role:   worker
-- guard:  the claim still holds its job
create or replace function renew_claim_v1(token uuid, lease_s double precision default 300) returns timestamptz
language plpgsql
set search_path from current
as $$
declare
  _name text := lock_claim(token);
begin
  perform check_lease(lease_s);
  perform hold_claim(token, lease_s);
  return register_claim(token, lease_s, _name);
end
$$;

-- fail_claim_v1: the attempt failed. Returns after how many seconds the job runs again; null: it is a dead letter, for
--         `non_retryable`, without `retry`, and at the last attempt.
-- role:   worker
-- moves:  retry leased -> scheduled, die leased -> dead, stop leased -> cancelled
-- guard:  the claim still holds its job
create or replace function fail_claim_v1(
  token uuid, message text, error_class text default 'retryable', retry boolean default true,
  retry_after_s double precision default null, error_type text default 'FailedByHand'
) returns double precision
language plpgsql
set search_path from current
as $$
declare
  _delay_s  double precision;
  _failed   integer;
  _j        job;
begin
  if error_class is null or error_class not in ('transient', 'retryable', 'non_retryable', 'rate_limited') then
    raise exception 'error_class = %: expected transient, retryable, non_retryable or rate_limited',
      coalesce(quote_literal(error_class), 'null') using errcode = 'invalid_parameter_value';
  elsif coalesce(trim(message), '') = '' or retry_after_s < 0 then
    raise exception 'expected a message for the people who will read it, and retry_after_s from 0 on'
      using errcode = 'invalid_parameter_value';
  end if;
  perform lock_claim(token);
  select j.* into _j from lease l join job j on j.seq = l.seq where l.worker = token;
  select l.attempts + 1 into _failed from lease l where l.worker = token;
  if retry and error_class <> 'non_retryable' and _failed < _j.max_attempts then
    _delay_s := case when retry_after_s is null then retry_delay_s(shallow(_j.retry), error_class, _failed)
                     else least(retry_after_s, 86400) * (1 + 0.1 * random()) end;
  end if;
  perform settle_claim(token, json_build_object(
    'kind', case when _delay_s is null then 'died' else 'retried' end, 'delay_s', _delay_s,
    'failure', json_build_object(
      'error_class', error_class, 'error_type', left(error_type, 200), 'message', left(message, 2000),
      'fingerprint', own_fingerprint(_j.type, error_type))));
  return _delay_s;
end
$$;

-- retry_delay_s: how long a job waits after its `_failed`-th failure: by its own policy, else 2, 4, 8 … 300 s, and
--         60, 120 … 300 s where it is rate-limited. Those of tasks and queues are known to the application alone.
create or replace function retry_delay_s(_retry json, _error_class text, _failed integer) returns double precision
language plpgsql volatile
set search_path from current
as $$
declare
  _own     json := case when _error_class <> 'rate_limited' then _retry end;
  _cap     double precision := coalesce((_own->>'cap_s')::double precision, 300);
  _jitter  double precision := coalesce((_own->>'jitter')::double precision, 0.2);
  _full    double precision;
begin
  if json_array_length(_own->'delays') > 0 then
    return (_own->'delays'->>least(_failed, json_array_length(_own->'delays')) - 1)::double precision;
  end if;
  _full := least(_cap, coalesce((_own->>'factor')::double precision, 2) ^ least(_failed - 1, 40)
    * coalesce((_own->>'base_s')::double precision, case _error_class when 'rate_limited' then 60 else 2 end));
  return _full * (1 - _jitter) + (least(_full * (1 + _jitter), _cap) - _full * (1 - _jitter)) * random();
end
$$;

create or replace function check_lease(_lease_s double precision) returns void
language plpgsql immutable
as $$
begin
  if _lease_s is null or not _lease_s between 1 and 604800 then
    raise exception 'lease_s = %: expected a number of seconds from 1 to 604800', _lease_s
      using errcode = 'invalid_parameter_value';
  end if;
end
$$;

-- register_claim: the worker that a claim is. It serves no queue and no task.
create or replace function register_claim(_token uuid, _lease_s double precision, _name text) returns timestamptz
language sql
set search_path from current
begin atomic
  select (renew_v1(json_build_object(
    'worker', _token, 'lease_s', _lease_s, 'name', _name, 'queues', '{by hand}'::text[], 'types', '{by hand}'::text[],
    'figures', '{}'::json))->>'expires_at')::timestamptz;
end;

-- hold_claim: its lease lasts at least as long as the claim. If that lapses, the job was alone in it: one crash more.
-- guard:  lease (seq, attempt, worker) exists
create or replace function hold_claim(_token uuid, _lease_s double precision) returns void
language plpgsql
set search_path from current
as $$
declare
  _starts json := (
    select json_agg(json_build_object('seq', l.seq, 'attempt', l.attempt, 'timeout_s', _lease_s, 'alone', true))
    from lease l where l.worker = _token);
begin
  if _starts is null or mark_started(_token, _starts, clock_timestamp()) is not null then
    perform claim_lost(_token);
  end if;
end
$$;

-- lock_claim: the name of a claim's worker, whose row stays locked; refused for the number of any other worker, whose
--         jobs would be settled and taken from it.
create or replace function lock_claim(_token uuid) returns text
language plpgsql
set search_path from current
as $$
declare
  _name  text;
begin
  select w.name into _name from worker w where w.id = _token and w.queues = '{by hand}' for update;
  if not found then
    perform claim_lost(_token);
  end if;
  return _name;
end
$$;

-- claim_lost: refuses what comes late. An error, so that the caller's own changes are not committed either.
create or replace function claim_lost(_token uuid) returns void
language plpgsql
as $$
begin
  raise exception 'claim % holds no job any more; nothing was changed', _token
    using errcode = 'object_not_in_prerequisite_state',
          hint = 'Its lease has ended, or the claim has settled it: claim again.';
end
$$;

-- settle_claim: end what a claim holds, and the claim.
-- moves:  see settle_outcomes
-- guard:  the claim's row is locked, so that nobody takes the job back half way
create or replace function settle_claim(_token uuid, _outcome json) returns void
language plpgsql
set search_path from current
as $$
declare
  _now    timestamptz := clock_timestamp();
  _l      lease;
  _ran_s  double precision;
  _freed  freed_place[];
begin
  perform lock_claim(_token);
  select * into _l from lease where worker = _token;
  if not found then
    perform claim_lost(_token);
  end if;
  _ran_s := extract(epoch from _now - _l.leased_at);
  select s.freed into _freed from settle(_token, json_build_array(
    _outcome::jsonb || jsonb_build_object('seq', _l.seq, 'attempt', _l.attempt, 'ran_s', _ran_s)), _now) s;
  if _freed is not null then
    perform wake_waiting();
  end if;
  if _outcome->>'kind' <> 'released' then
    perform tell_end(_token, _l, _outcome, _ran_s, _now);
  end if;
  perform forget_worker(_token);
end
$$;

-- tell_end: the figures and the event of an attempt, as a worker tells them.
create or replace function tell_end(
  _token uuid, _l lease, _outcome json, _ran_s double precision, _now timestamptz
) returns void
language plpgsql
set search_path from current
as $$
declare
  _kind  text := recorded_as(_outcome->>'kind');  -- completed, failed, dead
begin
  perform add_stats_v1(json_build_object('worker', _token, 'batch', 1, 'rows', json_build_array(json_build_object(
    'minute', date_trunc('minute', _now), 'type', _l.type, 'queue', _l.queue, 'tenant', _l.tenant, 'enqueued', 0,
    'completed', (_kind = 'completed')::integer, 'failed', (_kind = 'failed')::integer,
    'dead', (_kind = 'dead')::integer, 'cancelled', 0, 'wait_us', 0, 'run_us', (_ran_s * 1000000)::bigint,
    'wait_buckets', '{}'::json,
    'run_buckets', json_build_object(length(ltrim(floor(_ran_s * 1000)::bigint::bit(64)::text, '0')), 1)))));
  if _kind <> 'completed' or (select watched_until > _now from told) then
    perform add_events_v1(json_build_object('events', json_build_array(json_build_object(
      'kind', 'job_' || _kind, 'tenant', _l.tenant, 'data', json_strip_nulls(json_build_object(
        'id', (select j.id from job j where j.seq = _l.seq), 'type', _l.type, 'queue', _l.queue,
        'attempt', _l.attempt, 'ran_s', round(_ran_s::numeric, 6),
        'error_type', _outcome->'failure'->>'error_type', 'error_class', _outcome->'failure'->>'error_class'))))));
  end if;
end
$$;

-- complete_claim_v1: the job is done; its result is kept.
-- role:   worker
-- moves:  complete leased -> completed
-- guard:  the claim still holds its job
create or replace function complete_claim_v1(token uuid, result json default null) returns void
language sql
set search_path from current
begin atomic
  select settle_claim(token, json_build_object('kind', 'completed', 'result', result));
end;

-- release_claim_v1: give the job back. It is ready again, and no attempt is counted.
-- role:   worker
-- moves:  release leased -> ready, stop leased -> cancelled
-- guard:  the claim still holds its job
create or replace function release_claim_v1(token uuid) returns void
language sql
set search_path from current
begin atomic
  select settle_claim(token, json_build_object('kind', 'released'));
end;

-- any_ready_tenant: one of the tenants in the most urgent band of these queues, at random: claims begin behind it, so
--         that tenants take turns although no claim knows the one before.
-- uses:   ready_line, one row for each tenant, 1,000 at most
create or replace function any_ready_tenant(_queues text[]) returns text
language sql volatile
set search_path from current
set enable_seqscan = off
set jit = off
begin atomic
  with recursive line as (
    select f.queue, f.band, f.tenant, 1 as n
    from unnest(_queues) with ordinality as q (name, nth)
    cross join lateral (
      select r.queue, r.band, r.tenant from ready r where r.queue = q.name order by r.queue, r.band, r.tenant limit 1) f
    where q.nth = (
      select min(e.nth) from unnest(_queues) with ordinality as e (name, nth)
      where exists (select from ready r where r.queue = e.name))
    union all
    select f.queue, f.band, f.tenant, l.n + 1
    from line l
    cross join lateral (
      select r.queue, r.band, r.tenant from ready r
      where r.queue = l.queue and r.band = l.band and r.tenant > l.tenant order by r.tenant limit 1) f
    where l.n < 1000
  )
  select coalesce((select l.tenant from line l order by random() limit 1), '');
end;
