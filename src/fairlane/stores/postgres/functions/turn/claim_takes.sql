-- What of a Want stays the same while it is served.
create type lane_want as (
  worker uuid, claim_no bigint, lane text, types text[], off_types text[], look integer, start integer, timeout_s double precision,
  start_by_s double precision, now timestamptz, by_tenant boolean, by_type boolean
);

-- on_from: the lines as they go on: behind the mark that this Want has left in them, or where they begin, whichever is further.
create or replace function on_from(_lines line_mark[], _marks line_mark[]) returns line_mark[]
language sql immutable
begin atomic
  select array_agg((l.queue, l.band, l.tenant,
                    case when m.seq is not null and (m.rank, m.due_at, m.seq) > (l.rank, l.due_at, l.seq) then m.rank else l.rank end,
                    case when m.seq is not null and (m.rank, m.due_at, m.seq) > (l.rank, l.due_at, l.seq) then m.due_at else l.due_at end,
                    case when m.seq is not null and (m.rank, m.due_at, m.seq) > (l.rank, l.due_at, l.seq) then m.seq else l.seq end,
                    coalesce(m.looked, l.looked))::line_mark order by l.ord)
  from unnest(_lines) with ordinality as l (queue, band, tenant, rank, due_at, seq, looked, ord)
  left join unnest(_marks) m on m.queue = l.queue and m.band = l.band and m.tenant = l.tenant;
end;

-- place_of: where a limit stands among others of its kind.
create or replace function place_of(_rules limit_room[], _name text) returns integer
language sql immutable
return (select r.ord from unnest(_rules) with ordinality as r (kind, name, queue, running, rate_count, period_s, paused_until, types, room, ord)
        where r.name = _name);

-- rate_of: a limit's rate as a claim counts under it; null: it has none.
create or replace function rate_of(_r limit_room) returns jsonb
language sql immutable
return case when _r.rate_count is not null then jsonb_build_array(jsonb_build_array(_r.kind, _r.name, '', _r.period_s)) end;

-- claim_takes: serve a Want's takes under limits, in their order.
-- moves:  claim ready -> leased
-- guard:  see take, meet and open_rules
-- uses:   see take
--
-- Takes are served together as far as none of them can change what the next one may have: one queue, each tenant once. Under limits of
-- types also no more than there is room for; a take that was cut, or in which a type became full, goes on first in the next lot.
create or replace function claim_takes(
  _w lane_want, _takes json, _off off_claims, _room integer, _nth integer, inout l claim_limits, out claimed integer, out marks line_mark[], out seqs bigint[]
)
language plpgsql
set search_path from current
as $$
declare
  _all      line_mark[];
  _left     integer[];
  _i        integer := 1;
  _next     integer;
  _here     integer;
  _most     integer;
  _q        integer;
  _queue    text;
  _rate     jsonb;
  _tenants  text[];
  _rooms    integer[];
  _theirs   jsonb[];
  _lines    line_mark[];
  _shares   integer[];
  _rates    jsonb[];
  _asked    integer;
  _cut      boolean;
  _at       integer[];  -- which of all the takes those of this lot are
  _taken    integer[];
  _seen     line_mark[];
  _these    bigint[];
  _sum      integer;
  _got      record;
begin
  claimed := 0;
  marks := '{}';
  select array_agg((t.queue, t.band, t.tenant, coalesce((t.after->>3)::smallint, -1), coalesce((t.after->>4)::timestamptz, '-infinity'),
                    coalesce((t.after->>5)::bigint, -1), 0)::line_mark order by t.ord),
         array_agg(t."limit" order by t.ord)
  into _all, _left
  from rows from (json_to_recordset(_takes) as (queue text, band smallint, tenant text, "limit" integer, after json))
    with ordinality as t (queue, band, tenant, "limit", after, ord)
  where (_off.queues is null or t.queue <> all(_off.queues))
    and (_off.tenants is not true or (select p.name from pause p where p.kind = 'tenant' and p.name = t.tenant) is null);

  while _i <= coalesce(cardinality(_all), 0) and claimed < _room loop
    _queue := _all[_i].queue;
    _tenants := '{}';
    _next := _i;
    while _next <= cardinality(_all) and _all[_next].queue = _queue and _all[_next].tenant <> all(_tenants) loop
      _tenants := array_append(_tenants, _all[_next].tenant);
      _next := _next + 1;
    end loop;
    _q := place_of(l.queues, _queue);
    _rate := rate_of(l.queues[_q]);
    _here := least(_room - claimed, l.queues[_q].room);
    if _w.by_tenant and _here > 0 then
      select * into _got from meet(_queue, _w.now, null, _tenants, l);
      _tenants := _got.tenants;
      _rooms := _got.rooms;
      _theirs := _got.rates;
      l := _got.l;
    end if;
    _lines := '{}';
    _shares := '{}';
    _rates := '{}';
    _at := '{}';
    _cut := false;
    _most := _here;
    for _k in _i .. _next - 1 loop
      if _here <= 0 then
        _next := case when _lines = '{}' then _next else _k end;
        exit;
      end if;
      _asked := least(_left[_k], _rooms[array_position(_tenants, _all[_k].tenant)], _here);
      continue when _asked <= 0 or array_position(_tenants, _all[_k].tenant) is null;
      _at := array_append(_at, _k);
      _lines := array_append(_lines, _all[_k]);
      _shares := array_append(_shares, _asked);
      _rates := array_append(_rates, case when _rate is null then _theirs[array_position(_tenants, _all[_k].tenant)]
                                          else _rate || coalesce(_theirs[array_position(_tenants, _all[_k].tenant)], '[]') end);
      if _w.by_type then
        _here := _here - _asked;
        if _asked < _left[_k] then
          _cut := true;
          _next := _k;
          exit;
        end if;
      end if;
    end loop;
    if _lines <> '{}' then
      if marks <> '{}' then
        _lines := on_from(_lines, marks);
      end if;
      if _w.by_type then
        select * into _got
        from take_by_type(_lines, _shares, _w.types, _w.off_types, _w.look, false, _w.worker, _w.claim_no, _w.lane, _nth + claimed,
                          _w.start, _w.timeout_s, _w.start_by_s, _w.now, _rates, l);
        l := _got.l;
        _shares := _got.shares;
        _taken := _got.taken;
        _seen := _got.marks;
        _these := _got.seqs;
        marks := merge_marks(marks, look_back(_seen, _taken, _shares, _w.look));
        if _got.stopped is not null then
          _cut := true;
          _next := _at[_got.stopped];
        end if;
      else
        select t.taken, t.marks, t.seqs into _taken, _seen, _these
        from take(_lines, _shares, _w.types, _w.off_types, _w.look, _most, false, _w.worker, _w.claim_no, _w.lane, _nth + claimed,
                  _w.start, _w.timeout_s, _w.start_by_s, _w.now, l, _rates) t;
        perform use_rates(_rates, _taken, _w.claim_no, _w.now);
        marks := merge_marks(marks, looked_at(_seen, _taken, _shares, _w.look, _most));
      end if;
      _sum := (select sum(t) from unnest(_taken) t);
      claimed := claimed + _sum;
      seqs := seqs || _these;
      if _q is not null then
        l.queues[_q].room := l.queues[_q].room - _sum;
      end if;
      if _cut then
        _here := array_position(_at, _next);
        _left[_next] := _left[_next] - _taken[_here];
        if _taken[_here] < _shares[_here] then
          _next := _next + 1;
        end if;
      end if;
    end if;
    _i := _next;
  end loop;
end
$$;
