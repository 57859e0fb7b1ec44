-- Credentials: tokens for programs, one-time links and sessions for people, each found by the hash of its secret.

-- instant_text: an instant as an audit record shows it.
create or replace function instant_text(_at timestamptz) returns text language sql stable
return to_char(_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');

create or replace view credential_record as
select id, kind, name, prefix, roles, tenant, created_by, created_at, expires_at, revoked_at, last_used_at
from credential;

create or replace function credential_act(_id uuid, _changed boolean) returns json
language sql stable
set search_path from current
begin atomic
  select json_build_object('credential', (select row_to_json(c) from credential_record c where c.id = _id),
    'changed', _changed);
end;

-- issue_credential_v1: keep a new credential; repeated with the same id and hash it is only read.
-- role:   tokens
-- guard:  credential_pkey, credential_hash
create or replace function issue_credential_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _id       uuid := (_op->>'id')::uuid;
  _kind     text := _op->>'kind';
  _name     text := _op->>'name';
  _prefix   text := _op->>'prefix';
  _hash     text := _op->>'hash';
  _roles    text[] := array(select json_array_elements_text(_op->'roles'));
  _tenant   text := _op->>'tenant';
  _ttl_s    double precision :=
    coalesce((_op->>'ttl_s')::double precision, case _kind when 'session' then 12 * 3600 end);
  _by       text := _op->>'by';
  _notes    text := _op->>'notes';
  _now      timestamptz := now_of(_op);
  _expires  timestamptz := _now + _ttl_s * interval '1 second';
begin
  insert into credential (id, kind, name, prefix, hash, roles, tenant, created_by, created_at, expires_at)
  values (_id, _kind, _name, _prefix, _hash, _roles, _tenant, _by, _now, _expires) on conflict do nothing;
  if not found then
    return credential_act((select id from credential where id = _id and hash = _hash), false);
  end if;
  perform write_audit(
    _kind || '_create', _by, _notes, _tenant, _kind || ':' || _id, null,
    json_build_object('name', _name, 'prefix', _prefix, 'roles', _roles, 'tenant', _tenant,
      'expires_at', instant_text(_expires)), _now);
  return credential_act(_id, true);
end
$$;

-- find_credential_v1: the good credential of one kind with this hash.
-- role:   api
-- uses:   credential_hash
create or replace function find_credential_v1(_op json) returns json
language plpgsql stable
set search_path from current
as $$
declare
  _kind  text := _op->>'kind';
  _hash  text := _op->>'hash';
  _now   timestamptz := now_of(_op);
begin
  return (
    select credential_act((
      select id from credential
      where hash = _hash and kind = _kind and revoked_at is null
        and (expires_at is null or expires_at > _now)), false));
end
$$;

-- redeem_link_v1: use a good link up, and open the session that is asked for with its name, roles and tenant.
-- role:   api
-- guard:  revoked_at is null, looked at again under the row's lock: of two who come at once one gets it
-- uses:   credential_hash
create or replace function redeem_link_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _hash     text := _op->>'hash';
  _session  json := _op->'session';
  _now      timestamptz := now_of(_op);
  _c        credential;
begin
  update credential set revoked_at = _now
  where hash = _hash and kind = 'link' and revoked_at is null and (expires_at is null or expires_at > _now)
  returning * into _c;
  if not found then
    return credential_act(null, false);
  end if;
  perform write_audit('link_redeem', _c.name, null, _c.tenant, 'link:' || _c.id, null, null, _now);
  if json_typeof(_session) = 'object' then
    return issue_credential_v1(json_build_object(
      'id', _session->'id', 'kind', 'session', 'hash', _session->'hash', 'prefix', _session->'prefix',
      'ttl_s', _session->'ttl_s',
      'name', _c.name, 'roles', _c.roles, 'tenant', _c.tenant, 'by', _c.name, 'now', _now));
  end if;
  return credential_act(_c.id, true);
end
$$;

-- revoke_credential_v1: revoke a credential; the second time it is only read.
-- role:   api, tokens
-- guard:  revoked_at is null
-- uses:   credential_pkey
create or replace function revoke_credential_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _id     uuid := (_op->>'id')::uuid;
  _by     text := _op->>'by';
  _notes  text := _op->>'notes';
  _now    timestamptz := now_of(_op);
  _c      credential;
begin
  update credential set revoked_at = _now where id = _id and revoked_at is null returning * into _c;
  if not found then
    return credential_act(_id, false);
  end if;
  perform write_audit(_c.kind || '_revoke', _by, _notes, _c.tenant, _c.kind || ':' || _id, null, null, _now);
  return credential_act(_id, true);
end
$$;

-- see_credentials_v1: record that these were used just now.
-- role:   api
-- uses:   credential_pkey, in its order: two calls for the same ones never deadlock
create or replace function see_credentials_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _ids   uuid[] := array(select json_array_elements_text(_op->'ids'))::uuid[];
  _seen  uuid[] := array(select id from credential where id = any(_ids) order by id for update);
begin
  update credential set last_used_at = now_of(_op) where id = any(_seen);
  return json_build_object('count', cardinality(_seen));
end
$$;

-- list_credentials_v1: those of one kind, newest first, and where the next page begins.
-- role:   api, tokens
-- uses:   credential_newest
create or replace function list_credentials_v1(_op json) returns json
language plpgsql stable
set search_path from current
as $$
declare
  _kind      text := _op->>'kind';
  _name      text := _op->>'name';
  _also_bad  boolean := (_op->>'also_bad')::boolean;
  _id        uuid := split_part(_op->>'before', '.', 2);
  _at        timestamptz := 'epoch'::timestamptz
                            + split_part(_op->>'before', '.', 1)::bigint * interval '1 microsecond';
  _limit     integer := at_most(_op);
  _now       timestamptz := now_of(_op);
begin
  return (
    with found as (
      select row_number() over (order by created_at desc, id desc) as place, c.*
      from credential_record c
      where kind = _kind and (_name is null or name = _name) and (_id is null or (created_at, id) < (_at, _id))
        and (_also_bad or (revoked_at is null and (expires_at is null or expires_at > _now)))
      order by created_at desc, id desc limit _limit + 1
    )
    select json_build_object(
      'credentials', coalesce((
        select json_agg(row_to_json(c) order by c.created_at desc, c.id desc)
        from credential_record c where c.id in (select id from found where place <= _limit)), '[]'),
      'next', (
        select (extract(epoch from created_at) * 1000000)::bigint || '.' || id from found
        where place = _limit and exists (select from found where place > _limit))));
end
$$;
