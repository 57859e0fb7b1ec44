-- A tenant's line in one queue and band, the last row of it that was looked at, and how many were.
create type line_mark as (queue text, band smallint, tenant text, rank smallint, due_at timestamptz, seq bigint, looked integer);

-- What is paused, as a claim needs it: null, or the names; tenants, of which there may be thousands, only whether there are any.
create type off_claims as (queues text[], types text[], tenants boolean);

create or replace function off_claims() returns off_claims
language sql stable
set search_path from current
begin atomic
  select (array_agg(name) filter (where kind = 'queue'), array_agg(name) filter (where kind = 'type'),
          coalesce(bool_or(kind = 'tenant'), false))::off_claims from pause;
end;

-- is_taken: whether another session is taking this ready row, by its xmax.
--
-- Such rows are neither tried nor counted as looked at: with a lock tried on each, 16 claimers of one line found nothing else within the rows
-- a claim looks at, 103 jobs a Turn and 53 us of the server each; so 500 and 22. What a session locked that was rolled back is not taken.
-- `_active`: sessions in our snapshot that have not ended; `_newer`: the age from which on they are too new to be in it; `_own`: ours, which
-- may be too new as well. Older than a hundred thousand transactions more is no transaction but a lock shared by several.
create or replace function is_taken(_xmax xid, _active xid[], _newer integer, _own xid) returns boolean
language sql stable parallel safe
return _xmax <> 0 and (_xmax = any(_active) or (age(_xmax) between _newer - 100000 and _newer and _xmax is distinct from _own));

-- take: lease jobs from the heads of the given lines, each up to its share, all together up to `_room`.
-- moves:  claim ready -> leased
-- guard:  the ready row is ours by `for update skip locked`: it goes to one caller, and nobody waits for another
-- uses:   ready_line
--
-- `seqs`: which they are; there is no index to find them by again, it would cost every job.
-- Rows are deleted by ctid: joined by key the planner hashed the table, 307 ms at a million rows. The window is read unlocked and
-- each wanted row locked alone, so that rows of types this worker does not know stay free for those who do. Locked, and only then
-- deleted all at once and leased in one pass, each in the place where it was found: carried through one statement row by row, 500 jobs of
-- one line took 8.8 us each of the server, deleted at once and put in order again 6.7, so 6.0.
create or replace function take(
  _lines line_mark[], _shares integer[], _types text[], _off_types text[], _look integer, _room integer, _in_turn boolean,
  _worker uuid, _claim_no bigint, _lane text, _nth integer, _start integer, _timeout_s double precision, _start_by_s double precision,
  _now timestamptz, _l claim_limits, _rates jsonb[], out taken integer[], out marks line_mark[], out seqs bigint[]
)
language plpgsql
set search_path from current
set enable_hashjoin = on
as $$
declare
  _tids            tid[];
  _ords            integer[];
  _places          integer[];  -- of several lines: the place of each row among all
  _looks           integer[];  -- the place of each row in the window of its line
  _gave            integer[];
  _lasts           integer[];
  _counts          integer[];
  _ends            line_mark[];
  _counted         smallint := _l.counted;
  _types_counted   text[] := _l.counted_types;
  _queues_counted  text[] := _l.counted_queues;
begin
  taken := array_fill(0, array[cardinality(_lines)]);
  marks := _lines;
  select array_agg(p.tid), array_agg(p.ord), array_agg(p.place) into _tids, _ords, _looks
  from (
    select l.ord::integer, p.tid, p.place::integer
    from (
      select array(select x::xid from pg_snapshot_xip(pg_current_snapshot()) x) as active,
             age(pg_snapshot_xmax(pg_current_snapshot())::xid) as newer, pg_current_xact_id_if_assigned()::xid as own offset 0
    ) s
    cross join unnest(_lines, _shares) with ordinality as l (queue, band, tenant, rank, due_at, seq, looked, share, ord)
    cross join lateral (
      select locked.tid, x.place  -- older servers lock a row that has moved meanwhile where it is now
      from (
        select r.tid, r.type, row_number() over () as place
        from (
          select r.ctid as tid, r.type from ready r
          where r.queue = l.queue and r.band = l.band and r.tenant = l.tenant
            and (r.rank, r.due_at, r.seq) > (l.rank, l.due_at, l.seq) and not is_taken(r.xmax, s.active, s.newer, s.own)
          order by r.rank, r.due_at, r.seq limit greatest(_look - l.looked, 0)
        ) r
      ) x
      cross join lateral (select y.ctid as tid from ready y where y.ctid = x.tid for update skip locked) locked
      where (_types is null or x.type = any(_types)) and (_off_types is null or x.type <> all(_off_types))
      limit l.share
    ) p
    limit _room
  ) p;
  if _tids is null then
    return;
  end if;

  select array_agg(g.ord), array_agg(g.n), array_agg(_looks[g.last]), array_agg((
    select (r.queue, r.band, r.tenant, r.rank, r.due_at, r.seq, 0)::line_mark from ready r where r.ctid = _tids[g.last]))
  into _gave, _counts, _lasts, _ends
  from (
    select p.ord, count(*)::integer as n, max(p.pos) as last from unnest(_ords) with ordinality as p (ord, pos) group by p.ord
  ) g;
  for i in 1 .. cardinality(_gave) loop
    taken[_gave[i]] := _counts[i];
    _ends[i].looked := _lines[_gave[i]].looked + _lasts[i];
    marks[_gave[i]] := _ends[i];
  end loop;
  if cardinality(_gave) > 1 then
    _places := array(
      select row_number() over (order by case when _in_turn then p.place end, p.pos)
      from (select p.pos, row_number() over (partition by p.ord order by p.pos) as place from unnest(_ords) with ordinality as p (ord, pos)) p
      order by p.pos);
  end if;

  with gone as (
    delete from ready r where r.ctid = any(_tids) returning r.ctid as tid, r.*
  ), leased as (
    insert into lease (seq, worker, claim_no, nth, lane, leased_at, started_at, deadline_at, queue, band, tenant, rank, due_at, type,
                       attempt, attempts, crashes, suspect, deduped, timeout_s, counted, rates)
    select seq, _worker, _claim_no, _nth + n, _lane, _now, case when _nth + n <= _start then _now end,
           _now + case when _nth + n <= _start then 2 * coalesce(timeout_s, _timeout_s) else _start_by_s end * interval '1 second',
           queue, band, tenant, rank, due_at, type, attempt + 1, attempts, crashes, suspect, deduped, timeout_s,
           case when _counted is null then 0 when type = any(_types_counted) or queue = any(_queues_counted) then 3 else _counted end,
           _rates[ord]
    from (
      select g.*, coalesce(_places[p.n::integer], p.n) as n, _ords[p.n::integer] as ord
      from gone g join unnest(_tids) with ordinality as p (tid, n) on p.tid = g.tid
    ) g
    returning lease.seq
  )
  select array_agg(seq) into seqs from leased;
end
$$;

-- look_back: how far lines were really looked at: where a line gave less than its share, past all up to the end of its window. What lies
-- there is of types not wanted here.
-- uses:   ready_line, no more rows than a claim looks at
create or replace function look_back(_to line_mark[], _taken integer[], _shares integer[], _look integer) returns line_mark[]
language plpgsql
set search_path from current
as $$
begin
  return (
    select array_agg((l.queue, l.band, l.tenant, coalesce(f.rank, l.rank), coalesce(f.due_at, l.due_at), coalesce(f.seq, l.seq),
                      l.looked + coalesce(f.n, 0))::line_mark order by l.ord)
    from (
      select array(select x::xid from pg_snapshot_xip(pg_current_snapshot()) x) as active,
             age(pg_snapshot_xmax(pg_current_snapshot())::xid) as newer, pg_current_xact_id_if_assigned()::xid as own offset 0
    ) s
    cross join unnest(_to) with ordinality as l (queue, band, tenant, rank, due_at, seq, looked, ord)
    left join lateral (
      select x.rank, x.due_at, x.seq, count(*) over ()::integer as n
      from (
        select r.rank, r.due_at, r.seq from ready r
        where _taken[l.ord] < _shares[l.ord] and r.queue = l.queue and r.band = l.band and r.tenant = l.tenant
          and (r.rank, r.due_at, r.seq) > (l.rank, l.due_at, l.seq) and not is_taken(r.xmax, s.active, s.newer, s.own)
        order by r.rank, r.due_at, r.seq limit greatest(_look - l.looked, 0)
      ) x
      order by x.rank desc, x.due_at desc, x.seq desc limit 1
    ) f on true
  );
end
$$;

-- tenants_behind: up to `_limit` tenants with ready jobs in one band, by name, behind `_after` and up to `_until`.
-- uses:   ready_line, one probe for each tenant however long its line
--
-- `_head`: nothing lies before this row of the band. Entries of rows claimed lately stay in the index until it is vacuumed, and each
-- probe from the head of the band walks over all of them.
create or replace function tenants_behind(_queue text, _band smallint, _after text, _until text, _limit integer, _head line_mark default null)
returns text[]
language plpgsql
set search_path from current
as $$
begin
  return array(
    with recursive found (tenant) as (
      select case when _after collate "C" < (_head).tenant
        then (select r.tenant from ready r
              where r.queue = _queue and r.band = _band
                and (r.tenant, r.rank, r.due_at, r.seq) >= ((_head).tenant collate "C", (_head).rank, (_head).due_at, (_head).seq)
              order by r.tenant, r.rank, r.due_at, r.seq limit 1)
        else (select r.tenant from ready r
              where r.queue = _queue and r.band = _band and r.tenant > _after collate "C" order by r.tenant limit 1)
      end
      union all
      select (select r.tenant from ready r
              where r.queue = _queue and r.band = _band and r.tenant > f.tenant order by r.tenant limit 1)
      from found f where f.tenant is not null and (_until is null or f.tenant <= _until collate "C")
    )
    select tenant from found where tenant is not null and (_until is null or tenant <= _until collate "C") limit _limit
  );
end
$$;

-- open_tenants_behind: the same without those that are paused.
-- uses:   ready_line, pause_pkey
--
-- Tenant by tenant, until it meets a paused one: then by windows of 50 rows until it is past them. A crowd of 10,000, with one job
-- each, took 200 ms by probes.
create or replace function open_tenants_behind(_queue text, _band smallint, _after text, _until text, _limit integer) returns text[]
language plpgsql
set search_path from current
as $$
begin
  return array(
    with recursive seen (last, open) as (
      select _after collate "C", array[_after] collate "C"
      union all
      select w.last, array(
        select t.tenant from unnest(w.tenants) as t (tenant)
        except
        select p.name from pause p where p.kind = 'tenant' and p.name between w.tenants[1] and w.last order by 1)
      from seen s
      cross join lateral (
        select array_agg(r.tenant) as tenants, max(r.tenant) as last
        from (
          select r.tenant from ready r
          where r.queue = _queue and r.band = _band and r.tenant > s.last and (_until is null or r.tenant <= _until collate "C")
          order by r.tenant limit case when s.open = '{}' then 50 else 1 end
        ) r
      ) w
      where s.last is not null
    )
    select t.tenant from seen s cross join unnest(s.open) as t (tenant) where t.tenant > _after collate "C" limit _limit
  );
end
$$;

-- lines_at: one band's lines, each behind its mark where there is one, else from its head.
--
-- Here and in merge_marks hashed, which a Turn's settings forbid: with nested loops a Turn that passed over the lines of 2,000 tenants, a hundred
-- at a time, took 350 ms, so 53.
create or replace function lines_at(_queue text, _band smallint, _tenants text[], _marks line_mark[]) returns line_mark[]
language sql immutable
set enable_hashjoin = on
set enable_nestloop = off
begin atomic
  select array_agg(case when m.tenant is null then (_queue, _band, t.tenant, -1::smallint, '-infinity'::timestamptz, -1::bigint, 0)::line_mark
                        else (m.queue, m.band, m.tenant, m.rank, m.due_at, m.seq, m.looked)::line_mark end order by t.ord)
  from unnest(_tenants) with ordinality as t (tenant, ord)
  left join unnest(_marks) m on m.queue = _queue and m.band = _band and m.tenant = t.tenant;
end;

-- merge_marks: the newer mark of each line; lines in which nothing was looked at have none.
create or replace function merge_marks(_old line_mark[], _new line_mark[]) returns line_mark[]
language plpgsql immutable
set search_path from current
set enable_hashjoin = on
set enable_nestloop = off
as $$
begin
  if _old = '{}' and cardinality(_new) = 1 and _new[1].looked > 0 then
    return _new;  -- the common claim: from one line
  end if;
  return (
    select coalesce(array_agg((m.queue, m.band, m.tenant, m.rank, m.due_at, m.seq, m.looked)::line_mark), '{}')
    from (
      select * from unnest(_new) n where n.looked > 0
      union all
      select * from unnest(_old) o where not exists (
        select from unnest(_new) n where n.queue = o.queue and n.band = o.band and n.tenant = o.tenant and n.looked > 0)
    ) m
  );
end
$$;

-- looked_at: the marks after one take. Where the room ran out, lines behind the last one that gave were not looked at.
create or replace function looked_at(_to line_mark[], _taken integer[], _shares integer[], _look integer, _room integer)
returns line_mark[]
language plpgsql
set search_path from current
as $$
declare
  _all   integer := 0;
  _last  integer := 0;
begin
  for i in 1 .. cardinality(_taken) loop
    _all := _all + _taken[i];
    _last := case when _taken[i] > 0 then i else _last end;
  end loop;
  if _all >= _room then
    if _taken = _shares then
      return _to;  -- the common claim: every line gave its share and nobody asks again how many rows were looked at
    end if;
    for i in _last .. cardinality(_taken) loop
      _shares[i] := _taken[i];
    end loop;
  end if;
  return look_back(_to, _taken, _shares, _look);
end
$$;
