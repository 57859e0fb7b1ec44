-- renew_v1: register a worker, or keep its heartbeat alive.
create or replace function renew_v1(
  _worker uuid, _lease_s double precision, _name text, _queues text[], _types text[], _wake_address text, _at timestamptz default null,
  _figures json default '{}'
) returns json
language plpgsql
set search_path from current
as $$
declare
  _now      timestamptz := coalesce(_at, clock_timestamp());
  _expires  timestamptz := _now + _lease_s * interval '1 second';
  _fresh    boolean := false;
begin
  update worker set renewed_at = _now, expires_at = _expires, name = _name, queues = _queues, types = _types, wake_address = _wake_address,
                    figures = _figures
  where id = _worker;
  if not found then
    insert into worker (id, name, registered_at, renewed_at, expires_at, queues, types, wake_address, figures)
    values (_worker, _name, _now, _now, _expires, _queues, _types, _wake_address, _figures)
    on conflict (id) do update set renewed_at = _now, expires_at = _expires;
    _fresh := true;
  end if;
  return json_build_object('now', _now, 'expires_at', _expires, 'fresh', _fresh);
end
$$;

-- retire_v1: a worker leaves: its leases go back uncharged, its row goes.
-- moves:  release leased -> ready, stop leased -> cancelled
-- guard:  the worker's row is locked, so no Turn of it is half way
-- uses:   lease (small: as many rows as jobs in flight)
create or replace function retire_v1(_worker uuid, _at timestamptz default null) returns json
language plpgsql
set search_path from current
as $$
declare
  _now       timestamptz := coalesce(_at, clock_timestamp());
  _outcomes  json;
begin
  perform from worker where id = _worker for update;
  select json_agg(json_build_object('kind', 'released', 'seq', seq, 'attempt', attempt)) into _outcomes from lease where worker = _worker;
  if _outcomes is not null and (select s.freed from settle(_worker, _outcomes, _now) s) is not null then
    perform wake_waiting();
  end if;
  perform forget_worker(_worker);
  return json_build_object('released', coalesce(json_array_length(_outcomes), 0));
end
$$;

-- list_workers_v1: every registered worker, with the number of its leases.
-- uses:   worker and lease whole (as many rows as jobs in flight)
create or replace function list_workers_v1(_at timestamptz default null) returns json
language plpgsql stable
set search_path from current
as $$
begin
  return (
    select json_build_object(
      'now', coalesce(_at, clock_timestamp()),
      'workers', coalesce(json_agg(row_to_json(w) order by w.registered_at, w.id), '[]'))
    from (
      select id, name, registered_at, renewed_at, expires_at, queues, types, waiting, figures,
             coalesce(l.leases, 0) as leases
      from worker left join (select worker, count(*) as leases from lease group by worker) l on l.worker = worker.id
    ) w);
end
$$;
