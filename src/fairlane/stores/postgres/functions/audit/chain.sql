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

-- trim_quotes: a JSON string without its quotes.
create or replace function trim_quotes(_text text) returns text
language sql immutable strict parallel safe
return substr(_text, 2, length(_text) - 2);

-- ascii_string: a text as Python's json.dumps writes it, in ASCII alone.
create or replace function ascii_string(_text text) returns text
language sql immutable strict parallel safe
return case
  when _text ~ '^[\x20-\x7e\t\n\r]*$' then to_json(_text)::text
  else '"' || (
    select string_agg(
      case
        when n between 32 and 126 or n in (8, 9, 10, 12, 13) then trim_quotes(to_json(c)::text)
        when n > 65535 then
          '\u' || to_hex(55296 + ((n - 65536) >> 10)) || '\u' || to_hex(56320 + ((n - 65536) & 1023))
        else '\u' || lpad(to_hex(n), 4, '0')
      end, '' order by nth)
    from (select c, ascii(c) as n, nth from regexp_split_to_table(_text, '') with ordinality as t (c, nth)) chars
  ) || '"'
end;

-- python_number: a JSON number as Python writes it once it has read it. Fractions from 1e15 on, which no act writes,
-- may differ in their last digits.
create or replace function python_number(_number text) returns text
language sql immutable strict parallel safe
set extra_float_digits = 1
return case
  when _number ~ '^-?[0-9]+$' then _number::numeric::text
  when _number::double precision::text ~ '[.e]' then _number::double precision::text
  else _number::double precision::text || '.0'
end;

-- canonical_text: JSON without spaces, in ASCII, the keys of objects sorted: what core/audit_chain.py seals.
create or replace function canonical_text(_json json) returns text
language plpgsql immutable parallel safe
set search_path from current
as $$
begin
  return case json_typeof(_json)
    when 'object' then (
      select '{' || coalesce(
        string_agg(ascii_string(key) || ':' || canonical_text(value), ',' order by key collate "C"), '') || '}'
      from json_each(_json))
    when 'array' then (
      select '[' || coalesce(string_agg(canonical_text(value), ',' order by nth), '') || ']'
      from json_array_elements(_json) with ordinality as e (value, nth))
    when 'string' then ascii_string(_json #>> '{}')
    when 'number' then python_number(_json #>> '{}')
    else coalesce(_json #>> '{}', 'null')
  end;
end
$$;

-- link_hash: the hash that seals a record behind the link with the hash `_before`.
create or replace function link_hash(_before text, _record audit) returns text
language sql immutable
set search_path from current
return encode(sha256(convert_to(_before || e'\n' || canonical_text(json_build_object(
  'action', _record.action, 'after', _record.after,
  'at', (extract(epoch from _record.at) * 1000000)::bigint, 'before', _record.before, 'by', _record.by,
  'id', _record.id, 'notes', _record.notes, 'target', _record.target, 'tenant', _record.tenant)), 'UTF8')), 'hex');

-- seal_audit_v1: add links behind the last one, all of them or none, each with the hash that is right for its record.
-- role:   worker
-- guard:  audit_seal_pkey: of two sealers the second finds its number taken; audit_seal_record: a record is sealed once
create or replace function seal_audit_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _last  audit_seal := (select s from audit_seal s order by s.n desc limit 1);
  _link  record;
begin
  for _link in
    select l.n, l.audit_id, l.hash, a as record
    from rows from (json_to_recordset(_op->'links') as (n bigint, audit_id bigint, hash text))
      with ordinality as l (n, audit_id, hash, nth)
    left join audit a on a.id = l.audit_id order by l.nth
  loop
    if _link.n <> coalesce(_last.n, 0) + 1
       or _link.hash is distinct from link_hash(coalesce(_last.hash, repeat('0', 64)), _link.record) then
      raise unique_violation;
    end if;
    insert into audit_seal (n, audit_id, hash) values (_link.n, _link.audit_id, _link.hash) returning * into _last;
    delete from audit_unsealed where id = _link.audit_id;
  end loop;
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
