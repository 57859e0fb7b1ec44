-- claim: lease what one lane wants: the given takes first, then what discovery finds, fair over tenants.
-- moves:  claim ready -> leased
-- guard:  see take
-- uses:   ready_line
--
-- Within a band every tenant gives one job in turn. Whole rounds are taken at once: with room for 100 and 3 tenants, 33 each; what is
-- left over goes round one by one. A claim meets no more tenants than it has room for.
create function claim(
  _worker uuid, _claim_no bigint, _want json, _nth integer, _off off_claims, _now timestamptz,
  out claimed integer, out marks line_mark[], out served text
)
language plpgsql
set search_path from current
as $$
declare
  _lane        text := _want->>'lane';
  _room        integer := _want->>'limit';
  _start       integer := _nth + coalesce((_want->>'start')::integer, 0);
  _look        integer := coalesce((_want->>'look')::integer, 1000);
  _timeout_s   double precision := coalesce((_want->>'timeout_s')::double precision, 300);
  _start_by_s  double precision := coalesce((_want->>'start_by_s')::double precision, 60);
  _cursor      text := coalesce(_want->>'cursor', '');
  _types       text[] := case when _want->>'types' is not null then array(select json_array_elements_text(_want->'types')) end;
  _queue       text;
  _band        smallint;
  _first       boolean;  -- in the first round, meeting tenants chunk by chunk
  _met_all     boolean;
  _wrapped     boolean;
  _last        text;
  _until       text;
  _tenants     text[];
  _alive       text[];
  _lines       line_mark[];
  _shares      integer[];
  _taken       integer[];
  _seen        line_mark[];
begin
  claimed := 0;
  marks := '{}';

  if _want->'takes' is not null then
    -- All at once; a line named a second time goes on where its first take ended, so it waits for the next round.
    for _lines, _shares in
      select array_agg((t.queue, t.band, t.tenant, coalesce((t.after->>3)::smallint, -1), coalesce((t.after->>4)::timestamptz, '-infinity'),
                        coalesce((t.after->>5)::bigint, -1), 0)::line_mark order by t.ord),
             array_agg(t."limit" order by t.ord)
      from (
        select t.*, row_number() over (partition by t.queue, t.band, t.tenant order by t.ord) as round
        from rows from (json_to_recordset(_want->'takes') as (queue text, band smallint, tenant text, "limit" integer, after json))
          with ordinality as t (queue, band, tenant, "limit", after, ord)
        where (_off.queues is null or t.queue <> all(_off.queues))
          and (_off.tenants is not true or (select p.name from pause p where p.kind = 'tenant' and p.name = t.tenant) is null)
      ) t
      group by t.round order by t.round
    loop
      exit when _room <= 0;
      _lines := (
        select array_agg(case when m.seq is null then (l.queue, l.band, l.tenant, l.rank, l.due_at, l.seq, l.looked)::line_mark
                              else (m.queue, m.band, m.tenant, m.rank, m.due_at, m.seq, m.looked)::line_mark end order by l.ord)
        from unnest(_lines) with ordinality as l (queue, band, tenant, rank, due_at, seq, looked, ord)
        left join unnest(marks) m on m.queue = l.queue and m.band = l.band and m.tenant = l.tenant);
      select k.taken, k.marks into _taken, _seen
      from take(_lines, _shares, _types, _off.types, _look, _room, false, _worker, _claim_no, _lane, _nth + claimed, _start, _timeout_s,
                _start_by_s, _now) k;
      marks := merge_marks(marks, looked_at(_lines, _seen, _taken, _shares, _look, _room));
      claimed := claimed + (select sum(t) from unnest(_taken) t);
      _room := (_want->>'limit')::integer - claimed;
    end loop;
  end if;
  if not coalesce((_want->>'discover')::boolean, true) then
    return;
  end if;

  for _queue in select json_array_elements_text(_want->'queues') loop
    continue when _queue = any(_off.queues);
    _band := -1;
    while _room > 0 loop
      select r.band into _band from ready r where r.queue = _queue and r.band > _band order by r.band limit 1;
      exit when not found;

      _first := true;
      _wrapped := _cursor = '';
      _last := _cursor;
      _alive := '{}';
      while _room > 0 loop
        if _first then
          _until := case when _wrapped and _cursor <> '' then _cursor end;
          _tenants := case when _off.tenants then open_tenants_behind(_queue, _band, _last, _until, _room)
                           else tenants_behind(_queue, _band, _last, _until, _room) end;
          if not _wrapped and cardinality(_tenants) < _room then
            _tenants := _tenants || case when _off.tenants then open_tenants_behind(_queue, _band, '', _cursor, _room - cardinality(_tenants))
                                         else tenants_behind(_queue, _band, '', _cursor, _room - cardinality(_tenants)) end;
            _wrapped := true;
          end if;
          _met_all := cardinality(_tenants) < _room;
          _last := _tenants[cardinality(_tenants)];
        else
          _tenants := _alive;
          _alive := '{}';
        end if;
        exit when cardinality(_tenants) = 0 and (not _first or cardinality(_alive) = 0);

        if cardinality(_tenants) > 0 then
          -- Whole rounds at once, when no other tenant is still to have its first.
          _shares := array_fill(
            case when _first and (not _met_all or cardinality(_alive) > 0) then 1 else greatest(_room / cardinality(_tenants), 1) end,
            array[cardinality(_tenants)]);
          _lines := lines_at(_queue, _band, _tenants, marks);
          select k.taken, k.marks into _taken, _seen
          from take(_lines, _shares, _types, _off.types, _look, _room, true, _worker, _claim_no, _lane, _nth + claimed, _start, _timeout_s,
                    _start_by_s, _now) k;
          marks := merge_marks(marks, looked_at(_lines, _seen, _taken, _shares, _look, _room));
          select claimed + coalesce(sum(t.taken), 0), _room - coalesce(sum(t.taken), 0),
                 coalesce((array_agg(t.tenant order by t.taken desc, t.ord desc) filter (where t.taken > 0))[1], served),
                 _alive || coalesce(array_agg(t.tenant order by t.ord) filter (where t.taken = _shares[1]), '{}')
          into claimed, _room, served, _alive
          from unnest(_tenants, _taken) with ordinality as t (tenant, taken, ord);
        end if;
        _first := _first and not _met_all;
      end loop;
    end loop;
  end loop;
end
$$;
