-- promote: make due scheduled jobs ready, earliest first, at most `_limit`; returns how many.
-- moves:  promote scheduled -> ready | held
-- guard:  due_at <= now; a row another session is moving is passed over
-- uses:   scheduled_due
create or replace function promote(_limit integer, _now timestamptz) returns integer
language plpgsql
set search_path from current
set enable_seqscan = off
set jit = off
as $$
declare
  _count integer;
begin
  with due as (
    select ctid as tid from scheduled where due_at <= _now order by due_at, seq limit _limit for update skip locked
  ), moved as (
    delete from scheduled s using due where s.ctid = due.tid
    returning s.seq, s.queue, s.band, s.tenant, s.rank, s.due_at, s.type, s.attempt, s.attempts, s.crashes, s.suspect,
      s.deduped, s.timeout_s, s.put_off, s.key, s.key_nth
  ), now_ready as (
    insert into ready (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped,
      timeout_s, put_off, key, key_nth)
    select * from moved
  )
  select count(*) into _count from moved;
  return _count;
end
$$;

-- promote_v1: make due scheduled jobs ready, earliest first, at most `limit`, and return when the next is due.
-- role:   worker
create or replace function promote_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _limit  integer := (_op->>'limit')::integer;
  _now    timestamptz := now_of(_op);
  _count  integer := promote(_limit, _now);
begin
  return json_build_object('count', _count, 'next_due_at', (select min(due_at) from scheduled));
end
$$;
