-- Schedules fire without a leader: any worker may, each nominal time once.

create or replace function audit_schedule(
  _action text, _by text, _notes text, _name text, _tenant text, _before json, _after json, _now timestamptz
)
returns void
language sql
set search_path from current
begin atomic
  select write_audit(_action, _by, _notes, _tenant, 'schedule:' || _name, _before, _after, _now) where _by is not null;
end;

-- declare_schedules_v1: make the schedules of one source be the given ones; those with the same words are only read.
-- role:   worker, api
-- guard:  one declaration at a time: two programs of the same code, started together, would meet on the same names in
--         any order
-- uses:   schedule_pkey
create or replace function declare_schedules_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  planned   json := _op->'schedules';
  _source   text := _op->>'source';
  _prune    boolean := (_op->>'prune')::boolean;
  _by       text := _op->>'by';
  _notes    text := _op->>'notes';
  _now      timestamptz := now_of(_op);
  _p        record;
  _s        schedule;
  _names    text[] := '{}';
  _added    text[] := '{}';
  _changed  text[] := '{}';
  _removed  text[] := '{}';
begin
  perform pg_advisory_xact_lock(hashtextextended(current_schema() || ' schedules', 0));
  for _p in
    select p.spec->>'name' as name, p.spec->>'tenant' as tenant, json_build_object('cron', p.spec->'cron') as words,
      p.spec, p.next_at
    from json_to_recordset(planned) as p (spec json, next_at timestamptz)
  loop
    _names := _names || _p.name;
    insert into schedule (name, spec, source, next_at, declared_at)
    values (_p.name, _p.spec, _source, _p.next_at, _now) on conflict do nothing;
    if found then
      _added := _added || _p.name;
      perform audit_schedule('schedule_add', _by, _notes, _p.name, _p.tenant, null, _p.words, _now);
      continue;
    end if;
    -- Older code leaves out a field that it does not know.
    select * into _s from schedule where name = _p.name and source = _source
      and jsonb_strip_nulls(spec::jsonb) <> jsonb_strip_nulls(_p.spec::jsonb)
    for update;
    if found then
      update schedule set spec = _p.spec, next_at = _p.next_at, declared_at = _now where name = _p.name;
      _changed := _changed || _p.name;
      perform audit_schedule('schedule_change', _by, _notes, _p.name, _p.tenant,
        json_build_object('cron', _s.spec->'cron'), _p.words, _now);
    end if;
  end loop;
  if _prune then
    for _s in select * from schedule where source = _source and name <> all(_names) order by name for update loop
      delete from schedule where name = _s.name;
      _removed := _removed || _s.name;
      perform audit_schedule('schedule_remove', _by, _notes, _s.name,
        _s.spec->>'tenant', json_build_object('cron', _s.spec->'cron'), null, _now);
    end loop;
  end if;
  return json_build_object('added', _added, 'changed', _changed, 'removed', _removed);
end
$$;

-- fire_v1: move a schedule from the time a worker saw it at on to the next, with the jobs of its firings.
-- role:   worker
-- moves:  enqueue new -> ready | scheduled
-- guard:  schedule.next_at = _expected_at, unpaused, its row locked: of many workers one wins
-- uses:   schedule_pkey, job_id_key
create or replace function fire_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _name         text := _op->>'name';
  _expected_at  timestamptz := (_op->>'expected_at')::timestamptz;
  jobs          json := _op->'jobs';
  _fired_at     timestamptz := (_op->>'fired_at')::timestamptz;
  _next_at      timestamptz := (_op->>'next_at')::timestamptz;
  _now          timestamptz := now_of(_op);
  _s            schedule;
  _ids          json;
  _last         uuid;
begin
  select * into _s from schedule where name = _name and paused_at is null and next_at = _expected_at for update;
  if not found then
    return json_build_object('outcome', 'lost');
  end if;
  if json_array_length(jobs) > 0 then
    if _s.spec->>'overlap' in ('skip', 'queue') and exists (
      select from job j where j.id = _s.last_job_id and not exists (select from done d where d.seq = j.seq)
    ) then
      if _s.spec->>'overlap' = 'queue' then
        return json_build_object('outcome', 'waiting');
      end if;
      update schedule set next_at = _next_at, last_at = coalesce(_fired_at, last_at) where name = _name;
      return json_build_object('outcome', 'skipped');
    end if;
    select json_agg(r->>'id' order by ord), (array_agg((r->>'id')::uuid order by ord desc))[1] into _ids, _last
    from json_array_elements(enqueue_v1(jobs, _now, limits => 'false')->'receipts') with ordinality as e (r, ord);
  end if;
  update schedule
  set next_at = _next_at, last_at = coalesce(_fired_at, last_at), last_job_id = coalesce(_last, last_job_id)
  where name = _name;
  return json_build_object('outcome', 'fired', 'job_ids', coalesce(_ids, '[]'));
end
$$;
