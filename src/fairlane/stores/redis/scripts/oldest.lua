-- The earliest due time among ready jobs: the least of the heads of lines, rank by rank.
-- ARGV: [[queue, band, tenant], …]. Answers an instant, or nil.
local oldest
for _, line in ipairs(unpacked(ARGV[1])) do
  local key, from = line_key(line[1], line[2], line[3]), '-'
  while true do
    local head = call('ZRANGEBYLEX', key, from, '+', 'LIMIT', 0, 1)[1]
    if not head then break end
    local rank, due = struct.unpack('>I2I8', head)
    if not oldest or due < oldest then oldest = due end
    from = '(' .. struct.pack('>I2', rank) .. '\255'
  end
end
return oldest and whole(oldest) or false
