-- pause_json: one pause as callers read it.
-- uses:   refusal_pkey
create or replace function pause_json(_p pause) returns json
language sql stable
set search_path from current
return json_build_object(
  'kind', _p.kind, 'name', _p.name, 'by', _p.by, 'at', _p.at, 'notes', _p.notes,
  'refuse', exists (select from refusal r where r.kind = _p.kind and r.name = _p.name));

-- pauses: every pause, by kind and name.
create or replace function pauses(_changed boolean) returns json
language sql stable
set search_path from current
begin atomic
  select json_build_object('changed', _changed, 'pauses', coalesce((
    select json_agg(pause_json(p) order by p.kind, p.name) from pause p), '[]'));
end;

-- refused_by_pause: the answer of an enqueue that holds a job whose queue, type or tenant is paused and refuses new
--         jobs; null where there is none. The first in the order of the jobs, then by kind.
-- uses:   refusal (a few rows), pause_pkey
--
-- `refused` says the same to clients that do not know of refusals: a limit of no jobs.
create or replace function refused_by_pause(jobs json, _depth integer) returns json
language sql stable
set search_path from current
begin atomic
  select json_build_object('depth', _depth, 'paused', pause_json(p), 'refused', json_build_object(
    'tenant', j.tenant, 'queue', j.queue, 'cause', 'waiting', 'limit', 0, 'found', 0, 'policy', 'reject'))
  from (
    select j.type, coalesce(j.tenant, 'system') as tenant, coalesce(j.queue, 'default') as queue, j.ord
    from rows from (json_to_recordset(jobs) as (type text, tenant text, queue text)) with ordinality
      as j (type, tenant, queue, ord)
  ) j
  join refusal r on r.name = case r.kind when 'queue' then j.queue when 'tenant' then j.tenant else j.type end
  join pause p on p.kind = r.kind and p.name = r.name
  order by j.ord, p.kind limit 1;
end;

-- list_pauses_v1: every pause, by kind and name.
-- role:   worker, api
create or replace function list_pauses_v1(_op json) returns json
language sql stable
set search_path from current
return pauses(false);

-- set_pause: stop or resume the claims of one queue, type or tenant. Doing so twice writes nothing, but a pause that
--         does not refuse new jobs can be made to.
-- guard:  pause_pkey
create or replace function set_pause(_paused boolean, _op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _kind     text := _op->>'kind';
  _name     text := _op->>'name';
  _by       text := _op->>'by';
  _notes    text := _op->>'notes';
  _refuse   boolean := coalesce((_op->>'refuse')::boolean, false);
  _now      timestamptz := now_of(_op);
  _known    boolean := false;
  _refuses  boolean := false;
begin
  perform from pause where kind = _kind and name = _name for update;
  _known := found;
  _refuses := _known and exists (select from refusal where kind = _kind and name = _name);
  if _known = _paused and (_refuses or not _refuse) or not _known and not _paused then
    return pauses(false);
  end if;
  if _paused then
    insert into pause (kind, name, by, at, notes) values (_kind, _name, _by, _now, _notes)
    on conflict (kind, name) do update set by = _by, at = _now, notes = _notes where _refuse;
    if not found then  -- somebody else has just paused it
      return pauses(false);
    end if;
    if _refuse then
      insert into refusal (kind, name) values (_kind, _name) on conflict do nothing;
    else
      delete from refusal where kind = _kind and name = _name;  -- left by another hand: a refusal belongs to its pause
    end if;
  else
    delete from pause where kind = _kind and name = _name;
    delete from refusal where kind = _kind and name = _name;
  end if;
  perform write_audit(case when _paused then 'pause' else 'resume' end, _by, _notes,
                      case when _kind = 'tenant' then _name end, _kind || ':' || _name,
                      pause_state(_known, _refuses), pause_state(_paused, _paused and _refuse), _now);
  if not _paused then
    perform wake_waiting();
  end if;
  return pauses(true);
end
$$;

-- pause_state: a pause as the audit shows it.
create or replace function pause_state(_paused boolean, _refuses boolean) returns json
language sql immutable
return case when _refuses then json_build_object('paused', _paused, 'refuse', true)
            else json_build_object('paused', _paused) end;

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
