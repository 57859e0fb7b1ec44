-- turn_v2: the worker's one call: start, settle, promote, reclaim, claim; one commit.
-- role:   worker
-- moves:  all of settle, promote, reclaim_lapsed and claim
-- guard:  the worker's row is there, in time, and locked against being reclaimed half way
-- uses:   worker_pkey, claim_made_pkey, lease_pkey, job_pkey, lease_cancel, scheduled_due
--
-- `limits` are those that the worker's code sets. With none there and none stored, they cost a Turn one look.
--
-- Idempotent by (worker, claim_no): the answer is read back from the leases of that claim, whether this call made
-- them or one whose reply was lost.
--
-- The first row holds the answer and what all leases share; each further row is one lease, and its `extra` is null
-- where all is as by default. In Turns of 600 a job takes 17.3 us of the server and 4.5 us of the worker; with 21
-- fields of each lease in one JSON it took 19.8 and 5.3. Payloads are text: one too deep to parse does not hurt the
-- others.
--
-- The settings leave the planner only nested loops over indexes: a plan cached on an empty table cost 220 ms a claim
-- at a million rows. Leases and their jobs lie side by side in their indexes and are joined by hashes: 2.5 us each for
-- 500 of them, 2.9 looked up one by one.
create or replace function turn_v2(
  _worker uuid, _claim_no bigint,
  _seqs bigint[], _attempts integer[], _ran_s double precision[], _ended_ago_s double precision[], _results text[],
  outcomes json, starts json, wants json, _waiting boolean default false,
  _promote_limit integer default 1000, _reclaim_limit integer default 100, _at timestamptz default null,
  _max_crashes integer default 3, limits json default null, _claim_nos bigint[] default null
) returns table (
  answer text, leased_at timestamptz, seq bigint, id uuid, attempt integer, started boolean, lane text, type text,
  tenant text, queue text, band smallint, due_at timestamptz, deadline_at timestamptz, payload text,
  max_attempts integer, category text, extra text
)
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  _now        timestamptz := instant_of(_at);
  _refused    json;
  _unsettled  json; _unstarted json;
  _freed      freed_place[];
  _ended      bigint[];
  _moved      integer;  -- nodes that its ends let go
  _reclaimed  json;
  _alive      boolean; _was boolean;  -- waiting
  _given      limit_room[];
  _last       bigint;   -- this and what follows: one statement sees all that the common Turn needs to know
  _paused     boolean;
  _ruled      boolean;
  _counted    boolean;
  _knocked    boolean;  -- somebody may be let in at a key
  _due        timestamptz;
  _lapsed     boolean;
  _cancels    json;
  _let_in     bigint[];
  _got        turn_claimed;
begin
  -- A repetition may arrive while the call it repeats still runs: it waits, or both would claim and one batch be known
  -- to nobody. In a condition, which is evaluated without a statement of its own.
  if wants is not null and pg_advisory_xact_lock(hashtextextended(_worker::text, _claim_no)) is null then
    null;
  end if;
  if limits is not null then _given := given_limits(limits); end if;
  if _given is not null and wants is not null then perform count_given(_given); end if;
  select w.expires_at > _now, w.waiting into _alive, _was from worker w where w.id = _worker for key share;
  if starts is not null then _unstarted := mark_started(_worker, starts, _now); end if;
  if _seqs is not null then
    select s.refused, s.freed, s.ended into _refused, _freed, _ended
    from settle_completions(_worker, _seqs, _attempts, _claim_nos, _ran_s, _ended_ago_s, _results, _now) s;
  end if;
  if outcomes is not null then
    select s.refused, _freed || s.freed, _ended || s.ended into _unsettled, _freed, _ended
    from settle_outcomes(_worker, outcomes, _now, _max_crashes) s;
  end if;
  if _ended is not null then
    select * into _ended, _moved from end_unless_reclaiming(_ended, outcomes is null, _reclaim_limit, _now);
  end if;
  -- After the lock on the worker's row: who counts or sets limits has waited for us, or we for them.
  select (select max(c.claim_no) from claim_made c where c.worker = _worker),
         exists (select from pause), exists (select from limit_rule where kind <> 'key'), exists (select from counted),
         exists (select from knock),
         (select s.due_at from scheduled s order by s.due_at limit 1),
         exists (select from worker w where w.expires_at <= _now),
         cancels_of(_worker)
  into _last, _paused, _ruled, _counted, _knocked, _due, _lapsed, _cancels;
  if _promote_limit > 0 and _due <= _now then
    _knocked := promote(_promote_limit, _now) > 0 or _knocked;
    _due := (select s.due_at from scheduled s order by s.due_at limit 1);
  end if;
  if _reclaim_limit > 0 and (_lapsed or _ended is not null) then
    _reclaimed := reclaim_lapsed(_reclaim_limit, _now, _max_crashes);
    perform end_nodes(_ended || ended_of(_reclaimed::jsonb), _now);
    _cancels := cancels_of(_worker);
    _knocked := true;
  end if;
  if _knocked then _let_in := let_in(_now); end if;
  if _alive and _was is distinct from _waiting then update worker set waiting = _waiting where id = _worker; end if;
  if _alive and wants is not null or _given is not null or _ruled then
    _got := claim_for_lanes(
      _worker, _claim_no, case when _alive then wants end, _given, _seqs is null and outcomes is null, _freed, _now,
      _last, _paused, _ruled, _counted, _moved > 32);
  end if;
  if _got.seqs is not null and coalesce(_last, 0) <= _claim_no then
    perform note_claim(_worker, _claim_no, _last, case when _counted then _got.seqs end, cardinality(_freed));
  end if;
  if _freed is not null then perform wake_for_room(_freed, _got.seqs); end if;
  if _let_in is not null and exists (select from ready where seq = any(_let_in)) then perform wake_waiting(); end if;

  answer := json_build_object(
    'now', _now, 'registered', coalesce(_alive, false),
    'refused',
    coalesce(_refused::jsonb, '[]') || coalesce(_unsettled::jsonb, '[]') || coalesce(_unstarted::jsonb, '[]'),
    'cancels', coalesce(_cancels, '[]'),
    'marks', marks_json(_got.marks),
    'cursors', coalesce(_got.cursors, '{}'),
    'next_due_at', _due,
    'reclaimed', coalesce(_reclaimed, '[]'),
    'surveys', coalesce(array_to_json(_got.surveys), '[]'),
    'limited', coalesce(_got.limited, false),
    'held_back', coalesce(_got.held_back, false),
    'limited_until', case when _knocked then least(_got.until, next_knock(_now)) else _got.until end);
  leased_at := coalesce(_got.leased_at, _now);
  return next;
  if _got.seqs is not null then
    perform set_config('enable_nestloop', 'off', true), set_config('enable_hashjoin', 'on', true);  -- until we return
    return query
    select null::text, null::timestamptz, l.seq, j.id, l.attempt, l.started_at is not null, l.lane, l.type, l.tenant,
           l.queue, l.band, l.due_at, l.deadline_at, j.payload::text, j.max_attempts::integer, j.category,
           extra_of(l, j)
    from lease l join job j on j.seq = l.seq
    where l.seq = any(_got.seqs) and j.seq = any(_got.seqs)
    order by l.nth;
  end if;
end
$$;

-- turn_v1: turn_v2 for code that names no claims.
-- role:   worker
-- moves:  all of turn_v2
create or replace function turn_v1(
  _worker uuid, _claim_no bigint,
  _seqs bigint[], _attempts integer[], _ran_s double precision[], _ended_ago_s double precision[], _results text[],
  outcomes json, starts json, wants json, _waiting boolean default false,
  _promote_limit integer default 1000, _reclaim_limit integer default 100, _at timestamptz default null,
  _max_crashes integer default 3, limits json default null
) returns table (
  answer text, leased_at timestamptz, seq bigint, id uuid, attempt integer, started boolean, lane text, type text,
  tenant text, queue text, band smallint, due_at timestamptz, deadline_at timestamptz, payload text,
  max_attempts integer, category text, extra text
)
language plpgsql
set search_path from current
as $$
begin
  return query select * from turn_v2(
    _worker, _claim_no, _seqs, _attempts, _ran_s, _ended_ago_s, _results, outcomes, starts, wants, _waiting,
    _promote_limit, _reclaim_limit, _at, _max_crashes, limits);
end
$$;

-- extra_of: what is not as by default in a lease and its job, as JSON; null: all is.
create or replace function extra_of(l lease, j job) returns text
language sql stable
return case
  when l.attempts > 0 or l.crashes > 0 or l.suspect or l.rank > 0 or j.band <> l.band or j.rank > 0
       or j.enqueued_at <> l.due_at or j.payload_version <> 1
       or num_nonnulls(l.timeout_s, j.idempotency_key, j.correlation_id, j.parent_id, j.created_by, j.refs, j.headers,
                       j.retry) > 0
  then json_build_array(
    l.attempts, l.crashes, l.suspect, l.rank, j.band + j.rank, j.enqueued_at, j.payload_version, l.timeout_s,
    j.idempotency_key, j.correlation_id, j.parent_id, j.created_by, flat(j.refs), flat(j.headers),
    shallow(j.retry))::text
  end;

-- cancels_of: the leases of a worker that are asked to cancel.
-- uses:   lease_cancel
create or replace function cancels_of(_worker uuid) returns json
language sql stable
begin atomic
  select json_agg(l.seq order by l.seq) from lease l where l.worker = _worker and l.cancel_requested_at is not null;
end;

-- marks_json: marks as a Turn answers them.
create or replace function marks_json(_marks claim_line[]) returns json
language plpgsql immutable
as $$
begin
  if _marks is null or _marks = '{}' then
    return '[]';
  elsif cardinality(_marks) = 1 then  -- without a statement
    return json_build_array(json_build_array(
      _marks[1].queue, _marks[1].band, _marks[1].tenant, _marks[1].rank, _marks[1].due_at, _marks[1].seq));
  end if;
  return (
    select json_agg(json_build_array(m.queue, m.band, m.tenant, m.rank, m.due_at, m.seq)
                    order by m.queue, m.band, m.tenant)
    from unnest(_marks) m);
end
$$;

-- What a Turn answers about its claims.
create type turn_claimed as (
  seqs bigint[], leased_at timestamptz, marks claim_line[], cursors jsonb, surveys json[], limited boolean,
  held_back boolean, until timestamptz
);

-- claim_for_lanes: claim what all lanes want, or give the leases again that this claim was given before. `_many`: more
--         is ready than claim_few serves.
-- moves:  claim ready -> leased
-- guard:  the caller has locked the worker's row
-- uses:   ready_line
create or replace function claim_for_lanes(
  _worker uuid, _claim_no bigint, _wants json, _given limit_room[], _idle boolean, _freed freed_place[],
  _now timestamptz, _last bigint, _paused boolean, _ruled boolean, _counted boolean, _many boolean
) returns turn_claimed
language plpgsql
as $$
declare
  _few       boolean := not _paused;  -- claim_few may serve it: no limit is over tenants either
  _limited   text[];  -- queues and types of limits without known room
  _fits      boolean;
  _prepared  boolean := false;
  _judged    boolean := _ruled or num_nulls(_given, _freed, _wants) = 0;  -- limits are prepared at once
  _empty     text[];
  _c         lane_claim;
  _p         claim_progress_v2;
  _want      json;
  _got       record;
  _all       turn_claimed;
begin
  if _given is not null and not _ruled then
    select coalesce(bool_or(g.running >= 0 or g.rate_count >= 0), false), _few and bool_and(g.kind <> 'tenant'),
           array_agg(g.name) || array(select unnest(n.types) from unnest(_given) n)
    into _all.limited, _few, _limited from unnest(_given) g;
  end if;
  if _judged then
    select * into _got from prepared_limits_v2(_given, _wants, _idle, _freed, _ruled, _counted, _now);
    _p.limits := _got.l;
    _empty := _got.empty;
    _few := _few and (_p.limits).tenants is null;
  end if;
  if _wants is not null and _last >= _claim_no then
    _all.seqs := nullif(leases_of(_worker, _claim_no), '{}');
    _all.leased_at := (select min(l.leased_at) from lease l where l.seq = any(_all.seqs));
    if _last > _claim_no then
      _wants := null;  -- a late copy: nobody waits for its answer
    end if;
  end if;
  if _wants is not null and _all.seqs is null then
    _c.worker := _worker;
    _c.claim_no := _claim_no;
    _c.now := _now;
    _p.nth := 0;
    _all.held_back := false;
    _all.marks := '{}';
    _all.cursors := '{}';
    for _i in 0 .. json_array_length(_wants) - 1 loop
      _want := _wants->_i;
      _fits := _few and _want->'takes' is null and coalesce((_want->>'discover')::boolean, true)
        and (_many is not true or (_want->>'limit')::integer = 1);
      if _fits and (_p.limits).limited then
        _limited := _empty || array(
          select unnest(case when r.kind = 'queue' then array[r.name] else r.types end)
          from unnest((_p.limits).queues || (_p.limits).types) r
          where r.rate_count is not null
            or least(coalesce(r.room, 0), (_want->>'slots')::integer) < (_want->>'limit')::integer);
      end if;
      if _fits then
        select * into _got from claim_few(_c, _want, _p, _limited, _counted);
        _fits := _got.fits;
      end if;
      if not _fits then
        if not _prepared then
          if not _judged then
            select * into _got from prepared_limits_v2(_given, _wants, _idle, _freed, _ruled, _counted, _now);
            _p.limits := _got.l;
            _empty := _got.empty;
          end if;
          select array(select x::xid from pg_snapshot_xip(pg_current_snapshot()) x),
                 age(pg_snapshot_xmax(pg_current_snapshot())::xid), false
          into _c.active, _c.newer, _c.tenants_paused;
          if _paused then
            select array_agg(name) filter (where kind = 'queue'), array_agg(name) filter (where kind = 'type'),
                   coalesce(bool_or(kind = 'tenant'), false)
            into _c.paused_queues, _c.paused_types, _c.tenants_paused from pause;
          end if;
          if _empty <> '{}' then
            _c.paused_queues := _c.paused_queues || _empty;
          end if;
          _prepared := true;
        end if;
        select * into _got from claim(_c, _want, _p);
      end if;
      _p := _got.p;
      if (_p.limits).types is not null then
        _all.held_back := _all.held_back or exists (
          select from unnest((_p.limits).types) r
          where r.room <= 0 and (_want->'types' is null or r.types && array(
            select json_array_elements_text(_want->'types'))));
      end if;
      if _all.marks = '{}' then
        _all.marks := case when _fits then _p.marks else merge_marks('{}', _p.marks) end;
      elsif _p.marks <> '{}' then
        _all.marks := merge_marks(_all.marks, _p.marks);
      end if;
      if _got.served is not null then
        _all.cursors := _all.cursors || jsonb_build_object(_want->>'lane', _got.served);
      end if;
      if _got.survey is not null then
        _all.surveys := array_append(_all.surveys, _got.survey);
      end if;
    end loop;
    _all.seqs := _p.seqs;
  end if;
  _all.limited := (_p.limits).limited or _all.limited;
  _all.until := (_p.limits).until;
  return _all;
end
$$;

-- prepared_limits_v2: the limits that a claim has to count, and the queues that it leaves alone as they are `empty`.
create or replace function prepared_limits_v2(
  _given limit_room[], _wants json, _idle boolean, _freed freed_place[], _ruled boolean, _counted boolean,
  _now timestamptz, out l claim_limits_v2, out empty text[]
)
language plpgsql
as $$
declare
  _wanted bigint;
begin
  if _given is not null and not _ruled then
    -- What the code allows to a queue in which nothing is ready holds nothing back: the common Turn puts nothing
    -- together. A job that arrives there meanwhile is left to the next one, which knows its limits.
    -- (tests/faults/test_limits_met_late.py)
    empty := array(
      select q.name
      from (select distinct case when g.kind = 'queue' then g.name else g.queue end as name from unnest(_given) g) q
      where q.name <> '' and (select r.seq from ready r where r.queue = q.name limit 1) is null);
    _given := array(
      select g from unnest(_given) g where case when g.kind = 'queue' then g.name else g.queue end <> all(empty));
  end if;
  if _ruled or _given <> '{}' then
    l := claim_limits_v2(_given, _now);
    l.idle := _idle;
    if _wants is not null and l.limited then
      _wanted := (select sum((w->>'limit')::integer) from json_array_elements(_wants) w);
      l := mark_wide(l, _wanted, _now);
      if cardinality(_freed) <= 32 then
        l.queues := with_freed(l.queues, _freed, _wanted, _now);
        l.types := with_freed(l.types, _freed, _wanted, _now);
        if exists (select from unnest(l.queues || l.types) r where r.room < _wanted) then
          l.until := _now + interval '20 milliseconds';  -- another session counts: there may be more room
        end if;
      end if;
    end if;
  elsif _counted then
    l := counting_only_v2();
  end if;
end
$$;

-- mark_started: attempts have begun, `ran_s` ago; returns those whose lease is gone.
-- guard:  lease (seq, attempt, claim_no, worker) exists
-- uses:   lease_pkey
create or replace function mark_started(_worker uuid, starts json, _now timestamptz) returns json
language plpgsql
as $$
declare
  _marked     bigint[];
  _attempts   integer[];
  _claim_nos  bigint[];
begin
  with marked as (
    update lease l
    set started_at = coalesce(l.started_at, _now - coalesce(s.ran_s, 0) * interval '1 second'),
        deadline_at = _now + (2 * s.timeout_s - coalesce(s.ran_s, 0)) * interval '1 second',
        alone = coalesce(s.alone, false)
    from json_to_recordset(starts) as s (
      seq bigint, attempt integer, claim_no bigint, timeout_s double precision, ran_s double precision, alone boolean)
    where l.seq = s.seq and l.attempt = s.attempt and l.worker = _worker
      and l.claim_no = coalesce(s.claim_no, l.claim_no)
    returning l.seq, l.attempt, coalesce(s.claim_no, 0) as claim_no
  )
  select array_agg(seq), array_agg(attempt), array_agg(claim_no) into _marked, _attempts, _claim_nos from marked;
  return (
    select json_agg(json_build_object('seq', s.seq, 'attempt', s.attempt, 'claim_no', s.claim_no) order by s.ord)
    from rows from (json_to_recordset(starts) as (seq bigint, attempt integer, claim_no bigint)) with ordinality
      as s (seq, attempt, claim_no, ord)
    where (s.seq, s.attempt, coalesce(s.claim_no, 0)) not in (select * from unnest(_marked, _attempts, _claim_nos))
  );
end
$$;
