-- What keeps leases and lines moving beside the Turns: ARGV: instant or '', what, its arguments.
even_when_full()
local now = clock(ARGV[1], true)
local what, op = ARGV[2], unpacked(ARGV[3])

local function wake_for_freed()
  if gave_back or let_go or (#freed > 0 and call('HGET', META, 'leases_counted')) then wake_for_ready(now) end
end

-- Move jobs that have been ready for long up in their line, by band, tenant, rank, due and seq.
local function age(queue, step, limit)
  local moved, looked = 0, 0
  local until_due = now - step
  local top = struct.pack('>I8I8', 2 ^ 53, 2 ^ 53)
  for _, band in ipairs(call('ZRANGE', P .. 'bands:' .. queue, 0, -1)) do
    band = tonumber(band)
    for _, tenant in ipairs(call('ZRANGE', tenants_key(queue, band), 0, -1)) do
      local key = line_key(queue, band, tenant)
      local from = '-'
      while moved < limit and looked < op.look do
        local head = call('ZRANGEBYLEX', key, from, '+', 'LIMIT', 0, 1)[1]
        if not head then break end
        local rank = struct.unpack('>I2', head)
        if (band > 0 or rank > 0) and until_due >= 0 then
          local to = '(' .. line_position(rank, until_due + 1, 0)
          local first = '[' .. line_position(rank, 0, 0)
          while moved < limit and looked < op.look do
            local members = call('ZRANGEBYLEX', key, first, to, 'LIMIT', 0, math.min(limit, 200))
            if #members == 0 then break end
            for _, member in ipairs(members) do
              local _, due, seq = struct.unpack('>I2I8I8', member)
              local job = read_job(seq)
              local reached = math.max(job.band + job.rank - math.floor((now - job.state.due) / step), 0)
              looked = looked + 1
              if reached < band + rank and moved < limit then
                local state = {}
                for name, value in pairs(job.state) do state[name] = value end
                state.aged = reached
                move(job, state)
                moved = moved + 1
              end
              first = '(' .. line_position(rank, due, seq) .. '\255'
            end
          end
        end
        from = '(' .. struct.pack('>I2', rank) .. '\255'
      end
      if moved >= limit or looked >= op.look then break end
    end
  end
  write_jobs()
  return moved
end

if what == 'promote' then
  return {promote_due(op.limit, now), next_due()}
elseif what == 'age' then
  return age(op.queue, op.step, op.limit)
elseif what == 'retire' then
  local held = numbers(call('ZRANGE', P .. 'leases:' .. op.worker, 0, -1))
  table.sort(held)
  local outcomes = {}
  for place, job in ipairs(read_jobs(held)) do
    outcomes[place] = {kind = 'released', seq = job.seq, attempt = job.state.attempt}
  end
  settle(op.worker, outcomes, now)
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
