-- Tenants' lines as a claim goes through them. Discovery skips paused tenants here.

-- claim_line: one tenant's line in one queue and band.
create type claim_line as (
  queue text, band smallint, tenant text,
  rank smallint, due_at timestamptz, seq bigint,  -- its mark: the last row looked at
  looked integer,   -- how many rows of it this Want has looked at
  room integer,     -- how many more jobs its tenant may have here; null: any number
  rates jsonb,      -- what its claims count under: [kind, name, queue, period_s], …
  share integer,    -- how many more jobs a Want's take asks of it; null: as many as its turns give it
  moved boolean,    -- the last take looked at rows of it
  ended boolean     -- it had fewer jobs than the last take asked for
);

-- tenants_after: up to `_limit` tenants with ready jobs in one band, by name, behind `_after` and up to `_until`.
-- uses:   ready_line, one probe for each tenant however long its line; pause_pkey
--
-- `_head` names the band and its first row: entries of rows claimed lately stay in the index until it is vacuumed, and
-- a probe from before that row walks over all of them.
--
-- `_skip_paused` leaves paused tenants out. It probes tenant by tenant until it meets a paused one, then reads windows
-- of 50 rows until it is past the paused ones: 10,000 paused tenants with one job each took 200 ms by probes.
create or replace function tenants_after(
  _head claim_line, _after text, _until text, _limit integer, _skip_paused boolean default false
) returns text[]
language plpgsql
as $$
declare
  _queue  text := _head.queue;
  _band   smallint := _head.band;
begin
  if _skip_paused then
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
            where r.queue = _queue and r.band = _band and r.tenant > s.last
              and (_until is null or r.tenant <= _until collate "C")
            order by r.tenant limit case when s.open = '{}' then 50 else 1 end
          ) r
        ) w
        where s.last is not null
      )
      select t.tenant from seen s cross join unnest(s.open) as t (tenant)
      where t.tenant > _after collate "C" limit _limit
    );
  end if;
  return array(
    with recursive found (tenant) as (
      select case when _after collate "C" < (_head).tenant
        then (select r.tenant from ready r
              where r.queue = _queue and r.band = _band
                and (r.tenant, r.rank, r.due_at, r.seq)
                    >= ((_head).tenant collate "C", (_head).rank, (_head).due_at, (_head).seq)
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

-- tenants_around: the same behind `_served`, and then from the first one up to it.
create or replace function tenants_around(
  _head claim_line, _served text, _limit integer, _skip_paused boolean default false
) returns text[]
language plpgsql
as $$
declare
  _found text[] := tenants_after(_head, _served, null, _limit, _skip_paused);
begin
  if cardinality(_found) < _limit then
    _found := _found || tenants_after(_head, '', _served, _limit - cardinality(_found), _skip_paused);
  end if;
  return _found;
end
$$;

-- resume_lines: moves lines on to the marks that this Want has left in them, unless they begin behind those.
--
-- Here and in merge_marks joins are hashed, which a Turn's settings forbid: with nested loops a Turn that skipped the
-- lines of 2,000 tenants, a hundred at a time, took 350 ms; hashed, 53.
create or replace function resume_lines(_lines claim_line[], _marks claim_line[]) returns claim_line[]
language plpgsql immutable
set enable_hashjoin = on
set enable_nestloop = off
as $$
begin
  return (
    select coalesce(array_agg((l.queue, l.band, l.tenant,
      case when l.is_behind then l.mark_rank else l.rank end,
      case when l.is_behind then l.mark_due_at else l.due_at end,
      case when l.is_behind then l.mark_seq else l.seq end,
      coalesce(l.mark_looked, l.looked), null, null, l.share, false, false
    )::claim_line order by l.ord), '{}')
    from (
      select l.*, m.rank as mark_rank, m.due_at as mark_due_at, m.seq as mark_seq, m.looked as mark_looked,
             (l.rank, l.due_at, l.seq) < (m.rank, m.due_at, m.seq) as is_behind
      from unnest(_lines) with ordinality
        as l (queue, band, tenant, rank, due_at, seq, looked, room, rates, share, moved, ended, ord)
      left join unnest(_marks) m on m.queue = l.queue and m.band = l.band and m.tenant = l.tenant
    ) l
  );
end
$$;

-- merge_marks: the latest mark of each line: `_new` where a line has moved, else `_old`.
create or replace function merge_marks(_old claim_line[], _new claim_line[]) returns claim_line[]
language plpgsql immutable
set enable_hashjoin = on
set enable_nestloop = off
as $$
begin
  if _old = '{}' and cardinality(_new) = 1 and _new[1].moved then
    return _new;  -- the common claim: from one line
  end if;
  return array(
    select n from unnest(_new) n where n.moved
    union all
    select o from unnest(_old) o
    left join unnest(_new) n on n.queue = o.queue and n.band = o.band and n.tenant = o.tenant and n.moved
    where n.moved is null
  );
end
$$;

-- open_lines: the lines that may have more to give.
create or replace function open_lines(_lines claim_line[]) returns claim_line[]
language plpgsql immutable
as $$
begin
  return array(select l from unnest(_lines) l where not l.ended and least(l.room, l.share) is distinct from 0);
end
$$;
