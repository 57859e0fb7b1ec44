-- reprocess_v1: make a new job of a dead one; one live reprocess for each dead letter.
-- role:   api
-- moves:  enqueue new -> ready | scheduled | held
-- guard:  the letter's row is locked first: of two clicks the second sees what the first did
create or replace function reprocess_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _tenant   text := scope_of(_op);
  _seq      bigint := row_id(_op->>'id');
  _new_id   uuid := (_op->>'new_job_id')::uuid;
  _by       text := _op->>'by';
  _notes    text := _op->>'notes';
  _payload  json := coalesce(_op->>'payload_text', _op->>'payload')::json;
  _delay_s  double precision := (_op->>'delay_s')::double precision;
  _now      timestamptz := now_of(_op);
  _d        dead_letter;
  _j        job;
  _last     bigint;
  _fate     text;
  _n        integer;
  _key      text;
  _new      bigint;
  _before   json;
  _waits    boolean;  -- null: it is no node's
  _due      timestamptz := _now + coalesce(_delay_s, 0) * interval '1 second';
  _attempt  integer;
begin
  select * into _j from job where seq = _seq and (_tenant is null or tenant = _tenant);
  select * into _d from dead_letter where seq = _seq and _j.seq is not null for update;
  if not found then
    return dead_letter_act('not_found', null, null, false);
  end if;
  select seq into _last from job where id = _d.reprocessed_as;
  select status into _fate from done where seq = _last;
  if _last is not null and _d.status = 'retried'
    and (_d.reprocessed_as = _new_id or _fate is null or _fate = 'completed') then
    return dead_letter_act(null, _seq, _last, true);
  end if;
  _before := json_build_object('status', _d.status, 'acknowledged_by', _d.acknowledged_by);
  perform write_audit('job_dlq_reprocess_requested', _by, _notes, _j.tenant, 'dead_letter:' || _seq, _before, null,
    _now);
  if _d.status in ('resolved', 'discarded') or exists (select from job where id = _new_id) or has_other_job(_j) then
    return dead_letter_act('not_allowed', _seq, null, false);
  end if;

  _new := nextval(pg_get_serial_sequence('job', 'seq'));
  _n := _d.reprocess_count;
  loop
    _n := _n + 1;
    _key := coalesce(_j.idempotency_key, _j.id::text) || '_retry_' || _n;
    insert into idempotency_key (tenant, key, seq) values (_j.tenant, _key, _new) on conflict do nothing;
    exit when found;
  end loop;
  insert into job (seq, id, type, tenant, queue, band, rank, payload, payload_version, max_attempts, timeout_s,
                   category, idempotency_key, correlation_id, parent_id, created_by, refs, headers, retry, enqueued_at,
                   due_at, key, key_terms, key_order)
  values (_new, _new_id, _j.type, _j.tenant, _j.queue, _j.band, _j.rank, coalesce(_payload, _j.payload),
          _j.payload_version, _j.max_attempts, _j.timeout_s, _j.category, _key,
          coalesce(_j.correlation_id, _j.id::text), _j.parent_id, _by, _j.refs, _j.headers, _j.retry, _now, _due,
          _j.key, _j.key_terms, coalesce(_j.key_order, _seq));
  insert into step (seq, n, kind, name, key, attempt, at, ran_s, result, until, signal)
  select _new, n, kind, name, key, attempt, at, ran_s, result, until, signal from step where seq = _seq;
  -- With steps of another job its attempts begin behind the first: that is how a worker knows of them.
  _attempt := case when found then 1 else 0 end;
  _waits := replace_job(_seq, _new);
  if _waits then
    insert into held (seq, queue, band, tenant, rank, due_at, type, deduped, timeout_s)
    values (_new, '', _j.band, _j.tenant, _j.rank, _due, _j.type, true, _j.timeout_s);
  elsif _due <= _now then
    insert into ready (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped,
      timeout_s, key, key_nth)
    values (_new, _j.queue, _j.band, _j.tenant, _j.rank, _due, _j.type, _attempt, 0, 0, false, _waits is not null,
      _j.timeout_s, _j.key, key_nth(_j.key_terms, coalesce(_j.key_order, _seq)));
  else
    insert into scheduled (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped,
      timeout_s, failed, since, key, key_nth)
    values (_new, _j.queue, _j.band, _j.tenant, _j.rank, _due, _j.type, _attempt, 0, 0, false, _waits is not null,
      _j.timeout_s, false, _now, _j.key, key_nth(_j.key_terms, coalesce(_j.key_order, _seq)));
  end if;
  update dead_letter set status = 'retried', closed_by = _by, closed_at = _now, notes = _notes,
    reprocess_count = _d.reprocess_count + 1, reprocessed_as = _new_id, key = null
  where seq = _seq;
  if _d.key is not null then
    perform knock_at(_j.tenant, _d.key);
  end if;
  perform write_audit(
    'job_dlq_reprocess_success', _by, _notes, _j.tenant, 'dead_letter:' || _seq, _before,
    case when _payload::text <> _j.payload::text
         then json_build_object('status', 'retried', 'acknowledged_by', _d.acknowledged_by, 'new_job_id', _new_id,
           'payload_edited', true)
         else json_build_object('status', 'retried', 'acknowledged_by', _d.acknowledged_by, 'new_job_id', _new_id) end,
           _now);
  perform wake_waiting();
  return dead_letter_act(null, _seq, _new, false);
end
$$;
