-- job_specs: the jobs of a call in their order, with defaults for what is not given. A job with neither an id,
--         as clients give it, nor attempts or a policy says so in place of the policy: the worker gives it the attempts
--         of its task and queue, which SQL does not know.
create or replace function job_specs(jobs json, _now timestamptz) returns table (
  ord bigint, id uuid, type text, tenant text, queue text, band smallint, rank smallint, payload json,
  payload_version integer, max_attempts integer, timeout_s double precision, category text, idempotency_key text,
  dedup_key text, deduped boolean, correlation_id text, parent_id uuid, created_by text, refs json, headers json,
  retry json, due_at timestamptz, key text, key_terms json
)
language sql stable
begin atomic
  select j.ord, j.id, j.type, coalesce(j.tenant, 'system'), coalesce(j.queue, 'default'),
         case when j.priority_scope = 'tenant' then 0 else coalesce(j.priority, 5) end::smallint,
         case when j.priority_scope = 'tenant' then coalesce(j.priority, 5) else 0 end::smallint,
         coalesce(j.payload_text::json, j.payload, '{}'), coalesce(j.payload_version, 1), coalesce(j.max_attempts, 5),
         j.timeout_s, j.category, j.idempotency_key, j.dedup_key, j.dedup_key is not null, j.correlation_id,
         j.parent_id, j.created_by, j.refs, j.headers,
         case when j.id is null and j.max_attempts is null and j.retry is null then '{"by_policy":true}'
              else j.retry end,
         coalesce(j.run_at, _now + j.delay_s * interval '1 second', _now), key_value(j.key), key_terms(j.key)
  from rows from (json_to_recordset(jobs) as (
    id uuid, type text, tenant text, queue text, priority smallint, priority_scope text, payload json,
    payload_text text, payload_version integer, max_attempts integer, timeout_s double precision, category text,
    idempotency_key text, dedup_key text, correlation_id text, parent_id uuid, created_by text, refs json,
    headers json, retry json, run_at timestamptz, delay_s double precision, key json)) with ordinality
    as j (id, type, tenant, queue, priority, priority_scope, payload, payload_text, payload_version, max_attempts,
          timeout_s, category, idempotency_key, dedup_key, correlation_id, parent_id, created_by, refs, headers,
          retry, run_at, delay_s, key, ord);
end;

-- fixed_instants: when jobs of a call are due that name the instant; delays are counted from the enqueue.
create or replace function fixed_instants(jobs json) returns timestamptz[]
language sql immutable
return array(select run_at from json_to_recordset(jobs) as j (run_at timestamptz) where run_at is not null);

-- free_keys: take back the keys of a job that is not enqueued after all; true.
-- uses:   idempotency_key_pkey, dedup_key_pkey
create or replace function free_keys(
  _tenant text, _type text, _idempotency_key text, _dedup_key text, _seq bigint
) returns boolean
language sql
set search_path from current
begin atomic
  delete from idempotency_key where tenant = _tenant and key = _idempotency_key and seq = _seq;
  delete from dedup_key where tenant = _tenant and type = _type and key = _dedup_key and seq = _seq;
  select true;
end;

-- enqueue_one_by_one: the careful path of enqueue_v1, for calls with keys, and for those that may have to be held or
--         refused.
-- moves:  enqueue new -> ready | scheduled | held
-- guard:  job_id_key, idempotency_key_pkey, dedup_key_pkey
-- uses:   job_id_key
--
-- Of two jobs with one key the first given wins, and jobs are numbered in the order given. Keys are taken in their own
-- order where that changes nothing: in the order given, calls with the same keys deadlocked (16 processes, ten keys a
-- call: until one gave up). Calls with keys of both kinds, or that a limit may hold back, still may; the client repeats
-- them, ids make that safe. A refusal is raised as FL001, for the caller to catch.
create or replace function enqueue_one_by_one(
  jobs json, _now timestamptz, _groups enqueue_group[], out created integer, out receipts json
)
language plpgsql
set search_path from current
as $$
declare
  _j    record;
  _old  job;
  _all  json[] := array_fill(null::json, array[json_array_length(jobs)]);
  _one  json;
  _g    integer;
  _full boolean;
  _hold boolean;
  _fixed timestamptz[];
  _sort boolean := _groups is null and (
    select num_nonnulls(max(j.idempotency_key), max(j.dedup_key)) = 1 and count(*) > 1
      and count(distinct j.id) = count(j.id)
    from json_to_recordset(jobs) as j (id uuid, idempotency_key text, dedup_key text));
begin
  created := 0;
  for _j in
    select * from (  -- numbered before it is sorted
      select nextval(pg_get_serial_sequence('job', 'seq')) as seq, j.* from job_specs(jobs, _now) j
    ) j
    order by case when _sort
      then (j.tenant, j.idempotency_key, case when j.dedup_key is not null then j.type end, j.dedup_key) end, j.ord
  loop
    _one := null;
    _j.id := coalesce(_j.id, gen_random_uuid());
    -- A key or id that another session is just inserting makes us wait for its commit; if that session rolled back, or
    -- the key was freed meanwhile, we go round again.
    for _try in 1 .. 20 loop
      select * into _old from job where id = _j.id;
      if found then
        _one := json_build_object('id', _j.id, 'seq', _old.seq, 'disposition', case
          when _old.type = _j.type and _old.tenant = _j.tenant and _old.queue = _j.queue
               and _old.band + _old.rank = _j.band + _j.rank and _old.payload::text = _j.payload::text
               and _old.idempotency_key is not distinct from _j.idempotency_key
               and _old.dedup_key is not distinct from _j.dedup_key and _old.parent_id is not distinct from _j.parent_id
          then 'replayed' else 'conflict' end);
        exit;
      end if;
      if _j.idempotency_key is not null then
        insert into idempotency_key (tenant, key, seq) values (_j.tenant, _j.idempotency_key, _j.seq)
        on conflict do nothing;
        if not found then
          select json_build_object('disposition', 'duplicate', 'id', o.id, 'seq', o.seq, 'key', 'idempotency') into _one
          from idempotency_key k join job o on o.seq = k.seq
          where k.tenant = _j.tenant and k.key = _j.idempotency_key and o.id <> _j.id;
          exit when found;
          continue;
        end if;
      end if;
      if _j.dedup_key is not null then
        insert into dedup_key (tenant, type, key, seq) values (_j.tenant, _j.type, _j.dedup_key, _j.seq)
        on conflict do nothing;
        if not found then
          perform free_keys(_j.tenant, _j.type, _j.idempotency_key, null, _j.seq);
          select json_build_object('disposition', 'duplicate', 'id', o.id, 'seq', o.seq, 'key', 'dedup') into _one
          from dedup_key k join job o on o.seq = k.seq
          where k.tenant = _j.tenant and k.type = _j.type and k.key = _j.dedup_key and o.id <> _j.id;
          exit when found;
          continue;
        end if;
      end if;
      _one := meet_key(_j.tenant, _j.key, _j.key_terms, _now);
      exit when _one is not null and free_keys(_j.tenant, _j.type, _j.idempotency_key, _j.dedup_key, _j.seq);
      insert into job (seq, id, type, tenant, queue, band, rank, payload, payload_version, max_attempts, timeout_s,
                       category, idempotency_key, dedup_key, correlation_id, parent_id, created_by, refs, headers,
                       retry, enqueued_at, due_at, key, key_terms)
      values (_j.seq, _j.id, _j.type, _j.tenant, _j.queue, _j.band, _j.rank, _j.payload, _j.payload_version,
              _j.max_attempts, _j.timeout_s, _j.category, _j.idempotency_key, _j.dedup_key, _j.correlation_id,
              _j.parent_id, _j.created_by, _j.refs, _j.headers, _j.retry, _now, _j.due_at, _j.key, _j.key_terms)
      on conflict (id) do nothing;
      continue when not found and free_keys(_j.tenant, _j.type, _j.idempotency_key, _j.dedup_key, _j.seq);
      if _groups is not null then
        _g := (
          select g.ordinality from unnest(_groups) with ordinality g
          where g.tenant = _j.tenant and g.queue = _j.queue);
      end if;
      _full := _g is not null and _groups[_g].found + _groups[_g].created >= _groups[_g].waiting;
      if _full and _groups[_g].when_full = 'reject' then
        raise exception using errcode = 'FL001', message = 'a limit refused the call',
          detail = limit_hit(_groups[_g])::text;
      end if;
      _hold := _full and _groups[_g].when_full = 'hold';
      if _g is not null then
        _groups[_g].created := _groups[_g].created + 1;
      end if;
      if _hold then
        insert into held (seq, queue, band, tenant, rank, due_at, type, deduped, timeout_s)
        values (_j.seq, _j.queue, _j.band, _j.tenant, _j.rank, _j.due_at, _j.type, _j.deduped, _j.timeout_s);
      elsif _j.due_at <= _now then
        insert into ready (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped,
                           timeout_s, key, key_nth)
        values (_j.seq, _j.queue, _j.band, _j.tenant, _j.rank, _j.due_at, _j.type, 0, 0, 0, false, _j.deduped,
                _j.timeout_s, _j.key, key_nth(_j.key_terms, _j.seq));
      else
        _fixed := coalesce(_fixed, fixed_instants(jobs));
        insert into scheduled (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect,
                               deduped, timeout_s, failed, since, key, key_nth)
        values (_j.seq, _j.queue, _j.band, _j.tenant, _j.rank, _j.due_at, _j.type, 0, 0, 0, false, _j.deduped,
                _j.timeout_s, false, case when _j.due_at <> all(_fixed) then _now end, _j.key,
                key_nth(_j.key_terms, _j.seq));
      end if;
      _one := case when _hold then json_build_object('disposition', 'created', 'id', _j.id, 'seq', _j.seq, 'held', true)
                   else json_build_object('disposition', 'created', 'id', _j.id, 'seq', _j.seq) end;
      created := created + 1;
      exit;
    end loop;
    if _one is null then
      raise exception using errcode = '40001', message = 'a key of job ' || _j.id || ' kept changing hands';
    end if;
    _all[_j.ord] := _one;
  end loop;
  receipts := array_to_json(_all);
end
$$;
