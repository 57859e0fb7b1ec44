-- Chooses ready jobs, fair over tenants, leaving out what is paused or has no room, and leases them.

local ENDLESS = 2 ^ 52
local MOST_PASSED = 1000 -- tenants without room that one Want passes over, half of what is left in each band
local LEAST_PASSED = 50 -- but at least these
local PASSED = P .. 'passed' -- by band and queue, where there were more: {last tenant, passed since all were, free at}
local GO_ON_US = 50000 -- when to look at those

------------------------------------------------------------------------------------------------------------------------
-- Limits. `given.at`: by key, what code and people allow together; -1: no limit. `given.named`: by type, its named keys.
------------------------------------------------------------------------------------------------------------------------

local SYSTEM, EVERYBODY = 'system', '*'

local function limit_name(kind, name, queue) return kind .. ':' .. joined(name, queue or '') end

-- Live leases counted under a key; `types`: the tasks of a named limit.
local function leases_under(bound, types)
  local kind, of, queue = bound.kind, bound.of, bound.queue
  local found
  if kind == 'queue' then
    found = call('HMGET', P .. 'counts', 'prefetched:' .. of, 'processing:' .. of)
  elseif kind == 'tenant' and queue then
    found = call('HMGET', P .. 'count:' .. of, 'prefetched:' .. queue, 'processing:' .. queue)
  elseif kind == 'tenant' then
    local all = call('HGETALL', P .. 'count:' .. of)
    found = {}
    for place = 1, #all, 2 do
      if all[place]:match('^prefetched:') or all[place]:match('^processing:') then found[#found + 1] = all[place + 1] end
    end
  elseif kind == 'type' then
    found = call('HMGET', P .. 'counts', 'type:' .. of)
  else
    found = {}
    for place, task in ipairs(types) do
      found[place] = call('HGET', P .. 'counts', 'type:' .. task)
    end
  end
  local leases = 0
  for _, count in ipairs(found) do leases = leases + (count or 0) end
  return leases
end

local function new_room(given, now)
  local room = {left = {}, held_back = {}, full_tasks = {}, lines = {}, tasks = {}, short = false, slots = ENDLESS}
  local rated, rates = {}, {}

  -- What one key allows; nil: everything.
  local function bound_of(kind, name, queue)
    local own = given.at[limit_name(kind, name, queue)] or {}
    local general = kind == 'tenant' and name ~= SYSTEM and given.at[limit_name(kind, EVERYBODY, queue)] or {}
    local running = own.running or general.running
    local rate = own.rate or general.rate
    if running == -1 then running = nil end
    if rate and rate[1] == -1 then rate = nil end
    if not running and not rate and not own.paused then return nil end
    return {
      name = limit_name(kind, name, queue), kind = kind, of = name, queue = queue, running = running, rate = rate,
      paused = own.paused or 0,
    }
  end

  local function count(bound)
    if bound.paused > now then return 0 end
    local left = ENDLESS
    if bound.running then left = bound.running - leases_under(bound, given.types[bound.of] or {}) end
    if bound.rate and left > 0 then
      local used = rate_used(rate_key(bound.kind, bound.of, bound.queue or ''), now - bound.rate[2], now)
      left = math.min(left, bound.rate[1] - used)
    end
    return left
  end

  local function least(bounds)
    local found = ENDLESS
    for _, bound in ipairs(bounds) do
      local left = room.left[bound.name]
      if not left then
        left = count(bound)
        room.left[bound.name] = left
      end
      if left <= 0 then room.held_back[bound.name] = bound end
      found = math.min(found, left, (bound.running or bound.rate) and room.slots or ENDLESS)
    end
    return found
  end

  local function of_line(queue, tenant)
    local name = joined(queue, tenant)
    local bounds = room.lines[name]
    if not bounds then
      bounds = {}
      bounds[#bounds + 1] = bound_of('queue', queue)
      bounds[#bounds + 1] = bound_of('tenant', tenant)
      bounds[#bounds + 1] = bound_of('tenant', tenant, queue)
      room.lines[name] = bounds
    end
    return bounds
  end

  local function of_task(task)
    local bounds = room.tasks[task]
    if not bounds then
      bounds = {}
      bounds[1] = bound_of('type', task)
      for _, name in ipairs(given.named[task] or {}) do bounds[#bounds + 1] = bound_of('named', name) end
      room.tasks[task] = bounds
    end
    return bounds
  end

  -- How many jobs of this tenant in this queue may be claimed, whatever their types.
  function room.in_line(queue, tenant) return least(of_line(queue, tenant)) end

  function room.in_queue(queue)
    local bound = bound_of('queue', queue)
    return bound and least({bound}) or ENDLESS
  end

  function room.has_for(task)
    if room.full_tasks[task] then return false end
    if least(of_task(task)) > 0 then return true end
    room.short = true
    if room.slots > 0 then room.full_tasks[task] = true end -- it stays so: room does not grow within a Turn
    return false
  end

  function room.claim(row)
    for _, bounds in ipairs({of_line(row.line.queue, row.line.tenant), of_task(row.type)}) do
      for _, bound in ipairs(bounds) do
        room.left[bound.name] = room.left[bound.name] - 1
        if bound.rate then
          local key = rate_key(bound.kind, bound.of, bound.queue or '')
          rates[key] = rates[key] or {0, bound.rate[2]}
          rates[key][1] = rates[key][1] + 1
          row.rated = row.rated or {}
          table.insert(row.rated, key:sub(#P + 1))
        end
      end
    end
  end

  -- Count what one Want has claimed against its rates.
  function room.use()
    for key, used in pairs(rates) do rate_use(key, now, used[1], used[2]) end
    rates = {}
  end

  -- When a rate or a pause that held something back lets the next one through.
  function room.free_at()
    local soonest
    for _, bound in pairs(room.held_back) do
      local at
      if bound.paused > now then
        at = bound.paused
      elseif bound.rate then
        local key = rate_key(bound.kind, bound.of, bound.queue or '')
        at = rate_free_at(key, bound.rate[1], bound.rate[2], now, 1)
      end
      if at and (not soonest or at < soonest) then soonest = at end
    end
    return soonest
  end

  -- Under which limits on running a lease counts.
  function room.counted_by(queue, tenant, task)
    local names = {}
    for _, bounds in ipairs({of_line(queue, tenant), of_task(task)}) do
      for _, bound in ipairs(bounds) do
        if bound.running then names[#names + 1] = bound.name end
      end
    end
    return names
  end

  return room
end

------------------------------------------------------------------------------------------------------------------------
-- Pauses
------------------------------------------------------------------------------------------------------------------------

local MANY_PAUSES = 50 -- more are looked for by name

local function read_pauses()
  local key, paused = P .. 'pause', {queue = {}, type = {}, tenant = {}}
  local number = call('HLEN', key)
  if number > MANY_PAUSES then
    for _, kind in ipairs({'queue', 'type', 'tenant'}) do
      setmetatable(paused[kind], {__index = function(known, of)
        known[of] = call('HEXISTS', key, kind .. ':' .. of) == 1
        return known[of]
      end})
    end
    paused.some_types, paused.some_tenants = true, true
  elseif number > 0 then
    for _, name in ipairs(call('HKEYS', key)) do
      local kind, of = name:match('^(%a+):(.*)$')
      paused[kind][of] = true
    end
    paused.some_types, paused.some_tenants = next(paused.type), next(paused.tenant)
  end
  return paused
end

------------------------------------------------------------------------------------------------------------------------
-- One tenant's line of ready jobs, read a page at a time as a claim goes along it
------------------------------------------------------------------------------------------------------------------------

local BEFORE_ALL = {rank = -1, due = 0, seq = 0}

local function is_behind(one, other)
  if one.rank ~= other.rank then return one.rank > other.rank end
  if one.due ~= other.due then return one.due > other.due end
  return one.seq > other.seq
end

local function new_line(queue, band, tenant)
  return {
    queue = queue, band = band, tenant = tenant, key = line_key(queue, band, tenant), rows = {}, at = 0, page = 0,
    position = BEFORE_ALL, last = BEFORE_ALL, looked = 0,
  }
end

-- What its line says of a job.
local function row_of(line, member)
  local rank, due, seq = struct.unpack('>I2I8I8', member)
  local row = {rank = rank, due = due, seq = seq, type = member:sub(20, -2), line = line, member = member}
  if member:byte(19) == 49 then row.put_off = true end
  return row
end

local function read_on(line, want, page)
  -- Twice as much each time: a line full of jobs that are passed over is passed in few commands.
  line.page = math.min(math.max(page, 2 * line.page), want.look - line.looked)
  local from = '-'
  if line.position.rank >= 0 then
    from = '(' .. line_position(line.position.rank, line.position.due, line.position.seq) .. '\255'
  end
  local members = call('ZRANGEBYLEX', line.key, from, '+', 'LIMIT', 0, line.page)
  line.rows, line.at = {}, 0
  for place, member in ipairs(members) do line.rows[place] = row_of(line, member) end
  return #members > 0
end

-- The next `count` jobs of wanted types, passing over others, within the want's `look`. Continues after what was looked
-- at last; `after` moves this one call further, and no later one.
local function take(line, want, is_wanted, count, page, after)
  local begin = is_behind(after, line.last) and after or line.last
  if is_behind(begin, line.position) or is_behind(line.position, begin) then
    line.position, line.rows, line.at, line.page = begin, {}, 0, 0
  end
  local found = {}
  while #found < count and line.looked < want.look do
    if line.at >= #line.rows and not read_on(line, want, page) then break end
    local stop = math.min(#line.rows, line.at + want.look - line.looked)
    while line.at < stop and #found < count do
      line.at = line.at + 1
      line.looked = line.looked + 1
      local row = line.rows[line.at]
      if not is_wanted or is_wanted(row) then found[#found + 1] = row end
      line.position, line.last = row, row
    end
  end
  return found
end

-- Lists of tenants with ready jobs behind the cursor, then of those up to it, until `most` of them were not eligible; the
-- second answer tells where that was, if there are more, and how many were not.
local function tenant_lists(queue, band, cursor, count, eligible, most)
  local key, last, wrapped, done = tenants_key(queue, band), cursor, false, false
  local passed, stopped = 0, nil
  local function next_list()
    while not done do
      local to = wrapped and '[' .. cursor or '+'
      local from = last == '' and '-' or '(' .. last
      local names = call('ZRANGEBYLEX', key, from, to, 'LIMIT', 0, count)
      if #names > 0 then last = names[#names] end
      if #names < count then
        if wrapped or cursor == '' then done = true end
        last, wrapped = '', true
      end
      local served = eligible(names)
      passed = passed + #names - #served
      if passed >= most and not done then done, stopped = true, #names > 0 and names[#names] or '' end
      if #served > 0 then return served end
      count = math.max(count, math.min(2 * count, LEAST_PASSED)) -- many without room are passed in few commands
    end
    return nil
  end
  return next_list, function() return stopped, passed end
end

------------------------------------------------------------------------------------------------------------------------
-- One Want's choice
------------------------------------------------------------------------------------------------------------------------

local function set_of(list)
  local set = {}
  for _, name in ipairs(list) do set[name] = true end
  return set
end

-- Which jobs to take, as far as there is room for them at the moment; nil: any.
local function filter_of(want, paused, room)
  local types, leaves = want.types and set_of(want.types), set_of(want.leaves or {})
  if not types and not room and not paused.some_types and not (want.leaves and #want.leaves > 0) then return nil end
  return function(row)
    local task = row.type
    if (types and not types[task]) or paused.type[task] or (room and not room.has_for(task)) then return false end
    return not (row.put_off and leaves[task])
  end
end

local function choose(want, paused, room, marks, stops)
  local chosen, lines, order = {}, {}, {}
  local is_wanted = filter_of(want, paused, room)
  local passes = room or paused.some_tenants
  local discovered
  local most_passed = MOST_PASSED

  local function left() return want.limit - #chosen end

  -- How many more jobs under a limit it may have: only the first of a Want.
  local function count_slots()
    if room then room.slots = want.slots and math.max(want.slots - #chosen, 0) or ENDLESS end
  end

  local function line_named(queue, band, tenant)
    local key = line_key(queue, band, tenant)
    if not lines[key] then
      lines[key] = new_line(queue, band, tenant)
      order[#order + 1] = lines[key]
    end
    return lines[key]
  end

  -- Give a line a number of turns, as far as there is room; returns how many jobs it gave.
  local function serve(queue, band, tenant, turns, page, after)
    count_slots()
    local count = math.min(turns, left(), room and room.in_line(queue, tenant) or ENDLESS)
    if count <= 0 then return 0 end
    local line = line_named(queue, band, tenant)
    if not room then
      local rows = take(line, want, is_wanted, count, page or count, after)
      for _, row in ipairs(rows) do chosen[#chosen + 1] = row end
      return #rows
    end
    for number = 1, count do
      -- One by one: what is taken may leave no room for the type of the next one.
      count_slots()
      local row = take(line, want, is_wanted, 1, page or count, after)[1]
      if not row then return number - 1 end
      room.claim(row)
      chosen[#chosen + 1] = row
    end
    return count
  end

  local function eligible_in(queue)
    return function(names)
      local served = {}
      for _, tenant in ipairs(names) do
        if not paused.tenant[tenant] and (not room or room.in_line(queue, tenant) > 0) then
          served[#served + 1] = tenant
        end
      end
      return served
    end
  end

  -- Serve the tenants of a band in turn.
  local function discover(queue, band)
    local full = #chosen + math.min(left(), room and room.in_queue(queue) or ENDLESS)
    local place = band .. ':' .. queue
    local kept = passes and call('HGET', PASSED, place)
    local reached = kept and unpacked(kept) or {want.cursor or '', 0, false}
    local most = math.max(math.floor(most_passed / 2), LEAST_PASSED)
    local lists, stopped = tenant_lists(queue, band, reached[1], left(), eligible_in(queue), most)
    local list = lists() or {}
    local page = math.ceil(left() / math.max(#list, 1))
    local each, first_round, served = 1, true, {}
    while #chosen < full do
      served = {}
      while list do
        for _, tenant in ipairs(list) do
          if serve(queue, band, tenant, each, page, BEFORE_ALL) > 0 then
            served[#served + 1] = tenant
            discovered = {queue = queue, band = band, tenant = tenant}
          end
          if #chosen >= full then break end
        end
        if #chosen >= full or not first_round then break end
        list = lists()
      end
      if #served == 0 then break end
      list, first_round = served, false
      -- One tenant left: all its turns at once.
      each = #served == 1 and full - #chosen or 1
    end
    local at, passed = stopped()
    if at and #chosen < full then
      -- The next one goes on there, and this one with the next band: those behind it are not to wait for all of these.
      passed, most_passed = passed + reached[2], most_passed - most
      stops[#stops + 1] = {place, at, passed < call('ZCARD', tenants_key(queue, band)) and passed or 0, reached[3]}
    elseif kept then
      call('HDEL', PASSED, place)
    end
  end

  for _, wanted in ipairs(want.takes or {}) do
    if not paused.queue[wanted.queue] and not paused.tenant[wanted.tenant] then
      serve(wanted.queue, wanted.band, wanted.tenant, wanted.limit, nil, wanted.after or BEFORE_ALL)
    end
  end
  count_slots()
  if want.discover and left() > 0 then
    for _, queue in ipairs(want.queues) do
      if not paused.queue[queue] then
        for _, band in ipairs(call('ZRANGE', P .. 'bands:' .. queue, 0, -1)) do
          if left() <= 0 or (room and room.in_queue(queue) <= 0) then break end
          discover(queue, tonumber(band))
        end
      end
      if left() <= 0 then break end
    end
  end
  for _, line in ipairs(order) do
    if line.looked > 0 then
      marks[line.key] = {line.queue, line.band, line.tenant, line.last.rank, line.last.due, line.last.seq}
    end
  end
  return chosen, discovered
end

-- Keep where Wants have stopped; answers when to claim again: soon, or if all were passed over, when the first is free.
local function keep_stops(stops, free_at, now)
  local soonest = free_at
  for _, stop in ipairs(stops) do
    local place, tenant, passed, before = unpack(stop)
    local first = math.min(before or LATEST_US, free_at or LATEST_US)
    call('HSET', PASSED, place, pack({tenant, passed, passed > 0 and first or false}))
    soonest = math.min(soonest or LATEST_US, passed > 0 and now + GO_ON_US or first)
  end
  return soonest and soonest < LATEST_US and soonest or nil
end

local PLAIN = '\165ready\192\192' -- how a body goes on behind its times: ready at once, without a timeout or dedup key

-- A lease as the worker reads it: body and state, which are msgpack as they are kept. A body ends with the number by
-- which the worker knows the job.
local function as_given(seq, body, packed)
  local number = pack(seq)
  return '\146' .. (body and body:sub(-#number) == number and body or NIL) .. packed
end

-- Lease what one Want gets, numbered from `nth` on; `given` gets each.
local function claim(op, want, nth, paused, room, marks, stops, now, given)
  local chosen, discovered = choose(want, paused, room, marks, stops)
  if #chosen == 0 then return chosen, discovered end
  if op.is_new then
    -- Before the leases: a Turn that fails half-way and is sent again finds them.
    call('HSET', P .. 'worker:' .. op.worker, 'claim', op.claim_no)
  end
  local worker, claim_no, lane, texts, shared = op.worker, op.claim_no, want.lane, {}, {}
  for place = 1, #chosen do texts[place] = text_of(chosen[place].seq) end
  local bodies, states = read_in_lots(JOB, texts), read_in_lots(STATE, texts)
  for place, row in ipairs(chosen) do
    local seq, text, body, kept = row.seq, texts[place], bodies[place], states[place]
    local timeout, dedup, _
    -- From that due time on both times take nine bytes.
    if kept or not body or row.due < 2 ^ 32 or body:sub(22, 29) ~= PLAIN or body:sub(1, 3) ~= BODY_HEADER then
      local is_body
      is_body, _, _, _, timeout, dedup = head_of(body, 5)
      if not is_body then -- a node that names its workflow is a node of it all the same
        body, timeout, dedup = nil, nil, type(dedup) == 'string' and dedup:find('^node:%x+:%d+$') and dedup or nil
      end
    end
    local started = place <= want.start and now or nil
    local deadline = math.min(now + (started and (timeout or want.lease) or want.start_by), LATEST_US)
    local packed
    if not kept then
      jobs[seq] = nil
      packed = lease(row, text, dedup, worker, claim_no, nth + place, lane, now, started, deadline, shared)
    else
      local known, was = job_from_state(seq, text, kept)
      was = was or known.state
      local job = known or job_from(seq, text, body, was) or {
        seq = seq, text = text, band = row.line.band, rank = row.rank, dedup = dedup, state = was, was = was,
      }
      job.tenant, job.queue, job.type = row.line.tenant, row.line.queue, row.type -- that is where it counts
      job.line, job.member, jobs[seq] = row.line, row.member, job
      if was.period then -- let in under the rate of its key
        local rate = rate_key('key', job.tenant, job.key[1])
        rate_use(rate, now, 1, was.period)
        row.rated = row.rated or {}
        table.insert(row.rated, rate:sub(#P + 1))
      end
      move(job, {
        place = 'leased', due = was.due, attempt = was.attempt + 1, attempts = was.attempts, crashes = was.crashes,
        suspect = was.suspect, aged = was.aged, worker = worker, claim = claim_no, nth = nth + place, lane = lane,
        leased = now, started = started, deadline = deadline, rated = row.rated,
      })
      packed = packed_state(job, job.state)
    end
    given[#given + 1] = as_given(seq, body, packed)
  end
  write_jobs()
  if room then room.use() end
  return chosen, discovered
end

-- Who else has ready jobs where discovery served last.
local function survey(want, served, paused)
  local found = {}
  local function not_paused(names)
    local others = {}
    for _, tenant in ipairs(names) do
      if not paused.tenant[tenant] then others[#others + 1] = tenant end
    end
    return others
  end
  local lists = tenant_lists(served.queue, served.band, served.tenant, want.survey, not_paused, MOST_PASSED)
  local list = lists()
  while list do
    for _, tenant in ipairs(list) do
      found[#found + 1] = tenant
      if #found == want.survey then return found end
    end
    list = lists()
  end
  return found
end

return leases_under, new_room, read_pauses, as_given, claim, keep_stops, survey
