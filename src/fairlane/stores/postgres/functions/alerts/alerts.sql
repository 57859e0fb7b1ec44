-- Alerts, silences, and duties done by one worker at a time.

-- take_duty_v1: true for one caller in each `every_s`.
-- role:   worker
-- guard:  taken_at, looked at again under the row's lock; a duty that is not due is only read
-- uses:   duty_pkey
create or replace function take_duty_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _name     text := _op->>'name';
  _every_s  double precision := (_op->>'every_s')::double precision;
  _now      timestamptz := now_of(_op);
  _every    interval := _every_s * interval '1 second';
  _taken    boolean := false;
begin
  if not exists (select from duty where name = _name and taken_at + _every > _now) then
    insert into duty as d (name, taken_at) values (_name, _now)
    on conflict (name) do update set taken_at = excluded.taken_at where d.taken_at + _every <= excluded.taken_at;
    _taken := found;
  end if;
  return json_build_object('taken', _taken, 'now', _now);
end
$$;

-- alerts: every alert but those resolved a day ago, and the silences that last.
create or replace function alerts(_now timestamptz) returns json
language sql stable
set search_path from current
begin atomic
  select json_build_object(
    'alerts', coalesce((
      select json_agg(row_to_json(a) order by a.rule, a.about) from alert a
      where a.state <> 'resolved' or a.resolved_at is null or a.resolved_at > _now - interval '24 hours'), '[]'),
    'silences', coalesce((
      select json_agg(row_to_json(s) order by s.rule) from silence s where s.until > _now), '[]'));
end;

-- read_alerts_v1: every alert but those resolved a day ago, and the silences that last.
-- role:   worker, api
create or replace function read_alerts_v1(_op json) returns json
language sql stable
set search_path from current
return alerts(now_of(_op));

-- save_alerts_v1: remove alerts resolved a day ago, then write those whose version follows the kept one; the others
--         lost a race.
-- role:   worker
-- guard:  alert.version
-- uses:   alert_pkey
create or replace function save_alerts_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _alerts  json := _op->'alerts';
  _over    timestamptz := now_of(_op) - interval '24 hours';
  _a       record;
  _saved   json[] := '{}';
begin
  delete from alert where ctid = any(array(
    select ctid from alert where state = 'resolved' and resolved_at <= _over limit 2000));
  for _a in
    select * from json_to_recordset(_alerts) as a (
      rule text, about text, state text, since timestamptz, fired_at timestamptz, resolved_at timestamptz,
      told_at timestamptz, value double precision, severity text, version bigint)
  loop
    if _a.version = 1 then
      insert into alert (rule, about, state, since, fired_at, resolved_at, told_at, value, severity, version)
      values (_a.rule, _a.about, _a.state, _a.since, _a.fired_at, _a.resolved_at, _a.told_at, _a.value, _a.severity, 1)
      on conflict do nothing;
    else
      update alert
      set state = _a.state, since = _a.since, fired_at = _a.fired_at, resolved_at = _a.resolved_at,
          told_at = _a.told_at, value = _a.value, severity = _a.severity, version = _a.version
      where rule = _a.rule and about = _a.about and version = _a.version - 1;
    end if;
    if found then
      _saved := _saved || json_build_array(_a.rule, _a.about);
    end if;
  end loop;
  return json_build_object('saved', array_to_json(_saved));
end
$$;

-- silence_alerts_v1: suppress the alerts of one rule for a while, or end that.
-- role:   api
-- guard:  where there is no silence to end, nothing is written
-- uses:   silence_pkey
create or replace function silence_alerts_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _rule   text := _op->>'rule';
  _for_s  double precision := (_op->>'for_s')::double precision;
  _by     text := _op->>'by';
  _notes  text := _op->>'notes';
  _now    timestamptz := now_of(_op);
  _until  timestamptz := case when _for_s > 0 then _now + _for_s * interval '1 second' end;
begin
  if _until is not null then
    insert into silence (rule, until, by, notes) values (_rule, _until, _by, _notes)
    on conflict (rule) do update set until = excluded.until, by = excluded.by, notes = excluded.notes;
  else
    delete from silence where rule = _rule and until > _now;
  end if;
  if found then
    perform write_audit('alert_silence', _by, _notes, null, 'alert:' || _rule, null,
      json_build_object('until', instant_text(_until)), _now);
  end if;
  return alerts(_now);
end
$$;
