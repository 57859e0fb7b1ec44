-- reset_v1: take a leased job from its worker by hand; it is ready again, uncharged.
-- role:   api
-- moves:  reset leased -> ready | held | cancelled
-- guard:  a lease is there, and locked; from anywhere else: not allowed
-- uses:   lease_pkey
create or replace function reset_v1(_op json) returns json
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
  _before  json;
  _l       lease;
begin
  if _seq is null then
    return job_act('not_found', null);
  end if;
  select * into _l from lease where seq = _seq for update;
  if not found then
    return job_act('not_allowed', _seq);
  end if;
  select json_build_object('status', status, 'attempts', attempts) into _before from job_record where seq = _seq;
  if (select s.freed from settle(
        _l.worker, json_build_array(json_build_object('kind', 'released', 'seq', _seq, 'attempt', _l.attempt)),
        _now) s) is not null then
    perform wake_waiting();
  end if;
  perform audit_job('job_reset', _by, _notes, _seq, _before, _now);
  return job_act(null, _seq);
end
$$;
