-- step_of: one step of a job; null: it is not recorded.
-- uses:   step_pkey
create or replace function step_of(_seq bigint, _n integer) returns json
language plpgsql stable
set search_path from current
as $$
begin
  return (select row_to_json(s) from step s where s.seq = _seq and s.n = _n);
end
$$;

-- steps_of: the steps of a job, as a JSON array.
-- uses:   step_pkey
create or replace function steps_of(_seq bigint) returns json
language plpgsql stable
set search_path from current
as $$
begin
  return coalesce((select json_agg(row_to_json(s) order by s.n) from step s where s.seq = _seq), '[]');
end
$$;

-- record_step_v1: record that a step of a running attempt returned; one that is recorded stays as it is.
-- role:   worker
-- guard:  see holds_lease: held until the step is in
-- uses:   lease_pkey, step_pkey
create or replace function record_step_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _seq      bigint := (_op->>'seq')::bigint;
  _attempt  integer := (_op->>'attempt')::integer;
  _n        integer := (_op->>'n')::integer;
begin
  if not holds_lease(_op) then
    return json_build_object('accepted', false);
  end if;
  insert into step (seq, n, kind, name, attempt, at, ran_s, result)
  values (_seq, _n, 'call', _op->>'name', _attempt, now_of(_op), (_op->>'ran_s')::double precision,
          coalesce(_op->>'result_text', nullif((_op->'result')::text, 'null')))
  on conflict do nothing;
  return json_build_object('accepted', true, 'step', step_of(_seq, _n));
end
$$;

-- read_steps_v1: the recorded steps of the job that an attempt runs.
-- role:   worker
-- guard:  see holds_lease
-- uses:   lease_pkey, step_pkey
create or replace function read_steps_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
begin
  if not holds_lease(_op) then
    return json_build_object('accepted', false);
  end if;
  return json_build_object('accepted', true, 'steps', steps_of((_op->>'seq')::bigint));
end
$$;
