-- Jobs enqueued behind a number, counted by minute, type, queue and tenant.
-- ARGV: instant, number, how many numbers to look at, only jobs enqueued until then.
-- Answers {the last number looked at, jobs, [[minute, type, queue, tenant, jobs], …]}.
local MINUTE_US = 60000000
local after, most, settled = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local newest = tonumber(call('HGET', META, 'seq') or 0)
-- Numbers that no job has, as a restarted server leaves many, are not looked at one by one.
local first = newest + 1
for _, list in ipairs({'unfinished', 'failed', 'completed', 'dead', 'cancelled'}) do
  local seq = call('ZRANGEBYSCORE', P .. 'status:' .. list, '(' .. text_of(after), '+inf', 'LIMIT', 0, 1)[1]
  if seq then first = math.min(first, tonumber(seq)) end
end
after = math.max(after, first - 1)
local last = math.min(after + most, newest)
local seqs, seen_to, found, counted, places = {}, after, 0, {}, {}
for seq = after + 1, last do seqs[#seqs + 1] = text_of(seq) end
for place, body in ipairs(read_in_lots(P .. 'job:', seqs)) do
  if body then
    local job = job_from(after + place, seqs[place], body)
    if job.enqueued > settled then break end
    local minute = math.floor(job.enqueued / MINUTE_US) * MINUTE_US
    local key = joined(job.type, joined(job.queue, joined(job.tenant, whole(minute))))
    if not places[key] then
      counted[#counted + 1] = {whole(minute), job.type, job.queue, job.tenant, 0}
      places[key] = counted[#counted]
    end
    places[key][5] = places[key][5] + 1
    found = found + 1
  end
  seen_to = after + place
end
return {seen_to, found, counted}
