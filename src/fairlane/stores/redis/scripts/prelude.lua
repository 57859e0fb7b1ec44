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

-- The instant of this call in microseconds. Where the server's clock goes back a little, it is held at what it has been
-- seen at. Where it goes back by more it is taken as it is: time must not stand still until it catches up.
local HELD = 2000000 -- CLOCK_HELD_S in core/ops/health.py
local function clock(given, writing, known)
  if given ~= '' then return tonumber(given) end
  local time = call('TIME')
  local now = time[1] * 1000000 + time[2]
  if known == nil then known = call('HGET', META, 'latest') end
  local latest = tonumber(known or 0)
  if now < latest and latest - now <= HELD then return latest end
  if writing and math.abs(now - latest) >= 1000000 then call('HSET', META, 'latest', whole(now)) end
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

local function text_of(seq) return string.format('%d', seq) end

-- What stands under the keys that end with these texts, false where nothing does.
local function read_in_lots(prefix, texts)
  local found = {}
  for first = 1, #texts, AT_ONCE do
    local keys = {}
    for place = first, math.min(first + AT_ONCE - 1, #texts) do keys[place - first + 1] = prefix .. texts[place] end
    local values = call('MGET', unpack(keys))
    if first == 1 then found = values else
      for place = 1, #values do found[first + place - 1] = values[place] end
    end
  end
  return found
end

------------------------------------------------------------------------------------------------------------------------
-- Jobs. `job:<seq>` is what was enqueued, never changed: the array of states.py. `state:<seq>` says where the job is now
-- and all it carries; a job that has not moved since its enqueue has none. `facts:<seq>` has what most jobs have not:
-- attempts after which it lived on, errors, a result, notes, a dead letter.
--
-- state.since   of one that is scheduled: what its due time is counted from; nil where that was given as an instant
-- state.place   ready, scheduled, failed (scheduled for its retry), held, at_key (held there), waiting (a node, for its
--               parents), leased, completed, dead, cancelled
-- job.key       {value, running, whether it is ordered, its place in that order or 0 for its number, rate}; nil: it has
--               none. Rate: {count, period in microseconds, and in seconds}
--
-- Both are arrays by place, packed and read without tables: half of what a Turn costs was spent on them. The state of a
-- leased job repeats what ends of attempts want to know of its body, which need not be read again then.
--
-- What differs between jobs stands at the end of every long string. Lua looks at some 32 characters of a string only, the
-- last among them, to find it among all others; strings that differ elsewhere are compared one by one.
------------------------------------------------------------------------------------------------------------------------

local HEAD = 10 -- elements of a body that scripts read
local BODY_HEADER = '\220\0\26' -- what stands before them: an array of 26
local ID = 25 -- where the id stands
local WAITING_HEADER, FINISHED_HEADER, LEASED_HEADER = '\153', '\220\0\16', '\220\0\27' -- before a state
local KEYED_HEADER = '\220\0\28' -- before that of a job with a key, which repeats its body wherever it is
local SPAN_HEADER = '\220\0\11' -- before that of one which waits for a span of time
local JOB, STATE = P .. 'job:', P .. 'state:'
local unpack_limit = cmsgpack.unpack_limit
local FINISHED = {completed = true, dead = true, cancelled = true}
local USES = {ready = true, leased = true, scheduled = true, failed = true} -- unfinished, and not held

local jobs = {} -- by seq: those this script has read
local touched = {} -- those it has changed, in order

-- The order is JobState's.
local function packed_state(job, state)
  local place, due, attempt = state.place, state.due, state.attempt or 0
  local attempts, crashes = state.attempts or 0, state.crashes or 0
  if job.key and (place == 'at_key' or USES[place]) then
    return KEYED_HEADER .. pack(
      place, due, attempt, attempts, crashes, state.suspect, state.aged, state.put_off, state.waits, state.worker,
      state.leased or state.since or state.period, state.deadline, state.cancel, nil, nil, state.started, state.claim,
      state.lane, state.alone, state.rated, job.tenant, job.queue, job.type, job.band, job.rank, job.dedup, job.key,
      state.nth or job.seq)
  elseif place == 'leased' then
    return LEASED_HEADER .. pack(
      place, due, attempt, attempts, crashes, state.suspect, state.aged, state.put_off, nil, state.worker, state.leased,
      state.deadline, state.cancel, nil, nil, state.started, state.claim, state.lane, state.alone, state.rated,
      job.tenant, job.queue, job.type, job.band, job.rank, job.dedup, state.nth)
  elseif FINISHED[place] then
    return FINISHED_HEADER .. pack(
      place, due, attempt, attempts, crashes, nil, nil, nil, nil, state.worker, state.leased, state.deadline,
      state.cancel, state.finished, state.outcome, state.started)
  end
  if state.since then
    return SPAN_HEADER .. pack(
      place, due, attempt, attempts, crashes, state.suspect, state.aged, state.put_off, state.waits, nil, state.since)
  end
  return WAITING_HEADER .. pack(
    place, due, attempt, attempts, crashes, state.suspect, state.aged, state.put_off, state.waits)
end

-- A job by its state; nil where that does not say enough of it.
local function job_from_state(seq, text, kept)
  local header = kept:byte(1) == 153 and 1 or 3
  local _, place, due, attempt, attempts, crashes, suspect, aged, put_off, waits, worker, leased, deadline, cancel,
    finished, outcome, started, claim, lane, alone, rated, tenant, queue, task, band, rank, dedup, key, nth =
    unpack_limit(kept, 28, header)
  if header == 1 or kept:byte(3) ~= 28 then key, nth = nil, key end
  local state = {
    place = place, due = due, attempt = attempt, attempts = attempts, crashes = crashes, worker = worker,
    leased = leased, deadline = deadline, started = started, claim = claim, lane = lane, nth = nth,
  }
  state.suspect, state.aged, state.put_off, state.waits, state.cancel = suspect, aged, put_off, waits, cancel
  state.finished, state.outcome, state.alone, state.rated = finished, outcome, alone, rated
  if place == 'scheduled' or place == 'failed' then state.since, state.leased = leased, nil end
  if place == 'ready' then state.period, state.leased = leased, nil end
  if not tenant then return nil, state end
  return {
    seq = seq, text = text, tenant = tenant, queue = queue, type = task, band = band, rank = rank, dedup = dedup,
    key = key, state = state, was = state,
  }
end

-- Kinds of counts, and the places where a job without a state can be: its enqueue has put it there.
local WAITS = {ready = true, scheduled = true, failed = true, held = true, at_key = true, waiting = true}

local function is_whole(value, least, most)
  return type(value) == 'number' and value >= least and value <= most and value % 1 == 0
end

-- The forms that a character of valid UTF-8 has, behind the plain ones.
local FORMS = {
  '^[\194-\223][\128-\191]()', '^\224[\160-\191][\128-\191]()', '^[\225-\236\238\239][\128-\191][\128-\191]()',
  '^\237[\128-\159][\128-\191]()', '^\240[\144-\191][\128-\191][\128-\191]()',
  '^[\241-\243][\128-\191][\128-\191][\128-\191]()', '^\244[\128-\143][\128-\191][\128-\191]()',
}

-- A name is a key of counts and lines, which nobody could read again if it were no text.
local function is_text(value)
  if type(value) ~= 'string' then return false end
  local place = value:find('[\128-\255]')
  while place do
    local behind
    for _, form in ipairs(FORMS) do behind = behind or value:match(form, place) end
    if not behind then return false end
    place = value:find('[\128-\255]', behind)
  end
  return true
end

local function is_key(key)
  if type(key) ~= 'table' then return false end
  local value, running, is_ordered, order, rate = unpack(key, 1, 5)
  return is_text(value) and is_whole(running, -1, LATEST_US) and type(is_ordered) == 'boolean'
    and is_whole(order, 0, LATEST_US) and (rate == nil or (type(rate) == 'table'
    and is_whole(rate[1], -1, LATEST_US) and is_whole(rate[2], 0, LATEST_US) and type(rate[3]) == 'number'))
end

-- Whether a body is one, and its first elements (five, or all of its head): somebody may have written something else.
-- The key of a job stands beside its place.
local function head_of(body, count)
  if not body or body:sub(1, #BODY_HEADER) ~= BODY_HEADER then return false end
  local is_body, _, enqueued, due, place, timeout, dedup, tenant, queue, task, band, rank =
    pcall(unpack_limit, body, count, #BODY_HEADER)
  local key
  if is_body and type(place) == 'table' then
    place, key = place[1], place[2]
    is_body = place and is_key(key)
  end
  is_body = is_body and is_whole(enqueued, -LATEST_US, LATEST_US) and is_whole(due, -LATEST_US, LATEST_US)
    and WAITS[place] and (timeout == nil or is_whole(timeout, 0, LATEST_US))
    and (dedup == nil or type(dedup) == 'string')
  if is_body and count == HEAD then
    is_body = is_text(tenant) and is_text(queue) and is_text(task) and is_whole(band, 0, 65535)
      and is_whole(rank, 0, 65535)
  end
  return is_body, enqueued, due, place, timeout, dedup, tenant, queue, task, band, rank, key
end

-- nil where the body cannot be read.
local function job_from(seq, text, body, state)
  local is_body, enqueued, due, place, timeout, dedup, tenant, queue, task, band, rank, key = head_of(body, HEAD)
  if not is_body then return nil end
  state = state or {place = place, due = due}
  return {
    seq = seq, text = text, body = body, enqueued = enqueued, tenant = tenant, queue = queue, type = task,
    band = band, rank = rank, timeout = timeout, dedup = dedup, key = key, state = state, was = state,
  }
end

-- The jobs of these numbers, false where there is none or its body cannot be read.
local function read_jobs(seqs)
  local found, missing, texts = {}, {}, {}
  for _, seq in ipairs(seqs) do
    if not jobs[seq] then
      missing[#missing + 1] = seq
      texts[#texts + 1] = text_of(seq)
    end
  end
  if #missing > 0 then
    local kept, others, rest = read_in_lots(STATE, texts), {}, {}
    for place, seq in ipairs(missing) do
      local job, state
      if kept[place] then job, state = job_from_state(seq, texts[place], kept[place]) end
      if job then
        jobs[seq] = job
      else
        others[#others + 1] = {seq, state}
        rest[#rest + 1] = texts[place]
      end
    end
    if #rest > 0 then
      local bodies = read_in_lots(JOB, rest)
      for place, other in ipairs(others) do
        if bodies[place] then jobs[other[1]] = job_from(other[1], rest[place], bodies[place], other[2]) end
      end
    end
  end
  for place, seq in ipairs(seqs) do found[place] = jobs[seq] or false end
  return found
end

-- Read what was not: the bodies of leased jobs.
local function read_bodies(list)
  local without, texts = {}, {}
  for _, job in ipairs(list) do
    if not job.body then
      without[#without + 1] = job
      texts[#texts + 1] = job.text
    end
  end
  if #texts == 0 then return end
  for place, body in ipairs(read_in_lots(JOB, texts)) do without[place].body = body end
end

-- One whose body cannot be read is known by its number; `replaced_body` in turn.py gives it the same id.
local function id_of(job)
  read_bodies({job})
  local is_body, body = pcall(unpacked, job.body or '')
  local id = is_body and type(body) == 'table' and body[ID]
  return type(id) == 'string' and #id == 32 and not id:find('%X') and id or string.format('%032d', job.seq)
end

local function read_job(seq) return read_jobs({seq})[1] end

-- Say where a job is from now on; `write_jobs` writes it. One with a key becomes ready only where it is let in.
local function move(job, state, is_let_in)
  if job.key and state.place == 'ready' and not is_let_in and not (job.was and job.was.place == 'ready') then
    state.place = 'at_key'
  end
  if not job.touched then
    job.touched = true
    touched[#touched + 1] = job
  end
  job.state = state
end

-- Where a job stands in its tenant's line: by rank, due time and seq, found and ordered by these bytes alone.
local function line_position(rank, due, seq) return struct.pack('>I2I8I8', rank, math.max(due, 0), seq) end

local function reached(job, state)
  local band, rank = job.band, job.rank
  if state.aged then
    if rank > 0 then rank = state.aged else band = state.aged end
  end
  return band, rank
end

local function line_of(job, state)
  local band, rank = reached(job, state)
  local flag = state.put_off and '1' or '0'
  return band, line_position(rank, state.due, job.seq) .. flag .. job.type .. string.char(job.seq % 256)
end

local function line_key(queue, band, tenant) return P .. 'line:' .. band .. ':' .. joined(queue, tenant) end
local function tenants_key(queue, band) return P .. 'tenants:' .. band .. ':' .. queue end

local function by_number(seq) return string.format('%016d', seq) end

------------------------------------------------------------------------------------------------------------------------
-- Keys of jobs, by tenant and value: `key:` has those held there, in their order, `key_jobs:` the other unfinished ones,
-- `key_places:` those with a place. scripts/job_keys.lua lets them in.
------------------------------------------------------------------------------------------------------------------------

local keys = {
  LINE = P .. 'key:', JOBS = P .. 'key_jobs:', PLACES = P .. 'key_places:',
  HELD = P .. 'keys', -- those with held jobs, by how many: `tenant NUL key`
  DUE = P .. 'keys:due', -- those where somebody may be let in, by number of a job (at once) or instant
  READY = P .. 'keys:ready', -- jobs that were let in, and are ready
}

function keys.name_of(value) return value:match('^[^:]*') end

-- Where a job that is held at its key stands there.
function keys.position(job, state)
  local key = job.key
  if key[3] then return struct.pack('>I1I8I8', 0, key[4] == 0 and job.seq or key[4], job.seq) end
  local band, rank = reached(job, state)
  return struct.pack('>I1I2', 1, band) .. line_position(rank, state.due, job.seq)
end

-- What stands for the ready jobs of a key that have a place ('1') or have not ('0'), and for one of them.
function keys.marks(tenant, value, has_place)
  return keys.name_of(value) .. '\0' .. tenant .. '\0' .. value .. '\0' .. has_place
end

function keys.mark(job, has_place)
  return keys.marks(job.tenant, job.key[1], has_place) .. struct.pack('>I8', job.seq)
end

local UNFINISHED = P .. 'status:unfinished'
local STATUS = { -- the list a job in each place stands in
  ready = UNFINISHED, scheduled = UNFINISHED, held = UNFINISHED, at_key = UNFINISHED, waiting = UNFINISHED,
  leased = UNFINISHED,
  failed = P .. 'status:failed',
  completed = P .. 'status:completed', dead = P .. 'status:dead', cancelled = P .. 'status:cancelled',
}
local SCHEDULED, ENDED, HELD, LEASES = P .. 'scheduled', P .. 'finished', P .. 'held', P .. 'leases:'

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

local function inner(table, name)
  local found = table[name]
  if not found then
    found = {}
    table[name] = found
  end
  return found
end

-- What changes in the counts: by tenant, queue and type, how many more jobs are in each place.
local function counts_of(counts, tenant, queue, task) return inner(inner(inner(counts, tenant), queue), task) end

local function kind_of(state)
  local place = state.place
  if place == 'at_key' then return 'held' end
  if place ~= 'leased' then return place end
  return state.started and 'processing' or 'prefetched'
end

local function count_state(counts, job, state, by)
  local of, kind = counts_of(counts, job.tenant, job.queue, job.type), kind_of(state)
  of[kind] = (of[kind] or 0) + by
end

-- Add to numbers, by field; one that is 0 is not kept, or each queue and type that ever was would be read again and again.
local function add_counts(key, fields)
  local names, some, none = {}, {}, {}
  for name, by in pairs(fields) do
    if by ~= 0 then names[#names + 1] = name end
  end
  for first = 1, #names, AT_ONCE do
    for place, known in ipairs(call('HMGET', key, unpack(names, first, math.min(first + AT_ONCE - 1, #names)))) do
      local name = names[first + place - 1]
      local sum = (known or 0) + fields[name]
      if sum == 0 then none[#none + 1] = name else
        some[#some + 1] = name
        some[#some + 1] = text_of(sum)
      end
    end
  end
  in_lots('HSET', key, some)
  in_lots('HDEL', key, none)
end

local NOT_PENDING = {processing = true, failed = true, waiting = true}

local function write_counts(counts)
  local totals = {}
  local function add(fields, field, by)
    fields[field] = (fields[field] or 0) + by
  end
  for tenant, queues in pairs(counts) do
    local own = {}
    for queue, tasks in pairs(queues) do
      for task, kinds in pairs(tasks) do
        for kind, by in pairs(kinds) do
          if FINISHED[kind] then
            add(own, kind, by)
          else
            add(own, kind .. ':' .. queue, by)
            add(totals, kind .. ':' .. queue, by)
            if not NOT_PENDING[kind] then
              add(own, 'pending:' .. task, by)
              add(totals, 'pending:' .. task, by)
            end
            if kind == 'processing' or kind == 'prefetched' then add(totals, 'type:' .. task, by) end
          end
        end
      end
    end
    add_counts(P .. 'count:' .. tenant, own)
  end
  add_counts(P .. 'counts', totals)
end

-- Take a job out of the structures that lead to it in a state, or put it in; its status list apart.
local function leave(job, state, drops, lines)
  local place = state.place
  if place == 'ready' then
    local line, member = job.line, job.member -- known where a claim has found it there
    local key, band = line and line.key, line and line.band
    if not line then
      band, member = line_of(job, state)
      key = line_key(job.queue, band, job.tenant)
    end
    lines[key] = lines[key] or {job.queue, band, job.tenant}
    gather(drops, key, member)
  elseif place == 'leased' then
    gather(drops, LEASES .. state.worker, job.text)
    if state.cancel then gather(drops, P .. 'cancels:' .. state.worker, job.text) end
  elseif place == 'scheduled' or place == 'failed' then
    gather(drops, SCHEDULED, by_number(job.seq))
    if state.waits then gather(drops, P .. 'waits:' .. state.waits, job.text) end
  elseif place == 'held' then
    local key = P .. 'held:' .. joined(job.queue, job.tenant)
    lines[key] = {job.queue, false, job.tenant}
    gather(drops, key, job.text)
  elseif place == 'at_key' then
    gather(drops, keys.LINE .. joined(job.tenant, job.key[1]), keys.position(job, state))
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
    gather_scored(adds, LEASES .. state.worker, state.deadline, job.text)
    if state.cancel then gather_scored(adds, P .. 'cancels:' .. state.worker, job.text, job.text) end
  elseif place == 'scheduled' or place == 'failed' then
    gather_scored(adds, SCHEDULED, state.due, by_number(job.seq))
    if state.waits then gather_scored(adds, P .. 'waits:' .. state.waits, job.text, job.text) end
  elseif place == 'held' then
    gather_scored(adds, P .. 'held:' .. joined(job.queue, job.tenant), job.text, job.text)
    gather_scored(adds, HELD, 0, job.queue .. '\0' .. job.tenant)
  elseif place == 'at_key' then
    gather_scored(adds, keys.LINE .. joined(job.tenant, job.key[1]), 0, keys.position(job, state))
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
local anew = {ready = false, keys = false} -- whether leased jobs or nodes have become ready, or may be let in

local function new_changes() return {counts = {}, adds = {}, drops = {}, lines = {}, states = {}, freed = {}} end

local changes = new_changes() -- what `write_jobs` writes

local function recount(tenant, queue, task, was, now)
  local last = changes -- most have the names of the one before
  if last.tenant ~= tenant or last.queue ~= queue or last.task ~= task then
    last.tenant, last.queue, last.task, last.count = tenant, queue, task, counts_of(last.counts, tenant, queue, task)
  end
  local count = last.count
  if was then count[was] = (count[was] or 0) - 1 end
  count[now] = (count[now] or 0) + 1
end

local function keep(key, value)
  local states = changes.states
  local length = #states
  states[length + 1] = key
  states[length + 2] = value
end

local function change_list(text, was, now)
  if was == now then return end
  if was then gather(changes.drops, was, text) end
  gather_scored(changes.adds, now, text, text)
end

-- What changes at the key of a job, where it is held apart. Whatever may let somebody in there is noted.
function keys.change(job, was, now)
  local from, to, text, value = was and was.place, now.place, job.text, job.key[1]
  local name, id = joined(job.tenant, value), job.tenant .. '\0' .. value
  local is_claim = from == 'ready' and to == 'leased'
  local used, uses = from and USES[from], USES[to]
  if uses and not used then gather_scored(changes.adds, keys.JOBS .. name, text, text) end
  if used and not uses then gather(changes.drops, keys.JOBS .. name, text) end
  if to == 'ready' and from ~= 'ready' then
    gather_scored(changes.adds, keys.PLACES .. name, text, text)
    gather_scored(changes.adds, keys.READY, 0, keys.mark(job, '1'))
  elseif from == 'ready' and to ~= 'ready' then
    gather(changes.drops, keys.READY, keys.mark(job, '1'))
    gather(changes.drops, keys.READY, keys.mark(job, '0'))
  end
  local keeps = from == to or is_claim or (job.key[3] and (to == 'scheduled' or to == 'failed' or to == 'dead'))
  if used and not keeps then gather(changes.drops, keys.PLACES .. name, text) end
  if from == 'at_key' or to == 'at_key' then inner(changes, 'held')[keys.LINE .. name] = id end
  -- A claim, too: ready jobs count against a rate that is in force for others alone.
  if to == 'ready' or (from == to and from ~= 'at_key') or (not from and to ~= 'at_key') then return end
  local due = inner(changes, 'due')
  due[id] = math.min(due[id] or job.seq, job.seq)
  if not is_claim then anew.keys = true end
end

-- What changes where a job is found, by its states before and after.
local function apply(job)
  local was, now, text = job.was, job.state, job.text
  if was then
    change_list(text, STATUS[was.place], STATUS[now.place])
    leave(job, was, changes.drops, changes.lines)
    keep(STATE .. text, packed_state(job, now))
  else
    -- A new job: its body says where it is, and no more.
    if now.since then keep(STATE .. text, packed_state(job, now)) end
    change_list(text, nil, STATUS[now.place])
    gather_scored(changes.adds, P .. 'of:' .. job.tenant, text, text)
    keep(JOB .. text, job.body)
  end
  enter(job, now, changes.adds, changes.lines)
  if job.key then keys.change(job, was, now) end
  recount(job.tenant, job.queue, job.type, was and kind_of(was), kind_of(now))
  if job.dedup and FINISHED[now.place] then
    -- A node names its workflow there: see nodes.lua.
    if job.dedup:find('^node:%x+:%d+$') then
      ended_nodes[#ended_nodes + 1] = job
    else
      changes.freed[#changes.freed + 1] = job.dedup
    end
  end
  job.was, job.touched, job.line, job.member = now, nil, nil, nil
end

local LEASED, COMPLETED = LEASED_HEADER .. pack('leased'), FINISHED_HEADER .. pack('completed')
local NIL = pack(nil)
local DUE = #LEASED + 1 -- where the due time stands: nine bytes, but for the first hour after 1970

-- The two moves that nearly all jobs make, as `apply` would make them, without a table for each state: `lease` of a job
-- that its line tells all about, and `complete` of one that was leased. `shared` is what the last one has packed or read:
-- jobs of one claim differ in little.
local function lease(row, text, dedup, worker, claim, nth, lane, now, started, deadline, shared)
  local line, task, rank = row.line, row.type, row.rank
  local queue, band, tenant = line.queue, line.band, line.tenant
  if shared.due ~= row.due then shared.due, shared.packed_due = row.due, pack(row.due) end
  if shared.deadline ~= deadline or shared.started ~= started then
    shared.deadline, shared.started, shared.leases = deadline, started, LEASES .. worker
    shared.times = pack(1, 0, 0, nil, nil, nil, nil, worker, now, deadline, nil, nil, nil, started, claim, lane, nil)
  end
  if shared.line ~= line or shared.task ~= task or shared.rank ~= rank then
    shared.line, shared.task, shared.rank = line, task, rank
    shared.place = pack(tenant, queue, task, band, rank)
    changes.lines[line.key] = changes.lines[line.key] or {queue, band, tenant}
  end
  local packed = LEASED .. shared.packed_due .. shared.times .. (row.rated and pack(row.rated) or NIL) .. shared.place ..
    (dedup and pack(dedup) or NIL) .. pack(nth)
  keep(STATE .. text, packed)
  gather(changes.drops, line.key, row.member)
  gather_scored(changes.adds, shared.leases, deadline, text)
  recount(tenant, queue, task, 'ready', started and 'processing' or 'prefetched')
  return packed
end

local function complete(text, worker, attempt, claim, kept, ran, ended, shared)
  local due = kept:sub(DUE, DUE + 8)
  if shared.attempt ~= attempt or shared.claim ~= claim or due:byte() ~= 207 or kept:sub(1, DUE - 1) ~= LEASED
    or kept:sub(DUE + 9, shared.upto) ~= shared.between then
    if kept:sub(1, 3) ~= LEASED_HEADER then return nil end -- it waits, or has a key
    local _, place, due_at, nth_attempt, attempts, crashes, _, _, _, _, holder, leased, deadline, cancel, _, _, started, claimed,
      _, _, _, tenant, queue, task, _, _, dedup, nth = unpack_limit(kept, 27, #LEASED_HEADER)
    if place ~= 'leased' or holder ~= worker or nth_attempt ~= attempt or claimed ~= claim or cancel or dedup then
      return nil
    end
    due = pack(due_at)
    -- All but its due time and its place in the claim, if the first has the usual length.
    shared.attempt, shared.claim, shared.upto = #due == 9 and attempt or nil, claim, #kept - #pack(nth)
    shared.between = kept:sub(DUE + 9, shared.upto)
    shared.tenant, shared.queue, shared.task, shared.started, shared.leases = tenant, queue, task, started, LEASES .. worker
    shared.times = pack(attempt, attempts, crashes, nil, nil, nil, nil, worker, leased, deadline, nil)
  end
  local tenant, queue, task, started = shared.tenant, shared.queue, shared.task, shared.started
  local was = started and 'processing' or 'prefetched'
  if not started and ran then started = ended - ran end
  keep(STATE .. text, COMPLETED .. due .. shared.times .. pack(ended, 'completed', started))
  change_list(text, UNFINISHED, STATUS.completed)
  gather(changes.drops, shared.leases, text)
  gather_scored(changes.adds, ENDED, ended, by_number(text))
  recount(tenant, queue, task, was, 'completed')
  return queue, tenant, task
end

-- Keep the ways to keys: how many jobs each holds, and where to look who may be let in.
function keys.keep(held, due)
  local some, none, looks = {}, {}, {}
  for key, id in pairs(held) do
    local number = call('ZCARD', key)
    if number == 0 then none[#none + 1] = id else
      some[#some + 1] = number
      some[#some + 1] = id
    end
  end
  in_lots('ZADD', keys.HELD, some)
  in_lots('ZREM', keys.HELD, none)
  for id, score in pairs(due) do
    looks[#looks + 1] = whole(score)
    looks[#looks + 1] = id
  end
  for first = 1, #looks, AT_ONCE do
    call('ZADD', keys.DUE, 'LT', unpack(looks, first, math.min(first + AT_ONCE - 1, #looks)))
  end
end

-- Write the states of all jobs that were moved, and everything that is found by them.
local function write_jobs()
  for _, job in ipairs(touched) do apply(job) end
  touched = {}
  local written = changes
  if #written.states == 0 then return end
  changes = new_changes()
  in_lots('MSET', false, written.states)
  for key, members in pairs(written.drops) do in_lots('ZREM', key, members) end
  for key, members in pairs(written.adds) do in_lots('ZADD', key, members) end
  keep_ways(written.lines)
  if written.held or written.due then keys.keep(written.held or {}, written.due or {}) end
  write_counts(written.counts)
  in_lots('HDEL', P .. 'dedup', written.freed)
end

local function facts_key(job) return P .. 'facts:' .. job.text end

------------------------------------------------------------------------------------------------------------------------
-- New jobs
------------------------------------------------------------------------------------------------------------------------

local met = {} -- tenants of the jobs that this script has written
local ids = {} -- of new jobs, with their numbers

-- Make a job nobody has yet; `rest` is its body as Python made it, behind the place. `write_new_jobs` writes it.
local function create(now, seq, rest, given)
  local due = given.due or now
  local key, place = given.key, due <= now and (given.key and 'at_key' or 'ready') or 'scheduled'
  place = given.waits and 'waiting' or given.held and 'held' or place
  local head = pack(now, due, key and {place, key} or place)
  local job = {
    seq = seq, text = text_of(seq), body = BODY_HEADER .. head .. rest .. pack(seq), enqueued = now,
    tenant = given.tenant, queue = given.queue, type = given.type, band = given.band, rank = given.rank,
    dedup = given.dedup, key = key,
  }
  jobs[seq] = job
  move(job, {place = place, due = due, since = place == 'scheduled' and given.delay and now or nil})
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
  call('ZADD', P .. 'letters:pending_review', job.text, job.text)
end

------------------------------------------------------------------------------------------------------------------------
-- Wake-ups: published to waiting workers, a few of them where many wait
------------------------------------------------------------------------------------------------------------------------

local WAKE_AT_MOST = 4

-- Wake workers that serve one of the queues (a set; nil: of all); `always`: also those that do not wait.
local function wake(now, queues, always, but)
  local woken = 0
  local found = always and call('ZRANGE', P .. 'workers', 0, -1) or call('SMEMBERS', P .. 'waiting')
  for _, worker in ipairs(found) do
    local expires = call('ZSCORE', P .. 'workers', worker)
    if worker ~= but and expires and tonumber(expires) > now then
      local served = unpacked(call('HGET', P .. 'worker:' .. worker, 'queues'))
      local serves = #served == 0 or not queues
      for _, queue in ipairs(serves and {} or served) do serves = serves or queues[queue] end
      if serves then
        -- One that was killed hears nothing, though its heartbeat is good for a while: it takes no other's place.
        if call('PUBLISH', P .. 'wake:' .. worker, '') > 0 then woken = woken + 1 end
        if woken == WAKE_AT_MOST then return end
      end
    end
  end
end

-- Wake waiting workers that serve queues with ready jobs; where jobs may be let in, any: the Turn that does so wakes
-- those that serve their queues.
local function wake_for_ready(now, but)
  if call('EXISTS', P .. 'waiting') == 0 then return end
  if anew.keys then return wake(now, nil, false, but) end
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
