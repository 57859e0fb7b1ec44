-- What keeps leases and lines moving beside the Turns: ARGV: instant or '', what, its arguments.
even_when_full()
local now = clock(ARGV[1], true)
local what, op = ARGV[2], unpacked(ARGV[3])

local function wake_for_freed()
  if anew.ready or anew.keys or (#freed > 0 and call('HGET', META, 'leases_counted')) then wake_for_ready(now) end
end

local LINES = 200 -- at once

-- Move up the jobs of one line that have been ready for long, by rank, due and seq; returns how many, and how many more
-- were looked at.
local function age_line(queue, band, tenant, step, limit, look)
  local key, from, moved, looked = line_key(queue, band, tenant), '-', 0, 1
  local until_due = now - step
  while moved < limit and looked < look do
    local head = call('ZRANGEBYLEX', key, from, '+', 'LIMIT', 0, 1)[1]
    if not head then break end
    local rank = struct.unpack('>I2', head)
    if (band > 0 or rank > 0) and until_due >= 0 then
      local to = '(' .. line_position(rank, until_due + 1, 0)
      local first = '[' .. line_position(rank, 0, 0)
      while moved < limit and looked < look do
        local members, seqs = call('ZRANGEBYLEX', key, first, to, 'LIMIT', 0, math.min(limit, 200)), {}
        if #members == 0 then break end
        for place, member in ipairs(members) do
          local _, _, seq = struct.unpack('>I2I8I8', member)
          seqs[place] = seq
        end
        for _, job in ipairs(read_jobs(seqs)) do
          looked = looked + 1
          local reached = job and math.max(job.band + job.rank - math.floor((now - job.state.due) / step), 0)
          if job and reached < band + rank and moved < limit then
            local state = {}
            for name, value in pairs(job.state) do state[name] = value end
            state.aged = reached
            move(job, state)
            moved = moved + 1
          end
        end
        first = '(' .. members[#members] .. '\255'
      end
    end
    from = '(' .. struct.pack('>I2', rank) .. '\255'
  end
  return moved, looked
end

-- Age lines by band and tenant. One that has looked at enough says where: the next one begins there.
local function age(queue, step, limit)
  local moved, looked, place = 0, 0, 'age:' .. queue
  local kept = call('HGET', P .. 'passed', place)
  local begin = kept and unpacked(kept)
  for _, name in ipairs(call('ZRANGEBYSCORE', P .. 'bands:' .. queue, begin and begin[1] or '-inf', '+inf')) do
    local band = tonumber(name)
    local from = begin and begin[1] == band and '[' .. begin[2] or '-'
    while from do
      local tenants = call('ZRANGEBYLEX', tenants_key(queue, band), from, '+', 'LIMIT', 0, LINES)
      for _, tenant in ipairs(tenants) do
        if moved >= limit or looked >= op.look then
          write_jobs()
          if begin or looked >= op.look then call('HSET', P .. 'passed', place, pack({band, tenant})) end
          return moved
        end
        local more, seen = age_line(queue, band, tenant, step, limit - moved, op.look - looked)
        moved, looked = moved + more, looked + seen
      end
      from = #tenants == LINES and '(' .. tenants[LINES] or nil
    end
  end
  write_jobs()
  if begin then call('HDEL', P .. 'passed', place) end
  return moved
end

if what == 'promote' then
  local count, due = promote_due(op.limit, now)
  return {count, due and whole(due) or false}
elseif what == 'age' then
  return age(op.queue, op.step, op.limit)
elseif what == 'claimed' then
  -- The leases of one claim, each by itself: for a worker that could not read them together.
  local found = {}
  for place, job in ipairs(leases_of_claim(op.worker, op.claim_no)) do
    found[place] = {
      job.seq, job.body, packed_state(job, job.state), job.tenant, job.queue, job.type, job.band, job.rank,
      job.dedup or false, job.key and pack(job.key) or false,
    }
  end
  return found
elseif what == 'replace' then
  call('SET', JOB .. text_of(op.seq), ARGV[4])
  call('HSET', P .. 'id', op.id, op.seq)
  return 1
elseif what == 'retire' then
  local held = numbers(call('ZRANGE', P .. 'leases:' .. op.worker, 0, -1))
  table.sort(held)
  local attempts, claims, ago, outcomes = {}, {}, {}, {}
  for place, job in ipairs(read_jobs(held)) do
    attempts[place], claims[place] = job.state.attempt, job.state.claim
    ago[place], outcomes[place] = 0, {kind = 'released'}
  end
  settle(op.worker, {held, attempts, claims, {}, ago, outcomes}, now)
  write_jobs()
  if #ended_nodes > 0 then end_nodes(now) end
  forget_worker(op.worker)
  wake_for_freed()
  return #held
end

local reclaimed = {}
if what == 'lapse' then
  if call('ZSCORE', P .. 'workers', op.worker) then
    start(op.worker, op.starts, now)
    write_jobs()
    take_back_from(op.worker, 10 ^ 9, now, reclaimed)
    forget_worker(op.worker)
  end
elseif what == 'reclaim' and op.limit > 0 then
  reclaim_lapsed(op.limit, now, reclaimed)
  local room = op.limit - #reclaimed
  if room > 0 then
    local overdue = {}
    for _, worker in ipairs(call('ZRANGE', P .. 'workers', 0, -1)) do
      for _, seq in ipairs(call('ZRANGEBYSCORE', P .. 'leases:' .. worker, '-inf', now, 'LIMIT', 0, AT_ONCE)) do
        overdue[#overdue + 1] = tonumber(seq)
      end
    end
    table.sort(overdue)
    for place, job in ipairs(read_jobs(overdue)) do
      if place > room then break end
      local cause = job.state.started and 'deadline_passed' or 'start_by_passed'
      reclaimed[#reclaimed + 1] = take_back(job, cause, now)
    end
    write_jobs()
  end
end
if #ended_nodes > 0 then end_nodes(now) end
wake_for_freed()
return reclaimed
