-- Tokens taken under rates of enqueueing, and held jobs let go. ARGV: instant or '', what, its arguments.
-- Answers {'limits', version, limits} where what people set has changed: send it again.
local what, op = ARGV[2], unpacked(ARGV[3])
local version = tonumber(call('HGET', META, 'limits_version') or 0)
if version ~= op.version then return {'limits', version, call('HVALS', P .. 'limit')} end
local now = clock(ARGV[1], true)

if what == 'tokens' then
  for place, asked in ipairs(op.asked) do
    local key = rate_key('enqueue', asked.tenant, '')
    if asked.count + rate_used(key, now - asked.period, now) > asked.most then
      local at = rate_free_at(key, asked.most, asked.period, now, asked.count)
      return {'refused', place, at and whole(at) or false}
    end
  end
  for _, asked in ipairs(op.asked) do
    if asked.count > 0 then rate_use(rate_key('enqueue', asked.tenant, ''), now, asked.count, asked.period) end
  end
  return {'granted'}
end

-- Lines with held jobs, each with how many may wait in it (nil: any), in order.
local left, queues, some = op.limit, {}, false
for _, line in ipairs(op.lines) do
  if left <= 0 then break end
  local room = left
  if line.most then
    -- Those held at their keys wait as well.
    local found = -call('ZCARD', P .. 'held:' .. joined(line.queue, line.tenant))
    local places = {'ready:', 'scheduled:', 'failed:', 'held:', 'prefetched:', 'processing:'}
    for number, place in ipairs(places) do places[number] = place .. line.queue end
    for _, count in ipairs(call('HMGET', P .. 'count:' .. line.tenant, unpack(places))) do found = found + (count or 0) end
    room = math.min(left, line.most - found)
  end
  if room > 0 then
    local key = P .. 'held:' .. joined(line.queue, line.tenant)
    local held = numbers(call('ZRANGE', key, 0, room - 1))
    for place, job in ipairs(read_jobs(held)) do
      if not job then
        call('ZREM', key, held[place])
      else
        local due = job.state.due
        -- Also one that was due at its enqueue, in the future: the clock was set back since.
        if due <= job.enqueued then due = math.min(due, now) end
        if due <= now then queues[job.queue], some = true, true end
        move(job, {place = due <= now and 'ready' or 'scheduled', due = due})
      end
    end
    left = left - #held
    write_jobs()
  end
end
if some then wake(now, queues, false) end
return {'freed', op.limit - left}
