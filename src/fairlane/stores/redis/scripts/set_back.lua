-- After the server's clock was set back: what began in the future begins now. Documents (breakers, alerts, limits) are
-- left to the handler in health.py; claims counted under rates to `rate_used`, which meets them.
-- ARGV: instant or '', {behind: by how much the caller has seen it go back, or 0, held, limit}.
-- Answers {now, behind, moved, whether jobs are left to be examined}.
even_when_full()
local now = clock(ARGV[1], true)
local op = unpacked(ARGV[2])
local lists = {UNFINISHED, STATUS.failed}
local behind, to = op.behind, call('HGET', META, 'set_back_to')

-- How far the newest thing that was written lies in the future.
local function seen_ahead()
  local newest = now
  local function see(instant) newest = math.max(newest, tonumber(instant or now)) end
  for _, worker in ipairs(call('ZRANGE', P .. 'workers', 0, -1)) do see(call('HGET', P .. 'worker:' .. worker, 'renewed')) end
  for _, taken in ipairs(call('HVALS', P .. 'duty')) do see(taken) end
  local last = 0
  for _, place in ipairs({'ready', 'failed', 'completed', 'dead', 'cancelled'}) do
    last = math.max(last, tonumber(call('ZRANGE', STATUS[place], -1, -1)[1] or 0))
  end
  local is_body, enqueued = head_of(call('GET', JOB .. text_of(last)), 5)
  if is_body then see(enqueued) end
  return newest - now > op.held and newest - now or 0
end

local function begin_now()
  for _, worker in ipairs(call('ZRANGE', P .. 'workers', 0, -1)) do
    local key = P .. 'worker:' .. worker
    local kept = call('HMGET', key, 'renewed', 'expires', 'registered')
    local renewed = tonumber(kept[1] or now)
    if renewed > now then
      local expires = whole(now + tonumber(kept[2]) - renewed)
      call('HSET', key, 'renewed', whole(now), 'expires', expires, 'registered', whole(math.min(kept[3], now)))
      call('ZADD', P .. 'workers', expires, worker)
    end
    for _, job in ipairs(read_jobs(numbers(call('ZRANGE', LEASES .. worker, 0, -1)))) do
      local state = job and job.state
      local began = state and (state.started or state.leased)
      if state and math.max(began, state.leased, state.due) > now then
        local new = {}
        for name, value in pairs(state) do new[name] = value end
        new.deadline = state.deadline - math.max(began - now, 0)
        new.leased, new.due = math.min(state.leased, now), math.min(state.due, now)
        new.started = state.started and math.min(state.started, now)
        move(job, new)
      end
    end
  end
  local duties = call('HGETALL', P .. 'duty')
  for place = 1, #duties, 2 do
    if tonumber(duties[place + 1]) > now then call('HSET', P .. 'duty', duties[place], whole(now)) end
  end
  call('DEL', P .. 'passed')
  repeat -- what time would let in at keys is looked at again
    local ahead, looks = call('ZRANGEBYSCORE', keys.DUE, '(' .. whole(now), '+inf', 'LIMIT', 0, AT_ONCE), {}
    for _, id in ipairs(ahead) do
      looks[#looks + 1] = 0
      looks[#looks + 1] = id
    end
    in_lots('ZADD', keys.DUE, looks)
  until #ahead < AT_ONCE
  write_jobs()
end

-- A sleep, or the wait for a signal, that ends when the job is due.
local function move_suspension(job, was_due, due)
  local facts = call('HGETALL', facts_key(job))
  for place = 1, #facts, 2 do
    local name, kept = facts[place], nil
    if name == 'wait' or name:find('^step:') then kept = unpacked(facts[place + 1]) end
    if kept and kept['until'] == was_due and (name == 'wait' or kept.kind == 'sleep') then
      kept['until'] = due
      call('HSET', facts_key(job), name, pack(kept))
    end
  end
end

if behind == 0 and not to then behind = seen_ahead() end
if behind > 0 then
  begin_now()
  to = '+inf'
  call('HSET', META, 'set_back_at', whole(now), 'set_back_by', whole(behind))
end
if not to then return {whole(now), '0', 0, 0} end

local seqs = {}
for _, list in ipairs(lists) do
  for _, seq in ipairs(numbers(call('ZREVRANGEBYSCORE', list, '(' .. to, '-inf', 'LIMIT', 0, op.limit))) do
    seqs[#seqs + 1] = seq
  end
end
table.sort(seqs, function(one, other) return one > other end)
for place = #seqs, op.limit + 1, -1 do seqs[place] = nil end

local moved = 0
for _, job in ipairs(read_jobs(seqs)) do
  local state = job and job.state
  if state and state.place == 'ready' and state.due > now then
    local later = waiting_state('ready', now, state, state.put_off)
    later.period = state.period
    move(job, later)
    moved = moved + 1
  elseif state and state.since and state.since > now then
    local later = waiting_state(state.place, now + math.max(state.due - state.since, 0), state, state.put_off)
    later.since, later.waits = now, state.waits
    move_suspension(job, state.due, later.due)
    move(job, later)
    moved = moved + 1
  end
end
write_jobs()
local more = #seqs >= op.limit
if more then
  call('HSET', META, 'set_back_to', #seqs > 0 and text_of(seqs[#seqs]) or to)
else
  call('HDEL', META, 'set_back_to')
end
return {whole(now), whole(behind), moved, more and 1 or 0}
