-- Acts on schedules by hand. The row is locked first: of two clicks the second sees what the first did.

create or replace function schedule_act(_refused text, _s schedule, _job_id uuid) returns json
language sql stable
begin atomic
  select json_build_object('refused', _refused, 'schedule', row_to_json(_s), 'job_id', _job_id);
end;

-- pause_schedule_v1: stop it firing, or let it fire again from `next_at` on; doing so twice writes nothing.
-- role:   api
-- uses:   schedule_pkey
create or replace function pause_schedule_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _name     text := _op->>'name';
  _paused   boolean := (_op->>'paused')::boolean;
  _next_at  timestamptz := (_op->>'next_at')::timestamptz;
  _by       text := _op->>'by';
  _notes    text := _op->>'notes';
  _now      timestamptz := now_of(_op);
  _s        schedule;
begin
  select * into _s from schedule where name = _name for update;
  if not found then
    return schedule_act('not_found', null, null);
  end if;
  if (_s.paused_at is not null) = _paused then
    return schedule_act(null, _s, null);
  end if;
  update schedule set paused_at = case when _paused then _now end,
    next_at = case when _paused then next_at else _next_at end
  where name = _name returning * into _s;
  perform audit_schedule(case when _paused then 'schedule_pause' else 'schedule_resume' end, _by, _notes, _name,
                         _s.spec->>'tenant', json_build_object('paused', not _paused),
                         json_build_object('paused', _paused), _now);
  return schedule_act(null, _s, null);
end
$$;

-- run_schedule_v1: enqueue its job now, beside the timetable.
-- role:   api
-- moves:  enqueue new -> ready | scheduled
-- uses:   schedule_pkey
create or replace function run_schedule_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _name   text := _op->>'name';
  jobs    json := json_build_array(_op->'job');
  _by     text := _op->>'by';
  _notes  text := _op->>'notes';
  _now    timestamptz := now_of(_op);
  _s      schedule;
  _id     uuid;
begin
  perform from schedule where name = _name for update;
  if not found then
    return schedule_act('not_found', null, null);
  end if;
  _id := enqueue_v1(jobs, _now, limits => 'false')->'receipts'->0->>'id';
  update schedule set last_job_id = _id where name = _name returning * into _s;
  perform audit_schedule('schedule_run', _by, _notes, _name, _s.spec->>'tenant', null,
    json_build_object('job_id', _id), _now);
  return schedule_act(null, _s, _id);
end
$$;

-- remove_schedule_v1: take it away; the answer holds it as it was.
-- role:   api
-- uses:   schedule_pkey
create or replace function remove_schedule_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _name   text := _op->>'name';
  _by     text := _op->>'by';
  _notes  text := _op->>'notes';
  _now    timestamptz := now_of(_op);
  _s      schedule;
begin
  delete from schedule where name = _name returning * into _s;
  if not found then
    return schedule_act('not_found', null, null);
  end if;
  perform audit_schedule('schedule_remove', _by, _notes, _name, _s.spec->>'tenant',
                         json_build_object('cron', _s.spec->>'cron'), null, _now);
  return schedule_act(null, _s, null);
end
$$;
