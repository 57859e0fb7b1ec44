-- Shared by every script: the clock, jobs and their states, and the one place that keeps every index in step with them.
-- KEYS[1] is the tag of the installation, `{prefix}`; every key begins with it. docs/reference/redis-keys.md is the map.
-- No script undoes anything when it fails: decide first, write then, and write nothing that can be refused.

if redis.replicate_commands then redis.replicate_commands() end

local P = KEYS[1] .. ':'
local call, pack, unpacked = redis.call, cmsgpack.pack, cmsgpack.unpack
local META = P .. 'meta'
local LATEST_US = 253402300799999999
local AT_ONCE = 2000 -- arguments of one command

-- A number as text, whole: Lua itself would write 1.7e+15.
local function whole(number) return string.format('%.0f', number) end

-- Several names as one, which no other names can make.
local function joined(first, second) return #first .. ':' .. first .. second end

-- The instant of this call in microseconds. The server's clock never goes back behind what it has been seen at.
local function clock(given, writing, known)
  if given ~= '' then return tonumber(given) end
  local time = call('TIME')
  local now = time[1] * 1000000 + time[2]
  if known == nil then known = call('HGET', META, 'latest') end
  local latest = tonumber(known or 0)
  if now < latest then return latest end
  if writing and now - latest >= 1000000 then call('HSET', META, 'latest', whole(now)) end
  return now
end

-- A server whose memory is full refuses the first write of a script if that may need memory, and no later one. What
-- takes no new jobs begins with a write that needs none: workers go on, and retention makes room.
local function even_when_full() call('DEL', P .. 'nothing') end

-- Many members in few commands; without a key where the members are keys.
local function in_lots(command, key, list)
  for first = 1, #list, AT_ONCE do
    local last = math.min(first + AT_ONCE - 1, #list)
    if key then call(command, key, unpack(list, first, last)) else call(command, unpack(list, first, last)) end
  end
end

local function read_in_lots(prefix, seqs)
  local found = {}
  for first = 1, #seqs, AT_ONCE do
    local keys = {}
    for place = first, math.min(first + AT_ONCE - 1, #seqs) do keys[#keys + 1] = prefix .. seqs[place] end
    for place, value in ipairs(call('MGET', unpack(keys))) do found[first + place - 1] = value end
  end
  return found
end

------------------------------------------------------------------------------------------------------------------------
-- Jobs. `job:<seq>` is what was enqueued, never changed: the array of states.py. `state:<seq>` says where the job is now
-- and all it carries; a job that has not moved since its enqueue has none. `facts:<seq>` has what most jobs have not:
-- attempts after which it lived on, errors, a result, notes, a dead letter.
--
-- state.place   ready, scheduled, failed (scheduled for its retry), held, waiting (a node, for its parents), leased,
--               completed, dead, cancelled
------------------------------------------------------------------------------------------------------------------------

local HEAD = 11 -- elements of a body that scripts read
local BODY_HEADER = '\220\0\25' -- what stands before them: an array of 25

local jobs = {} -- by seq: those this script has read
local touched = {} -- those it has changed, in order

local function status_of(state)
  local place = state.place
  if place == 'leased' then return state.started and 'processing' or 'pending' end
  if place == 'ready' or place == 'scheduled' or place == 'held' or place == 'waiting' then return 'pending' end
  return place
end

local function job_from(seq, body, state)
  local _, enqueued, due, place, id, tenant, queue, task, band, rank, timeout, dedup =
    cmsgpack.unpack_limit(body, HEAD, #BODY_HEADER)
  local now = state and unpacked(state) or {place = place, due = due}
  local job = {
    seq = seq, body = body, enqueued = enqueued, id = id, tenant = tenant, queue = queue, type = task, band = band,
    rank = rank, timeout = timeout, dedup = dedup, state = now, was = now,
  }
  jobs[seq] = job
  return job
end

-- The jobs of these numbers, false where there is none.
local function read_jobs(seqs)
  local found, missing = {}, {}
  for _, seq in ipairs(seqs) do
    if not jobs[seq] then missing[#missing + 1] = seq end
  end
  if #missing > 0 then
    local bodies, states = read_in_lots(P .. 'job:', missing), read_in_lots(P .. 'state:', missing)
    for place, seq in ipairs(missing) do
      if bodies[place] then job_from(seq, bodies[place], states[place]) end
    end
  end
  for place, seq in ipairs(seqs) do found[place] = jobs[seq] or false end
  return found
end

local function read_job(seq) return read_jobs({seq})[1] end

-- Say where a job is from now on; `write_jobs` writes it.
local function move(job, state)
  if not job.touched then
    job.touched = true
    touched[#touched + 1] = job
  end
  job.state = state
end

-- Where a job stands in its tenant's line: by rank, due time and seq, found and ordered by these bytes alone.
local function line_position(rank, due, seq) return struct.pack('>I2I8I8', rank, math.max(due, 0), seq) end

local function line_of(job, state)
  local band, rank = job.band, job.rank
  if state.aged then
    if rank > 0 then rank = state.aged else band = state.aged end
  end
  local member = line_position(rank, state.due, job.seq) .. (state.put_off and '1' or '0') .. job.type
  return band, member
end

local function line_key(queue, band, tenant) return P .. 'line:' .. band .. ':' .. joined(queue, tenant) end
local function tenants_key(queue, band) return P .. 'tenants:' .. band .. ':' .. queue end

local function by_number(seq) return string.format('%016d', seq) end

local FINISHED = {completed = true, dead = true, cancelled = true}
local UNFINISHED = P .. 'status:unfinished'
local STATUS = { -- the list a job in each place stands in
  ready = UNFINISHED, scheduled = UNFINISHED, held = UNFINISHED, waiting = UNFINISHED, leased = UNFINISHED,
  failed = P .. 'status:failed',
  completed = P .. 'status:completed', dead = P .. 'status:dead', cancelled = P .. 'status:cancelled',
}
local SCHEDULED, ENDED, HELD = P .. 'scheduled', P .. 'finished', P .. 'held'

local function gather(lists, key, value)
  local list = lists[key]
  if not list then
    list = {}
    lists[key] = list
  end
  list[#list + 1] = value
end

local function gather_scored(lists, key, score, member)
  local list = lists[key]
  if not list then
    list = {}
    lists[key] = list
  end
  local length = #list
  list[length + 1] = score
  list[length + 2] = member
end

-- Counts by tenant, queue and place, and by tenant and type of what is pending.
local function new_counts() return {places = {}, pending = {}, types = {}} end

local function inner(table, name)
  local found = table[name]
  if not found then
    found = {}
    table[name] = found
  end
  return found
end

local function count_state(counts, job, state, by)
  local place = state.place
  if place == 'leased' then
    place = state.started and 'processing' or 'prefetched'
    counts.types[job.type] = (counts.types[job.type] or 0) + by
  end
  local queue = FINISHED[place] and '' or job.queue
  local places = inner(inner(counts.places, job.tenant), queue)
  places[place] = (places[place] or 0) + by
  if place ~= 'processing' and place ~= 'failed' and place ~= 'waiting' and queue ~= '' then
    local pending = inner(counts.pending, job.tenant)
    pending[job.type] = (pending[job.type] or 0) + by
  end
end

-- Add to one number; one that is 0 is not kept, or each queue and type that ever was would be read again and again.
local function add_count(key, field, by)
  if by ~= 0 and call('HINCRBY', key, field, by) == 0 then call('HDEL', key, field) end
end

local function write_counts(counts)
  local all = counts.types
  local totals = {}
  for task, by in pairs(all) do totals['type:' .. task] = by end
  for tenant, queues in pairs(counts.places) do
    local key = P .. 'count:' .. tenant
    for queue, places in pairs(queues) do
      for place, by in pairs(places) do
        if by ~= 0 then
          local field = queue == '' and place or place .. ':' .. queue
          add_count(key, field, by)
          if queue ~= '' then totals[field] = (totals[field] or 0) + by end
        end
      end
    end
    for task, by in pairs(counts.pending[tenant] or {}) do
      if by ~= 0 then
        local field = 'pending:' .. task
        add_count(key, field, by)
        totals[field] = (totals[field] or 0) + by
      end
    end
  end
  for field, by in pairs(totals) do
    add_count(P .. 'counts', field, by)
  end
end

-- Take a job out of the structures that lead to it in a state, or put it in; its status list apart.
local function leave(job, state, drops, lines)
  local place = state.place
  if place == 'ready' then
    local band, member = line_of(job, state)
    local key = line_key(job.queue, band, job.tenant)
    lines[key] = lines[key] or {job.queue, band, job.tenant}
    gather(drops, key, member)
  elseif place == 'leased' then
    gather(drops, P .. 'leases:' .. state.worker, job.seq)
    if state.cancel then gather(drops, P .. 'cancels:' .. state.worker, job.seq) end
  elseif place == 'scheduled' or place == 'failed' then
    gather(drops, SCHEDULED, by_number(job.seq))
    if state.waits then gather(drops, P .. 'waits:' .. state.waits, job.seq) end
  elseif place == 'held' then
    local key = P .. 'held:' .. joined(job.queue, job.tenant)
    lines[key] = {job.queue, false, job.tenant}
    gather(drops, key, job.seq)
  elseif place ~= 'dead' and place ~= 'waiting' then
    gather(drops, ENDED, by_number(job.seq))
  end
end

local function enter(job, state, adds, lines)
  local place = state.place
  if place == 'ready' then
    local band, member = line_of(job, state)
    local key = line_key(job.queue, band, job.tenant)
    lines[key] = {job.queue, band, job.tenant, true}
    gather_scored(adds, key, 0, member)
  elseif place == 'leased' then
    gather_scored(adds, P .. 'leases:' .. state.worker, state.deadline, job.seq)
    if state.cancel then gather_scored(adds, P .. 'cancels:' .. state.worker, job.seq, job.seq) end
  elseif place == 'scheduled' or place == 'failed' then
    gather_scored(adds, SCHEDULED, state.due, by_number(job.seq))
    if state.waits then gather_scored(adds, P .. 'waits:' .. state.waits, job.seq, job.seq) end
  elseif place == 'held' then
    gather_scored(adds, P .. 'held:' .. joined(job.queue, job.tenant), job.seq, job.seq)
    gather_scored(adds, HELD, 0, job.queue .. '\0' .. job.tenant)
  elseif place ~= 'dead' and place ~= 'waiting' then
    gather_scored(adds, ENDED, state.finished, by_number(job.seq))
  end
end

-- Lines that have become empty, or are no longer: keep the ways to them.
local function keep_ways(lines)
  for key, line in pairs(lines) do
    local queue, band, tenant, added = line[1], line[2], line[3], line[4]
    if added then
      if call('ZADD', tenants_key(queue, band), 0, tenant) == 1 then
        call('ZADD', P .. 'bands:' .. queue, band, band)
        call('ZADD', P .. 'queues', 0, queue)
      end
    elseif call('EXISTS', key) == 0 then
      if not band then
        call('ZREM', HELD, queue .. '\0' .. tenant)
      elseif call('ZREM', tenants_key(queue, band), tenant) == 1 and call('EXISTS', tenants_key(queue, band)) == 0 then
        call('ZREM', P .. 'bands:' .. queue, band)
        if call('EXISTS', P .. 'bands:' .. queue) == 0 then call('ZREM', P .. 'queues', queue) end
      end
    end
  end
end

local ended_nodes = {} -- nodes of workflows whose jobs have ended in this script
local WAITS = {ready = true, scheduled = true, failed = true, held = true, waiting = true} -- kinds of counts

-- Write the states of all jobs that were moved, and everything that is found by them.
local function write_jobs()
  if #touched == 0 then return end
  local counts, adds, drops, lines, states, freed = new_counts(), {}, {}, {}, {}, {}
  for _, job in ipairs(touched) do
    local was, now, seq = job.was, job.state, job.seq
    if was then
      if STATUS[was.place] ~= STATUS[now.place] then
        gather(drops, STATUS[was.place], seq)
        gather_scored(adds, STATUS[now.place], seq, seq)
      end
      leave(job, was, drops, lines)
      count_state(counts, job, was, -1)
      states[#states + 1] = P .. 'state:' .. seq
      states[#states + 1] = pack(now)
    else
      -- A new job: its body says where it is.
      gather_scored(adds, STATUS[now.place], seq, seq)
      gather_scored(adds, P .. 'of:' .. job.tenant, seq, seq)
      states[#states + 1] = P .. 'job:' .. seq
      states[#states + 1] = job.body
    end
    enter(job, now, adds, lines)
    count_state(counts, job, now, 1)
    if job.dedup and FINISHED[now.place] then
      -- A node names its workflow there: see nodes.lua.
      if job.dedup:sub(1, 5) == 'node:' then ended_nodes[#ended_nodes + 1] = job else freed[#freed + 1] = job.dedup end
    end
    job.was, job.touched = now, nil
  end
  touched = {}
  in_lots('MSET', false, states)
  for key, members in pairs(drops) do in_lots('ZREM', key, members) end
  for key, members in pairs(adds) do in_lots('ZADD', key, members) end
  keep_ways(lines)
  write_counts(counts)
  in_lots('HDEL', P .. 'dedup', freed)
end

local function facts_key(job) return P .. 'facts:' .. job.seq end

------------------------------------------------------------------------------------------------------------------------
-- New jobs
------------------------------------------------------------------------------------------------------------------------

local met = {} -- tenants of the jobs that this script has written
local ids = {} -- of new jobs, with their numbers

-- Make a job nobody has yet; `rest` is its body as Python made it, from the id on. `write_new_jobs` writes it.
local function create(now, seq, rest, given)
  local due = given.due or now
  local place = given.waits and 'waiting' or given.held and 'held' or (due <= now and 'ready' or 'scheduled')
  local job = {
    seq = seq, body = BODY_HEADER .. pack(now, due, place) .. rest, enqueued = now, id = given.id,
    tenant = given.tenant, queue = given.queue, type = given.type, band = given.band, rank = given.rank,
    dedup = given.dedup,
  }
  jobs[seq] = job
  move(job, {place = place, due = due})
  ids[#ids + 1] = given.id
  ids[#ids + 1] = seq
  if not met[job.tenant] then
    met[job.tenant] = true
    call('ZADD', P .. 'with_jobs', 0, job.tenant)
  end
  if given.idempotency then call('HSET', P .. 'idempotency', given.idempotency, seq) end
  if given.dedup and given.dedup:sub(1, 5) ~= 'node:' then call('HSET', P .. 'dedup', given.dedup, seq) end
  if given.correlation then call('ZADD', P .. 'correlated:' .. given.correlation, seq, seq) end
  if given.parent then call('ZADD', P .. 'children:' .. given.parent, seq, seq) end
  return job
end

local function write_new_jobs()
  write_jobs()
  in_lots('HSET', P .. 'id', ids)
  ids = {}
end

------------------------------------------------------------------------------------------------------------------------
-- Ends of attempts and of jobs
------------------------------------------------------------------------------------------------------------------------

local REASON = 2000 -- characters of a dead letter's reason

-- Keep how an attempt ended: {attempt, outcome, worker, leased, expires, started, ended, class, error, message, trace}.
local function record(job, ended)
  local key = facts_key(job)
  call('HSET', key, 'attempt:' .. ended.attempt, pack(ended))
  if ended.error_type then
    call('HSET', key, 'error', pack({
      error_class = ended.error_class, error_type = ended.error_type, error_message = ended.error_message,
      at = ended.ended,
    }))
  end
  if ended.outcome ~= 'released' then
    if ended.outcome == 'snoozed' and ended.error_type then
      call('HSET', key, 'put_off', pack({ended.error_type, ended.ended}))
    else
      call('HDEL', key, 'put_off')
    end
  end
end

-- The state of a job that ends now. `ended`: the attempt that ended it; nil: it ended waiting.
local function finish(job, place, finished, counters, ended)
  local was = job.state
  move(job, {
    place = place, finished = finished, due = was.due, attempt = counters.attempt, attempts = counters.attempts,
    crashes = counters.crashes, cancel = was.cancel, outcome = ended and ended.outcome, worker = ended and ended.worker,
    leased = ended and ended.leased, started = ended and ended.started, deadline = was.deadline,
  })
  if ended and place ~= 'completed' then record(job, ended) end
end

-- The first characters of a text, whole ones.
local function shortened(text, most)
  if #text <= most then return text end
  local seen, place = 0, 1
  while place <= #text do
    if seen == most then return text:sub(1, place - 1) end
    local byte = text:byte(place)
    place = place + (byte < 128 and 1 or byte < 224 and 2 or byte < 240 and 3 or 4)
    seen = seen + 1
  end
  return text
end

local function open_dead_letter(job, failure, died)
  call('HSET', facts_key(job), 'letter', pack({
    status = 'pending_review', reason = shortened(failure.message, REASON), error_class = failure.error_class,
    error_type = failure.error_type, fingerprint = failure.fingerprint, died = died, reprocess_count = 0,
  }))
  call('ZADD', P .. 'letters:pending_review', job.seq, job.seq)
end

------------------------------------------------------------------------------------------------------------------------
-- Wake-ups: published to waiting workers, a few of them where many wait
------------------------------------------------------------------------------------------------------------------------

local WAKE_AT_MOST = 4

-- Wake workers that serve one of the queues (a set); `always`: also those that do not wait.
local function wake(now, queues, always, but)
  local woken = 0
  local found = always and call('ZRANGE', P .. 'workers', 0, -1) or call('SMEMBERS', P .. 'waiting')
  for _, worker in ipairs(found) do
    local expires = call('ZSCORE', P .. 'workers', worker)
    if worker ~= but and expires and tonumber(expires) > now then
      local served = unpacked(call('HGET', P .. 'worker:' .. worker, 'queues'))
      local serves = #served == 0
      for _, queue in ipairs(served) do serves = serves or queues[queue] end
      if serves then
        call('PUBLISH', P .. 'wake:' .. worker, '')
        woken = woken + 1
        if woken == WAKE_AT_MOST then return end
      end
    end
  end
end

-- Wake waiting workers that serve queues with ready jobs.
local function wake_for_ready(now, but)
  if call('EXISTS', P .. 'waiting') == 0 then return end
  local queues, some = {}, false
  for _, queue in ipairs(call('ZRANGE', P .. 'queues', 0, -1)) do queues[queue], some = true, true end
  if some then wake(now, queues, false, but) end
end

------------------------------------------------------------------------------------------------------------------------
-- The audit trail
------------------------------------------------------------------------------------------------------------------------

local function write_audit(tenant, target, document)
  local id = call('HINCRBY', META, 'audit', 1)
  call('HSET', P .. 'audit', id, document)
  if tenant ~= '' then call('ZADD', P .. 'audit:tenant:' .. tenant, id, id) end
  call('ZADD', P .. 'audit:target:' .. target, id, id)
  call('ZADD', P .. 'audit:unsealed', id, id)
  return id
end
