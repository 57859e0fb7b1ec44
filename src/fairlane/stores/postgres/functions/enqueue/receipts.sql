-- enqueue_receipts: what became of each job of a call without keys, some of whose ids were there already.
-- uses:   job_id_key
create or replace function enqueue_receipts(jobs json, created bigint[]) returns json
language plpgsql
set search_path from current
as $$
begin
  return (
    select json_agg(json_build_object('id', o.id, 'seq', o.seq, 'disposition', case
      when o.seq = any(created) and j.nth = 1 then 'created'
      when o.type = j.type and o.tenant = coalesce(j.tenant, 'system') and o.queue = coalesce(j.queue, 'default')
           and o.band + o.rank = coalesce(j.priority, 5)
           and o.payload::text = coalesce(j.payload_text, j.payload::text, '{}')
           and o.idempotency_key is null and o.dedup_key is null and o.parent_id is not distinct from j.parent_id
      then 'replayed' else 'conflict' end) order by j.ord)
    from (
      select i.*, row_number() over (partition by i.id order by i.ord) as nth
      from rows from (json_to_recordset(jobs) as (
        id uuid, type text, tenant text, queue text, priority smallint, priority_scope text, payload json,
        payload_text text, parent_id uuid
      )) with ordinality as i (id, type, tenant, queue, priority, priority_scope, payload, payload_text, parent_id, ord)
    ) j
    join job o on o.id = j.id
  );
end
$$;
