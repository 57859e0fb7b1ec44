-- Nodes of workflows and the gates they wait behind. `workflow:<id>` has the words and figures of one, `nodes:<id>` and
-- `gates:<id>` its parts by number, `behind:<id>` the numbers of the nodes behind each gate.
--
-- node   {name, seq, gate, counts, again, skipped, lost}
-- gate   {opens, waits, failed, counts_for, everyone, state, reached}

local RELEASE_LIMIT = 1000
local FIGURES = {'total', 'waiting', 'completed', 'dead', 'cancelled', 'skipped'}
local DONE = {opening = 'open', closing = 'closed', skipping = 'skipped'}
local MOVING = P .. 'gates:moving'
local flows = {} -- workflows that this script has read, by id

local function flow_of(id)
  if not flows[id] then flows[id] = {id = id, nodes = {}, gates = {}, changed = {nodes = {}, gates = {}}, figures = {}} end
  return flows[id]
end

-- Read nodes or gates by their numbers.
local function load(flow, kind, wanted)
  local missing = {}
  for _, n in ipairs(wanted) do
    if flow[kind][n] == nil then
      missing[#missing + 1] = n
      flow[kind][n] = false
    end
  end
  for first = 1, #missing, AT_ONCE do
    local last = math.min(first + AT_ONCE - 1, #missing)
    for place, kept in ipairs(call('HMGET', P .. kind .. ':' .. flow.id, unpack(missing, first, last))) do
      if kept then flow[kind][missing[first + place - 1]] = unpacked(kept) end
    end
  end
  return flow[kind]
end

local function load_all(flow, kind)
  local kept = call('HGETALL', P .. kind .. ':' .. flow.id)
  for place = 1, #kept, 2 do
    local n = tonumber(kept[place])
    if not flow[kind][n] then flow[kind][n] = unpacked(kept[place + 1]) end
  end
  return flow[kind]
end

local function change(flow, kind, n) flow.changed[kind][n] = true end

local function figure(flow, name, by) flow.figures[name] = (flow.figures[name] or 0) + by end

local function write_flows()
  for id, flow in pairs(flows) do
    for kind, numbers in pairs(flow.changed) do
      local fields = {}
      for n in pairs(numbers) do
        fields[#fields + 1] = n
        fields[#fields + 1] = pack(flow[kind][n])
      end
      in_lots('HSET', P .. kind .. ':' .. id, fields)
      flow.changed[kind] = {}
    end
    for name, by in pairs(flow.figures) do
      if by ~= 0 then call('HINCRBY', P .. 'workflow:' .. id, name, by) end
    end
    flow.figures = {}
  end
end

local function node_waits(n, gate)
  return gate and gate.state ~= 'open' and (gate.state ~= 'opening' or n > gate.reached) or false
end

-- How a node stands: nil while it has not ended.
local function end_of(job, node)
  local place = job.state.place
  if not FINISHED[place] then return nil end
  if place == 'dead' then
    local letter = call('HGET', facts_key(job), 'letter')
    local status = letter and unpacked(letter).status
    if status == 'resolved' then return 'completed' end
    if status ~= 'discarded' then return 'dead' end
    place = 'cancelled'
  end
  return node.skipped and 'skipped' or place
end

local function count_of(counts, gate)
  if not counts[gate] then counts[gate] = {completed = 0, ended = 0, failed = 0, cancelled = 0, skipped = 0} end
  return counts[gate]
end

local function add(count, name, by) count[name] = count[name] + (by or 1) end

local function count_end(counts, gates, status, again)
  for _, gate in ipairs(gates) do
    local count = count_of(counts, gate)
    if status ~= 'dead' then add(count, status) end
    if not again then
      add(count, 'ended')
      if status == 'dead' or status == 'cancelled' then add(count, 'failed') end
    end
  end
end

local function next_state(gate, count)
  if gate.opens == 'completed' then
    if count.cancelled > 0 then return 'closing' end
    if count.skipped > 0 then return 'skipping' end
  end
  if gate.waits > 0 then return 'waiting' end
  if gate.opens == 'failed' and gate.failed == 0 then return 'skipping' end
  return 'opening'
end

local function field_of(flow, n) return 'node:' .. flow.id .. ':' .. n end

-- Whether a job that nobody can read had ended before: then its end was counted.
local function had_ended(seq) return (call('GET', STATE .. text_of(seq)) or ''):sub(1, 3) == FINISHED_HEADER end

-- A node whose job nobody can read counts as cancelled, once: its workflow would wait for it for ever.
local function lose(flow, n)
  local node = flow.nodes[n]
  node.lost = true
  change(flow, 'nodes', n)
  ended_nodes[#ended_nodes + 1] = {seq = node.seq, dedup = field_of(flow, n), state = {place = 'cancelled'}}
end

-- Let the nodes behind a gate go, or end them; returns how many.
local function move_nodes(flow, n, state, now, limit)
  local gate = flow.gates[n]
  local kept = call('HGET', P .. 'behind:' .. flow.id, n)
  local wanted = {}
  for _, node in ipairs(kept and unpacked(kept) or {}) do
    if node > gate.reached then
      wanted[#wanted + 1] = node
      if #wanted > limit then break end
    end
  end
  local has_more = #wanted > limit
  if has_more then wanted[#wanted] = nil end
  local nodes, seqs = load(flow, 'nodes', wanted), {}
  for place, node in ipairs(wanted) do seqs[place] = nodes[node].seq end
  local moved = 0
  for place, job in ipairs(read_jobs(seqs)) do
    if job and job.state.place == 'waiting' then
      moved = moved + 1
      if state == 'opening' then
        figure(flow, 'waiting', -1)
        local due = job.state.due
        -- Also one that was due at its enqueue, in the future: the clock was set back since.
        if job.enqueued and due <= job.enqueued then due = math.min(due, now) end
        local place = due > now and 'scheduled' or 'ready'
        move(job, {place = place, due = math.max(due, now), attempt = has_carried_steps(job) and 1 or nil})
        anew.ready = anew.ready or due <= now
      else
        finish(job, 'cancelled', now, {}, nil)
        if state == 'skipping' then
          nodes[wanted[place]].skipped = true
          change(flow, 'nodes', wanted[place])
        end
      end
    elseif not job and not nodes[wanted[place]].lost and not had_ended(seqs[place]) then
      if state == 'opening' then figure(flow, 'waiting', -1) end
      lose(flow, wanted[place])
    end
  end
  if #wanted > 0 then gate.reached = wanted[#wanted] end
  gate.state = has_more and state or DONE[state]
  change(flow, 'gates', n)
  call(has_more and 'ZADD' or 'ZREM', MOVING, unpack(has_more and {0, flow.id .. ':' .. n} or {flow.id .. ':' .. n}))
  return moved
end

-- Bring ends to the gates of a workflow, and move up to `limit` nodes behind those that open or close by it.
local function count_ends(flow, counts, now, limit)
  local turned, moved = {}, 0
  while next(counts) do
    local following, names = {}, {}
    for n in pairs(counts) do names[#names + 1] = n end
    table.sort(names)
    load(flow, 'gates', names)
    for _, n in ipairs(names) do
      local gate, count = flow.gates[n], counts[n]
      if gate and gate.state == 'waiting' then
        gate.waits = gate.waits - (gate.opens == 'completed' and count.completed or count.ended)
        gate.failed = gate.failed + count.failed
        change(flow, 'gates', n)
        local state = next_state(gate, count)
        if state ~= 'waiting' and gate.counts_for then
          gate.state = DONE[state]
          local parent = count_of(following, gate.counts_for)
          if state == 'opening' then
            add(parent, 'completed')
            add(parent, 'ended')
            if gate.failed > 0 then add(parent, 'failed') end
          else
            add(parent, state == 'closing' and 'cancelled' or 'skipped')
          end
        elseif state ~= 'waiting' then
          gate.state = state
          turned[#turned + 1] = {n, state}
        end
      end
    end
    counts = following
  end
  for _, turn in ipairs(turned) do moved = moved + move_nodes(flow, turn[1], turn[2], now, limit - moved) end
  return moved
end

-- Count the nodes that ended in this script, and move what waits for them; returns how many nodes moved.
local function end_nodes(now, limit)
  local moved = 0
  write_jobs()
  while #ended_nodes > 0 do
    local by_flow, order = {}, {}
    for _, job in ipairs(ended_nodes) do
      local id, n = job.dedup:match('^node:(%x+):(%d+)$')
      if not by_flow[id] then
        by_flow[id] = {}
        order[#order + 1] = id
      end
      table.insert(by_flow[id], {tonumber(n), job})
    end
    ended_nodes = {}
    for _, id in ipairs(order) do
      local flow, numbers, own, counts = flow_of(id), {}, {}, {}
      for place, pair in ipairs(by_flow[id]) do numbers[place] = pair[1] end
      load(flow, 'nodes', numbers)
      for _, n in ipairs(numbers) do
        local node = flow.nodes[n]
        if node and node.gate then own[#own + 1] = node.gate end
      end
      load(flow, 'gates', own)
      for _, pair in ipairs(by_flow[id]) do
        local n, job = pair[1], pair[2]
        local node = flow.nodes[n]
        if node and node.seq == job.seq then
          local gate = node.gate and flow.gates[node.gate]
          local status = job.state.place == 'dead' and 'dead' or end_of(job, node)
          figure(flow, status, 1)
          if node_waits(n, gate) then figure(flow, 'waiting', -1) end
          count_end(counts, node.counts, status, node.again)
        end
      end
      moved = moved + count_ends(flow, counts, now, (limit or RELEASE_LIMIT) - moved)
    end
    write_jobs()
  end
  write_flows()
  return moved
end

return RELEASE_LIMIT, FIGURES, DONE, MOVING, flow_of, load, load_all, change, figure, write_flows, node_waits, end_of,
  field_of, had_ended, add, count_end, move_nodes, count_ends, end_nodes
