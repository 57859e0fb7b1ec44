-- Results of nodes are wanted until their workflow has ended, and nothing dead of it can be tried again.
local wanting = {} -- by workflow
local function is_wanted(job)
  local id = job and job.dedup and job.dedup:match('^node:(%x+):')
  if not id then return false end
  if wanting[id] == nil then
    local kept = call('HMGET', P .. 'workflow:' .. id, 'total', 'completed', 'cancelled', 'skipped')
    wanting[id] = tonumber(kept[1] or 0) > (kept[2] or 0) + (kept[3] or 0) + (kept[4] or 0)
  end
  return wanting[id]
end

return is_wanted
