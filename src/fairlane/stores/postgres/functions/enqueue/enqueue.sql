-- enqueue_v1: put jobs in, ready if due, else scheduled; one receipt each, in the order given.
-- role:   worker, api, enqueue
-- moves:  enqueue new -> ready | scheduled | held
-- guard:  job_id_key, idempotency_key_pkey, dedup_key_pkey; a taken key or id is a receipt, never an error
-- uses:   job_id_key
--
-- `payload_text`, a string that holds the payload's JSON, takes the place of `payload` where that has escapes no text
-- can hold (NUL, half a surrogate pair): reading the fields of `jobs` would refuse those.
--
-- `limits`: what the code allows to tenants, beside what people have set; `false`: no limit and no refusing pause is
-- looked at. Counting reads no more rows than a limit allows, and no row that others write to is written: an enqueue in
-- a long transaction holds nobody up.
--
-- `terms`: `limits` merged for these jobs by tenant and queue, where the caller has done so: saves doing it here.
--
-- select fairlane.enqueue_v1('[{"type": "mail.send", "payload": {"to": 7}, "delay_s": 30}]');
create or replace function enqueue_v1(
  jobs json, at timestamptz default null, capacity integer default null,
  notify text default 'if_waiting', limits json default null, terms json default null
) returns json
language plpgsql
set search_path from current
as $$
declare
  _now       timestamptz := instant_of(at);
  _depth     integer;
  _total     integer;
  _created   integer;
  _seqs      bigint[];
  _receipts  json;
  _groups    enqueue_group[];
  _refused   json;
  _careful   boolean := false;
  _detail    text;
begin
  if capacity is not null then
    select count(*) into _depth from (
      (select 1 from ready limit capacity) union all (select 1 from scheduled limit capacity)
      union all (select 1 from held limit capacity) limit capacity
    ) waiting;
    if _depth + json_array_length(jobs) > capacity then
      return json_build_object('full', true, 'depth', _depth);
    end if;
  end if;

  if limits::text is distinct from 'false' and exists (select from refusal) then
    _refused := refused_by_pause(jobs, _depth);
    if _refused is not null then
      return _refused;
    end if;
  end if;

  if (limits::text <> 'false' and terms::text is distinct from '[]')
    or (limits::text is distinct from 'false' and exists (select from limit_rule where kind = 'tenant')) then
    select g.groups, g.refused, g.careful into _groups, _refused, _careful from enqueue_groups(jobs, limits, terms) g;
    if _refused is not null then
      return json_build_object('refused', _refused, 'depth', _depth);
    end if;
  end if;

  if _careful then
    begin
      select e.created, e.receipts into _created, _receipts from enqueue_one_by_one(jobs, _now, _groups) e;
    exception when sqlstate 'FL001' then
      get stacked diagnostics _detail = pg_exception_detail;
      return json_build_object('refused', _detail::json, 'depth', _depth);
    end;
  -- The word may also stand in a payload; then the careful path is only slower. Reading the keys would parse the text
  -- a second time.
  elsif jobs::text ~ '"(idempotency_key|dedup_key|on_conflict)"' then
    select e.created, e.receipts into _created, _receipts from enqueue_one_by_one(jobs, _now, null) e;
  else
    with input as materialized (
      select * from json_to_recordset(jobs) as j (
        id uuid, type text, tenant text, queue text, priority smallint, priority_scope text, payload json,
        payload_text text, payload_version integer, max_attempts integer, timeout_s double precision, category text,
        correlation_id text, parent_id uuid, created_by text, refs json, headers json, retry json, run_at timestamptz,
        delay_s double precision, key json)
    ), added as (
      insert into job (id, type, tenant, queue, band, rank, payload, payload_version, max_attempts, timeout_s, category,
                       correlation_id, parent_id, created_by, refs, headers, retry, enqueued_at, due_at, key, key_terms)
      select coalesce(id, gen_random_uuid()), type, coalesce(tenant, 'system'), coalesce(queue, 'default'),
             case when priority_scope = 'tenant' then 0 else coalesce(priority, 5) end,
             case when priority_scope = 'tenant' then coalesce(priority, 5) else 0 end,
             coalesce(payload_text::json, payload, '{}'), coalesce(payload_version, 1), coalesce(max_attempts, 5),
             timeout_s, category, correlation_id, parent_id, created_by, refs, headers,
             case when id is null and max_attempts is null and retry is null then '{"by_policy":true}' else retry end,
             _now, coalesce(run_at, _now + delay_s * interval '1 second', _now), key_value(key), key_terms(key)
      from input
      on conflict (id) do nothing
      returning seq, id, queue, band, tenant, rank, due_at, type, timeout_s, key, key_nth(key_terms, seq) as key_nth
    ), now_ready as (
      insert into ready (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped,
        timeout_s, key, key_nth)
      select seq, queue, band, tenant, rank, due_at, type, 0, 0, 0, false, false, timeout_s, key, key_nth from added
      where due_at <= _now
    ), later as (
      insert into scheduled (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect,
        deduped, timeout_s, failed, since, key, key_nth)
      select seq, queue, band, tenant, rank, due_at, type, 0, 0, 0, false, false, timeout_s, false,
             case when due_at not in (select i.run_at from input i where i.run_at is not null) then _now end, key,
             key_nth
      from added
      where due_at > _now
    )
    select (select count(*) from input), count(*), array_agg(seq),
           json_agg(json_build_object('disposition', 'created', 'id', id, 'seq', seq))
    into _total, _created, _seqs, _receipts
    from added;
    if _created < _total then
      _receipts := enqueue_receipts(jobs, _seqs);
    end if;
  end if;

  if _created > 0 and (notify = 'always' or (notify = 'if_waiting' and exists (select from worker where waiting))) then
    perform pg_notify(current_schema() || '_wake', '');
  end if;
  if _groups <> '{}' then
    return json_build_object('receipts', coalesce(_receipts, '[]'), 'depth', _depth,
                             'hits', coalesce(limit_hits(jobs, _receipts, _groups), '[]'));
  end if;
  return json_build_object('receipts', coalesce(_receipts, '[]'), 'depth', _depth);
end
$$;
