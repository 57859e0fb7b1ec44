-- flat: refs and headers as a worker can read them: an object of texts and whole numbers. Whatever else came in by SQL
--         reads as none.
create or replace function flat(found json) returns json language sql immutable parallel safe
return case when found::text ~ (
  '^\s*\{(\s*"([^"\\]|\\["\\/bfnrt]|\\u(?!0000|[dD][89a-fA-F])\w{4}|\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w)*"\s*:'
  '\s*("([^"\\]|\\["\\/bfnrt]|\\u(?!0000|[dD][89a-fA-F])\w{4}|\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w)*"'
  '|-?\d{1,19})\s*(,(?!\s*\})|(?=\})))*\}\s*$'
) then found end;

-- shallow: a retry policy as a worker can read it; an oversized one that came in by SQL reads as none.
create or replace function shallow(found json) returns json language sql immutable parallel safe
return case when octet_length(found::text) <= 8192 and found::text !~ '\\u'
  and length(translate(found::text, '[{', '')) >= length(found::text) - 64
            then found end;

-- as_jsonb: a payload for people's queries. What jsonb cannot hold (an escaped NUL, a number beyond all) is shown as
--         its text: one odd payload that came in by SQL must not fail a listing.
create or replace function as_jsonb(_text text) returns jsonb
language plpgsql immutable strict
as $$
begin
  return _text::jsonb;
exception when data_exception or program_limit_exceeded then
  return to_jsonb(_text);
end
$$;
