-- Acts on jobs by hand. Each locks the job where it is, moves it, and writes its audit record, in one transaction.

create type withdrawn_job as (
  place text, queue text, band smallint, tenant text, rank smallint, due_at timestamptz, type text, attempt integer,
  attempts integer, crashes smallint, suspect boolean, deduped boolean, timeout_s double precision,
  worker uuid, leased_at timestamptz, deadline_at timestamptz, started_at timestamptz, cancel_requested_at timestamptz,
  key text, key_nth bigint, placed boolean, counted smallint
);

-- withdraw_job: take an unfinished job out of its place, waiting for whoever is moving it; null when it is finished.
-- uses:   ready_pkey, scheduled_pkey, held_pkey, lease_pkey, done_pkey
create or replace function withdraw_job(_seq bigint, _from_lease boolean) returns withdrawn_job
language plpgsql
set search_path from current
as $$
declare
  _w withdrawn_job;
begin
  -- A job on its way from one place to the next is in none that we have looked at yet: look again.
  for _try in 1 .. 100 loop
    delete from ready where seq = _seq
    returning 'ready', queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped,
              timeout_s, null, null, null, null, null, key, key_nth, placed into _w;
    exit when found;
    delete from scheduled where seq = _seq
    returning 'scheduled', queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped,
              timeout_s, null, null, null, null, null, key, key_nth, placed into _w;
    exit when found;
    delete from held where seq = _seq
    returning 'held', queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped, timeout_s,
              null, null, null, null, null, key, key_nth, false into _w;
    exit when found;
    if _from_lease then
      delete from lease where seq = _seq
      returning 'leased', queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped,
                timeout_s, worker, leased_at, deadline_at, started_at, cancel_requested_at, key, key_nth, placed,
                counted into _w;
      if _w.counted > 1 or _w.placed then
        perform wake_waiting();
        return _w;
      end if;
    else
      select 'leased', queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped, timeout_s,
             worker, leased_at, deadline_at, started_at, cancel_requested_at, key, key_nth, placed into _w
      from lease where seq = _seq for update;
    end if;
    exit when found;
    exit when exists (select from done where seq = _seq);
  end loop;
  if _w.placed and _w.place <> 'leased' then
    perform knock_at(_w.tenant, _w.key), wake_waiting();
  end if;
  return _w;
end
$$;

-- finish: write how a withdrawn job ended, free its dedup key, and make the dead letter of a dead one.
-- moves:  cancel ready | scheduled | held -> cancelled, fail | bury ready | scheduled | held | leased -> dead
create or replace function finish(
  _seq bigint, _w withdrawn_job, _status text, _attempt integer, _attempts integer, _outcome text, _error_class text,
  _error_type text, _message text, _now timestamptz
) returns void
language plpgsql
set search_path from current
as $$
begin
  insert into done (seq, status, finished_at, due_at, attempt, attempts, crashes, outcome, worker, leased_at,
                    deadline_at, started_at, error_class, error_type, error_message)
  values (_seq, _status, _now, _w.due_at, _attempt, _attempts, _w.crashes, _outcome, _w.worker,
          case when _outcome is not null then coalesce(_w.leased_at, _now) end,
          case when _outcome is not null then coalesce(_w.deadline_at, _now) end, _w.started_at, _error_class,
            _error_type, _message);
  if _w.deduped then
    delete from dedup_key k using job j
    where j.seq = _seq and k.tenant = j.tenant and k.type = j.type and k.key = j.dedup_key and k.seq = _seq;
  end if;
  if _w.deduped then
    perform end_nodes(array[_seq], _now);
  end if;
  if _status = 'dead' then
    insert into dead_letter (seq, reason, error_class, error_type, fingerprint, died_at, tenant, key)
    values (_seq, left(_message, 2000), _error_class, _error_type,
            own_fingerprint(_w.type, _error_type), _now, _w.tenant,
            case when _w.placed and _w.key_nth is not null then _w.key end);
  end if;
end
$$;

create or replace function job_act(_refused text, _seq bigint) returns json
language sql stable
set search_path from current
begin atomic
  select json_build_object('refused', _refused, 'job', (select row_to_json(r) from job_record r where r.seq = _seq));
end;

create or replace function audit_job(
  _action text, _by text, _notes text, _seq bigint, _before json, _now timestamptz
) returns void
language sql
set search_path from current
begin atomic
  select write_audit(_action, _by, _notes, r.tenant, 'job:' || r.id, _before,
                     json_build_object('status', r.status, 'attempts', r.attempts), _now)
  from job_record r where r.seq = _seq;
end;

-- cancel_v1: end a waiting job; ask a leased one to stop.
-- role:   api
-- moves:  cancel ready -> cancelled, cancel scheduled -> cancelled, cancel held -> cancelled
create or replace function cancel_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _tenant  text := scope_of(_op);
  _id      uuid := (_op->>'id')::uuid;
  _by      text := _op->>'by';
  _notes   text := _op->>'notes';
  _now     timestamptz := now_of(_op);
  _seq     bigint := (select seq from job where id = _id and (_tenant is null or tenant = _tenant));
  _before  json := (select json_build_object('status', status, 'attempts', attempts) from job_record where seq = _seq);
  _w       withdrawn_job;
begin
  if _seq is null then
    return job_act('not_found', null);
  end if;
  _w := withdraw_job(_seq, false);
  if _w.place is null then
    return job_act(case when (select status from done where seq = _seq) = 'cancelled' then null else 'not_allowed' end,
      _seq);
  elsif _w.place = 'leased' then
    if _w.cancel_requested_at is not null then
      return job_act(null, _seq);
    end if;
    update lease set cancel_requested_at = _now where seq = _seq;
  else
    perform finish(_seq, _w, 'cancelled', _w.attempt, _w.attempts, null, null, null, null, _now);
  end if;
  perform audit_job('job_cancel', _by, _notes, _seq, _before, _now);
  return job_act(null, _seq);
end
$$;

-- end_by_hand: fail (with or without a retry) or bury an unfinished job.
-- moves:  fail ready | scheduled | held | leased -> scheduled | dead, bury ready | scheduled | held | leased -> dead
create or replace function end_by_hand(_act text, _op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _tenant         text := scope_of(_op);
  _id             uuid := (_op->>'id')::uuid;
  _reason         text := _op->>'reason';
  _retry_delay_s  double precision := (_op->>'retry_delay_s')::double precision;
  _now            timestamptz := now_of(_op);
  _seq            bigint;
  _limit          integer;
  _before         json;
  _w              withdrawn_job;
  _attempt        integer;
  _attempts       integer;
  _status         text;
  _class          text;
  _type           text := case _act when 'fail' then 'FailedByHand' else 'Buried' end;
begin
  select seq, max_attempts into _seq, _limit from job where id = _id and (_tenant is null or tenant = _tenant);
  if _seq is null then
    return job_act('not_found', null);
  end if;
  select json_build_object('status', status, 'attempts', attempts) into _before from job_record where seq = _seq;
  _w := withdraw_job(_seq, true);
  if _w.place is null then
    return job_act('not_allowed', _seq);
  end if;
  _attempt := _w.attempt + case when _w.place = 'leased' then 0 else 1 end;
  _attempts := _w.attempts + case _act when 'fail' then 1 else 0 end;
  _status := case when _act = 'fail' and _retry_delay_s is not null and _attempts < _limit
                    and _w.queue <> ''  -- a node that waits for its parents has nothing to retry
                  then case when _w.cancel_requested_at is not null then 'cancelled' end else 'dead' end;
  _class := case when _status = 'dead' then 'non_retryable' else 'retryable' end;
  if _status is null then
    insert into attempt (seq, attempt, outcome, worker, leased_at, deadline_at, started_at, ended_at, error_class,
      error_type, error_message, due_at)
    values (_seq, _attempt, 'failed_by_hand', _w.worker, coalesce(_w.leased_at, _now), coalesce(_w.deadline_at, _now),
            _w.started_at, _now, _class, _type, _reason, _w.due_at);
    insert into scheduled (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped,
      timeout_s, failed, since, key, key_nth, placed)
    values (_seq, _w.queue, _w.band, _w.tenant, _w.rank, _now + _retry_delay_s * interval '1 second', _w.type,
            _attempt, _attempts, _w.crashes, false, _w.deduped, _w.timeout_s, true, _now, _w.key, _w.key_nth,
            coalesce(_w.placed and _w.key_nth is not null, false));
  else
    perform finish(_seq, _w, _status, _attempt, _attempts, 'failed_by_hand', _class, _type, _reason, _now);
  end if;
  perform audit_job('job_' || _act, _op->>'by', _op->>'notes', _seq, _before, _now);
  return job_act(null, _seq);
end
$$;

-- fail_v1: fail an unfinished job by hand, charging one attempt.
-- role:   api
-- moves:  fail ready | scheduled | held | leased -> scheduled | dead
create or replace function fail_v1(_op json) returns json
language sql
set search_path from current
return end_by_hand('fail', _op);

-- bury_v1: send an unfinished job to the dead letters, uncharged.
-- role:   api
-- moves:  bury ready | scheduled | held | leased -> dead
create or replace function bury_v1(_op json) returns json
language sql
set search_path from current
return end_by_hand('bury', _op);
