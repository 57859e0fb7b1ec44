-- enqueue_alike_v1: put jobs in that have no keys and differ in id and payload alone. Their seqs in the order given;
--         or, where there is more to say, the answer of enqueue_v1.
-- role:   worker, api, enqueue
-- moves:  enqueue new -> ready | scheduled
-- guard:  job_id_key
-- uses:   job_id_key; see count_waiting
--
-- What the jobs share is written once in the call, and payloads are one array: taking a json of each job apart as in
-- enqueue_v1 costs a third of the whole. A plain insert, not `on conflict`, which adds 1.6 us to each job. What is out
-- of the ordinary (a known id, limits that people have set, a limit `_waiting` that this call passes, a pause that
-- refuses) is left to enqueue_v1, with nothing written before.
create or replace function enqueue_alike_v1(
  _ids uuid[], _type text, _tenant text, _queue text, _priority smallint, _priority_scope text, _payloads json,
  _payload_version integer, _max_attempts integer, _timeout_s double precision, _category text, _correlation_id text,
  _parent_id uuid, _created_by text, _refs json, _headers json, _retry json, _run_at timestamptz,
  _delay_s double precision, _at timestamptz, _notify text, _limits json, _waiting integer
) returns json
language plpgsql
set search_path from current
as $$
declare
  -- Of the columns' own types: a value is checked once and not for every row.
  _now      timestamptz := instant_of(_at);
  _due      reasonable_instant := coalesce(_run_at, _now + _delay_s * interval '1 second', _now);
  _band     priority_part := case when _priority_scope = 'tenant' then 0 else _priority end;
  _rank     priority_part := _priority - _band;
  _owner    tenant_name := _tenant;
  _most     attempt_limit := _max_attempts;
  _timeout  reasonable_timeout := _timeout_s;
  _seqs     bigint[];
  _wake     boolean;
begin
  if (_waiting is null or count_waiting(_tenant, _queue, _waiting, true) + cardinality(_ids) <= _waiting)
    and not exists (select from limit_rule where kind = 'tenant' union all select from refusal) then
    begin
      with added as (
        insert into job (id, type, tenant, queue, band, rank, payload, payload_version, max_attempts, timeout_s,
                         category, correlation_id, parent_id, created_by, refs, headers, retry, enqueued_at, due_at)
        select j.id, _type, _owner, _queue, _band, _rank, j.payload, _payload_version, _most, _timeout,
               _category, _correlation_id, _parent_id, _created_by, _refs, _headers, _retry, _now, _due
        from rows from (unnest(_ids), json_array_elements(_payloads)) as j (id, payload)
        returning seq
      ), now_ready as (
        insert into ready (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped,
          timeout_s)
        select seq, _queue, _band, _tenant, _rank, _due, _type, 0, 0, 0, false, false, _timeout from added
        where _due <= _now
      ), later as (
        insert into scheduled (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect,
          deduped, timeout_s, failed, since)
        select seq, _queue, _band, _tenant, _rank, _due, _type, 0, 0, 0, false, false, _timeout, false,
               case when _run_at is null then _now end
        from added
        where _due > _now
      )
      select array_agg(seq),
             _notify = 'always' or (_notify = 'if_waiting' and exists (select from worker where waiting))
      into _seqs, _wake from added;
      if _wake then
        perform pg_notify(current_schema() || '_wake', '');
      end if;
      return array_to_json(_seqs);
    exception when unique_violation then
      null;  -- an id that is known, or twice in this call
    end;
  end if;
  return enqueue_v1(
    (select json_agg(json_build_object(
      'id', j.id, 'type', _type, 'tenant', _tenant, 'queue', _queue, 'priority', _priority,
      'priority_scope', _priority_scope, 'payload_text', j.payload::text, 'payload_version', _payload_version,
      'max_attempts', _max_attempts, 'timeout_s', _timeout_s, 'category', _category, 'correlation_id', _correlation_id,
      'parent_id', _parent_id, 'created_by', _created_by, 'refs', _refs, 'headers', _headers, 'retry', _retry,
      'run_at', _run_at, 'delay_s', _delay_s) order by j.ord)
    from rows from (unnest(_ids), json_array_elements(_payloads)) with ordinality as j (id, payload, ord)),
    _now, null, _notify, _limits);
end
$$;
