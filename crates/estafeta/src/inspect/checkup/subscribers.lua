-- Counts the subscribers of a channel.
--
-- ARGV   channel
-- Answer their number
return { redis.call('PUBSUB', 'NUMSUB', ARGV[1])[2] }
