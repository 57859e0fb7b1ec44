-- Events, numbered in the order of their commits.

-- add_events_v1: record events, and return whether anybody watches.
-- role:   worker, api
-- guard:  one at a time from the first id drawn to the commit: who has seen an id has seen, or can see, every lower one
create or replace function add_events_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _events  json := _op->'events';
  _now     timestamptz;
begin
  if json_array_length(_events) > 0 then
    perform pg_advisory_xact_lock(hashtextextended(current_schema() || ' events', 0));
    _now := now_of(_op);
    insert into event (at, kind, tenant, data)
    select _now, e.kind, e.tenant, coalesce(e.data, '{}')
    from rows from (json_to_recordset(_events) as (kind text, tenant text, data json)) with ordinality as e (kind,
      tenant, data, nth)
    order by e.nth;
  end if;
  return json_build_object('watched', coalesce((select watched_until > now_of(_op) from told), false));
end
$$;

-- read_events_v1: events behind `after`, and the highest id so far, both by one snapshot: what is not among the first
--         is above the second.
-- role:   worker, api
-- uses:   event_pkey, event_tenant
create or replace function read_events_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _tenant   text := scope_of(_op);
  _after    bigint := (_op->>'after')::bigint;
  _kinds    text[] := nullif(array(select json_array_elements_text(_op->'kinds')), '{}');
  _limit    integer := greatest(1, least((_op->>'limit')::integer, 1000));
  _watch_s  double precision := case when (_op->>'watch')::boolean then 30 end;  -- WATCHED_FOR_S
begin
  if _watch_s is not null then
    update told set watched_until = greatest(watched_until, now_of(_op) + _watch_s * interval '1 second');
  end if;
  return (
    select json_build_object(
      'events', coalesce((
        select json_agg(row_to_json(e) order by e.id)
        from (
          select id, at, kind, tenant, data from event
          where id > _after and (_tenant is null or tenant = _tenant) and (_kinds is null or kind = any(_kinds))
          order by id limit _limit
        ) e), '[]'),
      'last', greatest((select max(id) from event), (select forgotten from told))));
end
$$;

-- forget_old_v1: remove old events and signals, and credentials that ended long ago, oldest first.
-- role:   worker
-- uses:   event_at, signal_at, credential_ended
create or replace function forget_old_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _events_before       timestamptz := (_op->>'events_before')::timestamptz;
  _credentials_before  timestamptz := (_op->>'credentials_before')::timestamptz;
  _signals_before      timestamptz := (_op->>'signals_before')::timestamptz;
  _limit               integer := at_most(_op);
  _now                 timestamptz := now_of(_op);
  _events              bigint[] := array(
    select id from event where at < _events_before order by at, id limit _limit for update skip locked);
  _credentials         uuid[] := array(
    select id from credential
    where least(expires_at, revoked_at) < _credentials_before and (expires_at is not null or revoked_at is not null)
      and (revoked_at is not null or expires_at <= _now)
    order by least(expires_at, revoked_at), id limit _limit for update skip locked);
  _signals             uuid[] := array(
    select id from signal where at < _signals_before order by at, id limit _limit for update skip locked);
begin
  if cardinality(_events) > 0 then
    update told set forgotten = greatest(forgotten, (select max(id) from unnest(_events) id));
    delete from event where id = any(_events);
  end if;
  delete from credential where id = any(_credentials);
  delete from signal where id = any(_signals);
  return json_build_object(
    'events', cardinality(_events), 'credentials', cardinality(_credentials), 'signals', cardinality(_signals));
end
$$;
