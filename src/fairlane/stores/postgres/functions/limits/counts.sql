-- count_leases: how many leases one tenant has, in one queue or (null) in all, counted no further than `_limit`.
-- uses:   lease_tenant; where no limit over tenants is known, lease (small: as many rows as jobs in flight)
create or replace function count_leases(_tenant text, _queue text, _limit integer) returns integer
language plpgsql stable
set search_path from current
set enable_seqscan = on
as $$
begin
  if not exists (select from counted where kind = 'tenant') then
    return (select count(*)
      from (select from lease l where l.tenant = _tenant and (_queue is null or l.queue = _queue) limit _limit) l);
  elsif _queue is null then
    return (select count(*) from (select from lease l where l.counted > 0 and l.tenant = _tenant limit _limit) l);
  else
    return (select count(*)
      from (select from lease l where l.counted > 0 and l.tenant = _tenant and l.queue = _queue limit _limit) l);
  end if;
end
$$;

-- count_waiting: how many jobs of one tenant wait or run in one queue, counted no further than `_limit`.
-- uses:   ready_line (one probe for each band), scheduled_tenant, lease_tenant, held_line; reads no more than `_limit`
--         rows
create or replace function count_waiting(_tenant text, _queue text, _limit integer, _with_held boolean) returns integer
language plpgsql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  _n     integer := count_leases(_tenant, _queue, _limit);
  _band  smallint := -1;
begin
  -- Band by band: a recursive query over them took as long again as the counting.
  while _n < _limit loop
    select r.band into _band from ready r where r.queue = _queue and r.band > _band order by r.band limit 1;
    exit when not found;
    _n := _n + (select count(*)
      from (select from ready r where r.queue = _queue and r.band = _band and r.tenant = _tenant limit _limit - _n) r);
  end loop;
  if _n < _limit then
    _n := _n + (select count(*) from (
      (select from scheduled s where s.tenant = _tenant and s.queue = _queue limit _limit)
      union all
      (select from held h
       where (_with_held or h.key is not null) and h.queue = _queue and h.tenant = _tenant limit _limit)
    ) waiting);
  end if;
  return least(_limit, _n);
end
$$;
