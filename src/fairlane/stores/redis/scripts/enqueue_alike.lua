-- Puts in jobs without keys or a delay that differ in id and payload alone, where no limit of their tenant counts: most
-- enqueues. Alone, without the prelude, which would take longer than all of this for one job; they are found where
-- `create` and `write_jobs` of the prelude put them.
-- ARGV: instant or '', version of limits, whether to wake workers, tenant, queue, type, band, rank, correlation id or '',
-- parent or '', what their bodies share behind the place, then of each its own part of the body, which ends with its id.
-- Answers the number of the first, which the others follow, or false where that needs a closer look: send them to
-- enqueue.lua.
local P, call, pack = KEYS[1] .. ':', redis.call, cmsgpack.pack
if redis.replicate_commands then redis.replicate_commands() end
local tenant, queue, task, band, rank = ARGV[4], ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8])
local BEFORE, AT_ONCE = 11, 1000 -- arguments before the first job; jobs of one command
local count = #ARGV - BEFORE
local meta = call('HMGET', P .. 'meta', 'limits_version', 'refusals', 'latest')
if (meta[1] or '0') ~= ARGV[2] or (meta[2] and meta[2] ~= '0') then return false end
local ids = {}
for place = 1, count do ids[place] = ARGV[BEFORE + place]:sub(-32) end
for first = 1, count, AT_ONCE do
  for _, known in ipairs(call('HMGET', P .. 'id', unpack(ids, first, math.min(first + AT_ONCE - 1, count)))) do
    if known then return false end
  end
end

local before, now = call('HINCRBY', P .. 'meta', 'seq', count) - count, tonumber(ARGV[1])
if not now then
  local time, latest = call('TIME'), tonumber(meta[3] or 0) -- as in `clock` of the prelude
  now = time[1] * 1000000 + time[2]
  if now < latest and latest - now <= 2000000 then now = latest end
  if math.abs(now - latest) >= 1000000 then call('HSET', P .. 'meta', 'latest', string.format('%.0f', now)) end
end
call('ZADD', P .. 'with_jobs', 0, tenant)
local lists = {P .. 'status:unfinished', P .. 'of:' .. tenant}
if ARGV[9] ~= '' then lists[#lists + 1] = P .. 'correlated:' .. ARGV[9] end
if ARGV[10] ~= '' then lists[#lists + 1] = P .. 'children:' .. ARGV[10] end
local key, line = P .. 'job:', P .. 'line:' .. band .. ':' .. #queue .. ':' .. queue .. tenant
local shared, position = '\220\0\26' .. pack(now, now, 'ready') .. ARGV[11], struct.pack('>I2I8', rank, math.max(now, 0))
for first = 1, count, AT_ONCE do
  local bodies, numbers, members, known, at = {}, {}, {}, {}, 0
  for place = first, math.min(first + AT_ONCE - 1, count) do
    local seq, with = before + place, at + 2
    local text = string.format('%d', seq)
    at = at + 1
    bodies[at], bodies[with] = key .. text, shared .. ARGV[BEFORE + place] .. pack(seq)
    numbers[at], numbers[with] = text, text
    members[at], members[with] = '0', position .. struct.pack('>I8', seq) .. '0' .. task .. string.char(seq % 256)
    known[at], known[with] = ids[place], text
    at = with
  end
  call('MSET', unpack(bodies))
  for _, list in ipairs(lists) do call('ZADD', list, unpack(numbers)) end
  call('ZADD', line, unpack(members))
  call('HSET', P .. 'id', unpack(known))
end
if call('ZADD', P .. 'tenants:' .. band .. ':' .. queue, 0, tenant) == 1 then
  call('ZADD', P .. 'bands:' .. queue, band, band)
  call('ZADD', P .. 'queues', 0, queue)
end
for _, counts in ipairs({P .. 'count:' .. tenant, P .. 'counts'}) do
  call('HINCRBY', counts, 'ready:' .. queue, count)
  call('HINCRBY', counts, 'pending:' .. task, count)
end

if ARGV[3] == '1' then
  local woken = 0
  for _, worker in ipairs(call('SMEMBERS', P .. 'waiting')) do
    local expires = call('ZSCORE', P .. 'workers', worker)
    if expires and tonumber(expires) > now then
      local served = cmsgpack.unpack(call('HGET', P .. 'worker:' .. worker, 'queues'))
      local serves = #served == 0
      for _, one in ipairs(served) do serves = serves or one == queue end
      if serves and call('PUBLISH', P .. 'wake:' .. worker, '') > 0 then woken = woken + 1 end
      if woken == 4 then break end
    end
  end
end
return before + 1
