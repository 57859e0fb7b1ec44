-- pauses: every pause, by kind and name.
create or replace function pauses(_changed boolean) returns json
language sql stable
set search_path from current
begin atomic
  select json_build_object('changed', _changed, 'pauses', coalesce((
    select json_agg(json_build_object('kind', kind, 'name', name, 'by', by, 'at', at, 'notes', notes)
      order by kind, name) from pause), '[]'));
end;

-- list_pauses_v1: every pause, by kind and name.
-- role:   worker, api
create or replace function list_pauses_v1(_op json) returns json
language sql stable
set search_path from current
return pauses(false);

-- set_pause: stop or resume the claims of one queue, type or tenant; doing so twice writes nothing.
-- guard:  pause_pkey
create or replace function set_pause(_paused boolean, _op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _kind   text := _op->>'kind';
  _name   text := _op->>'name';
  _by     text := _op->>'by';
  _notes  text := _op->>'notes';
  _now    timestamptz := now_of(_op);
begin
  if _paused then
    insert into pause (kind, name, by, at, notes) values (_kind, _name, _by, _now, _notes) on conflict do nothing;
  else
    delete from pause where kind = _kind and name = _name;
  end if;
  if not found then
    return pauses(false);
  end if;
  perform write_audit(case when _paused then 'pause' else 'resume' end, _by, _notes,
                      case when _kind = 'tenant' then _name end, _kind || ':' || _name,
                        json_build_object('paused', not _paused), json_build_object('paused', _paused), _now);
  if not _paused then
    perform wake_waiting();
  end if;
  return pauses(true);
end
$$;

-- pause_claims_v1: stop the claims of one queue, type or tenant.
-- role:   api
create or replace function pause_claims_v1(_op json) returns json
language sql
set search_path from current
return set_pause(true, _op);

-- resume_claims_v1: resume the claims of one queue, type or tenant.
-- role:   api
create or replace function resume_claims_v1(_op json) returns json
language sql
set search_path from current
return set_pause(false, _op);
