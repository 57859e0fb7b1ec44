-- note_v1: record the progress of a running attempt, and the newest 100 lines (LOG_LINES) of its log.
-- role:   worker
-- guard:  see holds_lease: held until these words are in
-- uses:   lease_pkey, note_pkey, log_line_pkey
create or replace function note_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _seq       bigint := (_op->>'seq')::bigint;
  _attempt   integer := (_op->>'attempt')::integer;
  _progress  double precision := (_op->>'progress')::double precision;
  _log       text[] := array(select json_array_elements_text(_op->'log'));
  _now       timestamptz := now_of(_op);
  _lines     bigint;
begin
  if not holds_lease(_op) then
    return json_build_object('accepted', false);
  end if;
  insert into note as n (seq, progress, lines) values (_seq, _progress, cardinality(_log))
  on conflict (seq) do update set progress = coalesce(excluded.progress, n.progress), lines = n.lines + excluded.lines
  returning lines into _lines;
  if cardinality(_log) > 0 then
    delete from log_line where seq = _seq and n <= _lines - 100;
    insert into log_line (seq, n, at, attempt, message)
    select _seq, _lines - cardinality(_log) + l.ord, _now, _attempt, l.message
    from unnest(_log) with ordinality as l (message, ord) where l.ord > cardinality(_log) - 100;
  end if;
  return json_build_object('accepted', true);
end
$$;
