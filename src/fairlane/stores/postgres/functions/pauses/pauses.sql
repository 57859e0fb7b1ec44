create or replace function pauses(_changed boolean) returns json
language sql stable
set search_path from current
begin atomic
  select json_build_object('changed', _changed, 'pauses', coalesce((
    select json_agg(json_build_object('kind', kind, 'name', name, 'by', by, 'at', at, 'notes', notes) order by kind, name) from pause), '[]'));
end;

-- pause_v1: stop or resume the claims of one queue, type or tenant; doing so twice writes nothing.
-- guard:  pause_pkey
create or replace function pause_v1(_paused boolean, _kind text, _name text, _by text, _notes text, _at timestamptz default null) returns json
language plpgsql
set search_path from current
as $$
declare
  _now timestamptz := coalesce(_at, clock_timestamp());
begin
  if _paused then
    insert into pause (kind, name, by, at, notes) values (_kind, _name, _by, _now, _notes) on conflict do nothing;
  else
    delete from pause where kind = _kind and name = _name;
  end if;
  if not found then
    return pauses(false);
  end if;
  perform write_audit(case when _paused then 'pause' else 'resume' end, _by, _notes, case when _kind = 'tenant' then _name end, _kind || ':' || _name,
                      json_build_object('paused', not _paused), json_build_object('paused', _paused), _now);
  if not _paused and exists (select from worker where waiting) then
    perform pg_notify(current_schema() || '_wake', '');
  end if;
  return pauses(true);
end
$$;
