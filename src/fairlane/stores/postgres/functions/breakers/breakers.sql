-- Circuit breakers shared by all processes. The rules are those of `core.breaker`; here each step is atomic.

-- admit_v1: may a call go ahead? A healthy breaker, or one that is firmly open, is only read.
-- role:   worker, api
-- guard:  the row is locked while a probe is counted, so no more probes go out than the policy lets
-- uses:   breaker_pkey
create or replace function admit_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _name        text := _op->>'name';
  _cooldown_s  double precision := (_op->'policy'->>'cooldown_s')::double precision;
  _probes      integer := (_op->'policy'->>'probes')::integer;
  _now         timestamptz := now_of(_op);
  _patience    interval := _cooldown_s * interval '1 second';
  _b           breaker;
begin
  select * into _b from breaker where name = _name;
  if not found or _b.state = 'closed' then
    return json_build_object('admitted', true, 'state', 'closed');
  end if;
  if _b.state = 'half_open' or _b.retry_at <= _now then
    select * into _b from breaker where name = _name for update;
    if not found or _b.state = 'closed' then
      return json_build_object('admitted', true, 'state', 'closed');
    end if;
  end if;
  if _b.state = 'open' then
    if _b.retry_at is null or _now < _b.retry_at then
      return json_build_object('admitted', false, 'state', 'open', 'retry_at', _b.retry_at);
    end if;
    _b.half_opened_at := _now;
    _b.successes := 0;
    _b.probing := 0;
  elsif _b.probing >= _probes then
    if _now - _b.updated_at < _patience then
      return json_build_object('admitted', false, 'state', 'half_open', 'retry_at', _b.updated_at + _patience);
    end if;
    _b.probing := 0;  -- given up: whoever sent those probes may be gone
  end if;
  update breaker
  set state = 'half_open', half_opened_at = _b.half_opened_at, successes = _b.successes, probing = _b.probing + 1,
    retry_at = null, updated_at = _now
  where name = _name;
  return json_build_object('admitted', true, 'state', 'half_open');
end
$$;

-- report_v1: count calls that ended, failures first. The common report, success of a healthy breaker, writes nothing.
-- role:   worker, api
-- guard:  the row is locked: reports are counted one after the other
-- uses:   breaker_pkey
create or replace function report_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _name        text := _op->>'name';
  _threshold   integer := (_op->'policy'->>'threshold')::integer;
  _cooldown_s  double precision := (_op->'policy'->>'cooldown_s')::double precision;
  _probes      integer := (_op->'policy'->>'probes')::integer;
  _failures    integer := (_op->>'failures')::integer;
  _successes   integer := (_op->>'successes')::integer;
  _now         timestamptz := now_of(_op);
  _b           breaker;
begin
  select * into _b from breaker where name = _name;
  if found and _failures <= 0
    and (_successes <= 0 or _b.state = 'open' or (_b.state = 'closed' and _b.failures = 0)) then
    return row_to_json(_b);
  end if;
  insert into breaker (name, updated_at) values (_name, _now) on conflict do nothing;
  select * into _b from breaker where name = _name for update;

  for _ in 1 .. _failures loop
    _b.last_failure_at := _now;
    _b.updated_at := _now;
    exit when _b.state = 'open';  -- from calls begun before it opened: known, but they change nothing
    _b.failures := _b.failures + 1;
    if _b.state = 'half_open' or _b.failures >= _threshold then
      _b.state := 'open';
      _b.successes := 0;
      _b.probing := 0;
      _b.opened_at := _now;
      _b.retry_at := _now + _cooldown_s * interval '1 second';
    end if;
  end loop;
  for _ in 1 .. _successes loop
    exit when _b.state = 'open' or (_b.state = 'closed' and _b.failures = 0);
    _b.updated_at := _now;
    if _b.state = 'half_open' and _b.successes + 1 < _probes then
      _b.successes := _b.successes + 1;
      _b.probing := greatest(_b.probing - 1, 0);
    elsif _b.state = 'half_open' then
      _b := (_name, 'closed', 0, 0, 0, null, null, null, _b.last_failure_at, _now);
    else
      _b.failures := 0;
    end if;
  end loop;
  perform write_breaker(_b);
  return row_to_json(_b);
end
$$;

create or replace function write_breaker(_b breaker) returns void
language plpgsql
set search_path from current
as $$
begin
  update breaker
  set state = _b.state, failures = _b.failures, successes = _b.successes, probing = _b.probing,
      opened_at = _b.opened_at, half_opened_at = _b.half_opened_at, retry_at = _b.retry_at,
      last_failure_at = _b.last_failure_at, updated_at = _b.updated_at
  where name = _b.name;
end
$$;

-- set_breaker: reset or force_open a breaker by hand, known or not, with its audit record.
-- uses:   breaker_pkey
create or replace function set_breaker(_act text, _op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _name    text := _op->>'name';
  _now     timestamptz := now_of(_op);
  _b       breaker;
  _before  text;
begin
  insert into breaker (name, updated_at) values (_name, _now) on conflict do nothing;
  select * into _b from breaker where name = _name for update;
  _before := _b.state;
  if _act = 'reset' then
    _b := (_name, 'closed', 0, 0, 0, null, null, null, _b.last_failure_at, _now);
  else
    _b := (_name, 'open', _b.failures, 0, 0, _now, _b.half_opened_at, null, _b.last_failure_at, _now);
  end if;
  perform write_breaker(_b);
  perform write_audit('breaker_' || _act, _op->>'by', _op->>'notes', null, 'breaker:' || _name,
                      json_build_object('state', _before), json_build_object('state', _b.state), _now);
  return json_build_object('breaker', _b);
end
$$;

-- reset_breaker_v1: close a breaker by hand.
-- role:   api
create or replace function reset_breaker_v1(_op json) returns json
language sql
set search_path from current
return set_breaker('reset', _op);

-- force_breaker_v1: open a breaker by hand until somebody resets it.
-- role:   api
create or replace function force_breaker_v1(_op json) returns json
language sql
set search_path from current
return set_breaker('force_open', _op);

-- list_breakers_v1: every breaker, by name.
-- role:   worker, api
create or replace function list_breakers_v1(_op json) returns json
language sql stable
set search_path from current
begin atomic
  select json_build_object('breakers', coalesce(json_agg(row_to_json(b) order by b.name), '[]')) from breaker b;
end;
