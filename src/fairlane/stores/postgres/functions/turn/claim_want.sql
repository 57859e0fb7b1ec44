-- claim: lease what one lane wants: the given takes first, then what discovery finds, fair over tenants.
-- moves:  claim ready -> leased
-- guard:  see take; under limits also meet and open_rules
-- uses:   ready_line
--
-- Within a band every tenant gives one job in turn. Whole rounds are taken at once: with room for 100 and 3 tenants, 33 each; what is
-- left over goes round one by one. A claim meets no more tenants at a time than it has room for; where those had nothing for it, or no
-- room, twice as many the next time. The room of a tenant caps its line's share, the room of a queue the room here. Under
-- limits of types no more lines are asked at once than there is room for, and no line for more rounds than the shortest of them has
-- room for.
create or replace function claim(
  _worker uuid, _claim_no bigint, _want json, _nth integer, _off off_claims, _now timestamptz, inout l claim_limits,
  out claimed integer, out marks line_mark[], out seqs bigint[], out served text, out survey json
)
language plpgsql
set search_path from current
as $$
declare
  _w           lane_want;
  _room        integer := _want->>'limit';
  _survey      integer := _want->>'survey';
  _cursor      text := coalesce(_want->>'cursor', '');
  _q           integer;
  _here        integer;  -- room in this queue
  _rate        jsonb;
  _queue       text;
  _band        smallint;
  _head        line_mark;  -- the first row of this band
  _at          integer;
  _first       boolean;  -- in the first round, meeting tenants chunk by chunk
  _chunk       integer;
  _met_all     boolean;
  _wrapped     boolean;
  _last        text;
  _spent       text;  -- the last tenant met when a Turn's locks were used up
  _end         text;
  _tenants     text[];
  _rooms       integer[];
  _rates       jsonb[];
  _alive       text[];
  _alive_rooms integer[];
  _alive_rates jsonb[];
  _rest        text[];  -- still to have their turn in this round
  _rest_rooms  integer[];
  _rest_rates  jsonb[];
  _rounds      integer;
  _lines       line_mark[];
  _shares      integer[];
  _taken       integer[];
  _seen        line_mark[];
  _these       bigint[];
  _gave        integer;
  _stopped     integer;  -- a type became full in this line: those before it have had their turn, it and those behind it have not
  _sum         integer;
  _served_in   line_mark;
  _served_head line_mark;
  _got         record;
begin
  _w.worker := _worker;
  _w.claim_no := _claim_no;
  _w.lane := _want->>'lane';
  _w.types := case when _want->>'types' is not null then array(select json_array_elements_text(_want->'types')) end;
  _w.off_types := _off.types;
  _w.look := coalesce((_want->>'look')::integer, 1000);
  _w.start := _nth + coalesce((_want->>'start')::integer, 0);
  _w.timeout_s := coalesce((_want->>'timeout_s')::double precision, 300);
  _w.start_by_s := coalesce((_want->>'start_by_s')::double precision, 60);
  _w.now := _now;
  _w.by_tenant := l.limited and (l.own or l.tenants is not null);
  claimed := 0;
  marks := '{}';
  if l.queues is not null then
    select o.rules, least(l.until, o.until) into l.queues, l.until
    from open_rules(l.queues, array(select json_array_elements_text(_want->'queues') union select t->>'queue' from json_array_elements(_want->'takes') t), _now, l.idle) o;
  end if;
  if l.types is not null then
    select o.rules, least(l.until, o.until) into l.types, l.until from open_rules(l.types, _w.types, _now, l.idle) o;
    _w.by_type := exists (select from unnest(l.types) r where _w.types is null or r.types && _w.types);
  end if;

  if _want->'takes' is not null and l.limited then
    select * into _got from claim_takes(_w, _want->'takes', _off, _room, _nth, l);
    l := _got.l;
    claimed := _got.claimed;
    marks := _got.marks;
    seqs := _got.seqs;
  elsif _want->'takes' is not null then
    -- All at once, unless a line is named a second time: it goes on where its first take ended.
    for _lines, _shares in
      select array_agg((t.queue, t.band, t.tenant, coalesce((t.after->>3)::smallint, -1), coalesce((t.after->>4)::timestamptz, '-infinity'),
                        coalesce((t.after->>5)::bigint, -1), 0)::line_mark order by t.ord),
             array_agg(t."limit" order by t.ord)
      from (
        select t.*, case when max(t.time) over () > 1 then t.ord end as step
        from (
          select t.*, row_number() over (partition by t.queue, t.band, t.tenant) as time
          from rows from (json_to_recordset(_want->'takes') as (queue text, band smallint, tenant text, "limit" integer, after json))
            with ordinality as t (queue, band, tenant, "limit", after, ord)
          where (_off.queues is null or t.queue <> all(_off.queues))
            and (_off.tenants is not true or (select p.name from pause p where p.kind = 'tenant' and p.name = t.tenant) is null)
        ) t
      ) t
      group by t.step order by t.step
    loop
      exit when claimed >= _room;
      if marks <> '{}' then
        _lines := on_from(_lines, marks);
      end if;
      select k.taken, k.marks, k.seqs into _taken, _seen, _these
      from take(_lines, _shares, _w.types, _w.off_types, _w.look, _room - claimed, false, _worker, _claim_no, _w.lane, _nth + claimed, _w.start,
                _w.timeout_s, _w.start_by_s, _now, l, null) k;
      marks := merge_marks(marks, looked_at(_seen, _taken, _shares, _w.look, _room - claimed));
      claimed := claimed + (select sum(t) from unnest(_taken) t);
      seqs := seqs || _these;
    end loop;
  end if;
  _room := _room - claimed;
  if not coalesce((_want->>'discover')::boolean, true) then
    return;
  end if;

  for _queue in select json_array_elements_text(_want->'queues') loop
    continue when _queue = any(_off.queues);
    _here := _room;
    if l.queues is not null then
      _q := place_of(l.queues, _queue);
      _rate := rate_of(l.queues[_q]);
      _here := least(_room, l.queues[_q].room);
    end if;
    _band := -1;
    while _here > 0 loop
      select r.queue, r.band, r.tenant, r.rank, r.due_at, r.seq, 0 into _head
      from ready r where r.queue = _queue and r.band > _band order by r.band, r.tenant, r.rank, r.due_at, r.seq limit 1;
      exit when not found;
      _band := _head.band;

      _first := true;
      _wrapped := _cursor = '';
      _last := _cursor;
      _alive := '{}';
      _alive_rooms := '{}';
      _alive_rates := '{}';
      _rest := '{}';
      _rest_rooms := null;
      _rest_rates := null;
      _chunk := _here;
      while _here > 0 loop
        if _rest <> '{}' then
          _tenants := _rest;
          _rooms := _rest_rooms;
          _rates := _rest_rates;
          _rest := '{}';
          _rest_rooms := null;
          _rest_rates := null;
        elsif _first then
          _end := case when _wrapped and _cursor <> '' then _cursor end;
          _tenants := case when _off.tenants then open_tenants_behind(_queue, _band, _last, _end, _chunk)
                           else tenants_behind(_queue, _band, _last, _end, _chunk, _head) end;
          if not _wrapped and cardinality(_tenants) < _chunk then
            _tenants := _tenants || case when _off.tenants then open_tenants_behind(_queue, _band, '', _cursor, _chunk - cardinality(_tenants))
                                         else tenants_behind(_queue, _band, '', _cursor, _chunk - cardinality(_tenants), _head) end;
            _wrapped := true;
          end if;
          _met_all := cardinality(_tenants) < _chunk;
          _last := _tenants[cardinality(_tenants)];
          _rates := '{}';  -- those of the tenants before, or of another queue, do not count these
          if _w.by_tenant then
            select * into _got from meet(_queue, _now, _here, _tenants, l);
            if _got.seen is not null then
              _met_all := false;
              _last := _got.seen;
              _wrapped := _cursor = '' or _last <= _cursor collate "C";
            end if;
            _tenants := _got.tenants;
            _rooms := _got.rooms;
            _rates := _got.rates;
            l := _got.l;
            if l.locks >= 256 then
              _spent := coalesce(_spent, _last);
            end if;
          end if;
          if _rate is not null and _tenants <> '{}' then
            _rates := array(select _rate || coalesce(_rates[i], '[]') from generate_series(1, cardinality(_tenants)) i order by i);
          end if;
        else
          _tenants := _alive;
          _rooms := _alive_rooms;
          _rates := _alive_rates;
          _alive := '{}';
          _alive_rooms := '{}';
          _alive_rates := '{}';
        end if;
        if _tenants = '{}' then
          exit when not _first or (_met_all and _alive = '{}');
          _first := not _met_all;
          _chunk := least(2 * _chunk, 1000);
          continue;
        end if;

        -- Whole rounds at once, when no other tenant is still to have its turn in this one.
        _rounds := case when _first and not _met_all or _alive <> '{}' then 1 else greatest(_here / cardinality(_tenants), 1) end;
        if _w.by_type then
          _rounds := least(_rounds, (select min(r) from unnest(_rooms) r));
          if cardinality(_tenants) > _here then
            _rest := _tenants[_here + 1:];
            _rest_rooms := _rooms[_here + 1:];
            _rest_rates := _rates[_here + 1:];
            _tenants := _tenants[:_here];
          end if;
        end if;
        _shares := array_fill(_rounds, array[cardinality(_tenants)]);
        if _w.by_tenant then
          for i in 1 .. cardinality(_tenants) loop
            _shares[i] := least(_rounds, _rooms[i]);
          end loop;
        end if;
        _lines := lines_at(_queue, _band, _tenants, marks);
        _at := array_position(_tenants, _head.tenant);
        if _lines[_at].seq = -1 then
          _lines[_at].rank := _head.rank;
          _lines[_at].due_at := _head.due_at;
          _lines[_at].seq := _head.seq - 1;
        end if;
        if _w.by_type then
          select * into _got
          from take_by_type(_lines, _shares, _w.types, _w.off_types, _w.look, true, _worker, _claim_no, _w.lane, _nth + claimed, _w.start,
                            _w.timeout_s, _w.start_by_s, _now, _rates, l);
          l := _got.l;
          _shares := _got.shares;
          _taken := _got.taken;
          _seen := _got.marks;
          _these := _got.seqs;
          _gave := _got.last;
          _stopped := _got.stopped;
          marks := merge_marks(marks, look_back(_seen, _taken, _shares, _w.look));
        else
          select k.taken, k.marks, k.seqs into _taken, _seen, _these
          from take(_lines, _shares, _w.types, _w.off_types, _w.look, _here, true, _worker, _claim_no, _w.lane, _nth + claimed, _w.start,
                    _w.timeout_s, _w.start_by_s, _now, l, _rates) k;
          if l.limited then
            perform use_rates(_rates, _taken, _claim_no, _now);
          end if;
          marks := merge_marks(marks, looked_at(_seen, _taken, _shares, _w.look, _here));
        end if;
        if _stopped is not null then
          select coalesce(array_agg(t.tenant order by t.ord), '{}') || _rest, array_agg(t.room - t.taken order by t.ord) || _rest_rooms,
                 array_agg(t.rates order by t.ord) || _rest_rates
          into _rest, _rest_rooms, _rest_rates
          from unnest(_tenants, _taken, _shares, _rooms[:cardinality(_tenants)], _rates[:cardinality(_tenants)])
            with ordinality as t (tenant, taken, share, room, rates, ord)
          where t.ord >= _stopped and t.taken = t.share and t.room - t.taken is distinct from 0;
        end if;
        select sum(t.taken), coalesce(_gave, (array_agg(t.ord order by t.taken desc, t.ord desc) filter (where t.taken > 0))[1]),
               _alive || coalesce(array_agg(t.tenant order by t.ord) filter (where t.alive), '{}'),
               _alive_rooms || array_agg(t.room - t.taken order by t.ord) filter (where t.alive),
               _alive_rates || array_agg(t.rates order by t.ord) filter (where t.alive)
        into _sum, _gave, _alive, _alive_rooms, _alive_rates
        from (
          select t.*, t.taken = t.share and t.room - t.taken is distinct from 0 and (_stopped is null or t.ord < _stopped) as alive
          from unnest(_tenants, _taken, _shares, _rooms[:cardinality(_tenants)], _rates[:cardinality(_tenants)])
            with ordinality as t (tenant, taken, share, room, rates, ord)
        ) t;
        _stopped := null;
        _chunk := case when _sum = 0 then least(2 * _chunk, 1000) else _here - _sum end;
        claimed := claimed + _sum;
        seqs := seqs || _these;
        _room := _room - _sum;
        _here := _here - _sum;
        if _q is not null then
          l.queues[_q].room := l.queues[_q].room - _sum;
        end if;
        if _gave is not null then
          served := _tenants[_gave];
          _served_in := _lines[_gave];
          _served_head := _head;
          _gave := null;
        end if;
        _first := _first and not _met_all;
      end loop;
    end loop;
  end loop;

  if claimed = 0 and _spent is not null then
    served := _spent;  -- the next claim goes on behind those who used the locks up and gave nothing
  elsif _survey > 0 and served is not null then
    _tenants := case when _off.tenants then open_tenants_behind(_served_in.queue, _served_in.band, served, null, _survey)
                     else tenants_behind(_served_in.queue, _served_in.band, served, null, _survey, _served_head) end;
    if cardinality(_tenants) < _survey then
      _tenants := _tenants || case when _off.tenants
        then open_tenants_behind(_served_in.queue, _served_in.band, '', served, _survey - cardinality(_tenants))
        else tenants_behind(_served_in.queue, _served_in.band, '', served, _survey - cardinality(_tenants), _served_head) end;
    end if;
    survey := json_build_array(_w.lane, _served_in.queue, _served_in.band, _tenants);
  end if;
end
$$;
