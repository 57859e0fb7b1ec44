-- note_v1: keep what a running attempt says of itself: progress, and the newest `_keep` lines of its log.
-- guard:  lease (seq, attempt, worker) exists, and is held until these words are in
-- uses:   lease_pkey, note_pkey, log_line_pkey
create or replace function note_v1(
  _worker uuid, _seq bigint, _attempt integer, _progress double precision, _log text[], _keep integer, _at timestamptz default null
) returns json
language plpgsql
set search_path from current
as $$
declare
  _now    timestamptz := coalesce(_at, clock_timestamp());
  _lines  bigint;
begin
  perform from lease where seq = _seq and attempt = _attempt and worker = _worker for key share;
  if not found then
    return json_build_object('accepted', false);
  end if;
  insert into note as n (seq, progress, lines) values (_seq, _progress, cardinality(_log))
  on conflict (seq) do update set progress = coalesce(excluded.progress, n.progress), lines = n.lines + excluded.lines
  returning lines into _lines;
  if cardinality(_log) > 0 then
    delete from log_line where seq = _seq and n <= _lines - _keep;
    insert into log_line (seq, n, at, attempt, message)
    select _seq, _lines - cardinality(_log) + l.ord, _now, _attempt, l.message
    from unnest(_log) with ordinality as l (message, ord) where l.ord > cardinality(_log) - _keep;
  end if;
  return json_build_object('accepted', true);
end
$$;
