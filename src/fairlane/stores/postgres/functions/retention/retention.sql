-- retain_v1: remove finished jobs past their age, oldest first, with all their facts and keys.
-- role:   worker
-- moves:  retain completed | cancelled | dead -> removed
-- guard:  a dead job goes only with its closed dead letter
-- uses:   done_finished, dead_letter_closed, stat_minute_pkey, stat_half_hour_pkey
create or replace function retain_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _finished_before  timestamptz := (_op->>'finished_before')::timestamptz;
  _finished_from    timestamptz := coalesce((_op->>'finished_from')::timestamptz, '-infinity');
  _finished_to      timestamptz;
  _closed_before    timestamptz := (_op->>'closed_before')::timestamptz;
  _by_queue         json := nullif(_op->>'by_queue', '{}')::json;
  _last             timestamptz;
  _examined_to      timestamptz;
  _limit            integer := at_most(_op);
  _stats_before     timestamptz := (_op->>'stats_before')::timestamptz;
  _flows            boolean := exists (select from workflow);  -- plain jobs are not looked for among nodes
  _seqs             bigint[];
begin
  _last := greatest(_finished_before, (select max(value::timestamptz) from json_each_text(_by_queue)));
  if _by_queue is not null then
    select finished_at + interval '1 microsecond' into _examined_to from done
    where finished_at < _last and finished_at >= _finished_from and status <> 'dead'
    order by finished_at offset greatest((_op->>'examine')::integer, 1) - 1 limit 1;
  end if;
  select coalesce(array_agg(d.seq), '{}'), max(d.finished_at) into _seqs, _finished_to
  from (
    select seq, finished_at from done
    where finished_at < coalesce(_examined_to, _last) and finished_at >= _finished_from and status <> 'dead'
      and (_by_queue is null or finished_at < (
        select coalesce((_by_queue->>j.queue)::timestamptz, _finished_before) from job j where j.seq = done.seq))
      and not (_flows and is_wanted(seq))
    order by finished_at, seq limit _limit for update skip locked
  ) d;
  _last := greatest(_closed_before, (select max(value::timestamptz) from json_each_text(_by_queue)));
  _seqs := _seqs || array(
    select seq from dead_letter
    where closed_at < _last and (_by_queue is null or closed_at < (
        select coalesce((_by_queue->>j.queue)::timestamptz, _closed_before) from job j where j.seq = dead_letter.seq))
      and not (_flows and is_wanted(seq))
    order by closed_at, seq limit _limit - cardinality(_seqs) for update skip locked);
  delete from idempotency_key k using job j
  where j.seq = any(_seqs) and j.idempotency_key is not null and k.tenant = j.tenant and k.key = j.idempotency_key
    and k.seq = j.seq;
  delete from attempt where seq = any(_seqs);
  delete from note where seq = any(_seqs);
  delete from log_line where seq = any(_seqs);
  delete from step where seq = any(_seqs);
  delete from wait where seq = any(_seqs);
  delete from done where seq = any(_seqs);
  delete from dead_letter where seq = any(_seqs);
  delete from job where seq = any(_seqs);
  if _flows then
    perform remove_nodes(_seqs);
  end if;
  delete from stat_minute where ctid = any(array(
    select ctid from stat_minute where minute < _stats_before order by minute limit 2000));
  -- Half hours before the oldest minute left are read by nobody.
  delete from stat_half_hour where ctid = any(array(
    select ctid from stat_half_hour
    where half_hour < half_hour_of(least((select min(m.minute) from stat_minute m), _stats_before))
    order by half_hour limit 2000));
  return json_build_object('jobs', cardinality(_seqs), 'finished_to', _finished_to, 'examined_to', _examined_to,
    'more_stats', exists (select from stat_minute where minute < _stats_before));
end
$$;

-- is_wanted: a job is a node of a workflow that has not ended, or has something dead that can be tried again: its
--         result is wanted still.
-- uses:   node_seq, tally_pkey
create or replace function is_wanted(_seq bigint) returns boolean
language sql stable
set search_path from current
begin atomic
  select exists (
    select from node n join tally t on t.workflow = n.workflow
    where n.seq = _seq and t.total > t.completed + t.cancelled + t.skipped);
end;

-- remove_nodes: forget the nodes of removed jobs, and workflows with the last of theirs.
-- uses:   node_seq, node_pkey
create or replace function remove_nodes(_seqs bigint[]) returns void
language plpgsql
set search_path from current
as $$
declare
  _workflows bigint[];
begin
  with gone as (
    delete from node where seq = any(_seqs) returning workflow
  )
  select array_agg(distinct workflow) into _workflows from gone;
  _workflows := array(
    select w from unnest(_workflows) w where not exists (select from node n where n.workflow = w));
  delete from gate where workflow = any(_workflows);
  delete from tally where workflow = any(_workflows);
  delete from workflow where seq = any(_workflows);
end
$$;

-- purge_v1: remove everything; for tests.
create or replace function purge_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _count bigint := (select count(*) from job);
begin
  delete from ready; delete from scheduled; delete from held; delete from lease; delete from attempt; delete from done;
  delete from dead_letter; delete from idempotency_key; delete from dedup_key; delete from job; delete from note;
  delete from log_line; delete from step; delete from wait; delete from signal;
  delete from worker; delete from claim_made;
  delete from stat_minute; delete from stat_half_hour; delete from breaker; delete from schedule; delete from pause;
  delete from refusal; delete from workflow; delete from node; delete from gate; delete from tally;
  delete from limit_rule; delete from counted; delete from rate_use; delete from tenant; delete from knock;
  delete from credential; delete from duty; delete from alert; delete from silence;
  update rolled_up set seq = 0;
  update set_back set at = null, behind_s = 0, examined_to = null;
  update told set forgotten = greatest(forgotten, (select max(id) from event)), watched_until = null;
  delete from event;
  if exists (select from audit) then  -- only the owner of the tables can open the audit
    alter table audit disable trigger append_only; delete from audit; alter table audit enable trigger append_only;
    alter table audit_seal disable trigger append_only; delete from audit_seal;
    alter table audit_seal enable trigger append_only;
    alter table audit_unsealed disable trigger leaves_sealed; delete from audit_unsealed;
    alter table audit_unsealed enable trigger leaves_sealed;
  end if;
  return json_build_object('jobs', _count);
end
$$;

-- drop_results_v1: remove results of completed jobs of one type past their age; the jobs stay.
-- role:   worker
-- uses:   done_finished, job_pkey; see is_wanted
create or replace function drop_results_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _type    text := _op->>'type';
  _before  timestamptz := (_op->>'finished_before')::timestamptz;
  _at      timestamptz := (_op->>'at')::timestamptz;
  _seq     bigint := (_op->>'seq')::bigint;
  _limit   integer := at_most(_op);
  _answer  json;
begin
  with examined as materialized (
    select d.seq, d.finished_at,
           case when d.status = 'completed' and d.result is not null and j.type = _type
                then not is_wanted(d.seq) end as is_old  -- null: not concerned
    from done d join job j on j.seq = d.seq
    where d.finished_at < _before and d.status <> 'dead'
      and (_at is null or (d.finished_at, d.seq) > (_at, coalesce(_seq, -1)))
    order by d.finished_at, d.seq limit _limit
  ), dropped as (
    update done set result = null where seq in (select e.seq from examined e where e.is_old)
  ), last as (
    select finished_at, seq from examined order by finished_at desc, seq desc limit 1
  )
  select json_build_object(
      'dropped', (select count(*) filter (where is_old) from examined),
      'at', coalesce((select finished_at from last), _at),
      'seq', coalesce((select seq from last), _seq),
      'more', (select count(*) from examined) >= _limit,
      'left_at', (select min(finished_at) from examined where not is_old))
  into _answer;
  return _answer;
end
$$;
