-- is_taken: whether another session is taking this ready row, by its xmax.
--
-- A claim skips such rows without trying to lock them and does not count them as looked at. When it tried, 16 claimers
-- of one line found hardly anything else in their windows: 103 jobs a Turn at 53 us of the server each, now 500 at 22.
-- `_active`: transactions that were running when this Turn began to claim; `_newer`: the age of the next one at that
-- time. Rows of a transaction that rolls back meanwhile are found by the next Turn. An xmax that is newer by more than
-- 100,000 is no transaction but a lock that several share; bigint, because the first such locks are infinitely old.
create or replace function is_taken(_xmax xid, _active xid[], _newer integer) returns boolean
language sql stable parallel safe
return _xmax <> 0 and (
  _xmax = any(_active)
  or (abs(_newer::bigint - age(_xmax) - 50000) <= 50000
    and _xmax is distinct from pg_current_xact_id_if_assigned()::xid));

-- take: lease jobs from the heads of lines of one queue, up to the share of each and the room of Want and queue.
-- moves:  claim ready -> leased
-- guard:  the ready row is ours by `for update skip locked`: it goes to one caller, and nobody waits for another;
--         limits are locked by us (count_limits, lines_with_room)
-- uses:   ready_line
--
-- With `_rounds` each line gives one job in turn, that many times; without, each gives its share, line after line.
-- `last`: the line that gave the last job. `stopped`: the line where a type became full, after at least one job. Lines
-- before it have had their turn, it and those behind it have not: the caller takes again from them, without that type.
-- The window of a line is read without locks and each wanted row locked alone, so that rows of types this worker does
-- not know stay free for those who do.
--
-- Limits of types are counted when the first row of such a type is met, which is not locked before: Turns that meet
-- none of a queue's limited types neither count them nor wait for each other. With two processes and a rate for SMS,
-- e-mail in the same queue waited 6 ms a Turn for the lock of that rate. (tests/plans/test_limits.py)
create or replace function take(
  _c lane_claim, _rounds integer, inout lines claim_line[], inout p claim_progress_v2,
  out last integer, out stopped integer
)
language plpgsql
as $$
declare
  _look      integer := _c.look;  -- as variables: a field of a record is looked up again for every row
  _types     text[] := _c.types;
  _unwanted  text[] := _c.paused_types;
  _uncounted text[];        -- types whose limits this Turn has not counted yet
  _active    xid[] := _c.active;
  _newer     integer := _c.newer;
  _most      integer := p.room;
  _queue     integer;       -- which limit is over the queue
  _rules     limit_room[];  -- over types
  _tids      tid[];         -- the rows in the order of the claim; side by side with them
  _of        integer[];     -- the line of each,
  _places    integer[];     -- its place in the window of that line,
  _kinds     text[];        -- and its type, where types have limits
  _line      claim_line;
  _cut       integer;       -- the first that does not fit
  _turn      integer;       -- which row of its line that is
  _slots     integer := (p.limits).slots;
  _n         integer;
begin
  if (p.limits).limited then
    _queue := place_of((p.limits).queues, lines[1].queue);
    _most := least(_most, (p.limits).queues[_queue].room, case when _queue is not null then _slots end);
    if exists (select from unnest(lines) n where n.room > _slots) then
      lines := lines_with_slots(lines, _slots);
    end if;
  end if;
  if _c.by_type and (_slots <= 0) is not true then
    p.limits := with_types_counted(p.limits, _c, lines[1]);  -- often the first row tells: one reading is enough then
  end if;
  loop
    if _c.by_type then
      _rules := (p.limits).types;
      _unwanted := _c.paused_types || array(select unnest(types) from unnest(_rules) where least(room, _slots) <= 0);
      _uncounted := array(select unnest(types) from unnest(_rules) where room is null and (_slots > 0) is not false);
    end if;
    select array_agg(t.tid), array_agg(t.line), array_agg(t.place), case when _c.by_type then array_agg(t.type) end
    into _tids, _of, _places, _kinds
    from (
      select t.tid, l.ord::integer as line, t.place::integer, t.type
      from unnest(lines) with ordinality
        as l (queue, band, tenant, rank, due_at, seq, looked, room, rates, share, moved, ended, ord)
      cross join lateral (
        select locked.tid, w.place, w.type  -- older servers lock a row that has moved meanwhile where it is now
        from (
          select r.tid, r.type, r.put_off, row_number() over () as place
          from (
            select r.ctid as tid, r.type, r.put_off from ready r
            where r.queue = l.queue and r.band = l.band and r.tenant = l.tenant
              and (r.rank, r.due_at, r.seq) > (l.rank, l.due_at, l.seq) and not is_taken(r.xmax, _active, _newer)
            order by r.rank, r.due_at, r.seq limit greatest(_look - l.looked, 0)
          ) r
        ) w
        left join lateral (
          select y.ctid as tid from ready y where y.ctid = case when w.type = any(_uncounted) then null else w.tid end
          for update skip locked
        ) locked on true
        where (_types is null or w.type = any(_types))
          and (_unwanted is null or w.type <> all(_unwanted) and not (w.put_off and '~' || w.type = any(_unwanted)))
          and (locked.tid is not null or w.type = any(_uncounted))
        limit least(_rounds, l.share, l.room)
      ) t
      limit greatest(_most, 0)
    ) t;
    exit when not _c.by_type or array_position(_tids, null) is null;
    p.limits := with_types_counted(p.limits, _c, null);
  end loop;
  if _rounds > 1 and cardinality(lines) > 1 then
    select array_agg(r.tid order by r.turn, r.line), array_agg(r.line order by r.turn, r.line),
           array_agg(r.place order by r.turn, r.line), array_agg(r.kind order by r.turn, r.line)
    into _tids, _of, _places, _kinds
    from (
      select r.*, row_number() over (partition by r.line order by r.pos) as turn
      from unnest(_tids, _of, _places, _kinds) with ordinality as r (tid, line, place, kind, pos)
    ) r;
  end if;
  if _c.by_type or _slots < cardinality(_tids) then
    _cut := first_unfit(_rules, _slots, lines, _of, _kinds);
  end if;
  if _cut is not null then
    stopped := _of[_cut];
    _turn := (select count(*) from unnest(_of[:_cut]) as o (line) where o.line = stopped);
    _tids := _tids[:_cut - 1];
    _of := _of[:_cut - 1];
  end if;
  _n := coalesce(cardinality(_tids), 0);
  last := _of[_n];
  if _n > 0 and cardinality(lines) = 1 and _n = least(_rounds, lines[1].share, lines[1].room) then  -- the common claim
    _line := lines[1];
    select r.rank, r.due_at, r.seq into _line.rank, _line.due_at, _line.seq from ready r where r.ctid = _tids[_n];
    _line.looked := _line.looked + _places[_n];
    _line.room := _line.room - _n;
    _line.share := _line.share - _n;
    _line.moved := true;
    lines := array[_line];
  else
    lines := looked_through(_c, lines, _rounds, _tids, _of, _places, _n >= _most, stopped, _turn);
  end if;
  p.marks := merge_marks(p.marks, lines);
  if _n > 0 then
    p.seqs := p.seqs || lease_rows(_c, p, lines, _tids, _of);
    p.nth := p.nth + _n;
    p.room := p.room - _n;
    p.limits.slots := (p.limits).slots - _n;
    if _queue is not null then
      p.limits.queues[_queue].room := (p.limits).queues[_queue].room - _n;
    end if;
    for i in 1 .. coalesce(cardinality(_rules), 0) loop
      p.limits.types[i].room :=
        _rules[i].room - (select count(*) from unnest(_kinds[:_n]) k where k = any(_rules[i].types));
    end loop;
  end if;
end
$$;

-- first_unfit: the first row of a claim whose type has no room left, or that is under a limit and beyond the slots.
create or replace function first_unfit(
  _rules limit_room[], _slots integer, _lines claim_line[], _of integer[], _kinds text[]
) returns integer
language plpgsql immutable
as $$
begin
  return least(
    (select min(x.pos) from unnest(_rules) r cross join lateral (
       select k.pos from unnest(_kinds) with ordinality as k (kind, pos) where k.kind = any(r.types)
       order by k.pos offset r.room limit 1
     ) x where r.room > 0),
    (select min(o.pos) from unnest(_of) with ordinality as o (line, pos)
     where o.pos > _slots and (_lines[o.line].room is not null
       or exists (select from unnest(_rules) r where _kinds[o.pos] = any(r.types)))));
end
$$;

-- lines_with_slots: lines whose tenants are under a limit give no more than the slots that are left.
create or replace function lines_with_slots(_lines claim_line[], _slots integer) returns claim_line[]
language plpgsql immutable
as $$
begin
  return array(
    select (n.queue, n.band, n.tenant, n.rank, n.due_at, n.seq, n.looked,
            case when n.room is not null then least(n.room, greatest(_slots, 0)) end, n.rates, n.share, n.moved,
            n.ended)::claim_line
    from unnest(_lines) with ordinality
      as n (queue, band, tenant, rank, due_at, seq, looked, room, rates, share, moved, ended, ord)
    order by n.ord);
end
$$;

-- with_types_counted: limits with those of types counted that were not yet; with `_line`, only if its first row is of
--         such a type.
-- guard:  see count_limits; all at once, so that their locks are taken in one order
-- uses:   ready_line
create or replace function with_types_counted(inout l claim_limits_v2, _c lane_claim, _line claim_line)
language plpgsql
as $$
declare
  _uncounted  text[] := array(select unnest(r.types) from unnest(l.types) r where r.room is null);
  _counts     record;
begin
  if _uncounted = '{}' or (_line.queue is not null and (
    select r.type from ready r
    where r.queue = _line.queue and r.band = _line.band and r.tenant = _line.tenant
      and (r.rank, r.due_at, r.seq) > (_line.rank, _line.due_at, _line.seq)
    order by r.rank, r.due_at, r.seq limit 1) = any(_uncounted) is not true) then
    return;
  end if;
  select * into _counts from count_limits(l.types, _c.types, _c.now, l.idle);
  l.types := _counts.rules;
  l.until := least(l.until, _counts.until);
end
$$;

-- lease_rows: lease locked ready rows in the given order; returns their seqs.
-- moves:  claim ready -> leased
-- guard:  the caller has locked the rows, and the limits they count under
-- uses:   lease_pkey, rate_use_pkey
--
-- Rows are deleted by ctid: joined by key the planner hashed the table, 307 ms at a million rows. They are deleted all
-- at once and leased in one pass: locked, deleted and leased row by row in one statement, 500 jobs of one line took
-- 8.8 us each of the server; now 6.0.
create or replace function lease_rows(
  _c lane_claim, _p claim_progress_v2, _lines claim_line[], _tids tid[], _of integer[]
) returns bigint[]
language plpgsql
set enable_hashjoin = on
as $$
declare
  _worker    uuid := _c.worker;  -- as variables: a field of a record is looked up again for every row
  _claim_no  bigint := _c.claim_no;
  _lane      text := _c.lane;
  _now       timestamptz := _c.now;
  _start     integer := _c.start;
  _nth       integer := _p.nth;
  _l         claim_limits_v2 := _p.limits;
  _counted   smallint := _l.counted;
  _rates     jsonb[];  -- by line
  _by_type   jsonb;
  _seqs      bigint[];
  _used      jsonb[];
begin
  if _l.limited and (
    exists (select from unnest(_l.queues || _l.types) r where r.rate_count is not null)
    or exists (select from unnest(_lines) n where n.rates is not null)
  ) then
    _rates := line_rates(_lines, _l.queues);
    _by_type := case when _c.by_type then type_rates(_l.types) end;
  end if;
  with gone as (
    delete from ready r where r.ctid = any(_tids) returning r.ctid as tid, r.*
  ), leased as (
    insert into lease (seq, worker, claim_no, nth, lane, leased_at, started_at, deadline_at, queue, band, tenant, rank,
                       due_at, type, attempt, attempts, crashes, suspect, deduped, timeout_s, key, key_nth, placed,
                       counted, rates)
    select seq, _worker, _claim_no, nth, _lane, _now, case when nth <= _start then _now end,
           _now + interval '1 second' * case when nth <= _start then 2 * coalesce(timeout_s, _c.timeout_s)
                                             else _c.start_by_s end,
           queue, band, tenant, rank, due_at, type, attempt + 1, attempts, crashes, suspect, deduped, timeout_s, key,
           key_nth, placed, case when _counted is null then 0
                when type = any(_l.counted_types) or queue = any(_l.counted_queues) then 3 else _counted end,
           case when rates is null then line_rates else rates || coalesce(line_rates, '[]') end
    from (
      select g.*, _nth + r.nth as nth,
             case when _by_type is null then _rates[_of[r.nth]]
                  else nullif(coalesce(_rates[_of[r.nth]], '[]') || coalesce(_by_type->g.type, '[]'), '[]')
                  end as line_rates
      from gone g join unnest(_tids) with ordinality as r (tid, nth) on r.tid = g.tid
    ) g
    returning lease.seq, lease.rates
  )
  select array_agg(l.seq), array_agg(l.rates) filter (where l.rates is not null) into _seqs, _used from leased l;
  if _used is not null then
    perform use_rates(_used, _claim_no, _now);
  end if;
  return _seqs;
end
$$;

-- looked_through: lines after a take of the given rows: their new marks, and which of them have no more to give.
-- uses:   see look_on
--
-- A line has ended if it gave less than its share and had its turn: the room had not run out before (`_full`), and the
-- take had not stopped.
create or replace function looked_through(
  _c lane_claim, _lines claim_line[], _rounds integer, _tids tid[], _of integer[], _places integer[], _full boolean,
  _stopped integer, _turn integer
) returns claim_line[]
language plpgsql
set enable_nestloop = off
set enable_hashjoin = on
as $$
declare
  _any  boolean;
begin
  select array_agg((l.queue, l.band, l.tenant, coalesce(m.rank, l.rank), coalesce(m.due_at, l.due_at),
                    coalesce(m.seq, l.seq), l.looked + coalesce(_places[l.last], 0), l.room - l.taken, l.rates,
                    l.share - l.taken, l.taken > 0, l.ended)::claim_line order by l.ord), bool_or(l.ended)
  into _lines, _any
  from (
    select l.*, g.last, coalesce(g.taken, 0) as taken,
           coalesce(g.taken, 0) < least(_rounds, l.share, l.room) and case
             when _stopped is null then not _full or l.ord < _of[cardinality(_of)]
             when _rounds is null then l.ord < _stopped
             else coalesce(g.taken, 0) <> _turn - (l.ord >= _stopped)::integer end as ended
    from unnest(_lines) with ordinality
      as l (queue, band, tenant, rank, due_at, seq, looked, room, rates, share, moved, was_ended, ord)
    left join (
      select o.line, count(*)::integer as taken, max(o.pos)::integer as last
      from unnest(_of) with ordinality as o (line, pos) group by o.line
    ) g on g.line = l.ord
  ) l
  left join lateral (select r.rank, r.due_at, r.seq from ready r where r.ctid = _tids[l.last]) m on true;
  return case when _any then look_on(_c, _lines) else _lines end;
end
$$;

-- look_on: moves the marks of lines that have ended to the ends of their windows: only unwanted rows lie there.
-- uses:   ready_line, no more rows than a claim looks at
create or replace function look_on(_c lane_claim, _lines claim_line[]) returns claim_line[]
language plpgsql
as $$
begin
  return (
    select array_agg((l.queue, l.band, l.tenant, coalesce(e.rank, l.rank), coalesce(e.due_at, l.due_at),
                      coalesce(e.seq, l.seq), l.looked + coalesce(e.n, 0), l.room, l.rates, l.share,
                      l.moved or e.n is not null, l.ended)::claim_line order by l.ord)
    from unnest(_lines) with ordinality
      as l (queue, band, tenant, rank, due_at, seq, looked, room, rates, share, moved, ended, ord)
    left join lateral (
      select w.rank, w.due_at, w.seq, w.n::integer
      from (
        select r.rank, r.due_at, r.seq, row_number() over () as n
        from (
          select r.rank, r.due_at, r.seq from ready r
          where l.ended and r.queue = l.queue and r.band = l.band and r.tenant = l.tenant
            and (r.rank, r.due_at, r.seq) > (l.rank, l.due_at, l.seq)
            and not is_taken(r.xmax, _c.active, _c.newer)
          order by r.rank, r.due_at, r.seq limit greatest(_c.look - l.looked, 0)
        ) r
      ) w
      order by w.n desc limit 1
    ) e on true
  );
end
$$;
