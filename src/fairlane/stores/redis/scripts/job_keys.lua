-- Who is let in at keys, and who has to wait there again.

local LOOK = 200 -- keys that one Turn looks at from either end of those that are due
local MOST = 1000 -- jobs that one Turn lets in
local ENDLESS = 2 ^ 52
local job_keys = {}

local function seq_at_key(position) return (struct.unpack('>I8', position, #position - 7)) end

-- What is in force at a key for the first job held there: what people have set for its name, field by field, before its
-- own. Places (nil: any number), rate, and until when nobody is let in.
local function terms_at_key(key, set)
  local said = set and set[keys.name_of(key[1])] or {}
  local running, rate = said.running or key[2], said.rate or key[5]
  if running == -1 then running = nil end
  if rate and rate[1] == -1 then rate = nil end
  if key[3] then running = math.min(running or 1, 1) end
  return running, rate, said.paused or 0
end

local function rate_of_key(tenant, value) return rate_key('key', tenant, value) end

-- How many more jobs fit, and when to look again if time alone lets somebody in.
local function room_at_key(tenant, value, running, rate, paused, now)
  local room, later = ENDLESS, nil
  if running then room = running - call('ZCARD', keys.PLACES .. joined(tenant, value)) end
  if rate then
    local key, ready = rate_of_key(tenant, value), keys.marks(tenant, value, '1')
    local waiting = call('ZLEXCOUNT', keys.READY, '[' .. ready, '(' .. keys.marks(tenant, value, '2'))
    local left = rate[1] - rate_used(key, now - rate[2], now) - waiting
    if left <= 0 then later = rate_free_at(key, rate[1], rate[2], now, waiting + 1) end
    room = math.min(room, left)
  end
  if paused > now then room, later = 0, math.min(later or paused, paused) end
  return room, later
end

-- Whether two keys of jobs say the same.
local function are_alike(one, other)
  local rate, others = one[5] or {}, other[5] or {}
  return one[2] == other[2] and one[3] == other[3] and rate[1] == others[1] and rate[2] == others[2]
end

-- Keys where somebody may be let in now: the first that are due, and where there are more, the last, so that nobody waits
-- for all the keys that somebody else has used at once.
local function keys_to_look_at(now)
  local found, known, ids = call('ZRANGE', keys.DUE, 0, LOOK - 1, 'WITHSCORES'), {}, {}
  local function add(list)
    for place = 1, #list, 2 do
      local id = list[place]
      if tonumber(list[place + 1]) <= now and not known[id] then
        known[id] = true
        ids[#ids + 1] = id
      end
    end
  end
  add(found)
  if #ids == LOOK then add(call('ZREVRANGEBYSCORE', keys.DUE, whole(now), '-inf', 'WITHSCORES', 'LIMIT', 0, LOOK)) end
  return ids, #found > 0
end

-- Make held jobs ready where there are places. `set`: by name of key, what people have set. Answers those jobs, whether
-- there may be more, and when the next one can be let in, as far as anybody knows.
function job_keys.let_in(set, now)
  local ids, has_some = keys_to_look_at(now)
  if not has_some then return {}, false, nil end
  local found, seqs, again, let, left = {}, {}, {}, {}, MOST
  for _, id in ipairs(ids) do
    local tenant, value = id:match('^(%Z*)%z(.*)$')
    local held = keys.LINE .. joined(tenant, value)
    local first = call('ZRANGE', held, 0, 1)
    if #first > 0 then found[#found + 1] = {id = id, tenant = tenant, value = value, held = held, first = first} end
    for _, position in ipairs(first) do seqs[#seqs + 1] = seq_at_key(position) end
  end
  read_jobs(seqs) -- all at once

  -- A job that stands at a key; nil: nobody can read it, or that it stands there. The others are not to wait for it.
  local function held_at(key, position)
    local job = read_job(seq_at_key(position))
    local stands = job and job.state.place == 'at_key' and job.tenant == key.tenant
    if stands and job.key and job.key[1] == key.value then return job end
    call('ZREM', key.held, position)
    keys.keep({[key.held] = key.id}, {})
    return nil
  end

  local function first_at(key)
    local first = held_at(key, key.first[1])
    while not first and left > 0 do
      left, key.first = left - 1, call('ZRANGE', key.held, 0, 1)
      if #key.first == 0 then return nil end
      first = held_at(key, key.first[1])
    end
    return first
  end

  -- The first jobs at a key, and the one behind them: by what that says others may be let in the next time.
  local function enter(key, count, terms, rate)
    local positions = count == 1 and key.first or call('ZRANGE', key.held, 0, count)
    for place, position in ipairs(positions) do
      local job = held_at(key, position)
      if not job then
        again[key.id] = 0
      elseif place <= count then
        local state = waiting_state('ready', job.state.due, job.state, job.state.put_off)
        state.period = rate and rate[2]
        move(job, state, true)
        let[#let + 1] = job
        left = left - 1
      elseif not are_alike(job.key, terms) then
        again[key.id] = 0
      end
    end
  end

  for _, key in ipairs(found) do
    local first = first_at(key)
    if not first then
      again[key.id] = 0
    else
      local running, rate, paused = terms_at_key(first.key, set)
      local room, later = room_at_key(key.tenant, key.value, running, rate, paused, now)
      again[key.id] = later
      local count = math.min(room, left)
      if count > 0 then enter(key, count, first.key, rate) end
      if room > count and left == 0 then again[key.id] = 0 end
    end
  end
  write_jobs()
  in_lots('ZREM', keys.DUE, ids)
  keys.keep({}, again)
  anew.keys = false
  local following = call('ZRANGEBYSCORE', keys.DUE, '(' .. whole(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  local more = #ids >= LOOK or left == 0
  return let, more, following and tonumber(following)
end

-- Everybody who is held at a key of a name may be let in by the next Turn.
function job_keys.look_again(name)
  local first = 0
  repeat
    local ids, looks = call('ZRANGE', keys.HELD, first, first + AT_ONCE - 1), {}
    for _, id in ipairs(ids) do
      if keys.name_of(id:match('%z(.*)$')) == name then
        looks[#looks + 1] = 0
        looks[#looks + 1] = id
      end
    end
    in_lots('ZADD', keys.DUE, looks)
    if #looks > 0 then anew.keys = true end
    first = first + AT_ONCE
  until #ids < AT_ONCE
end

-- What is in force for a name has changed: who was let in and is not claimed waits at its key again.
function job_keys.hold_again(name)
  repeat
    local marks = call('ZRANGEBYLEX', keys.READY, '[' .. name .. '\0', '(' .. name .. '\1', 'LIMIT', 0, AT_ONCE)
    local seqs = {}
    for place, mark in ipairs(marks) do seqs[place] = seq_at_key(mark) end
    for place, job in ipairs(read_jobs(seqs)) do
      if job and job.state.place == 'ready' then
        move(job, waiting_state('at_key', job.state.due, job.state, job.state.put_off))
      else -- nobody can read it
        call('ZREM', keys.READY, marks[place])
      end
    end
    write_jobs()
  until #marks < AT_ONCE
  job_keys.look_again(name)
end

-- The place of a job at its key is free, whatever becomes of the job.
function job_keys.free_place(job)
  if call('ZREM', keys.PLACES .. joined(job.tenant, job.key[1]), job.text) == 0 then return end
  if job.state.place == 'ready' then
    call('ZREM', keys.READY, keys.mark(job, '1'))
    call('ZADD', keys.READY, 0, keys.mark(job, '0'))
    local state = waiting_state('ready', job.state.due, job.state, job.state.put_off)
    move(job, state)
  end
  keys.keep({}, {[job.tenant .. '\0' .. job.key[1]] = job.seq})
  anew.keys = true
end

------------------------------------------------------------------------------------------------------------------------
-- What new jobs of one call do where their keys have no place: `given.policy`, and `given.most`, how many run at once
------------------------------------------------------------------------------------------------------------------------

-- The other unfinished jobs of a key by number, oldest first, as far as they can be read.
local function unfinished_at(name)
  local seqs = numbers(call('ZRANGE', keys.JOBS .. name, 0, -1))
  for _, position in ipairs(call('ZRANGE', keys.LINE .. name, 0, -1)) do seqs[#seqs + 1] = seq_at_key(position) end
  table.sort(seqs)
  return seqs
end

function job_keys.new_conflicts()
  -- `ends`: numbers of jobs that are replaced; `ended`: places in the call of such that it creates itself.
  local lines, conflicts = {}, {ends = {}, ended = {}}

  local function line_at(given)
    local name = joined(given.tenant, given.key[1])
    if not lines[name] then
      local count = call('ZCARD', keys.LINE .. name) + call('ZCARD', keys.JOBS .. name)
      lines[name] = {name = name, count = count, own = {}} -- `own`: places in the call of those that it creates
    end
    return lines[name]
  end

  -- The job that stands for this one, or nil: then `given.replaces` are those that it ends.
  function conflicts.meet(given)
    local line = given.policy and line_at(given)
    if not line or not given.most or line.count + #line.own < given.most then return nil end
    line.seqs = line.seqs or unfinished_at(line.name)
    if given.policy == 'discard' then
      for _, seq in ipairs(line.seqs) do
        if read_job(seq) then return {kind = 'job', seq = seq} end
      end
      return line.own[1] and {kind = 'job', twin = line.own[1]}
    end
    local waiting, running = {}, {}
    for place, job in ipairs(read_jobs(line.seqs)) do
      if job then table.insert(job.state.place == 'leased' and running or waiting, line.seqs[place]) end
    end
    for _, seq in ipairs(waiting) do conflicts.ends[seq] = true end
    for _, twin in ipairs(line.own) do conflicts.ended[twin] = true end
    given.replaces = {waiting = waiting, twins = line.own, running = given.policy == 'cancel_running' and running or {}}
    line.seqs, line.count, line.own = running, #running, {}
  end

  -- This one will be unfinished, unless it is held for its tenant's room.
  function conflicts.add(given, place)
    if given.key and not given.held then table.insert(line_at(given).own, place) end
  end

  -- End what a job replaces, with those of this call that were made before it.
  function conflicts.replace(replaced, receipts, now)
    write_new_jobs()
    for _, twin in ipairs(replaced.twins) do table.insert(replaced.waiting, receipts[twin].seq) end
    for _, job in ipairs(read_jobs(replaced.waiting)) do finish(job, 'cancelled', now, job.state, nil) end
    for _, job in ipairs(read_jobs(replaced.running)) do
      local state = {}
      for name, value in pairs(job.state) do state[name] = value end
      state.cancel = true
      move(job, state)
    end
    write_jobs()
  end

  return conflicts
end

return job_keys
