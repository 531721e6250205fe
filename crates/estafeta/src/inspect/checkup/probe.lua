-- Tries every command that the scripts of a ring use, under the rights of the caller.
--
-- KEYS   one another
--        Keys that no ring has. They do not exist before and after.
-- ARGV   channel
--        A channel that nobody subscribes to.
-- Answer the refused commands, each followed by what Redis said about it.
--
-- Without the right to delete, nothing is written, because it would stay.
local one, another, channel = KEYS[1], KEYS[2], ARGV[1]
local answer = {}

local function try(name, ...)
  local reply = redis.pcall(...)
  local refusal = type(reply) == 'table' and reply.err
  -- A key is missing only if the command that makes it was refused.
  if refusal and not string.find(refusal, 'no such key', 1, true) then
    answer[#answer + 1] = name
    answer[#answer + 1] = refusal
  end
end

try('time', 'TIME')
try('publish', 'PUBLISH', channel, 'probe')
try('pubsub', 'PUBSUB', 'NUMSUB', channel)
try('exists', 'EXISTS', one)
try('type', 'TYPE', one)
try('del', 'DEL', one)
local may_write = not answer[1] or answer[#answer - 1] ~= 'del'

if may_write then
  try('set', 'SET', one, '1')
  try('incrby', 'INCRBY', one, 1)
end
try('get', 'GET', one)
try('getrange', 'GETRANGE', one, 0, 0)
redis.pcall('DEL', one)

if may_write then
  try('sadd', 'SADD', one, 'a')
end
try('smembers', 'SMEMBERS', one)
redis.pcall('DEL', one)

if may_write then
  try('hset', 'HSET', one, 'a', '1')
  try('hincrby', 'HINCRBY', one, 'a', 1)
end
try('hget', 'HGET', one, 'a')
try('hmget', 'HMGET', one, 'a')
try('hgetall', 'HGETALL', one)
try('hdel', 'HDEL', one, 'b')
redis.pcall('DEL', one)

if may_write then
  try('rpush', 'RPUSH', one, 'a', 'b', 'c')
  try('lpush', 'LPUSH', one, 'd')
  try('lset', 'LSET', one, 0, 'e')
end
try('llen', 'LLEN', one)
try('lrange', 'LRANGE', one, 0, -1)
try('memory|usage', 'MEMORY', 'USAGE', one)
if may_write then
  try('sort', 'SORT', one, 'BY', 'nosort', 'STORE', another)
end
try('lrem', 'LREM', one, 1, 'e')
try('lpop', 'LPOP', one)
try('ltrim', 'LTRIM', one, 1, -1)
redis.pcall('DEL', one)
redis.pcall('DEL', another)

if may_write then
  try('zadd', 'ZADD', one, 1, 'a')
end
try('zcard', 'ZCARD', one)
try('zscore', 'ZSCORE', one, 'a')
try('zrank', 'ZRANK', one, 'a')
try('zrange', 'ZRANGE', one, 0, -1)
try('zrem', 'ZREM', one, 'b')
redis.pcall('DEL', one)

if may_write then
  try('xadd', 'XADD', one, '*', 'a', 'b')
end
try('xlen', 'XLEN', one)
try('xrange', 'XRANGE', one, '-', '+')
try('xrevrange', 'XREVRANGE', one, '+', '-')
try('xinfo|stream', 'XINFO', 'STREAM', one)
redis.pcall('DEL', one)

return answer
