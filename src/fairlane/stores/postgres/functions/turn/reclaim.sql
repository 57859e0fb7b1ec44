-- reclaim_lapsed: take back the leases of workers whose heartbeat lapsed, oldest heartbeat first, at most `_limit`.
-- moves:  reclaim leased -> ready | dead | cancelled
-- guard:  worker.expires_at <= now, its row locked: a Turn of that worker is over or has not begun
-- uses:   see leases_of
--
-- A worker's row goes with its last lease, in this statement's transaction: leases never outlive their row unseen.
create or replace function reclaim_lapsed(_limit integer, _now timestamptz, _max_crashes integer) returns json
language plpgsql
set search_path from current
set enable_seqscan = off
set jit = off
as $$
declare
  _w     uuid;
  _most  integer;
  _seqs  bigint[];
  _some  json;
  _all   jsonb := '[]';
begin
  for _w in select id from worker where expires_at <= _now order by expires_at, id for update skip locked loop
    _most := _limit - jsonb_array_length(_all);
    exit when _most <= 0;
    _seqs := leases_of(_w, _limit => _most + 1);
    if cardinality(_seqs) <= _most then
      perform forget_worker(_w);
    end if;
    _seqs := _seqs[:_most];
    if _seqs <> '{}' then
      _some := take_back(_seqs, 'worker_gone', _now, _max_crashes);
      _all := _all || coalesce(_some::jsonb, '[]');
    end if;
  end loop;
  return _all;
end
$$;

-- reclaim_v1: all that nobody is working on any more: lapsed workers' leases, orphans, and leases past their deadline.
-- role:   worker
-- moves:  reclaim leased -> ready | dead | cancelled
-- uses:   lease (small: as many rows as jobs in flight)
create or replace function reclaim_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _limit  integer := (_op->>'limit')::integer;
  _now    timestamptz := now_of(_op);
  _all    jsonb := reclaim_lapsed(_limit, _now, 3);
  _seqs   bigint[];
  _cause  text;
begin
  foreach _cause in array array['worker_gone', 'past'] loop
    exit when jsonb_array_length(_all) >= _limit;
    select array_agg(seq) into _seqs from (
      select l.seq from lease l
      where case _cause when 'worker_gone' then not exists (select from worker w where w.id = l.worker)
        else l.deadline_at <= _now end
      order by l.seq limit _limit - jsonb_array_length(_all) for update skip locked
    ) l;
    continue when _seqs is null;
    if _cause = 'worker_gone' then
      _all := _all || take_back(_seqs, _cause, _now, 3)::jsonb;
    else
      _all := _all || (
        select jsonb_agg(e order by (e->>'seq')::bigint) from (
          select jsonb_array_elements(coalesce(take_back(s.seqs, s.cause, _now, 3)::jsonb, '[]')) as e
          from (
            select array_agg(seq) as seqs,
              case when started_at is null then 'start_by_passed' else 'deadline_passed' end as cause
            from lease where seq = any(_seqs) group by 2
          ) s
        ) t);
    end if;
  end loop;
  perform end_nodes(ended_of(_all), _now);
  return json_build_object('reclaimed', _all);
end
$$;
