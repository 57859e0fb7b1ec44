-- take_by_type: take where limits are over types: rows whose type has no room are passed over like those of types not wanted.
-- moves:  claim ready -> leased
-- guard:  see take; the limits are locked by us (open_rules)
-- uses:   ready_line
--
-- The rows are gone through one by one, in the order of the claim, up to the first whose type has become full on the way: `stopped`, the line it
-- is in. Its `share` is then what a line gave, unless it has no more to give; the caller asks again from there, and finds the type left out. At
-- least one was taken before. The shares together must not exceed the room there is.
create or replace function take_by_type(
  _lines line_mark[], inout shares integer[], _types text[], _off_types text[], _look integer, _in_turn boolean,
  _worker uuid, _claim_no bigint, _lane text, _nth integer, _start integer, _timeout_s double precision, _start_by_s double precision,
  _now timestamptz, _rates jsonb[], inout l claim_limits, out taken integer[], out marks line_mark[], out seqs bigint[], out last integer, out stopped integer
)
language plpgsql
set search_path from current
as $$
declare
  _p         record;
  _rules     limit_room[] := l.types;
  _fits      boolean;
  _under     integer[];
  _counts    jsonb;
  _tids      tid[] := '{}';
  _extra     jsonb[] := '{}';
  _mark      line_mark;
  _full      text[] := array(select t.name from unnest(l.types) r cross join unnest(r.types) as t (name) where r.room <= 0);
begin
  taken := array_fill(0, array[cardinality(_lines)]);
  marks := _lines;
  for _p in
    select p.ord::integer, p.place::integer, p.look::integer, p.tid, p.type, p.rank, p.due_at, p.seq
    from (
      select array(select x::xid from pg_snapshot_xip(pg_current_snapshot()) x) as active,
             age(pg_snapshot_xmax(pg_current_snapshot())::xid) as newer, pg_current_xact_id_if_assigned()::xid as own offset 0
    ) a
    cross join unnest(_lines) with ordinality as n (queue, band, tenant, rank, due_at, seq, looked, ord)
    join unnest(shares) with ordinality as s (share, ord) using (ord)
    cross join lateral (
      select n.ord, x.tid, x.type, x.rank, x.due_at, x.seq, x.look, row_number() over (order by x.rank, x.due_at, x.seq) as place
      from (
        select locked.tid, x.type, x.rank, x.due_at, x.seq, x.look  -- see take
        from (
          select r.*, row_number() over () as look
          from (
            select r.ctid as tid, r.type, r.rank, r.due_at, r.seq from ready r
            where r.queue = n.queue and r.band = n.band and r.tenant = n.tenant
              and (r.rank, r.due_at, r.seq) > (n.rank, n.due_at, n.seq) and not is_taken(r.xmax, a.active, a.newer, a.own)
            order by r.rank, r.due_at, r.seq limit greatest(_look - n.looked, 0)
          ) r
        ) x
        cross join lateral (select y.ctid as tid from ready y where y.ctid = x.tid for update skip locked) locked
        where (_types is null or x.type = any(_types)) and (_off_types is null or x.type <> all(_off_types)) and x.type <> all(_full)
        limit s.share
      ) x
    ) p
    order by case when _in_turn then p.place end, p.ord, p.place
  loop
    _fits := true;
    _under := '{}';
    _counts := _rates[_p.ord];
    for i in 1 .. cardinality(_rules) loop
      if _p.type = any(_rules[i].types) then
        _fits := _fits and _rules[i].room > 0;
        _under := array_append(_under, i);
        if _rules[i].rate_count is not null then
          _counts := coalesce(_counts, '[]') || jsonb_build_array(jsonb_build_array(_rules[i].kind, _rules[i].name, '', _rules[i].period_s));
        end if;
      end if;
    end loop;
    if not _fits then
      stopped := _p.ord;
      for i in 1 .. cardinality(_lines) loop
        -- In turn, those before it have had one turn more; who has had fewer has come to its end.
        if (case when _in_turn then taken[i] = _p.place - (i >= stopped)::integer else i >= stopped end) then
          shares[i] := taken[i];
        end if;
      end loop;
      exit;
    end if;
    for i in 1 .. cardinality(_under) loop
      _rules[_under[i]].room := _rules[_under[i]].room - 1;
    end loop;
    _mark := (_lines[_p.ord].queue, _lines[_p.ord].band, _lines[_p.ord].tenant, _p.rank, _p.due_at, _p.seq, _lines[_p.ord].looked + _p.look)::line_mark;
    marks[_p.ord] := _mark;
    taken[_p.ord] := taken[_p.ord] + 1;
    last := _p.ord;
    _tids := array_append(_tids, _p.tid);
    _extra := array_append(_extra, _counts);
  end loop;
  l.types := _rules;
  if _tids = '{}' then
    return;
  end if;

  with chosen as materialized (
    select * from unnest(_tids, _extra) with ordinality as c (tid, rates, n)
  ), gone as (
    delete from ready r using chosen c where r.ctid = c.tid
    returning c.n, c.rates, r.*
  ), leased as (
    insert into lease (seq, worker, claim_no, nth, lane, leased_at, started_at, deadline_at, queue, band, tenant, rank, due_at, type,
                       attempt, attempts, crashes, suspect, deduped, timeout_s, counted, rates)
    select seq, _worker, _claim_no, _nth + n, _lane, _now, case when _nth + n <= _start then _now end,
           _now + case when _nth + n <= _start then 2 * coalesce(timeout_s, _timeout_s) else _start_by_s end * interval '1 second',
           queue, band, tenant, rank, due_at, type, attempt + 1, attempts, crashes, suspect, deduped, timeout_s,
           case when type = any(l.counted_types) or queue = any(l.counted_queues) then 3 else l.counted end, rates
    from gone
    returning lease.seq
  )
  select array_agg(seq) into seqs from leased;
  perform use_rates(_extra, array_fill(1, array[cardinality(_extra)]), _claim_no, _now);
end
$$;
