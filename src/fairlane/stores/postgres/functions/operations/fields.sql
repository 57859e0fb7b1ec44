-- Reads the fields that operations share. Every function `<operation>_v1(json)` takes an operation as one JSON object.

-- scope_of: the tenant whose rows an operation may see or change; null: all tenants, which has to be asked for as
--         {"tenant": null}.
create or replace function scope_of(_op json) returns text
language plpgsql immutable parallel safe
as $$
begin
  if _op->'scope'->'tenant' is null then
    raise exception 'an operation on tenants'' rows needs a scope'
      using errcode = 'invalid_parameter_value',
        hint = 'Give "scope": {"tenant": "…"}, or {"tenant": null} for all tenants.';
  end if;
  return _op->'scope'->>'tenant';
end
$$;

-- instant_of: the instant that a call gives, as tests do, or the server's clock. Where roles are separated only a
--         session that may act as the engine gives one. It sets no search path, so it is inlined.
create or replace function instant_of(_at timestamptz) returns timestamptz
language sql volatile
return case
  when _at is null or not pg_has_role(session_user, current_user, 'member') then clock_timestamp()
  else _at
end;

-- now_of: the instant of an operation.
create or replace function now_of(_op json) returns timestamptz
language sql volatile
return instant_of((_op->>'now')::timestamptz);

-- at_most: how many rows an operation asks for; none for a negative number.
create or replace function at_most(_op json) returns integer
language sql immutable parallel safe
return greatest((_op->>'limit')::integer, 0);

-- page_size: how many rows a page has, 1 to 200 (MAX_PAGE).
create or replace function page_size(_op json) returns integer
language sql immutable parallel safe
return greatest(1, least((_op->>'limit')::bigint, 200))::integer;

-- row_id: the number of a row; one beyond what any row can have is answered by no row instead of an error.
create or replace function row_id(_number text) returns bigint
language sql immutable parallel safe
return greatest(-9223372036854775807, least(_number::numeric, 9223372036854775807))::bigint;
