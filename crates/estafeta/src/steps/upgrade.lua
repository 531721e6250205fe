-- upgrade: raises the layout of the ring, if every member knows the new one. All memberships end.
-- KEYS   schema members succession ready errors ledger events {member inflight}...
-- ARGV   layout channel-prefix members-known incarnation...
--        The caller names the members that it knows. If they are not the current members, it must ask again.
-- Answer {'upgraded', from} · {'already'} (it is as new as that, or newer, or there is no ring) · {'changed'} ·
--        {'holds', number, host, pid, layouts}: this member does not know the layout. layouts is its span, or empty.
-- Invariant: a member writes only the layout with which it joined. So each of them gets `lost` at its next step and
-- joins again. What it held goes back to the queue without a death. A refusal writes nothing.
local schema, members, succession, ledger, events = KEYS[1], KEYS[2], KEYS[3], KEYS[6], KEYS[7]
local layout, channels, first_member = tonumber(ARGV[1]), ARGV[2], 4

local from = redis.call('GET', schema)
if not from or tonumber(from) >= layout then
  return { 'already' }
end
if redis.call('ZCARD', members) ~= tonumber(ARGV[3]) then
  return { 'changed' }
end
local queue = read_queue(KEYS[4], ledger)
local all = {}
for i = first_member, #ARGV do
  local key = 8 + 2 * (i - first_member)
  local one = { incarnation = ARGV[i], member = KEYS[key],
    keys = { errors = KEYS[5], ledger = ledger, inflight = KEYS[key + 1] } }
  if not redis.call('ZSCORE', members, one.incarnation) then
    return { 'changed' }
  end
  local facts = redis.call('HMGET', one.member, 'number', 'kind', 'host', 'pid', 'layouts')
  local newest = tonumber(string.match(facts[5] or '', ' (%d+)$'))
  if facts[1] and (not newest or newest < layout) then
    return { 'holds', facts[1], facts[3] or '', facts[4] or '', facts[5] or '' }
  end
  one.number, one.kind = identify(facts[1], facts[2], one.keys.inflight)
  one.held = collect(one.kind, one.member, one.keys, nil, queue)
  all[#all + 1] = one
end
redis.call('XLEN', events)
redis.call('ZCARD', succession)

local returned = 0
for i = #all, 1, -1 do
  local one = all[i]
  returned = returned + hand_back(one.held, one.keys, one.number, now_ms())
  redis.call('DEL', one.member)
end
redis.call('DEL', members, succession)
-- No member is left that could take over, so the next election is a first one.
if queue.generator then
  vacate(ledger, succession, '0')
end
redis.call('HDEL', ledger, 'last', 'yielded')
redis.call('SET', schema, ARGV[1])
queue.idle = ''
save_queue(queue)
announce(events, 'upgraded', 'from', from, 'to', ARGV[1], 'returned', returned)
-- Calls every former member, so that it looks at once and joins again.
for _, one in ipairs(all) do
  notify(channels .. one.incarnation, 'office')
end
return { 'upgraded', tonumber(from) }
