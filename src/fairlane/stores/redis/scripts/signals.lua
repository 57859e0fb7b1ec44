-- Records steps of running attempts, keeps signals and delivers them.
-- ARGV: instant or '', what, its arguments.
if ARGV[2] ~= 'emit' then even_when_full() end
local now = clock(ARGV[1], true)
local what, op = ARGV[2], unpacked(ARGV[3])

local function leased()
  local job = read_job(op.seq)
  return is_leased_to(job, op.worker, op.attempt, op.claim_no) and job or nil
end

local function step_of(job) return call('HGET', facts_key(job), 'step:' .. op.n) end

local function record_step()
  local job = leased()
  if not job then return {0} end
  if not has_step(job, op.n) then
    write_step(job, {
      n = op.n, kind = 'call', name = op.name, key = '', attempt = op.attempt, at = now, ran_s = op.ran_s,
      result = ARGV[4],
    })
  end
  return {1, step_of(job)}
end

local function take_signal()
  local job = leased()
  if not job then return {0} end
  if not has_step(job, op.n) then
    local signal, data = unheard(job, op.name, op.key)
    local kept = call('HGET', facts_key(job), 'wait')
    local wait = kept and unpacked(kept)
    if not signal and not (wait and wait.n == op.n) then return {1} end
    if not signal and wait['until'] > now then return {1, false, whole(wait['until'] - now)} end
    end_wait(job, {n = op.n, name = op.name, key = op.key, attempt = op.attempt}, signal, data, now)
  end
  return {1, step_of(job)}
end

-- End the waits of up to `most` jobs for a signal, by seq; returns how many. One that has reached all is delivered.
local function deliver_to(id, most)
  local signal = unpacked(call('HGET', P .. 'signal', id))
  local waiting = P .. 'waits:' .. signal_name(signal.tenant, signal.name, signal.key)
  local first, ended, queues, some, left = 0, 0, {}, false, false
  repeat
    local found = call('ZRANGE', waiting, first, first + AT_ONCE - 1)
    for _, job in ipairs(read_jobs(numbers(found))) do
      if job and not has_heard(job.seq, id) then
        if ended == most then
          left = true
          break
        end
        local wait = unpacked(call('HGET', facts_key(job), 'wait'))
        end_wait(job, wait, id, signal.data, now)
        move(job, waiting_state('scheduled', now, job.state))
        queues[job.queue], some, ended = true, true, ended + 1
      end
    end
    first = first + AT_ONCE
  until left or #found < AT_ONCE
  write_jobs()
  if not left then call('ZREM', P .. 'undelivered', id) end
  if some then wake(now, queues, false) end
  return ended
end

local function emit()
  if call('HEXISTS', P .. 'signal', op.id) == 1 then return {1, 0} end
  call('HSET', P .. 'signal', op.id, pack({tenant = op.tenant, name = op.name, key = op.key, at = now, data = ARGV[4]}))
  call('ZADD', P .. 'signals', now, op.id)
  call('ZADD', P .. 'signals:' .. signal_name(op.tenant, op.name, op.key), now, op.id)
  call('ZADD', P .. 'undelivered', now, op.id)
  return {0, op.deliver and deliver_to(op.id, op.limit) or 0}
end

local function deliver()
  local found, count = call('ZRANGE', P .. 'undelivered', 0, op.limit - 1), 0
  if op.limit == 0 then found = {} end
  for _, id in ipairs(found) do count = count + deliver_to(id, op.limit - count) end
  return {count, #found}
end

local function forget()
  local found = call('ZRANGEBYSCORE', P .. 'signals', '-inf', '(' .. whole(op.before), 'LIMIT', 0, op.limit)
  for _, id in ipairs(found) do
    local signal = unpacked(call('HGET', P .. 'signal', id))
    call('ZREM', P .. 'signals:' .. signal_name(signal.tenant, signal.name, signal.key), id)
    call('ZREM', P .. 'undelivered', id)
  end
  in_lots('ZREM', P .. 'signals', found)
  in_lots('HDEL', P .. 'signal', found)
  return #found
end

local functions = {record = record_step, take = take_signal, emit = emit, deliver = deliver, forget = forget}
return functions[what]()
