-- holds_lease: whether the attempt that an operation names holds its lease, which then stays until the caller's commit.
-- guard:  lease (seq, attempt, claim_no, worker) exists; older code names no claim, nor who adds nodes a worker
-- uses:   lease_pkey
create or replace function holds_lease(_op json) returns boolean
language plpgsql
set search_path from current
as $$
begin
  perform from lease l
  where l.seq = (_op->>'seq')::bigint and l.attempt = (_op->>'attempt')::integer
    and l.worker = coalesce((_op->>'worker')::uuid, l.worker)
    and l.claim_no = coalesce((_op->>'claim_no')::bigint, l.claim_no)
  for key share;
  return found;
end
$$;

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

-- note_claim: remember the number of a claim, and how many leases that limits on running count its worker has at most.
-- uses:   claim_made_pkey; for the first claim of each 64 numbers lease (small: as many rows as jobs in flight)
--
-- By that number a Turn under a wide limit knows how many leases there are at most, without counting them. It errs
-- upwards, until the next look at `lease`: by claims that no limit counts, by what ended in a Turn that claimed
-- nothing, and by what was taken back. Where it is known once, it stays known: a worker that never claims again would
-- else let all others count. (tests/faults/test_held_leases.py)
-- `_claimed`, `_freed`: what this Turn has claimed and how many counted leases it has ended; null: none are counted.
create or replace function note_claim(
  _worker uuid, _claim_no bigint, _last bigint, _claimed bigint[], _freed integer
) returns void
language plpgsql
as $$
declare
  _held integer;
begin
  if _claimed is not null then
    if _claim_no / 64 = _last / 64 then
      _held := cardinality(_claimed) - coalesce(_freed, 0) + (
        select c.held from claim_made c where c.worker = _worker and c.claim_no = _last and _last < _claim_no);
    end if;
    if _held is null then
      _held := (select count(*) from lease l where l.worker = _worker and l.counted > 1);
    end if;
  end if;
  with made as (
    insert into claim_made as m (worker, claim_no, held) values (_worker, _claim_no, _held)
    on conflict (worker, claim_no) do update set held = excluded.held  -- repeated: counted above
  )
  delete from claim_made where worker = _worker and claim_no = _last and _last < _claim_no;
end
$$;

-- held_by_all: how many leases limits on running count at most; null: not known.
-- uses:   claim_made (small: a row for each worker)
create or replace function held_by_all() returns integer
language plpgsql
as $$
begin
  return (select case when count(*) = count(c.held) then coalesce(sum(c.held), 0) end from claim_made c);
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
