-- key_value: the value of a job's key as an enqueue gives it: a text, or an object with the field `value`.
create or replace function key_value(_key json) returns text
language plpgsql immutable
as $$
declare
  _value text := case json_typeof(_key) when 'object' then _key->>'value' when 'string' then _key #>> '{}' end;
begin
  if _key is null or json_typeof(_key) = 'null' then
    return null;
  elsif _value is null or split_part(_value, ':', 1) = '' or octet_length(_value) > 512 then
    raise exception 'key %: expected a text of 1 to 512 bytes, such as "customer:42", or {"value": "customer:42"}', _key
      using errcode = 'invalid_parameter_value';
  end if;
  return _value;
end
$$;

-- key_terms: the rest of what an enqueue gives; null: one place.
create or replace function key_terms(_key json) returns json
language sql immutable parallel safe
return case when json_typeof(_key) = 'object' then _key end;

-- key_nth: the place of a job in the order of its key; null: that is not ordered.
create or replace function key_nth(_terms json, _order bigint) returns bigint
language sql immutable parallel safe
return case when (_terms->>'ordered')::boolean then _order end;

-- meet_key: what a new job does where the unfinished jobs with its key are as many as run at once: it is a duplicate
--         (the receipt), or ends those that do not run and asks the others to cancel.
-- moves:  cancel ready -> cancelled, cancel scheduled -> cancelled, cancel held -> cancelled
-- guard:  a lock on the key, until the commit: of two calls at the same time the second sees what the first did
-- uses:   held_key, scheduled_key, ready_key, lease_key
create or replace function meet_key(_tenant text, _key text, _terms json, _now timestamptz) returns json
language plpgsql
set search_path from current
as $$
declare
  _policy   text := _terms->>'on_conflict';
  _running  integer;
  _seqs     bigint[];
  _w        withdrawn_job;
begin
  if coalesce(_policy, 'wait') = 'wait' then
    return null;
  elsif _policy not in ('discard', 'replace', 'cancel_running') then
    raise exception 'on_conflict %: expected wait, discard, replace or cancel_running', _policy
      using errcode = 'invalid_parameter_value';
  end if;
  perform pg_advisory_xact_lock(limit_lock('key conflict', _tenant || chr(1) || _key));
  _running := (
    select t.running
    from (select) d left join lateral key_rule(_key) l on true cross join lateral key_terms_in_force(_terms, l) t);
  _seqs := array(
    select seq from held where tenant = _tenant and key = _key
    union all select seq from scheduled where tenant = _tenant and key = _key
    union all select seq from ready where tenant = _tenant and key = _key
    union all select seq from lease where tenant = _tenant and key = _key
    order by seq);
  if _running is null or cardinality(_seqs) < _running then
    return null;
  elsif _policy = 'discard' then
    return (select json_build_object('disposition', 'duplicate', 'id', j.id, 'seq', j.seq, 'key', 'job')
            from job j where j.seq = _seqs[1]);
  end if;
  for _i in 1 .. cardinality(_seqs) loop
    _w := withdraw_job(_seqs[_i], false);
    if _w.place <> 'leased' then
      perform finish(_seqs[_i], _w, 'cancelled', _w.attempt, _w.attempts, null, null, null, null, _now);
    elsif _policy = 'cancel_running' then
      update lease set cancel_requested_at = _now where seq = _seqs[_i] and cancel_requested_at is null;
    end if;
  end loop;
  return null;
end
$$;
