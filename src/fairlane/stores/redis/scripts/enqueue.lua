-- Puts jobs in, as far as pauses and the limits of their tenants allow.
-- ARGV: instant or '', {jobs, capacity, notify, version, too_long, terms}, the body of each job. Where jobs do anything but
-- wait at their keys, with the parts that end others (`enqueue_at_keys`).
-- Answers {'limits', version, limits}: they have changed, send it again; {'full' | 'too_long', depth};
-- {'paused', depth, pause}; {'refused', depth, tenant, queue, found}; or {'done', depth, receipts, over}.
local op = unpacked(ARGV[2])
local meta = call('HMGET', META, 'limits_version', 'refusals', 'latest')
if tonumber(meta[1] or 0) ~= op.version then
  return {'limits', tonumber(meta[1] or 0), call('HVALS', P .. 'limit')}
end

local depth = false
if op.capacity then
  local counted = call('HGETALL', P .. 'counts')
  depth = 0
  for place = 1, #counted, 2 do
    local kind = counted[place]:match('^(%a+):')
    if WAITS[kind] then
      depth = depth + counted[place + 1]
    end
  end
  depth = math.min(depth, math.max(op.capacity, 0))
  if depth + #op.jobs > op.capacity then return {'full', depth} end
end

if meta[2] and tonumber(meta[2]) > 0 then
  local refusing = {}
  for _, name in ipairs(call('SMEMBERS', P .. 'refusals')) do refusing[name] = true end
  for _, given in ipairs(op.jobs) do
    for _, name in ipairs({'queue:' .. given.queue, 'tenant:' .. given.tenant, 'type:' .. given.type}) do
      if refusing[name] then return {'paused', depth, call('HGET', P .. 'pause', name)} end
    end
  end
end
if op.too_long then return {'too_long', depth} end

-- Decide for every job before the first is written: a refusal leaves nothing.
local quotas, receipts, new = {}, {}, {}
local conflicts = op.conflicts and job_keys.new_conflicts()
local own = {id = {}, idempotency = {}, dedup = {}} -- of jobs that this call creates, by their place
local KINDS = {'id', 'idempotency', 'dedup'}
local NUMBER_OF = {id = P .. 'id', idempotency = P .. 'idempotency', dedup = P .. 'dedup'}

local known_ids = {} -- most are new: all are looked for together
for first = 1, #op.jobs, AT_ONCE do
  local wanted = {}
  for place = first, math.min(first + AT_ONCE - 1, #op.jobs) do wanted[#wanted + 1] = op.jobs[place].id end
  for place, seq in ipairs(call('HMGET', NUMBER_OF.id, unpack(wanted))) do known_ids[wanted[place]] = seq end
end

-- Whether a job holds its id or key. One that is gone or that nobody can read does not: nothing of it says when to free
-- its keys. An id alone is kept by anything that stands there.
local function is_held(kind, seq)
  if kind == 'id' then return call('EXISTS', JOB .. text_of(seq)) == 1 end
  local job = read_job(seq)
  return job and not (kind == 'dedup' and (FINISHED[job.state.place] or (conflicts and conflicts.ends[seq])))
end

local function holder(kind, name)
  if not name then return nil end
  local place = own[kind][name]
  if place and not (kind == 'dedup' and conflicts and conflicts.ended[place]) then return nil, place end
  local seq = kind == 'id' and known_ids[name]
  if kind ~= 'id' then seq = call('HGET', NUMBER_OF[kind], name) end
  seq = seq and tonumber(seq)
  return seq and is_held(kind, seq) and seq
end

for _, terms in ipairs(op.terms or {}) do
  local places = {}
  for number, place in ipairs({'ready:', 'scheduled:', 'failed:', 'held:', 'prefetched:', 'processing:'}) do
    places[number] = place .. terms[2]
  end
  local found = 0
  for _, number in ipairs(call('HMGET', P .. 'count:' .. terms[1], unpack(places))) do found = found + (number or 0) end
  local key = joined(terms[1], terms[2])
  quotas[key] = {found = math.min(found, math.max(terms[3], 0)), limit = terms[3], policy = terms[4], made = 0}
end

for place, given in ipairs(op.jobs) do
  local met
  for _, kind in ipairs(KINDS) do
    local seq, twin = holder(kind, given[kind])
    if seq or twin then
      met = {kind = kind, seq = seq, twin = twin}
      break
    end
  end
  met = met or (conflicts and conflicts.meet(given))
  if met then
    receipts[place] = met
  else
    local quota = op.terms and quotas[joined(given.tenant, given.queue)]
    if quota then
      quota.made = quota.made + 1
      if quota.found + quota.made > quota.limit then
        quota.over = true
        if quota.policy == 'reject' then return {'refused', depth, given.tenant, given.queue, quota.found} end
        given.held = quota.policy == 'hold'
      end
    end
    new[#new + 1] = place
    if conflicts then conflicts.add(given, place) end
    own.id[given.id] = place
    if given.idempotency then own.idempotency[given.idempotency] = place end
    if given.dedup then own.dedup[given.dedup] = place end
  end
end

local now = clock(ARGV[1], true, meta[3])
local queues, some = {}, false
if #new > 0 then
  local seq = call('HINCRBY', META, 'seq', #new) - #new
  for _, place in ipairs(new) do
    seq = seq + 1
    local given = op.jobs[place]
    if given.delay then given.due = math.min(now + given.delay, LATEST_US) end
    if given.replaces then conflicts.replace(given.replaces, receipts, now) end
    create(now, seq, ARGV[2 + place], given)
    receipts[place] = {seq = seq, held = given.held}
    if not given.held then queues[given.queue], some = true, true end
  end
  write_new_jobs()
  if conflicts and #ended_nodes > 0 then end_nodes(now) end
end

local answers = {}
for place, given in ipairs(op.jobs) do
  local receipt = receipts[place]
  local kind, seq = receipt.kind, receipt.seq or receipts[receipt.twin].seq
  if not kind then
    answers[place] = receipt.held and {seq} or seq
  elseif kind == 'id' then
    answers[place] = {seq, call('GET', P .. 'job:' .. seq)}
  else
    answers[place] = {seq, id_of(read_job(seq)), kind}
  end
end
local over = {}
for key, quota in pairs(quotas) do
  if quota.over then over[#over + 1] = {key, quota.found} end
end
if some and op.notify ~= 'never' then wake(now, queues, op.notify == 'always') end
if anew.ready then wake_for_ready(now) end
return {'done', depth, answers, over}
