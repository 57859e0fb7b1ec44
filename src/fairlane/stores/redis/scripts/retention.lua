-- Removes jobs that have ended, with everything kept of them: those of an index from one instant to before another.
-- ARGV: instant or '', {index, from, skip, before, limit, queues, others}: jobs of `queues` only from before the instant
-- there, all others only from before `others`. Answers {number, when the last had finished} and, where it has
-- looked at enough before it came to the end, {…, from, skip} for the next call: from this instant on, without its first.
local op = unpacked(ARGV[2])
if op.limit <= 0 then return {0, false} end
local look = math.max(op.limit, AT_ONCE)
local BODY = {id = ID, idempotency = 16, correlation = 18, parent = 19} -- places in a body
local STATUSES = {'pending_review', 'retried', 'resolved', 'discarded'}

local counts, drops, gone, fields = {}, {}, {}, {}
local seqs, last, tenants = {}, false, {}

-- The names of a body by which its job is found: those of them that can be read.
local function names_of(body)
  local is_body, elements = pcall(unpacked, body)
  local names = {}
  for name, place in pairs(BODY) do
    local value = is_body and type(elements) == 'table' and elements[place]
    if type(value) == 'string' then names[name] = value end
  end
  return names
end

-- Forget the node of a removed job, and its workflow with the last of them.
local function remove_node(workflow, n, seq)
  local kept = call('HGET', P .. 'nodes:' .. workflow, n)
  local node = kept and unpacked(kept)
  if not node or node.seq ~= seq then return end
  call('HDEL', P .. 'nodes:' .. workflow, n)
  call('HDEL', P .. 'names:' .. workflow, node.name)
  if call('EXISTS', P .. 'nodes:' .. workflow) == 1 then return end
  local words = call('HMGET', P .. 'workflow:' .. workflow, 'tenant', 'key')
  if not words[1] then return end
  call('ZREM', P .. 'workflows', workflow)
  call('ZREM', P .. 'workflows:' .. words[1], workflow)
  if words[2] then call('HDEL', P .. 'workflow:keys', words[2]) end
  for _, kind in ipairs({'workflow:', 'names:', 'gates:', 'behind:'}) do call('UNLINK', P .. kind .. workflow) end
end

local found, scores, from, skip = {}, {}, op.from, op.skip
local listed = call(
  'ZRANGEBYSCORE', P .. op.index, whole(op.from), '(' .. whole(op.before), 'WITHSCORES', 'LIMIT', op.skip, look)
for place = 1, #listed / 2 do
  found[place], scores[place] = tonumber(listed[2 * place - 1]), tonumber(listed[2 * place])
end
for place, job in ipairs(read_jobs(found)) do
  if #seqs == op.limit then break end
  if scores[place] ~= from then from, skip = scores[place], 0 end
  local is_past = scores[place] < (job and op.queues[job.queue] or op.others)
  if not is_past or is_wanted(job) then skip = skip + 1 else seqs[#seqs + 1] = found[place] end
end
local has_more = #found == look and #seqs < op.limit
for place, job in ipairs(read_jobs(seqs)) do
  local seq = seqs[place]
  for _, kind in ipairs({'job:', 'state:', 'facts:'}) do gone[#gone + 1] = P .. kind .. seq end
  if not job then gather(drops, P .. op.index, by_number(seq)) end
  if job then
    local names = names_of(job.body)
    gather(drops, STATUS[job.state.place], seq)
    leave(job, job.state, drops, {})
    count_state(counts, job, job.state, -1)
    tenants[job.tenant] = true
    last = whole(job.state.finished)
    if names.id then gather(fields, P .. 'id', names.id) end
    gather(drops, P .. 'of:' .. job.tenant, seq)
    if names.idempotency then gather(fields, P .. 'idempotency', joined(job.tenant, names.idempotency)) end
    if names.correlation then gather(drops, P .. 'correlated:' .. names.correlation, seq) end
    local workflow, node = (job.dedup or ''):match('^node:(%x+):(%d+)$')
    if workflow then remove_node(workflow, node, seq) end
    if names.parent then gather(drops, P .. 'children:' .. names.parent, seq) end
    if job.state.place == 'dead' then
      gather(drops, P .. 'closed', by_number(seq))
      for _, status in ipairs(STATUSES) do gather(drops, P .. 'letters:' .. status, seq) end
    end
  end
end
in_lots('UNLINK', false, gone)
for key, names in pairs(fields) do in_lots('HDEL', key, names) end
for key, names in pairs(drops) do in_lots('ZREM', key, names) end
write_counts(counts)
for tenant in pairs(tenants) do
  if call('EXISTS', P .. 'of:' .. tenant) == 0 then call('UNLINK', P .. 'count:' .. tenant) end
end
return {#seqs, last, has_more and whole(from) or false, skip}
