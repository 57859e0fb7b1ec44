-- Duties done once, alerts, groups of dead letters, and jobs counted as they came in.

-- take_duty_v1: true for one caller in each `_every_s`.
-- guard:  taken_at, looked at again under the row's lock; a duty that is not due is only read
-- uses:   duty_pkey
create function take_duty_v1(_name text, _every_s double precision, _at timestamptz default null) returns json
language plpgsql
set search_path from current
as $$
declare
  _now    timestamptz := coalesce(_at, clock_timestamp());
  _every  interval := _every_s * interval '1 second';
  _taken  boolean := false;
begin
  if not exists (select from duty where name = _name and taken_at + _every > _now) then
    insert into duty as d (name, taken_at) values (_name, _now)
    on conflict (name) do update set taken_at = excluded.taken_at where d.taken_at + _every <= excluded.taken_at;
    _taken := found;
  end if;
  return json_build_object('taken', _taken, 'now', _now);
end
$$;

-- alerts_v1: every alert but those resolved a day ago, and the silences that last.
create function alerts_v1(_at timestamptz default null) returns json
language sql stable
set search_path from current
begin atomic
  select json_build_object(
    'alerts', coalesce((
      select json_agg(row_to_json(a) order by a.rule, a.about) from alert a
      where a.state <> 'resolved' or a.resolved_at is null or a.resolved_at > coalesce(_at, clock_timestamp()) - interval '24 hours'), '[]'),
    'silences', coalesce((
      select json_agg(row_to_json(s) order by s.rule) from silence s where s.until > coalesce(_at, clock_timestamp())), '[]'));
end;

-- save_alerts_v1: remove alerts resolved a day ago, then write those that follow what is kept; those that do not lost a race.
-- guard:  alert.version
-- uses:   alert_pkey
create function save_alerts_v1(_alerts json, _at timestamptz default null) returns json
language plpgsql
set search_path from current
as $$
declare
  _over   timestamptz := coalesce(_at, clock_timestamp()) - interval '24 hours';
  _a      record;
  _saved  json[] := '{}';
begin
  delete from alert where state = 'resolved' and resolved_at <= _over;
  for _a in
    select * from json_to_recordset(_alerts) as a (
      rule text, about text, state text, since timestamptz, fired_at timestamptz, resolved_at timestamptz, told_at timestamptz,
      value double precision, severity text, version bigint)
  loop
    if _a.version = 1 then
      insert into alert (rule, about, state, since, fired_at, resolved_at, told_at, value, severity, version)
      values (_a.rule, _a.about, _a.state, _a.since, _a.fired_at, _a.resolved_at, _a.told_at, _a.value, _a.severity, 1)
      on conflict do nothing;
    else
      update alert
      set state = _a.state, since = _a.since, fired_at = _a.fired_at, resolved_at = _a.resolved_at, told_at = _a.told_at,
          value = _a.value, severity = _a.severity, version = _a.version
      where rule = _a.rule and about = _a.about and version = _a.version - 1;
    end if;
    if found then
      _saved := _saved || json_build_array(_a.rule, _a.about);
    end if;
  end loop;
  return json_build_object('saved', array_to_json(_saved));
end
$$;

-- silence_v1: tell nobody of one rule for a while, or end that.
-- guard:  ending what is over, or was never, writes nothing
-- uses:   silence_pkey
create function silence_v1(_rule text, _for_s double precision, _by text, _notes text, _at timestamptz default null) returns json
language plpgsql
set search_path from current
as $$
declare
  _now    timestamptz := coalesce(_at, clock_timestamp());
  _until  timestamptz := case when _for_s > 0 then _now + _for_s * interval '1 second' end;
begin
  if _until is not null then
    insert into silence (rule, until, by, notes) values (_rule, _until, _by, _notes)
    on conflict (rule) do update set until = excluded.until, by = excluded.by, notes = excluded.notes;
  else
    delete from silence where rule = _rule and until > _now;
  end if;
  if found then
    perform write_audit('alert_silence', _by, _notes, null, 'alert:' || _rule, null, json_build_object('until', instant_text(_until)), _now);
  end if;
  return alerts_v1(_now);
end
$$;

-- group_dead_letters_v1: dead letters that match, the newest `_newest` of them, put together by fingerprint.
-- uses:   dead_letter_status, dead_letter_fingerprint or dead_letter_pkey from its newest end, job_pkey
--
-- Planned for what is asked: a condition that is not given is none. No sorting but of what was found, from the letters to their jobs
-- (`offset 0`): without statistics the planner read and sorted all 60,000 letters, 181,159 pages instead of 30,302. (tests/plans/test_watching.py)
create function group_dead_letters_v1(
  _tenant text, _status text, _acknowledged boolean, _error_class text, _error_type text, _fingerprint text, _queue text, _type text,
  _correlation_id text, _newest integer, _limit integer
) returns json
language plpgsql stable
set search_path from current
set plan_cache_mode = force_custom_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
begin
  return (
    with found as materialized (
      select d.seq, d.fingerprint, d.died_at, j.tenant
      from dead_letter d cross join lateral (select * from job where job.seq = d.seq offset 0) j
      where (_status is null or d.status = _status)
        and (_fingerprint is null or d.fingerprint = _fingerprint)
        and (_error_class is null or d.error_class = _error_class)
        and (_error_type is null or d.error_type = _error_type)
        and (_acknowledged is null or (d.acknowledged_at is not null) = _acknowledged)
        and (_tenant is null or j.tenant = _tenant)
        and (_queue is null or j.queue = _queue)
        and (_type is null or j.type = _type)
        and (_correlation_id is null or coalesce(j.correlation_id, j.id::text) = _correlation_id)
      order by d.seq desc limit _newest
    ), grouped as (
      select fingerprint, count(*) as count, count(distinct tenant) as tenants, min(died_at) as first_at, max(died_at) as last_at,
             max(seq) as newest
      from found group by fingerprint order by count(*) desc, fingerprint limit _limit
    )
    select json_build_object('groups', coalesce(json_agg(row_to_json(r) order by r.count desc, r.fingerprint), '[]'))
    from (
      select g.*, d.error_type, d.reason, j.type
      from grouped g join dead_letter d on d.seq = g.newest join job j on j.seq = g.newest
    ) r);
end
$$;

-- roll_up_v1: add jobs enqueued since the last time to the figures of their minutes, each once.
-- guard:  rolled_up is locked: one roll-up after the other; it ends before the first job that is younger than `_settled_s`
-- uses:   job_pkey, stat_minute_pkey in its order, as add_stats_v1
create function roll_up_v1(_settled_s double precision, _limit integer, _at timestamptz default null) returns json
language plpgsql
set search_path from current
as $$
declare
  _settled  timestamptz := coalesce(_at, clock_timestamp()) - _settled_s * interval '1 second';
  _after    bigint;
  _to       bigint;
  _count    bigint;
begin
  select seq into _after from rolled_up for update;
  with page as materialized (
    select seq, enqueued_at, type, queue, tenant from job where seq > _after order by seq limit _limit
  ), counted as materialized (
    select * from page where seq < coalesce((select min(seq) from page where enqueued_at > _settled), 9223372036854775807)
  ), added as (
    insert into stat_minute as s (minute, type, queue, tenant, enqueued, completed, failed, dead, cancelled, wait_us, run_us, wait_buckets, run_buckets)
    select date_trunc('minute', enqueued_at, 'UTC'), type, queue, tenant, count(*), 0, 0, 0, 0, 0, 0, '{}', '{}'
    from counted group by 1, 2, 3, 4 order by 1, 2, 3, 4
    on conflict (minute, type, queue, tenant) do update set enqueued = s.enqueued + excluded.enqueued
  )
  select count(*), max(seq) into _count, _to from counted;
  if _count > 0 then
    update rolled_up set seq = _to;
  end if;
  return json_build_object('jobs', _count);
end
$$;
