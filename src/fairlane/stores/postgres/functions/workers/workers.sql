-- renew_v1: register a worker, or keep its heartbeat alive.
-- role:   worker
-- guard:  one that registers waits for a limit that is being set: its first Turn sees it, and so do those who count
create or replace function renew_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _worker        uuid := (_op->>'worker')::uuid;
  _lease_s       double precision := (_op->>'lease_s')::double precision;
  _name          text := _op->>'name';
  _queues        text[] := array(select json_array_elements_text(_op->'queues'));
  _types         text[] := array(select json_array_elements_text(_op->'types'));
  _wake_address  text := _op->>'wake_address';
  _figures       json := json_strip_nulls(_op->'figures');
  _now           timestamptz := now_of(_op);
  _expires       timestamptz := _now + _lease_s * interval '1 second';
  _fresh         boolean := false;
begin
  update worker set renewed_at = _now, expires_at = _expires, name = _name, queues = _queues, types = _types,
                    wake_address = _wake_address, figures = _figures
  where id = _worker;
  if not found then
    perform pg_advisory_xact_lock_shared(limit_lock('worker', ''));
    insert into worker (id, name, registered_at, renewed_at, expires_at, queues, types, wake_address, figures)
    values (_worker, _name, _now, _now, _expires, _queues, _types, _wake_address, _figures)
    on conflict (id) do update set renewed_at = _now, expires_at = _expires;
    _fresh := true;
  end if;
  return json_build_object('now', _now, 'expires_at', _expires, 'fresh', _fresh);
end
$$;

-- retire_v1: a worker leaves: its leases go back uncharged, its row goes.
-- role:   worker
-- moves:  release leased -> ready, stop leased -> cancelled
-- guard:  the worker's row is locked, so no Turn of it is half way
-- uses:   lease (small: as many rows as jobs in flight)
create or replace function retire_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _worker    uuid := (_op->>'worker')::uuid;
  _now       timestamptz := now_of(_op);
  _outcomes  json;
begin
  perform from worker where id = _worker for update;
  select json_agg(json_build_object('kind', 'released', 'seq', seq, 'attempt', attempt)) into _outcomes from lease
  where worker = _worker;
  if _outcomes is not null and (select s.freed from settle(_worker, _outcomes, _now) s) is not null then
    perform wake_waiting();
  end if;
  perform forget_worker(_worker);
  return json_build_object('released', coalesce(json_array_length(_outcomes), 0));
end
$$;

-- list_workers_v1: every registered worker, with the number of its leases.
-- role:   worker, api
-- uses:   worker and lease whole (as many rows as jobs in flight)
create or replace function list_workers_v1(_op json) returns json
language plpgsql stable
set search_path from current
as $$
begin
  return (
    select json_build_object(
      'now', now_of(_op),
      'workers', coalesce(json_agg(row_to_json(w) order by w.registered_at, w.id), '[]'))
    from (
      select id, name, registered_at, renewed_at, expires_at, queues, types, waiting, figures,
             coalesce(l.leases, 0) as leases
      from worker left join (select worker, count(*) as leases from lease group by worker) l on l.worker = worker.id
    ) w);
end
$$;

-- report_exceptions_v1: keep a worker's newest exceptions instead of those it reported before.
-- role:   worker
create or replace function report_exceptions_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
begin
  update worker set exceptions = coalesce((
    select json_agg(e.one order by e.ord) from json_array_elements(_op->'exceptions') with ordinality as e (one, ord)
    where e.ord > json_array_length(_op->'exceptions') - 20), '[]')
  where id = (_op->>'worker')::uuid;
  return json_build_object('accepted', found);
end
$$;

-- list_exceptions_v1: the exceptions that registered workers reported, newest first, at most `limit` if given.
-- role:   worker, api
-- uses:   worker whole
create or replace function list_exceptions_v1(_op json) returns json
language plpgsql stable
set search_path from current
as $$
declare
  _tenant text := scope_of(_op);
begin
  return (
    select json_build_object('exceptions', coalesce(json_agg(
      json_build_object('worker', f.id, 'name', f.name, 'caught', f.one) order by f.n), '[]'))
    from (
      select w.id, w.name, e.one, row_number() over (
        order by (e.one->>'at')::timestamptz desc, w.id, (e.one->>'id')::uuid, (e.one->>'attempt')::integer) as n
      from worker w cross join lateral json_array_elements(w.exceptions) as e (one)
      where _tenant is null or e.one->>'tenant' = _tenant
      order by n
      limit (_op->>'limit')::integer) f);
end
$$;
