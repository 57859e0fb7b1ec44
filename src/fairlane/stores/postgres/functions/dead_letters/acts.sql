-- Acts on dead letters by hand; reprocess.sql has the one that makes a new job.

-- act_on_dead_letter: give a dead letter the status of a closed one, or with none acknowledge it; audited as `_act`.
-- guard:  the letter's row is locked first: of two clicks the second sees what the first did
-- uses:   dead_letter_pkey
create or replace function act_on_dead_letter(_act text, _status text, _op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _tenant  text := scope_of(_op);
  _seq     bigint := row_id(_op->>'id');
  _by      text := _op->>'by';
  _notes   text := _op->>'notes';
  _now     timestamptz := now_of(_op);
  _d       dead_letter;
  _own     text;
begin
  select j.tenant into _own from job j where j.seq = _seq and (_tenant is null or j.tenant = _tenant);
  select * into _d from dead_letter where seq = _seq and _own is not null for update;
  if not found then
    return dead_letter_act('not_found', null, null, false);
  end if;
  if _status is null then
    if _d.acknowledged_at is not null then
      return dead_letter_act(null, _seq, null, false);
    end if;
    update dead_letter set acknowledged_by = _by, acknowledged_at = _now where seq = _seq;
  elsif _d.status in ('pending_review', 'retried') then
    update dead_letter set status = _status, closed_by = _by, closed_at = _now, notes = _notes, key = null
    where seq = _seq;
    if _d.key is not null then
      perform knock_at(_own, _d.key), wake_waiting();
    end if;
    perform settle_letter(_seq, _status, _now);
  else
    return dead_letter_act('not_allowed', _seq, null, false);
  end if;
  perform write_audit(
    'job_dlq_' || _act, _by, _notes, _own, 'dead_letter:' || _seq,
    json_build_object('status', _d.status, 'acknowledged_by', _d.acknowledged_by),
    (select json_build_object('status', status, 'acknowledged_by', acknowledged_by) from dead_letter where seq = _seq),
    _now);
  return dead_letter_act(null, _seq, null, false);
end
$$;

-- discard_v1: close a dead letter as not worth another try.
-- role:   api
create or replace function discard_v1(_op json) returns json
language sql
set search_path from current
return act_on_dead_letter('discard', 'discarded', _op);

-- resolve_v1: close a dead letter as dealt with.
-- role:   api
create or replace function resolve_v1(_op json) returns json
language sql
set search_path from current
return act_on_dead_letter('resolve', 'resolved', _op);

-- acknowledge_v1: record who looks after a dead letter; the first name stays.
-- role:   api
create or replace function acknowledge_v1(_op json) returns json
language sql
set search_path from current
return act_on_dead_letter('acknowledge', null, _op);
