-- checkpoint: sets or removes the checkpoint of the source, while no node is in office.
-- KEYS   schema ledger checkpoint
-- ARGV   keep(0|1) value
--        keep: 1 if `value` becomes the checkpoint, 0 if the checkpoint is removed.
-- Answer {'changed'} · {'office', number}: this member is in office, so nothing changed · {'missing'} (no such ring)
-- Invariant: the checkpoint of a generator changes only with its messages. A repeat changes nothing.
local schema, ledger, checkpoint = KEYS[1], KEYS[2], KEYS[3]

if not redis.call('GET', schema) then
  return { 'missing' }
end
local office = redis.call('HMGET', ledger, 'member', 'number')
redis.call('GETRANGE', checkpoint, 0, 0)
if office[1] then
  return { 'office', tonumber(office[2]) or 0 }
end
if ARGV[1] == '1' then
  redis.call('SET', checkpoint, ARGV[2])
else
  redis.call('DEL', checkpoint)
end
return { 'changed' }
