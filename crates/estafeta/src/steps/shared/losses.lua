-- What Redis has forgotten of what a member knows. A roll-back takes acknowledged writes away: a lagging replica was
-- promoted, or Redis crashed before its disk had them. Members remember how many messages were published.

-- Returns how many messages Redis has lost by the knowledge of the caller. `found` messages are published. `base` of
-- them were published when the term of `epoch` began. What the caller knows of an earlier term is compared with `base`,
-- because other messages may have been published since. A ring that was deleted and began anew has lost nothing.
local function loss(known, known_epoch, born, found, epoch, base, stored_born)
  if tonumber(born) ~= tonumber(stored_born or 0) then
    return 0
  end
  known_epoch = tonumber(known_epoch)
  local before = known_epoch < (epoch or 0) and (base or math.huge) or found
  return math.max(tonumber(known) - before, 0)
end

-- Counts `known - found` messages as lost. They stay published, so that their ids are not given out again.
local function note_loss(ledger, events, number, known, found)
  redis.call('HSET', ledger, 'published', text(known))
  redis.call('HINCRBY', ledger, 'lost', known - found)
  announce(events, 'rolled-back', 'member', number, 'known', text(known), 'found', text(found))
end
