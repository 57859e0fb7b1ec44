-- claim_few: serve a Want by discovery where its queues hold no more than it wants, or it wants one job: it gets what
--         discovery would have given it, in that order. `fits`: it was so; else nothing is done.
-- moves:  claim ready -> leased
-- guard:  the ready row is ours by `for update skip locked`, as in take; no limit holds for any of the rows, or its
--         room is known and enough (`_limited` names the others)
-- uses:   ready_line, at most 33 rows of it, and one probe for each tenant in the survey; lease_pkey
--
-- For the Turn of an idle worker that is woken for one job, and for the one that takes again the place it has freed:
-- 0.6 times the server's time that claim_found, claim_band and take need. Several small statements: one large one took
-- longer to begin than all of them together. (tests/plans/test_claim_few.py compares what both ways give)
create or replace function claim_few(
  _c lane_claim, _want json, inout p claim_progress_v2, _limited text[], _is_counted boolean,
  out served text, out survey json, out fits boolean
)
language plpgsql
as $$
declare
  _limit       integer := least((_want->>'limit')::integer, coalesce((_want->>'look')::integer, 1000), 32);
  _start       integer;  -- these are worked out only where there is a job: each costs the empty Turn a microsecond
  _timeout_s   double precision;
  _start_by_s  double precision;
  _lane        text;
  _worker      uuid;  -- as variables: a field of a record is looked up again for every row
  _claim_no    bigint;
  _now         timestamptz;
  _nth         integer := p.nth;
  _n           integer;
  _tids        tid[];
  _queues      text[];
  _lines       claim_line[];
  _types       text[];
  _rates       jsonb[];
  _tenants     text[];
  _counted     claim_limits_v2;
  _next        record;
  _head        claim_line;  -- of many, the first row
begin
  p.marks := '{}';
  select count(*), array_agg(r.tid), min(r.queues), coalesce(bool_and(
           (r.types is null or r.type = any(r.types))
           and (not r.put_off or r.leaves is null or r.type <> all(r.leaves))
           and (_limited is null or r.type <> all(_limited) and r.queue <> all(_limited))), true),
         case when (p.limits).own then array_agg(r.tenant) end
  into _n, _tids, _queues, fits, _tenants
  from (
    select r.*, w.* from json_to_record(_want) as w (queues text[], types text[], leaves text[])
    cross join lateral unnest(w.queues) as q (name)
    cross join lateral (
      select r.ctid as tid, r.queue, r.type, r.put_off, r.tenant from ready r where r.queue = q.name
      order by r.queue, r.band, r.tenant, r.rank, r.due_at, r.seq limit _limit + 1
    ) r
    limit _limit + 1
  ) r;
  if _n > _limit and (_want->>'limit')::integer = 1 then
    select * into _next from next_of_many(_tids[1], _want, _limited);
    _head := _next.head;
    _tids := array[_next.tid];
    fits := _next.fits;
    _tenants := array[_next.tenant];
    _n := 1;
  end if;
  fits := fits and _n <= _limit
    and ((p.limits).own is not true or tenants_with_limits(_tenants, null) = '{}');
  if not fits or _n = 0 then
    return;
  end if;
  _start := _nth + coalesce((_want->>'start')::integer, 0);
  _timeout_s := coalesce((_want->>'timeout_s')::double precision, 300);
  _start_by_s := coalesce((_want->>'start_by_s')::double precision, 60);
  _lane := _want->>'lane';
  _worker := _c.worker;
  _claim_no := _c.claim_no;
  _now := _c.now;
  if _n > 1 then
    _tids := array(
      select r.tid
      from (
        select r.ctid as tid, r.band, r.tenant, array_position(_queues, r.queue) as ord,
               row_number() over (partition by r.queue, r.band, r.tenant order by r.rank, r.due_at, r.seq) as turn
        from ready r where r.ctid = any(_tids)
      ) r
      order by r.ord, r.band, r.turn, r.tenant <= coalesce(_want->>'cursor', '') collate "C", r.tenant);
  end if;
  if _is_counted then
    if (p.limits).counted is null then  -- else they are those of a lane before this one, with the room it has left
      p.limits := counting_only_v2();
    end if;
    _counted := p.limits;
  end if;
  with gone as (
    delete from ready r where r.ctid = any(array(
      select l.tid from unnest(_tids) as t (tid)
      cross join lateral (select y.ctid as tid from ready y where y.ctid = t.tid for update skip locked) l))
    returning r.*, _nth + coalesce(array_position(_tids, r.ctid), cardinality(_tids)) as nth
  ), leased as (
    insert into lease (seq, worker, claim_no, nth, lane, leased_at, started_at, deadline_at, queue, band, tenant, rank,
                       due_at, type, attempt, attempts, crashes, suspect, deduped, timeout_s, key, key_nth, placed,
                       rates, counted)
    select seq, _worker, _claim_no, nth, _lane, _now, case when nth <= _start then _now end,
           _now + interval '1 second' * case when nth <= _start then 2 * coalesce(timeout_s, _timeout_s)
                                             else _start_by_s end,
           queue, band, tenant, rank, due_at, type, attempt + 1, attempts, crashes, suspect, deduped, timeout_s, key,
           key_nth, placed, rates, case when not _is_counted then 0
                when type = any(_counted.counted_types) or queue = any(_counted.counted_queues) then 3
                else _counted.counted end
    from gone
    returning seq, nth, queue, band, tenant, rank, due_at, type, rates
  )
  select array_agg((l.queue, l.band, l.tenant, l.rank, l.due_at, l.seq, 0, null, null, null, true, false)::claim_line
                   order by l.nth),
         p.seqs || array_agg(l.seq), case when (p.limits).limited then array_agg(l.type) end,
         array_agg(l.rates) filter (where l.rates is not null)
  into _lines, p.seqs, _types, _rates
  from leased l;
  if _lines is null then
    fits := _head.queue is null;  -- others were faster: of many there are more
    return;
  end if;
  if _rates is not null then perform use_rates(_rates, _claim_no, _now); end if;
  if _types is not null then p.limits := with_less_room(p.limits, _lines, _types); end if;
  p.nth := _nth + _n;
  _n := cardinality(_lines);
  p.marks := case when _n = 1 then _lines else last_of_lines(_lines) end;
  served := _lines[_n].tenant;
  if (_want->>'survey')::integer > 0 then
    survey := json_build_array(_lane, _lines[_n].queue, _lines[_n].band, case
      when _head.queue is null then '{}' else tenants_around(_head, served, (_want->>'survey')::integer) end);
  end if;
end
$$;

-- next_of_many: the row that discovery would give a Want first, where `_first` is the first of its queues, and whether
--         the worker may have it.
-- uses:   ready_line, two rows
create or replace function next_of_many(
  _first tid, _want json, _limited text[], out head claim_line, out tid tid, out fits boolean, out tenant text
)
language plpgsql
as $$
declare
  _cursor  text := coalesce(_want->>'cursor', '');
begin
  select r.queue, r.band, r.tenant, r.rank, r.due_at, r.seq into head from ready r where r.ctid = _first;
  if head.tenant <= _cursor collate "C" then
    tenant := (
      select r.tenant from ready r where r.queue = head.queue and r.band = head.band and r.tenant > _cursor collate "C"
      order by r.tenant limit 1);
  end if;
  tenant := coalesce(tenant, head.tenant);  -- under row security an expression in the query would cost it the order
  select r.ctid, (w.types is null or r.type = any(w.types))
         and (not r.put_off or w.leaves is null or r.type <> all(w.leaves))
         and (_limited is null or r.type <> all(_limited) and r.queue <> all(_limited))
  into tid, fits
  from json_to_record(_want) as w (types text[], leaves text[])
  cross join lateral (
    select r.ctid, r.type, r.put_off, r.queue from ready r
    where r.queue = head.queue and r.band = head.band and r.tenant = next_of_many.tenant
    order by r.rank, r.due_at, r.seq limit 1
  ) r;
  fits := coalesce(fits, false);
end
$$;

-- with_less_room: limits after these jobs were claimed; by job: its line and its type.
create or replace function with_less_room(inout l claim_limits_v2, _lines claim_line[], _types text[])
language plpgsql immutable
as $$
begin
  for _i in 1 .. coalesce(cardinality(l.queues), 0) loop
    l.queues[_i].room := l.queues[_i].room
      - (select count(*) from unnest(_lines) n where n.queue = l.queues[_i].name);
  end loop;
  for _i in 1 .. coalesce(cardinality(l.types), 0) loop
    l.types[_i].room := l.types[_i].room - (select count(*) from unnest(_types) t where t = any(l.types[_i].types));
  end loop;
end
$$;

-- last_of_lines: the last row of each line.
create or replace function last_of_lines(_rows claim_line[]) returns claim_line[]
language plpgsql immutable
as $$
begin
  return array(
    select distinct on (r.queue, r.band, r.tenant) r from unnest(_rows) r
    order by r.queue, r.band, r.tenant, r.rank desc, r.due_at desc, r.seq desc);
end
$$;
