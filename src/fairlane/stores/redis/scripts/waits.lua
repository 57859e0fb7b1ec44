-- Durable steps, and the jobs that wait for signals: before what ends attempts. A waiting job is in `scheduled`; its
-- state names what it waits for in `waits`, so that it leaves `waits:<…>` with that state.

local function signal_name(tenant, name, key) return joined(tenant, joined(name, key)) end

local function has_step(job, n) return call('HEXISTS', facts_key(job), 'step:' .. n) == 1 end
local function has_carried_steps(job) return call('HEXISTS', facts_key(job), 'has_carried_steps') == 1 end
local function has_heard(seq, signal) return call('HEXISTS', P .. 'facts:' .. seq, 'heard:' .. signal) == 1 end

local function write_step(job, step) call('HSET', facts_key(job), 'step:' .. step.n, pack(step)) end

-- The oldest signal that a job has not had: its id and its data.
local function unheard(job, name, key)
  local first, signals = 0, P .. 'signals:' .. signal_name(job.tenant, name, key)
  while true do
    local found = call('ZRANGE', signals, first, first + AT_ONCE - 1)
    for _, id in ipairs(found) do
      if not has_heard(job.seq, id) then return id, unpacked(call('HGET', P .. 'signal', id)).data end
    end
    if #found < AT_ONCE then return nil end
    first = first + AT_ONCE
  end
end

-- Record the step in which a job waited, with its signal or without one.
local function end_wait(job, wait, signal, data, now)
  write_step(job, {
    n = wait.n, kind = 'wait', name = wait.name, key = wait.key, attempt = wait.attempt, at = now, result = data,
    signal = signal,
  })
  if signal then call('HSET', facts_key(job), 'heard:' .. signal, 1) end
  call('HDEL', facts_key(job), 'wait')
end

-- Record a sleep, or what a job waits for; `state` is the one it gets.
local function suspend(job, state, given, now)
  if has_step(job, given.n) then return end
  local wait = {n = given.n, name = given.name, key = given.key, attempt = state.attempt, ['until'] = state.due}
  if not given.signal then
    write_step(job, {
      n = given.n, kind = 'sleep', name = given.name, key = '', attempt = state.attempt, at = now,
      ['until'] = state.due,
    })
    return
  end
  local signal, data = unheard(job, given.name, given.key)
  if signal then
    end_wait(job, wait, signal, data, now)
    state.due = now
  else
    call('HSET', facts_key(job), 'wait', pack(wait))
    state.waits = signal_name(job.tenant, given.name, given.key)
  end
end

return signal_name, has_step, has_carried_steps, has_heard, write_step, unheard, end_wait, suspend
