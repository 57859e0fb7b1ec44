-- key_use: a key with what is in force there, how much of it is used and by whom; null: nobody is there.
-- uses:   held_key, see place_holders
create or replace function key_use(_tenant text, _key text) returns json
language plpgsql stable
set search_path from current
as $$
declare
  _first    bigint := (
    select h.seq from held h where h.tenant = _tenant and h.key = _key
    order by h.key_nth, h.band, h.rank, h.due_at, h.seq limit 1);
  _holders  bigint[] := array(select seq from place_holders(_tenant, _key, 100000, true) order by seq);  -- COUNT_CAP
begin
  if coalesce(_first, _holders[1]) is null then
    return null;
  end if;
  return (
    select json_build_object(
      'tenant', _tenant, 'key', _key, 'running', t.running,
      'rate', case when t.rate_count is not null
                   then json_build_object('count', t.rate_count, 'period_s', t.period_s) end,
      'ordered', t.ordered, 'in_use', cardinality(_holders),
      'waiting', (select count(*) from held h where h.tenant = _tenant and h.key = _key),
      'holders', coalesce((
        select json_agg(json_build_object('id', o.id, 'seq', o.seq, 'type', o.type, 'state', p.state, 'since', p.since)
                        order by o.seq)
        from place_holders(_tenant, _key, 100000, true) p join job o on o.seq = p.seq
        where o.seq = any(_holders[:10])), '[]'))  -- HOLDERS_SHOWN
    from job j left join lateral key_rule(_key) l on true cross join lateral key_terms_in_force(j.key_terms, l) t
    where j.seq = coalesce(_first, _holders[1]));
end
$$;

-- key_ahead: how many are let in at its key before a held job; null: it is not held there.
-- uses:   held_key
create or replace function key_ahead(_seq bigint) returns bigint
language sql stable
set search_path from current
begin atomic
  select case when count(m.seq) > 0 then count(h.seq) end
  from held m
  left join held h on h.tenant = m.tenant and h.key = m.key and case
    when m.key_nth is not null then h.key_nth < m.key_nth
    else h.key_nth is not null or (h.band, h.rank, h.due_at, h.seq) < (m.band, m.rank, m.due_at, m.seq) end
  where m.seq = _seq and m.key is not null;
end;

-- list_keys_v1: the keys where most jobs are held.
-- role:   api
-- uses:   held_key: whole, or the keys of one tenant
create or replace function list_keys_v1(_op json) returns json
language plpgsql stable
set search_path from current
as $$
declare
  _tenant  text := scope_of(_op);
  _name    text := _op->>'name';
  _key     text := _op->>'key';
begin
  return json_build_object('keys', coalesce((
    select json_agg(key_use(k.tenant, k.key) order by k.waiting desc, k.tenant, k.key)
    from (
      select h.tenant, h.key, count(*) as waiting from held h
      where h.key is not null and (_tenant is null or h.tenant = _tenant) and (_key is null or h.key = _key)
        and (_name is null or split_part(h.key, ':', 1) = _name)
      group by h.tenant, h.key order by waiting desc, h.tenant, h.key limit page_size(_op)
    ) k), '[]'));
end
$$;
