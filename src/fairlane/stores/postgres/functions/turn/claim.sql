-- Leases what a lane wants. Paused tenants are skipped in claim_named (takes) and tenants_after (discovery).

-- What stays the same while a Want is served.
create type lane_claim as (
  worker uuid, claim_no bigint, now timestamptz,
  active xid[], newer integer,            -- sessions beside this one: see is_taken
  paused_queues text[], paused_types text[],  -- and ~type where only jobs that were put off are unwanted
  tenants_paused boolean,                 -- some are; there may be thousands
  lane text,                              -- this and what follows: of the Want at hand
  types text[],                           -- null: any
  look integer,                           -- how many rows of a line it may look at
  start integer,                          -- up to which place in the Turn its jobs start at once
  timeout_s double precision, start_by_s double precision,
  by_tenant boolean, by_type boolean      -- some limit is over tenants, over types
);

-- What a Turn has claimed so far.
create type claim_progress_v2 as (
  nth integer,          -- how many
  seqs bigint[],        -- which: there is no index to find them by again, it would cost every job
  limits claim_limits_v2,
  room integer,         -- this and what follows: of the Want at hand; how many more it may have
  marks claim_line[],
  served claim_line,    -- the line that discovery served last,
  head claim_line,      -- and the first row of its band
  spent text            -- the last tenant met when the locks of a Turn were used up
);

-- room_in: how many more jobs a Want may have from one queue.
create or replace function room_in(_queue text, _p claim_progress_v2) returns integer
language plpgsql immutable
as $$
begin
  if ((_p).limits).queues is null then
    return (_p).room;
  end if;
  return least(
    (_p).room,
    (select least(r.room, ((_p).limits).slots) from unnest(((_p).limits).queues) r where r.name = _queue));
end
$$;

-- has_none_to_prefetch: whether every tenant's jobs in a queue are under a limit for which no slot is left.
create or replace function has_none_to_prefetch(_queue text, _l claim_limits_v2) returns boolean
language plpgsql immutable
as $$
begin
  return coalesce((_l).slots <= 0 and not (_l).own, false) and exists (
    select from unnest((_l).tenants) t
    where t.name = '*' and t.queue in ('', _queue) and greatest(t.running, t.rate_count) >= 0);
end
$$;

-- claim: lease what one lane wants: the given takes first, then what discovery finds, fair over tenants.
-- moves:  claim ready -> leased
-- guard:  see take; under limits also count_limits and lines_with_room
-- uses:   ready_line
create or replace function claim(
  _c lane_claim, _want json, inout p claim_progress_v2, out served text, out survey json
)
language plpgsql
as $$
declare
  _survey   integer := _want->>'survey';
  _before   integer := p.nth;
  _queues   text[];
  _got      record;
begin
  _c.lane := _want->>'lane';
  _c.types := case when _want->>'types' is not null then array(select json_array_elements_text(_want->'types')) end;
  if _want->'leaves' is not null then
    _c.paused_types := _c.paused_types || array(select '~' || t from json_array_elements_text(_want->'leaves') t);
  end if;
  _c.look := coalesce((_want->>'look')::integer, 1000);
  _c.start := p.nth + coalesce((_want->>'start')::integer, 0);
  _c.timeout_s := coalesce((_want->>'timeout_s')::double precision, 300);
  _c.start_by_s := coalesce((_want->>'start_by_s')::double precision, 60);
  _c.by_tenant := (p.limits).limited and ((p.limits).own or (p.limits).tenants is not null);
  p.room := _want->>'limit';
  p.limits.slots := _want->>'slots';
  p.marks := '{}';
  p.served := null;
  p.spent := null;
  if exists (select from unnest((p.limits).queues) r where r.room is null) then
    _queues := array(
      select json_array_elements_text(_want->'queues')
      union
      select t->>'queue' from json_array_elements(_want->'takes') t);
    select * into _got from count_limits((p.limits).queues, _queues, _c.now, (p.limits).idle);
    p.limits.queues := _got.rules;
    p.limits.until := least((p.limits).until, _got.until);
  end if;
  if (p.limits).types is not null then
    _c.by_type := exists (select from unnest((p.limits).types) r where _c.types is null or r.types && _c.types);
  end if;

  if _want->'takes' is not null then
    p := claim_named(_c, _want->'takes', p);
  end if;
  if p.room > 0 and coalesce((_want->>'discover')::boolean, true) then
    p := claim_found(_c, _want->'queues', coalesce(_want->>'cursor', ''), p);
  end if;
  served := (p.served).tenant;
  if p.nth = _before and p.spent is not null then
    served := p.spent;  -- the next claim starts after the tenants that used the locks up without a job
  elsif _survey > 0 and served is not null then
    survey := json_build_array(
      _c.lane, (p.head).queue, (p.head).band, tenants_around(p.head, served, _survey, _c.tenants_paused));
  end if;
end
$$;

-- claim_named: serve a Want's takes in their order.
-- moves:  claim ready -> leased
-- guard:  see take and lines_with_room
-- uses:   see take
--
-- Takes are served together as long as none of them changes what the next one may have: one queue, each tenant once. A
-- line that is named again continues where its first take ended.
create or replace function claim_named(_c lane_claim, _takes json, inout p claim_progress_v2)
language plpgsql
as $$
declare
  _lines  claim_line[];
  _got    record;
begin
  for _lines in
    select array_agg((t.queue, t.band, t.tenant, coalesce((t.after->>3)::smallint, -1),
                      coalesce((t.after->>4)::timestamptz, '-infinity'), coalesce((t.after->>5)::bigint, -1),
                      0, null, null, t."limit", false, false)::claim_line order by t.ord)
    from (
      select t.*, count(*) filter (where t.is_new_queue or t.time > 1) over (order by t.ord) as lot
      from (
        select t.*, t.queue is distinct from lag(t.queue) over (order by t.ord) as is_new_queue,
               row_number() over (partition by t.queue, t.tenant order by t.ord) as time
        from rows from (
          json_to_recordset(_takes) as (queue text, band smallint, tenant text, "limit" integer, after json)
        ) with ordinality as t (queue, band, tenant, "limit", after, ord)
        where (_c.paused_queues is null or t.queue <> all(_c.paused_queues))
          and (not _c.tenants_paused
               or (select s.name from pause s where s.kind = 'tenant' and s.name = t.tenant) is null)
      ) t
    ) t
    group by t.lot order by t.lot
  loop
    if p.marks <> '{}' then
      _lines := resume_lines(_lines, p.marks);
    end if;
    continue when room_in(_lines[1].queue, p) <= 0;
    if _c.by_tenant then
      select * into _got from lines_with_room(_c.now, null, _lines, p.limits);
      _lines := _got.lines;
      p.limits := _got.l;
    end if;
    while _lines <> '{}' and room_in(_lines[1].queue, p) > 0 loop
      select * into _got from take(_c, null, _lines, p);
      p := _got.p;
      _lines := case when _got.stopped is not null then open_lines(_got.lines[_got.stopped:]) else '{}' end;
    end loop;
    exit when p.room <= 0;
  end loop;
end
$$;

-- claim_found: serve a Want by discovery: queues in their order, the most urgent band first.
-- moves:  claim ready -> leased
-- guard:  see take and lines_with_room
-- uses:   ready_line
create or replace function claim_found(_c lane_claim, _queues json, _cursor text, inout p claim_progress_v2)
language plpgsql
as $$
declare
  _queue  text;
  _head   claim_line;  -- the first row of a band
begin
  for _queue in select json_array_elements_text(_queues) loop
    continue when _queue = any(_c.paused_queues);
    _head.band := -1;
    while room_in(_queue, p) > 0 loop
      select r.queue, r.band, r.tenant, r.rank, r.due_at, r.seq into _head
      from ready r where r.queue = _queue and r.band > _head.band
      order by r.band, r.tenant, r.rank, r.due_at, r.seq limit 1;
      exit when not found;
      p := claim_band(_c, _head, _cursor, p);
    end loop;
  end loop;
end
$$;

-- claim_band: serve a Want from one band.
-- moves:  claim ready -> leased
-- guard:  see take and lines_with_room
-- uses:   ready_line
--
-- Every tenant gives one job in turn, in the order of names behind `_cursor`. Whole rounds are taken at once: with room
-- for 100 and 3 tenants, 33 each; the rest one by one. A claim looks for no more tenants at a time than it has room
-- for; where those had nothing for it, or no room, for twice as many the next time.
create or replace function claim_band(_c lane_claim, _head claim_line, _cursor text, inout p claim_progress_v2)
language plpgsql
as $$
declare
  _here      integer := room_in(_head.queue, p);
  _chunk     integer := _here;
  _met_all   boolean := false;
  _after     text := _cursor;
  _wrapped   boolean := _cursor = '';
  _tenants   text[];
  _spent     boolean;  -- only the application's own jobs are under no limit
  _rounds    integer;
  _lines     claim_line[] := '{}';  -- still to have their turn in this round
  _served    claim_line[] := '{}';  -- have had it and may have more
  _got       record;
begin
  while _here > 0 loop
    if _lines = '{}' and _met_all then
      exit when _served = '{}';
      _lines := _served;
      _served := '{}';
    elsif _lines = '{}' then
      _spent := has_none_to_prefetch(_head.queue, p.limits);
      _tenants := case when _spent then array['system'] else tenants_after(
        _head, _after, case when _wrapped then nullif(_cursor, '') end, _chunk, _c.tenants_paused)
        end;
      if not _spent and not _wrapped and cardinality(_tenants) < _chunk then
        _tenants := _tenants || tenants_after(_head, '', _cursor, _chunk - cardinality(_tenants), _c.tenants_paused);
        _wrapped := true;
      end if;
      _met_all := _spent or cardinality(_tenants) < _chunk;
      _after := _tenants[cardinality(_tenants)];
      _lines := array(
        select (_head.queue, _head.band, t.tenant, case when t.tenant = _head.tenant then _head.rank else -1 end,
                case when t.tenant = _head.tenant then _head.due_at else '-infinity' end,
                case when t.tenant = _head.tenant then _head.seq - 1 else -1 end,
                0, null, null, null, false, false)::claim_line
        from unnest(_tenants) as t (tenant));
      if p.marks <> '{}' then
        _lines := resume_lines(_lines, p.marks);
      end if;
      if _c.by_tenant then
        select * into _got from lines_with_room(_c.now, greatest(_here, _chunk / 8), _lines, p.limits);
        _lines := _got.lines;
        p.limits := _got.l;
        if _got.seen is not null then
          _met_all := false;
          _after := _got.seen;
          _wrapped := _cursor = '' or _after <= _cursor collate "C";
        end if;
        if (p.limits).locks >= 256 then
          p.spent := coalesce(p.spent, _after);
          _met_all := true;  -- nobody else can be locked: those that are, serve the rest; the next claim starts behind
        end if;
      end if;
      if _lines = '{}' then
        _chunk := least(2 * _chunk, 1000);
        continue;
      end if;
    end if;

    -- Whole rounds at once, when no other tenant is still to have its turn in this one.
    _rounds := case when _met_all and _served = '{}' then greatest(_here / cardinality(_lines), 1) else 1 end;
    select * into _got from take(_c, _rounds, _lines, p);
    p := _got.p;
    _here := room_in(_head.queue, p);
    _chunk := case when _got.last is null then least(2 * _chunk, 1000) else _here end;
    if _got.last is not null then
      p.served := _lines[_got.last];
      p.head := _head;
    end if;
    exit when _here <= 0;
    _served := _served || open_lines(_got.lines[:coalesce(_got.stopped - 1, cardinality(_lines))]);
    _lines := open_lines(_got.lines[coalesce(_got.stopped, cardinality(_lines) + 1):]);
  end loop;
end
$$;
