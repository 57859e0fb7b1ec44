-- Workflows: ARGV: instant or '', what, its arguments, bodies of new jobs …
-- `enqueue` answers {'limits', version, limits}, {'known', words of it}, {'duplicate', id}, {'conflict'}, {'full', depth},
-- {'paused', depth, pause}, {'too_long', depth}, {'refused', depth, tenant, queue, found} or {'created', depth}.
-- `add` answers {'limits', …}, {'added', count}, {'again'}, {'total', nodes}, a refusal as above, or its code alone.
local what, op = ARGV[2], unpacked(ARGV[3])

local function write_node(flow, n, name, seq, gate, counts)
  flow.nodes[n] = {name = name, seq = seq, gate = gate, counts = counts}
  change(flow, 'nodes', n)
  call('HSET', P .. 'names:' .. flow.id, name, n)
end

local function add_gates(flow, gates, first)
  for place, given in ipairs(gates) do
    local n = first + place - 1
    flow.gates[n] = {
      opens = given.opens, waits = given.waits, failed = 0, counts_for = given.counts_for and first + given.counts_for,
      everyone = given.everyone, state = 'waiting', reached = -1,
    }
    change(flow, 'gates', n)
  end
end

-- Make the jobs of nodes. Their bodies name them by number already.
local function add_nodes(flow, first_node, first_gate, held, joins, now)
  local seq = call('HINCRBY', META, 'seq', #op.jobs) - #op.jobs
  local queues, behind = {}, {}
  for place, given in ipairs(op.jobs) do
    local node = op.nodes[place]
    local n, counts = first_node + place - 1, {}
    for _, gate in ipairs(node.counts_for or {}) do counts[#counts + 1] = first_gate + gate end
    for _, gate in ipairs(joins) do counts[#counts + 1] = gate end
    local gate = node.gate and first_gate + node.gate
    if given.delay then given.due = math.min(now + given.delay, LATEST_US) end
    given.waits, given.held = gate ~= nil, held[given.queue]
    create(now, seq + place, ARGV[3 + place], given)
    write_node(flow, n, node.name, seq + place, gate, counts)
    if gate then
      gather(behind, gate, n)
      figure(flow, 'waiting', 1)
    elseif not given.held then
      queues[given.queue] = true
    end
  end
  for gate, nodes in pairs(behind) do call('HSET', P .. 'behind:' .. flow.id, gate, pack(nodes)) end
  figure(flow, 'total', #op.jobs)
  write_new_jobs()
  return queues
end

-- The answer to a caller that does not know the limits set by people as they are now.
local function newer_limits(version)
  if tonumber(version or 0) ~= op.version then
    return {'limits', tonumber(version or 0), call('HVALS', P .. 'limit')}
  end
end

-- The refusal of new nodes, or nil; how many jobs wait; the queues whose nodes are kept back.
local function find_room(refusals)
  local depth = false
  if op.capacity then
    local counted = call('HGETALL', P .. 'counts')
    depth = 0
    for place = 1, #counted, 2 do
      if WAITS[counted[place]:match('^(%a+):')] then depth = depth + counted[place + 1] end
    end
    depth = math.min(depth, math.max(op.capacity, 0))
    if depth + #op.jobs > op.capacity then return {'full', depth} end
  end
  if refusals and tonumber(refusals) > 0 then
    for _, given in ipairs(op.jobs) do
      for _, name in ipairs({'queue:' .. given.queue, 'tenant:' .. given.tenant, 'type:' .. given.type}) do
        if call('SISMEMBER', P .. 'refusals', name) == 1 then return {'paused', depth, call('HGET', P .. 'pause', name)} end
      end
    end
  end
  if op.too_long then return {'too_long', depth} end
  local held = {}
  for _, terms in ipairs(op.terms or {}) do
    local found, made = 0, 0
    for _, place in ipairs({'ready:', 'scheduled:', 'failed:', 'held:', 'prefetched:', 'processing:'}) do
      found = found + (call('HGET', P .. 'count:' .. terms[1], place .. terms[2]) or 0)
    end
    for _, given in ipairs(op.jobs) do
      if given.tenant == terms[1] and given.queue == terms[2] then made = made + 1 end
    end
    found = math.min(found, math.max(terms[3], 0))
    if found + made > terms[3] then
      if terms[4] == 'reject' then return {'refused', depth, terms[1], terms[2], found} end
      if terms[4] == 'hold' then held[terms[2]] = true end
    end
  end
  return nil, depth, held
end

local function enqueue()
  local meta = call('HMGET', META, 'limits_version', 'refusals', 'latest')
  local newer = newer_limits(meta[1])
  if newer then return newer end
  local known = call('HGET', P .. 'workflow:' .. op.id, 'words')
  if known then return {'known', known} end
  local same = op.key and call('HGET', P .. 'workflow:keys', op.key)
  if same then return {'duplicate', same} end
  for first = 1, #op.jobs, AT_ONCE do
    local wanted = {}
    for place = first, math.min(first + AT_ONCE - 1, #op.jobs) do wanted[#wanted + 1] = op.jobs[place].id end
    for _, seq in ipairs(call('HMGET', P .. 'id', unpack(wanted))) do
      if seq then return {'conflict'} end
    end
  end
  local refusal, depth, held = find_room(meta[2])
  if refusal then return refusal end
  local now = clock(ARGV[1], true, meta[3])
  local flow, number = flow_of(op.id), call('HINCRBY', META, 'workflow', 1)
  call('HSET', P .. 'workflow:' .. op.id, 'words', op.words, 'tenant', op.tenant, 'seq', number, 'enqueued', whole(now),
    'nodes', #op.jobs, 'gates', #op.gates)
  call('ZADD', P .. 'workflows', number, op.id)
  call('ZADD', P .. 'workflows:' .. op.tenant, number, op.id)
  if op.key then
    call('HSET', P .. 'workflow:keys', op.key, op.id)
    call('HSET', P .. 'workflow:' .. op.id, 'key', op.key)
  end
  add_gates(flow, op.gates, 0)
  local queues = add_nodes(flow, 0, 0, held, {}, now)
  write_flows()
  if next(queues) and op.notify ~= 'never' then wake(now, queues, op.notify == 'always') end
  return {'created', depth}
end

local function status_of_flow(kept)
  local of = {}
  for place, name in ipairs(FIGURES) do of[name] = tonumber(kept[place] or 0) end
  local ended = of.completed + of.dead + of.cancelled + of.skipped
  if ended < of.total then return of.total - of.waiting - ended > 0 and 'running' or 'blocked' end
  return of.dead > 0 and 'failed' or of.cancelled > 0 and 'cancelled' or 'completed'
end

local function in_scope()
  local tenant = call('HGET', P .. 'workflow:' .. op.id, 'tenant')
  return tenant and (not op.tenant or op.tenant == tenant)
end

local function extend()
  local meta = call('HMGET', META, 'limits_version', 'refusals', 'latest')
  local newer = newer_limits(meta[1])
  if newer then return newer end
  if not in_scope() then return {'not_found'} end
  local guard = op.seq and read_job(op.seq)
  if op.seq and not is_leased_to(guard, op.worker or (guard and guard.state.worker), op.attempt, op.claim_no) then
    return {'lease_lost'}
  end
  local key, flow, joins = P .. 'workflow:' .. op.id, flow_of(op.id), {}
  local kept = call('HMGET', key, 'nodes', 'gates', 'cancelled_at')
  -- What the caller has seen of it decides which nodes are new, and their numbers.
  if tonumber(kept[1]) ~= op.first then return {'again'} end
  if #op.nodes == 0 then return {'added', 0} end
  for n, gate in pairs(load_all(flow, 'gates')) do
    if gate.everyone then
      if gate.state ~= 'waiting' then return {'ended'} end
      joins[#joins + 1] = n
    end
  end
  table.sort(joins)
  local parents = {}
  for place, pair in ipairs(op.behind) do
    local n = tonumber(call('HGET', P .. 'names:' .. op.id, pair[1]) or -1)
    if not load(flow, 'nodes', {n})[n] then return {'not_allowed'} end
    parents[place] = n
  end
  if kept[3] then return {'not_allowed'} end
  local first_node, first_gate = tonumber(kept[1]), tonumber(kept[2])
  if first_node + #op.nodes > op.max_nodes then return {'total', first_node + #op.nodes} end
  local refusal, _, held = find_room(meta[2])
  if refusal then return refusal end
  -- The first write: refused where memory is full, as that of an enqueue.
  local now = clock(ARGV[1], true, meta[3])
  add_gates(flow, op.gates, first_gate)
  for _, n in ipairs(joins) do
    flow.gates[n].waits = flow.gates[n].waits + #op.nodes
    change(flow, 'gates', n)
  end
  local queues = add_nodes(flow, first_node, first_gate, held, joins, now)
  call('HSET', key, 'nodes', first_node + #op.nodes, 'gates', first_gate + #op.gates)
  local counts = {}
  for place, pair in ipairs(op.behind) do
    local node, gate = flow.nodes[parents[place]], first_gate + pair[2]
    node.counts[#node.counts + 1] = gate
    change(flow, 'nodes', parents[place])
    local job = read_job(node.seq)
    local status = job and end_of(job, node) or not job and node.lost and 'cancelled'
    if status or node.again then count_end(counts, {gate}, status or 'dead', false) end
  end
  write_flows()
  count_ends(flow, counts, now, #op.nodes)
  end_nodes(now)
  wake(now, queues, false)
  if anew.ready or anew.keys then wake_for_ready(now) end
  return {'added', #op.nodes}
end

local function cancel(now)
  if not in_scope() then return {'not_found'} end
  local key, flow, touched_jobs = P .. 'workflow:' .. op.id, flow_of(op.id), 0
  local before = status_of_flow(call('HMGET', key, unpack(FIGURES)))
  load_all(flow, 'gates')
  for n, node in pairs(load_all(flow, 'nodes')) do
    local job = read_job(node.seq)
    local state = job and job.state
    local field = field_of(flow, n)
    -- Nobody has counted its end, or will.
    local is_lost = not node.lost and (job and job.dedup ~= field or not job and not had_ended(node.seq))
    if is_lost then
      node.lost = true
      change(flow, 'nodes', n)
      if job then job.dedup = field end -- from now on it says whose end it is
    end
    if is_lost and (not job or FINISHED[state.place]) then
      figure(flow, 'cancelled', 1)
      if node_waits(n, node.gate and flow.gates[node.gate]) then figure(flow, 'waiting', -1) end
    elseif state and state.place == 'leased' then
      if not state.cancel then
        local asked = {}
        for name, value in pairs(state) do asked[name] = value end
        asked.cancel = true
        move(job, asked)
        touched_jobs = touched_jobs + 1
      end
    elseif state and not FINISHED[state.place] then
      finish(job, 'cancelled', now, state, nil)
      figure(flow, 'cancelled', 1)
      if node_waits(n, node.gate and flow.gates[node.gate]) then figure(flow, 'waiting', -1) end
      touched_jobs = touched_jobs + 1
    end
  end
  write_jobs()
  ended_nodes = {} -- counted above
  for n, gate in pairs(flow.gates) do
    if gate.state == 'waiting' or DONE[gate.state] then
      gate.state = DONE[gate.state] or 'closed'
      change(flow, 'gates', n)
      call('ZREM', MOVING, op.id .. ':' .. n)
    end
  end
  write_flows()
  if call('HSETNX', key, 'cancelled_at', whole(now)) == 1 then
    local after = status_of_flow(call('HMGET', key, unpack(FIGURES)))
    write_audit(call('HGET', key, 'tenant'), op.target, (op.audit:gsub('@before@', before):gsub('@after@', after)))
  end
  return {'done', touched_jobs}
end

local function advance(now)
  local moved = 0
  for _, member in ipairs(call('ZRANGE', MOVING, 0, math.max(op.limit - 1, 0))) do
    local id, n = member:match('^(%x+):(%d+)$')
    local flow = flow_of(id)
    n = tonumber(n)
    load(flow, 'gates', {n})
    moved = moved + move_nodes(flow, n, flow.gates[n].state, now, op.limit - moved)
  end
  return moved + end_nodes(now, op.limit - moved)
end

if what == 'enqueue' then return enqueue() end
if what == 'add' then return extend() end
even_when_full()
local now = clock(ARGV[1], true)
local answer
if what == 'cancel' then answer = cancel(now) end
if what == 'advance' then answer = advance(now) end
if anew.ready or anew.keys then wake_for_ready(now) end
return answer
