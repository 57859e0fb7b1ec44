-- Writes what a handler has decided, unless anything it has read was changed: then nothing, and nil.
-- ARGV: instant, [[[command, key, …], digest of its reply], …], [[function, argument, …], …], bodies of new jobs …
local now = tonumber(ARGV[1])
local function with_tag(command)
  if command[1] == 'MGET' then
    for number = 2, #command do command[number] = P .. command[number] end
  else
    command[2] = P .. command[2]
  end
  return command
end

for _, seen in ipairs(unpacked(ARGV[2])) do
  if redis.sha1hex(pack(call(unpack(with_tag(seen[1]))))) ~= seen[2] then return false end
end

local functions = {}

functions['do'] = function(command) return call(unpack(with_tag(command))) end

functions.audit = function(tenant, target, document) return write_audit(tenant, target, document) end

functions.event = function(tenant, document)
  local id = call('HINCRBY', META, 'event', 1)
  call('HSET', P .. 'event', id, document)
  call('ZADD', P .. 'events', id, id)
  if tenant ~= '' then call('ZADD', P .. 'events:' .. tenant, id, id) end
  return id
end

-- The job goes to another place: `state` as in the prelude.
functions.move = function(seq, state)
  local job = read_job(seq)
  state.nth = job.state.nth -- handlers do not know of it
  move(job, state)
  return 1
end

functions.finish = function(seq, place, counters, ended)
  finish(read_job(seq), place, now, counters, ended)
  return 1
end

functions.record = function(seq, ended)
  record(read_job(seq), ended)
  return 1
end

-- The attempt never started: its claim no longer counts against any rate.
functions.give_back = function(seq)
  give_back(read_job(seq), now)
  return 1
end

functions.letter = function(seq, failure)
  open_dead_letter(read_job(seq), failure, now)
  return 1
end

-- The place that a dead letter has at its key is free once a person has closed it.
functions.keep_letter = function(seq, letter)
  local job = letter.status ~= 'pending_review' and read_job(seq)
  if job and job.key then job_keys.free_place(job) end
  return call('HSET', P .. 'facts:' .. seq, 'letter', pack(letter))
end

functions.create = function(given, body)
  if given.delay then given.due = math.min(now + given.delay, LATEST_US) end
  local job = create(now, call('HINCRBY', META, 'seq', 1), ARGV[3 + body], given)
  write_new_jobs()
  if given.steps_of then
    -- With steps of another job its attempts begin behind the first: that is how a worker knows of them.
    local fields, copied = call('HGETALL', P .. 'facts:' .. given.steps_of), {}
    for place = 1, #fields, 2 do
      if fields[place]:match('^step:') or fields[place]:match('^heard:') then
        copied[#copied + 1] = fields[place]
        copied[#copied + 1] = fields[place + 1]
      end
    end
    copied[#copied + 1] = 'has_carried_steps'
    copied[#copied + 1] = 1
    in_lots('HSET', facts_key(job), copied)
    if not given.waits then
      local state = waiting_state(job.state.place, job.state.due, {attempt = 1})
      state.since = job.state.since
      move(job, state)
    end
  end
  return job.seq
end

functions.free_place = function(seq)
  job_keys.free_place(read_job(seq))
  return 1
end

functions.hold_again = function(name)
  job_keys.hold_again(name)
  return 1
end

functions.look_again = function(name)
  job_keys.look_again(name)
  return 1
end

-- A job that another one replaces, by its number or, where this commit has made it, its id.
functions.cancel_replaced = function(seq, id)
  local job = read_job(id and tonumber(call('HGET', P .. 'id', id)) or seq)
  finish(job, 'cancelled', now, job.state, nil)
  write_jobs()
  return 1
end

-- Lists of names, as fields of a hash that scripts read.
functions.names = function(key, first, firsts, second, seconds)
  return call('HSET', P .. key, first, pack(firsts), second, pack(seconds))
end

-- A dead letter of a node is closed: its children go on, or end.
functions.settle_letter = function(id, n, status)
  local flow, counts = flow_of(id), {}
  local node = load(flow, 'nodes', {n})[n]
  figure(flow, 'dead', -1)
  figure(flow, status, 1)
  count_end(counts, node.counts, status, true)
  count_ends(flow, counts, now, RELEASE_LIMIT)
  end_nodes(now)
  return 1
end

-- Another job stands for a node from now on.
functions.replace_job = function(id, n, seq, again)
  local flow = flow_of(id)
  local node = load(flow, 'nodes', {n})[n]
  node.seq, node.again = seq == 0 and tonumber(call('HGET', META, 'seq')) or seq, again or nil
  node.skipped, node.lost = nil, nil
  change(flow, 'nodes', n)
  return 1
end

functions.figure = function(id, name, by)
  figure(flow_of(id), name, by)
  return 1
end

-- Set a gate; `free`: what waits behind it goes on.
functions.gate = function(id, n, gate, free)
  local flow = flow_of(id)
  if DONE[gate.state] then -- it goes on ending its nodes
    gate.reached = load(flow, 'gates', {n})[n].reached
  else
    call('ZREM', MOVING, id .. ':' .. n)
  end
  flow.gates[n] = gate
  change(flow, 'gates', n)
  if free then
    gate.reached = -1
    move_nodes(flow, n, 'opening', now, 10 ^ 6)
  end
  return 1
end

functions.wake_for_ready = function()
  write_jobs()
  wake_for_ready(now)
  return 1
end

functions.wake = function(queues)
  local set = {}
  for _, queue in ipairs(queues) do set[queue] = true end
  wake(now, set, false)
  return 1
end

even_when_full()
local answers = {}
for place, act in ipairs(unpacked(ARGV[3])) do
  answers[place] = functions[act[1]](act[2], act[3], act[4], act[5], act[6])
end
write_jobs()
if #ended_nodes > 0 then end_nodes(now) end
write_flows()
if anew.ready or anew.keys then wake_for_ready(now) end
return answers
