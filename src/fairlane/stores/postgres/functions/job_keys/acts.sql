-- hold_again: hold the ready jobs with keys of a name at them again, since its limit has changed, and let those in that
--         it allows now.
-- moves:  hold ready -> held
-- uses:   ready_key, held_key: all keys
create or replace function hold_again(_name text) returns void
language plpgsql
set search_path from current
as $$
begin
  with gone as (
    delete from ready r where r.key is not null and split_part(r.key, ':', 1) = _name returning r.*
  )
  insert into ready (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped,
                     timeout_s, put_off, key, key_nth)
  select seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped, timeout_s, put_off,
         key, key_nth
  from gone;
  perform knock_at(k.tenant, k.key)
  from (select distinct h.tenant, h.key from held h where h.key is not null and split_part(h.key, ':', 1) = _name) k;
end
$$;

-- free_place_v1: a job gives up its place at its key, and goes on.
-- role:   api
-- uses:   ready_pkey, scheduled_pkey, lease_pkey, dead_letter_pkey
create or replace function free_place_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _tenant  text := scope_of(_op);
  _now     timestamptz := now_of(_op);
  _j       job;
  _before  json;
begin
  select * into _j from job where id = (_op->>'id')::uuid and (_tenant is null or tenant = _tenant);
  if not found then
    return job_act('not_found', null);
  end if;
  select json_build_object('status', status, 'attempts', attempts) into _before from job_record where seq = _j.seq;
  with freed as (
    update ready set placed = false, rates = null where seq = _j.seq and placed returning seq
  ), of_lease as (
    update lease set placed = false where seq = _j.seq and placed returning seq
  ), of_scheduled as (
    update scheduled set placed = false where seq = _j.seq and placed returning seq
  ), of_letter as (
    update dead_letter set key = null where seq = _j.seq and key is not null returning seq
  )
  select seq into _j.seq
  from (select * from freed union all select * from of_lease union all select * from of_scheduled
        union all select * from of_letter) f;
  if not found then
    return job_act('not_allowed', (select seq from job where id = _j.id));
  end if;
  perform knock_at(_j.tenant, _j.key);
  perform wake_waiting();
  perform audit_job('job_place_free', _op->>'by', _op->>'notes', _j.seq, _before, _now);
  return job_act(null, _j.seq);
end
$$;
