-- lapse_v1: a worker's foreman saw it die: its leases come back now, its row goes.
-- role:   worker
-- moves:  reclaim leased -> ready | dead | cancelled
-- guard:  the worker's row is there, and locked: a Turn of that worker is over or will find it gone
-- uses:   worker_pkey; see leases_of
create or replace function lapse_v1(_op json) returns json
language plpgsql
set search_path from current
as $$
declare
  _worker  uuid := (_op->>'worker')::uuid;
  starts   json := _op->'starts';
  _now     timestamptz := now_of(_op);
  _back    json;
begin
  perform from worker where id = _worker for update;
  if not found then
    return json_build_object('reclaimed', '[]'::json);
  end if;
  perform mark_started(_worker, starts, _now);
  _back := take_back(leases_of(_worker), 'worker_gone', _now, 3);
  perform end_nodes(ended_of(_back::jsonb), _now);
  perform forget_worker(_worker);
  return json_build_object('reclaimed', coalesce(_back, '[]'));
end
$$;
