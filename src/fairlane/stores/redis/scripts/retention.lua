-- Removes jobs that have ended, with everything kept of them: those of an index from one instant to before another.
-- ARGV: instant or '', {index, from, before, limit}. Answers {number, when the last had finished}.
local op = unpacked(ARGV[2])
if op.limit <= 0 then return {0, false} end
local BODY = {idempotency = 17, correlation = 19, parent = 20} -- places in a body
local STATUSES = {'pending_review', 'retried', 'resolved', 'discarded'}

counts, drops = {}, {}
local gone, fields = {}, {}
local members = call('ZRANGEBYSCORE', P .. op.index, op.from, '(' .. whole(op.before), 'LIMIT', 0, op.limit)
local seqs, last = {}, false
for place, member in ipairs(members) do seqs[place] = tonumber(member) end
for place, job in ipairs(read_jobs(seqs)) do
  local seq = seqs[place]
  for _, kind in ipairs({'job:', 'state:', 'facts:'}) do gone[#gone + 1] = P .. kind .. seq end
  gather(drops, P .. op.index, by_number(seq))
  if job then
    local body = unpacked(job.body)
    index_state(job, job.state, drops, false, {})
    count_state(job, job.state, -1)
    last = whole(job.state.finished)
    gather(fields, P .. 'id', job.id)
    gather(drops, P .. 'of:' .. job.tenant, seq)
    if body[BODY.idempotency] then
      gather(fields, P .. 'idempotency', joined(job.tenant, body[BODY.idempotency]))
    end
    if body[BODY.correlation] then gather(drops, P .. 'correlated:' .. body[BODY.correlation], seq) end
    if body[BODY.parent] then gather(drops, P .. 'children:' .. body[BODY.parent], seq) end
    if job.state.place == 'dead' then
      gather(drops, P .. 'closed', by_number(seq))
      for _, status in ipairs(STATUSES) do gather(drops, P .. 'letters:' .. status, seq) end
    end
  end
end
for first = 1, #gone, AT_ONCE do call('UNLINK', unpack(gone, first, math.min(first + AT_ONCE - 1, #gone))) end
for key, names in pairs(fields) do in_lots('HDEL', key, names) end
for key, names in pairs(drops) do in_lots('ZREM', key, names) end
for key, by_field in pairs(counts) do
  for field, by in pairs(by_field) do
    if call('HINCRBY', key, field, by) <= 0 then call('HDEL', key, field) end
  end
end
return {#members, last}
