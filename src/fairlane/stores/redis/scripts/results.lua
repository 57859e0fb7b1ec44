-- Removes results of completed jobs of one type that finished before an instant; the jobs stay.
-- ARGV: instant or '', {type, before, at, seq, limit}. Answers {dropped, examined, at, seq, left_at}: at and seq of the
-- last examined, and when the first finished that is wanted still.
local op = unpacked(ARGV[2])
if op.limit <= 0 then return {0, 0, false, false, false} end
local ENDED_JOBS = P .. 'finished'
-- Members of one score are in the order of their numbers. The last one examined may be gone by now.
local first = call('ZCOUNT', ENDED_JOBS, '-inf', '(' .. whole(op.at))
if op.seq >= 0 then
  for _, member in ipairs(call('ZRANGEBYSCORE', ENDED_JOBS, whole(op.at), whole(op.at))) do
    if tonumber(member) <= op.seq then first = first + 1 end
  end
end
local found = call('ZRANGE', ENDED_JOBS, first, first + op.limit - 1, 'WITHSCORES')
local seqs, ats, last_at, last_seq, left_at = {}, {}, false, false, false
for place = 1, #found, 2 do
  if tonumber(found[place + 1]) < op.before then
    seqs[#seqs + 1] = tonumber(found[place])
    last_at, last_seq = whole(tonumber(found[place + 1])), whole(tonumber(found[place]))
    ats[#seqs] = last_at
  end
end
local dropped = 0
for place, job in ipairs(read_jobs(seqs)) do
  if job and job.type == op.type and job.state.place == 'completed' then
    if not is_wanted(job) then
      dropped = dropped + call('HDEL', facts_key(job), 'result')
    elseif not left_at and call('HEXISTS', facts_key(job), 'result') == 1 then
      left_at = ats[place]
    end
  end
end
return {dropped, #seqs, last_at, last_seq, left_at}
