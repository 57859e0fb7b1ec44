-- Starts and ends of attempts, and what becomes of leases that nobody works on any more.

local MAX_CRASHES = 3
local freed = {} -- jobs whose leases have ended

------------------------------------------------------------------------------------------------------------------------
-- Rates: how many claims were counted against a key, by the instant of their claim
------------------------------------------------------------------------------------------------------------------------

local function rate_key(kind, name, queue) return P .. 'rate:' .. kind .. ':' .. joined(name, queue) end
local function used_key(key) return P .. 'rate_used:' .. key:sub(#P + #'rate:' + 1) end

local function uses_of(member) return tonumber(member:match(':(%d+)$')) end

-- The keys of a rate that nobody uses any more go by themselves, an hour after the last of it was to be counted twice
-- over: both at the same instant, or the number would say less than the set. `period`: nil leaves their end as it is.
local function rate_use(key, at, number, period)
  local known = call('ZRANGEBYSCORE', key, at, at, 'LIMIT', 0, 1)[1]
  local total = number + (known and uses_of(known) or 0)
  if total > 0 then call('ZADD', key, at, whole(at) .. ':' .. total) end
  if known then call('ZREM', key, known) end -- after the other: an empty set would lose its end
  call('INCRBY', used_key(key), number)
  if period then
    local left_ms = whole(math.ceil(period / 1000) * 2 + 3600000)
    call('PEXPIRE', key, left_ms)
    call('PEXPIRE', used_key(key), left_ms)
  end
end

-- What was counted in the future, before the clock was set back, counts from then on, as the leases say that were.
local function count_from_now(key, now)
  while true do
    local ahead = call('ZRANGEBYSCORE', key, '(' .. whole(now), '+inf', 'LIMIT', 0, AT_ONCE)
    if #ahead == 0 then return end
    local number, at = 0, math.min(now, tonumber(call('HGET', META, 'set_back_at') or now))
    for _, member in ipairs(ahead) do number = number + uses_of(member) end
    rate_use(key, at, number)
    call('ZREM', key, unpack(ahead))
    call('DECRBY', used_key(key), number)
  end
end

-- What counts against a rate now; what no longer does is forgotten.
local function rate_used(key, since, now)
  count_from_now(key, now)
  while true do
    local over = call('ZRANGEBYSCORE', key, '-inf', since, 'LIMIT', 0, AT_ONCE)
    if #over == 0 then break end
    local number = 0
    for _, member in ipairs(over) do number = number + uses_of(member) end
    call('ZREM', key, unpack(over))
    call('DECRBY', used_key(key), number)
  end
  if call('EXISTS', key) == 0 then call('DEL', used_key(key)) end
  return tonumber(call('GET', used_key(key)) or 0)
end

-- Take a claim out of the count whose attempt never started.
local function give_back(job, now)
  for _, key in ipairs(job.state.rated or {}) do
    count_from_now(P .. key, now)
    if call('ZCOUNT', P .. key, job.state.leased, job.state.leased) > 0 then rate_use(P .. key, job.state.leased, -1) end
  end
end

-- When `wanted` more fit, if nobody else comes; nil: they fit now, or never will.
local function rate_free_at(key, count, period, now, wanted)
  local missing = rate_used(key, now - period, now) + wanted - count
  if missing <= 0 or wanted > count then return nil end
  local first = 0
  while true do
    local members = call('ZRANGE', key, first, first + AT_ONCE - 1)
    if #members == 0 then return nil end
    for _, member in ipairs(members) do
      missing = missing - uses_of(member)
      if missing <= 0 then return tonumber(member:match('^(-?%d+):')) + period end
    end
    first = first + AT_ONCE
  end
end

------------------------------------------------------------------------------------------------------------------------
-- Ends of attempts
------------------------------------------------------------------------------------------------------------------------

local RECORDED_AS = {
  completed = 'completed', retried = 'failed', died = 'dead', cancelled = 'cancelled', snoozed = 'snoozed',
  released = 'released', crashed = 'lost',
}

local function ended_by(state, outcome, started, at)
  return {
    attempt = state.attempt, outcome = outcome, worker = state.worker, leased = state.leased, expires = state.deadline,
    started = started, ended = at,
  }
end

local function because(ended, failure)
  ended.error_class, ended.error_type = failure.error_class, failure.error_type
  ended.error_message, ended.traceback = failure.message, failure.traceback
end

local function waiting_state(place, due, counters, put_off)
  return {
    place = place, due = due, attempt = counters.attempt, attempts = counters.attempts, crashes = counters.crashes,
    suspect = counters.suspect, aged = counters.aged, put_off = put_off,
  }
end

-- `claim`: of the lease that is named. The number alone may be that of a job which this server has lost.
local function is_leased_to(job, worker, attempt, claim)
  local state = job and job.state
  return state and state.place == 'leased' and state.worker == worker and state.attempt == attempt
    and state.claim == claim
end

local function number(value) return value or 0 end

local function drop_lease(job) freed[#freed + 1] = job end

-- A failure no task code raised; readers make its fingerprint from type and error type.
local function own_failure(error_type, message)
  return {error_class = 'transient', error_type = error_type, message = message}
end

-- End a lease its worker has lost; `started`: somebody else knows that it had.
local function take_back(job, cause, now, crash)
  local state = job.state
  local started = state.started
  if crash then started = crash.started end
  local had_started = crash or started
  local alone = crash or state.alone
  local counters = {
    attempt = state.attempt, attempts = number(state.attempts), crashes = number(state.crashes),
    suspect = state.suspect, aged = state.aged,
  }
  local place, failure = state.cancel and 'cancelled' or nil, nil
  if cause == 'worker_gone' and had_started then
    counters.suspect = true
    if alone then counters.crashes = counters.crashes + 1 end
    failure = own_failure('WorkerLost', 'its worker is gone')
    if not place and alone and counters.crashes >= MAX_CRASHES then
      place = 'dead'
      failure = own_failure('Crashed', 'its process died ' .. MAX_CRASHES .. ' times while it ran alone')
    end
  elseif cause == 'deadline_passed' then
    counters.attempts = counters.attempts + 1
    place = place or 'dead'
    failure = own_failure('JobStuck', 'Job exceeded timeout threshold')
  end
  local outcome = cause == 'start_by_passed' and 'released' or 'lost'
  local ended = ended_by(state, outcome, started, crash and crash.ended or now)
  if failure then because(ended, failure) end
  if not had_started then give_back(job, now) end
  drop_lease(job)
  if not place then
    record(job, ended)
    move(job, waiting_state('ready', state.due, counters))
    anew.ready = true
  else
    if place == 'dead' then open_dead_letter(job, failure, ended.ended) end
    finish(job, place, ended.ended, counters, ended)
  end
  return {job.seq, id_of(job), state.attempt, state.worker, cause, place or 'ready', job.type, job.tenant}
end

local function is_repeat(job, worker, attempt, outcome)
  if outcome.kind == 'snoozed' and not outcome.recorded then return true end
  if not job then return false end
  local recorded, state = RECORDED_AS[outcome.kind], job.state
  if state.place == 'completed' and state.attempt == attempt then
    return state.worker == worker and state.outcome == recorded
  end
  local kept = call('HGET', facts_key(job), 'attempt:' .. attempt)
  if not kept then return false end
  kept = unpacked(kept)
  return kept.worker == worker and kept.outcome == recorded
end

local function die(job, ended, counters, failure)
  open_dead_letter(job, failure, ended.ended)
  finish(job, 'dead', ended.ended, counters, ended)
end

-- One outcome of an attempt whose lease is the worker's own.
local function settle_one(job, outcome, started, ended_at, now)
  local state, kind = job.state, outcome.kind
  if kind == 'crashed' then
    take_back(job, 'worker_gone', now, {started = started, ended = ended_at})
    return
  end
  drop_lease(job)
  local counters = {
    attempt = state.attempt, attempts = number(state.attempts), crashes = number(state.crashes), aged = state.aged,
  }
  local ended = ended_by(state, RECORDED_AS[kind], started, ended_at)
  if kind == 'completed' then
    if outcome.result then call('HSET', facts_key(job), 'result', outcome.result) end
    finish(job, 'completed', ended_at, counters, ended)
    return
  end
  local unrecorded = kind == 'snoozed' and not outcome.recorded
  if unrecorded or (kind == 'released' and not started) then give_back(job, now) end
  if kind == 'retried' or (kind == 'died' and outcome.charged) then counters.attempts = counters.attempts + 1 end
  if unrecorded or kind == 'released' or kind == 'cancelled' then counters.suspect = state.suspect end
  local failure = outcome.failure
  if failure then because(ended, failure) end
  if kind == 'cancelled' then ended.error_message = outcome.reason end
  if kind == 'died' then
    die(job, ended, counters, failure)
  elseif kind == 'cancelled' or state.cancel then
    finish(job, 'cancelled', ended_at, counters, ended)
  elseif kind == 'snoozed' and failure then
    -- A series of snoozes for one reason has one record: the newest of the job, apart from attempts given back.
    local kept = call('HGET', facts_key(job), 'put_off')
    local series = kept and unpacked(kept)
    local since = series and series[1] == failure.error_type and series[2] or nil
    if since and outcome.give_up and since + outcome.give_up <= now then
      ended.outcome = 'dead'
      die(job, ended, counters, failure)
      return
    end
    if outcome.recorded or not since then record(job, ended) end
    local later = waiting_state('scheduled', math.min(now + outcome.delay, LATEST_US), counters, true)
    later.since = now
    move(job, later)
  else
    if not unrecorded then record(job, ended) end
    if kind == 'released' then
      move(job, waiting_state('ready', state.due, counters))
      anew.ready = true
    else
      local place = kind == 'retried' and 'failed' or 'scheduled'
      local later = waiting_state(place, math.min(now + outcome.delay, LATEST_US), counters)
      later.since = now
      if outcome.suspension then suspend(job, later, outcome.suspension, now) end
      move(job, later)
    end
  end
end

local PLAIN = {kind = 'completed'}

-- End attempts whose lease is still the worker's; returns the others, except repeats of recorded ones. `given` has a
-- list of each: numbers, attempts, claims, how long they ran (if that is known), how long ago they ended; then by place
-- those that are no completions without a result. `counted`: somebody may wait for the room that their leases leave.
local function settle(worker, given, now, counted)
  local seqs, attempts, claims, ran, ago, others = unpack(given, 1, 6)
  local texts, done, rest, left, refused, shared = {}, {}, {}, {}, {}, {}
  for place = 1, #seqs do texts[place] = text_of(seqs[place]) end
  for place, kept in ipairs(read_in_lots(STATE, texts)) do
    local seq = seqs[place]
    local queue, tenant, task
    if kept and not (others[place] or jobs[seq] or done[seq]) then
      queue, tenant, task = complete(
        texts[place], worker, attempts[place], claims[place], kept, ran[place], now - ago[place], shared)
    end
    if not queue then
      rest[#rest + 1], left[#left + 1] = place, seq
    else
      done[seq] = true
      if counted then drop_lease({queue = queue, tenant = tenant, type = task}) end
    end
  end
  if #rest == 0 then return refused end
  write_jobs()
  local found, leaseless = read_jobs(left), {}
  for number, place in ipairs(rest) do
    local job = found[number]
    if is_leased_to(job, worker, attempts[place], claims[place]) then
      local ended_at, started = now - ago[place], job.state.started
      if not started and ran[place] then started = ended_at - ran[place] end
      settle_one(job, others[place] or PLAIN, started, ended_at, now)
    else
      leaseless[#leaseless + 1] = {job, place}
    end
  end
  for _, pair in ipairs(leaseless) do
    local place = pair[2]
    if not is_repeat(pair[1], worker, attempts[place], others[place] or PLAIN) then
      refused[#refused + 1] = {seqs[place], attempts[place], claims[place]}
    end
  end
  return refused
end

-- Mark attempts as begun, each `ran` ago; returns those whose lease is gone.
local function start(worker, starts, now)
  local refused = {}
  for _, given in ipairs(starts) do
    local job = read_job(given.seq)
    if is_leased_to(job, worker, given.attempt, given.claim_no) then
      local state = {}
      for name, value in pairs(job.state) do state[name] = value end
      local began = now - given.ran
      state.started = state.started or began
      state.deadline = math.min(began + given.lease, LATEST_US)
      state.alone = given.alone or nil
      move(job, state)
    else
      refused[#refused + 1] = {given.seq, given.attempt, given.claim_no}
    end
  end
  return refused
end

------------------------------------------------------------------------------------------------------------------------
-- Workers that are gone, jobs that are due
------------------------------------------------------------------------------------------------------------------------

local function forget_worker(worker)
  call('ZREM', P .. 'workers', worker)
  call('SREM', P .. 'waiting', worker)
  call('DEL', P .. 'worker:' .. worker)
end

local function numbers(members)
  local found = {}
  for place, member in ipairs(members) do found[place] = tonumber(member) end
  return found
end

-- The leases that one claim of a worker has made, as they were given, with their bodies.
local function leases_of_claim(worker, claim_no)
  local found = {}
  for _, job in ipairs(read_jobs(numbers(call('ZRANGE', LEASES .. worker, 0, -1)))) do
    if job and job.state.claim == claim_no then found[#found + 1] = job end
  end
  table.sort(found, function(one, other) return one.state.nth < other.state.nth end)
  read_bodies(found)
  return found
end

-- Take back up to `most` leases of a worker, by seq; whether it has none left.
local function take_back_from(worker, most, now, reclaimed)
  write_jobs() -- it may have completed some in this very Turn
  local held = numbers(call('ZRANGE', P .. 'leases:' .. worker, 0, -1))
  table.sort(held)
  for place, job in ipairs(read_jobs(held)) do
    if place > most then break end
    reclaimed[#reclaimed + 1] = take_back(job, 'worker_gone', now)
  end
  write_jobs()
  return #held <= most
end

-- Take back leases of lapsed workers, oldest heartbeat first; their rows go with their last lease.
local function reclaim_lapsed(limit, now, reclaimed)
  if limit <= 0 then return end
  for _, worker in ipairs(call('ZRANGEBYSCORE', P .. 'workers', '-inf', now, 'LIMIT', 0, AT_ONCE)) do
    local room = limit - #reclaimed
    if room <= 0 then return end
    if take_back_from(worker, room, now, reclaimed) then forget_worker(worker) end
  end
end

local function next_due() return tonumber(call('ZRANGE', SCHEDULED, 0, 0, 'WITHSCORES')[2] or '') end

-- Make up to `limit` jobs ready that are due; answers how many, and when the next one is.
local function promote_due(limit, now)
  local first = next_due()
  if limit <= 0 or not first or first > now then return 0, first end
  local due = numbers(call('ZRANGEBYSCORE', SCHEDULED, '-inf', now, 'LIMIT', 0, limit))
  for place, job in ipairs(read_jobs(due)) do
    if job then
      move(job, waiting_state('ready', job.state.due, job.state, job.state.put_off))
    else -- no body says whose it is, and the others are not to wait for it
      call('ZREM', SCHEDULED, by_number(due[place]))
    end
  end
  write_jobs()
  return #due, next_due()
end

return freed, rate_key, rate_used, rate_use, rate_free_at, give_back, waiting_state, is_leased_to, number, take_back, settle, start,
  forget_worker, numbers, leases_of_claim, take_back_from, reclaim_lapsed, promote_due, next_due
