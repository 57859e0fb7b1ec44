-- A worker's Turn: starts, settles, promotes, reclaims, lets in and claims.
-- ARGV: instant or '', {worker, claim_no, outcomes, starts, wants, limits, version, waiting, promote, reclaim, keys},
-- results.
-- Answers {'limits', version, limits} where they have changed and something is wanted: send it again; or {'done', …}.
local op = unpacked(ARGV[2])
local meta = call('HMGET', META, 'limits_version', 'leases_counted', 'latest')
if tonumber(meta[1] or 0) ~= op.version then
  return {'limits', tonumber(meta[1] or 0), call('HVALS', P .. 'limit')}
end
even_when_full()
local now = clock(ARGV[1], true, meta[3])
local worker, limits = op.worker, op.limits
if limits and limits.counts and not meta[2] then
  call('HSET', META, 'leases_counted', 1)
  meta[2] = '1'
end

local unstarted = op.starts and start(worker, op.starts, now) or {}
if op.outcomes then
  for _, outcome in pairs(op.outcomes[6]) do
    if outcome.result then outcome.result = ARGV[2 + outcome.result] end
  end
end
local stale = op.outcomes and settle(worker, op.outcomes, now, meta[2]) or {}
-- Plain completions are written together with what is claimed, unless that depends on them.
if #touched > 0 or limits or meta[2] then write_jobs() end
local _, due = promote_due(op.promote, now)
local reclaimed = {}
reclaim_lapsed(op.reclaim, now, reclaimed)
if #ended_nodes > 0 then
  end_nodes(now)
  due = next_due()
end
local let, has_more, key_free_at = job_keys.let_in(op.keys, now)

local expires = call('ZSCORE', P .. 'workers', worker)
local registered = expires and tonumber(expires) > now
local limited = limits and (limits.always or limits.paused > now) or false
local room = limits and new_room(limits, now)
local barring = limited and room or nil
local leases, given, marks, stops, cursors, surveys = {}, {}, {}, {}, {}, {}

if registered then
  local kept = call('HMGET', P .. 'worker:' .. worker, 'waiting', 'claim')
  if op.wants then
    local last = tonumber(kept[2] or -1)
    op.is_new = op.claim_no > last
    if not op.is_new then
      write_jobs()
      -- A claim that is repeated because its reply was lost gets the leases it made.
      leases = leases_of_claim(worker, op.claim_no)
      for _, job in ipairs(leases) do
        given[#given + 1] = as_given(job.seq, job.body, packed_state(job, job.state))
      end
    end
    -- One below the last is a late copy: nobody waits for its answer.
    if #leases == 0 and op.claim_no >= last then
      local paused = read_pauses()
      for _, want in ipairs(op.wants) do
        local claimed, discovered = claim(op, want, #leases, paused, barring, marks, stops, now, given)
        for _, row in ipairs(claimed) do leases[#leases + 1] = row end
        if discovered then
          cursors[#cursors + 1] = {want.lane, discovered.tenant}
          if want.survey and want.survey > 0 then
            surveys[#surveys + 1] = {want.lane, discovered.queue, discovered.band, survey(want, discovered, paused)}
          end
        end
      end
    end
  end
  if (kept[1] == '1') ~= op.waiting then
    call('HSET', P .. 'worker:' .. worker, 'waiting', op.waiting and 1 or 0)
    call(op.waiting and 'SADD' or 'SREM', P .. 'waiting', worker)
  end
end
write_jobs()

-- Leases that ended under a limit on running leave room; whoever waits for it is woken unless this Turn has taken it.
if #freed > 0 and meta[2] then
  if (op.wants or op.gives_limits) and limits then
    local places, some = {}, false
    for _, job in ipairs(freed) do
      for _, name in ipairs(room.counted_by(job.queue, job.tenant, job.type)) do
        places[name] = (places[name] or 0) + 1
      end
    end
    for _, row in ipairs(leases) do
      local line = row.line or row
      for _, name in ipairs(room.counted_by(line.queue, line.tenant, row.type)) do
        places[name] = (places[name] or 0) - 1
      end
    end
    for _, count in pairs(places) do some = some or count > 0 end
    if some then wake_for_ready(now, worker) end
  elseif not op.wants and not op.gives_limits then
    wake_for_ready(now, worker)
  end
end
if anew.ready then wake_for_ready(now) end

-- So is whoever serves the queues of jobs that were let in and are left.
if #let > 0 or has_more then
  local claimed = {}
  for _, row in ipairs(leases) do claimed[row.seq] = true end
  for _, job in ipairs(let) do has_more = has_more or not claimed[job.seq] end
  if has_more then wake_for_ready(now, worker) end
end

local seen = {}
for _, mark in pairs(marks) do
  mark[5] = whole(mark[5])
  seen[#seen + 1] = mark
end
local free_at = keep_stops(stops, barring and barring.free_at(), now)
if key_free_at then free_at = math.min(free_at or key_free_at, key_free_at) end
return {
  'done', whole(now), '\221' .. struct.pack('>I4', #given) .. table.concat(given), stale, unstarted, numbers(call('ZRANGE', P .. 'cancels:' .. worker, 0, -1)),
  registered and 1 or 0, seen, cursors, due and whole(due) or false, reclaimed, surveys, limited and 1 or 0,
  barring and barring.short and 1 or 0, free_at and whole(free_at) or false,
}
