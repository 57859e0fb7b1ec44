-- enqueue_one_v1: put one job in that has no keys. Its seq; or, where there is more to say, the answer of enqueue_v1.
-- role:   worker, api, enqueue
-- moves:  enqueue new -> ready | scheduled
-- guard:  job_id_key
-- uses:   job_id_key; see count_waiting
--
-- The call that applications make most. The fields come one by one, and each table has one plain statement: no json of
-- jobs is taken apart and no set of jobs is carried from statement to statement as in enqueue_v1. What is out of the
-- ordinary (a known id, limits that people have set, a tenant at its limit `_waiting`, a pause that refuses) is left to
-- enqueue_v1, before anything is written.
create or replace function enqueue_one_v1(
  _id uuid, _type text, _tenant text, _queue text, _priority smallint, _priority_scope text, _payload text,
  _payload_version integer, _max_attempts integer, _timeout_s double precision, _category text, _correlation_id text,
  _parent_id uuid, _created_by text, _refs json, _headers json, _retry json, _run_at timestamptz,
  _delay_s double precision, _at timestamptz, _notify text, _limits json, _waiting integer
) returns json
language plpgsql
set search_path from current
as $$
declare
  _now   timestamptz := instant_of(_at);
  _due   timestamptz := coalesce(_run_at, _now + _delay_s * interval '1 second', _now);
  _band  smallint := case when _priority_scope = 'tenant' then 0 else _priority end;
  _seq   bigint;
  _wake  boolean;
begin
  if _waiting is null or count_waiting(_tenant, _queue, _waiting, true) < _waiting then
    insert into job (id, type, tenant, queue, band, rank, payload, payload_version, max_attempts, timeout_s, category,
                     correlation_id, parent_id, created_by, refs, headers, retry, enqueued_at, due_at)
    select _id, _type, _tenant, _queue, _band, _priority - _band, _payload::json, _payload_version, _max_attempts,
           _timeout_s, _category, _correlation_id, _parent_id, _created_by, _refs, _headers, _retry, _now, _due
    where not exists (select from limit_rule where kind = 'tenant' union all select from refusal)  -- +0.9 us, apart 2.0
    on conflict (id) do nothing
    returning seq, _notify = 'always'
      or (_notify = 'if_waiting' and exists (select from worker where waiting)) into _seq, _wake;
    if _seq is not null then
      if _due <= _now then
        insert into ready (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped,
          timeout_s)
        values (_seq, _queue, _band, _tenant, _priority - _band, _due, _type, 0, 0, 0, false, false, _timeout_s);
      else
        insert into scheduled (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect,
          deduped, timeout_s, failed, since)
        values (_seq, _queue, _band, _tenant, _priority - _band, _due, _type, 0, 0, 0, false, false, _timeout_s, false,
          case when _run_at is null then _now end);
      end if;
      if _wake then
        perform pg_notify(current_schema() || '_wake', '');
      end if;
      return to_json(_seq);
    end if;
  end if;
  return enqueue_v1(
    json_build_array(json_build_object(
      'id', _id, 'type', _type, 'tenant', _tenant, 'queue', _queue, 'priority', _priority,
      'priority_scope', _priority_scope, 'payload_text', _payload, 'payload_version', _payload_version,
      'max_attempts', _max_attempts, 'timeout_s', _timeout_s, 'category', _category, 'correlation_id', _correlation_id,
      'parent_id', _parent_id, 'created_by', _created_by, 'refs', _refs, 'headers', _headers, 'retry', _retry,
    'run_at', _run_at, 'delay_s', _delay_s)), _now, null, _notify, _limits);
end
$$;
