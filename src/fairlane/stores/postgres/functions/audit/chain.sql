-- The chain that seals the audit. Acts write records as they commit; links follow, one sealer after the other.

-- read_unsealed_v1: the last link, and committed records that have none.
-- role:   worker
-- uses:   audit_seal_pkey, audit_unsealed_pkey, audit_pkey
create or replace function read_unsealed_v1(_op json) returns json
language plpgsql stable
set search_path from current
as $$
declare
  _limit  integer := at_most(_op);
begin
  return (
    select json_build_object(
      'last', (select row_to_json(s) from audit_seal s order by s.n desc limit 1),
      'records', coalesce((
        select json_agg(row_to_json(r) order by r.id)
        from (select a.* from audit_unsealed u join audit a on a.id = u.id order by u.id limit _limit) r), '[]')));
end
$$;

-- seal_audit_v1: add links behind the last one, all of them or none.
-- role:   worker
-- guard:  audit_seal_pkey: of two sealers the second finds its number taken; audit_seal_record: a record is sealed once
create or replace function seal_audit_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _links  json := _op->'links';
  _last   bigint := coalesce((select max(n) from audit_seal), 0);
begin
  if exists (
    select from rows from (json_to_recordset(_links) as (n bigint)) with ordinality as l (n, nth)
    where l.n <> _last + l.nth
  ) then
    return json_build_object('sealed', false);
  end if;
  insert into audit_seal (n, audit_id, hash)
  select n, audit_id, hash from json_to_recordset(_links) as l (n bigint, audit_id bigint, hash text);
  delete from audit_unsealed
  where id = any(array(select audit_id from json_to_recordset(_links) as l (audit_id bigint)));
  return json_build_object('sealed', true);
exception
  when unique_violation then
    return json_build_object('sealed', false);
end
$$;

-- read_audit_chain_v1: links behind `after`, each with its record as it is now, and how many records wait for a link.
--         `also_unaccounted`: the first record that has none and does not wait for one.
-- role:   api
-- uses:   audit_seal_pkey, audit_pkey
create or replace function read_audit_chain_v1(_op json) returns json
language plpgsql stable
set search_path from current
as $$
declare
  _after  bigint := (_op->>'after')::bigint;
  _limit  integer := greatest(1, least((_op->>'limit')::integer, 1000));
begin
  return (
    select json_build_object(
      'sealed', coalesce((
        select json_agg(json_build_object('link', row_to_json(s),
          'record', (select row_to_json(a) from audit a where a.id = s.audit_id)) order by s.n)
        from (select * from audit_seal where n > _after order by n limit _limit) s), '[]'),
      'unsealed', (select count(*) from (select from audit_unsealed limit 1000) u),
      'unaccounted', case when (_op->>'also_unaccounted')::boolean then (
        select min(a.id) from audit a
        where not exists (select from audit_seal s where s.audit_id = a.id)
          and not exists (select from audit_unsealed u where u.id = a.id)) end));
end
$$;
