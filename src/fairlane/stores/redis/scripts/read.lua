-- Several commands that change nothing, at one instant.
-- ARGV: instant or '', [[command, key, …], …], whether a commit will depend on the replies.
local now = clock(ARGV[1], false)
local replies, digests = {}, {}
for place, command in ipairs(unpacked(ARGV[2])) do
  if command[1] == 'MGET' then
    for number = 2, #command do command[number] = P .. command[number] end
  else
    command[2] = P .. command[2]
  end
  local reply = call(unpack(command))
  replies[place] = reply
  if ARGV[3] == '1' then digests[place] = redis.sha1hex(pack(reply)) end
end
return {whole(now), replies, digests}
