-- What stands before a ready job, and how far its limits are used up.
-- ARGV: instant or '', {seq, cap, bounds}. Answers {ahead, more urgent, other tenants, {leases, starts, free at} of each,
-- jobs before it where it is held at its key, or false}.
local op = unpacked(ARGV[2])
local now = clock(ARGV[1], false)
local job = read_job(op.seq)
local ahead, urgent, tenants = 0, 0, 0
if job and job.state.place == 'ready' then
  local band, member = line_of(job, job.state)
  ahead = call('ZRANK', line_key(job.queue, band, job.tenant), member) or 0
  tenants = call('ZCARD', tenants_key(job.queue, band)) - 1
  for _, other in ipairs(call('ZRANGEBYSCORE', P .. 'bands:' .. job.queue, '-inf', '(' .. band)) do
    for _, tenant in ipairs(call('ZRANGE', tenants_key(job.queue, other), 0, op.cap)) do
      if urgent >= op.cap then break end
      urgent = urgent + call('ZCARD', line_key(job.queue, other, tenant))
    end
  end
end
local behind = false
if job and job.state.place == 'at_key' then
  behind = call('ZRANK', keys.LINE .. joined(job.tenant, job.key[1]), keys.position(job, job.state))
end
local states = {}
for place, bound in ipairs(op.bounds) do
  local starts, free_at = 0, false
  if bound.rate then
    local key = rate_key(bound.kind, bound.of, bound.queue or '')
    starts = rate_used(key, now - bound.rate[2], now)
    local at = rate_free_at(key, bound.rate[1], bound.rate[2], now, 1)
    free_at = at and whole(at) or false
  end
  states[place] = {bound.running and leases_under(bound, bound.types or {}) or 0, starts, free_at}
end
return {math.min(ahead, op.cap), math.min(urgent, op.cap), math.min(tenants, op.cap), states, behind}
