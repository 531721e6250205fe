-- confirm: writes a mark, so that Redis can confirm this write and all earlier ones, and counts the replicas.
-- KEYS   confirmed
-- ARGV   missed-ms memory-ms
--        missed-ms: how long a replica that has left still counts. memory-ms: how long an unused mark stays in Redis.
-- Answer {'marked', replication-id, replicas}
--        replicas: those that receive writes, and those that did until a moment ago
-- Invariant: the step always writes, even if it is repeated. `WAIT` waits for the last write of its connection, and
-- a step that was repeated may have written nothing on this one. The mark remembers the replicas for all callers, also
-- for those that connect after one has left. A server that was promoted has other replicas. One that has restarted has
-- the same ones, and sentinels may promote one of them before it is back.
local info = redis.call('INFO', 'replication')
local id = string.match(info, 'master_replid:(%w+)') or ''
local _, online = string.gsub(info, 'state=online', '')
local mark = redis.pcall('GET', KEYS[1])
local known_id, known, known_online, known_since
if type(mark) == 'string' then
  known_id, known, known_online, known_since = string.match(mark, '^(%w*) (%d+) (%d+) (%d*)$')
end
local replicas, now, missed_since = online, now_ms(), ''
local is_new = known_id ~= id
local uptime = is_new and string.match(redis.call('INFO', 'server'), 'uptime_in_seconds:(%d+)')
local was_promoted = is_new and tonumber(uptime or 0) * 1000 >= tonumber(ARGV[1])
if (tonumber(known) or 0) > online and not was_promoted then
  local since = tonumber(known_since)
  -- Each of them counts for the whole time, so the time begins again when another one leaves.
  if is_new or not since or online < tonumber(known_online) then
    since = now
  end
  if now - since < tonumber(ARGV[1]) then
    replicas, missed_since = tonumber(known), text(since)
  end
end

local words = { id, text(replicas), text(online), missed_since }
redis.call('SET', KEYS[1], table.concat(words, ' '), 'PX', ARGV[2])
return { 'marked', id, replicas }
