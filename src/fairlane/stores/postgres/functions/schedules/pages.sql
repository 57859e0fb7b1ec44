-- list_schedules_v1: schedules by name; with `due` those that are to fire now, by their time, and
-- in how many seconds the next one is.
-- role:   worker, api
-- uses:   schedule_due, schedule_pkey
create or replace function list_schedules_v1(_op json) returns json
language plpgsql stable
set search_path from current
as $$
declare
  _due    boolean := (_op->>'due')::boolean;
  _limit  integer := at_most(_op);
  _now    timestamptz := now_of(_op);
begin
  if _due then
    return (
      select json_build_object(
        'schedules', coalesce(json_agg(row_to_json(s) order by s.next_at, s.name), '[]'),
        'next_s', (select extract(epoch from min(later.next_at) - _now) from schedule later
                   where later.paused_at is null and later.next_at > _now))
      from (select * from schedule where paused_at is null and next_at <= _now order by next_at, name limit _limit) s);
  end if;
  return (
    select json_build_object('schedules', coalesce(json_agg(row_to_json(s) order by s.name), '[]'))
    from (select * from schedule order by name limit _limit) s);
end
$$;
