-- leases_of: a worker's leases, or those of one of its claims, by seq and locked.
-- uses:   lease (small: as many rows as jobs in flight)
--
-- The core of the lost-reply path: a Turn sent again with the same (worker, claim_no) is answered with these leases,
-- and claims only if there are none. Reclaiming finds with it what a lapsed worker still holds.
--
-- There is no index by worker: it cost every claimed job 0.5 to 0.9 us of the server's time, and this is asked only
-- when a worker has lapsed or a reply was lost.
create or replace function leases_of(
  _worker uuid, _claim_no bigint default null, _limit integer default null
) returns bigint[]
language plpgsql
set search_path from current
set enable_seqscan = on
as $$
begin
  return array(
    select seq from lease where worker = _worker and (_claim_no is null or claim_no = _claim_no)
    order by seq limit _limit for update);
end
$$;

-- forget_worker: remove a worker and the numbers of its claims; its leases are ended by the same call.
create or replace function forget_worker(_worker uuid) returns void
language plpgsql
set search_path from current
as $$
begin
  delete from claim_made where worker = _worker;
  delete from worker where id = _worker;
end
$$;
