-- pause: pauses or resumes producing and handling.
-- KEYS   schema ready ledger events
-- ARGV   producing handling by wakeup-prefix
--        producing, handling: when the pause ends, in ms of Redis' clock. 0: it ends now. Empty: it stays as it is.
--        by: who asked for it, for the events. Empty: not known.
-- Answer {'paused', now, producing, handling}: when each pause ends (0: it is not paused) · {'missing'} (no such ring)
-- Invariant: the step moves no message. A repeat changes nothing and reports nothing. If handling resumes and messages
-- wait or are due, the step calls an idle member.
local ledger, events, by = KEYS[3], KEYS[4], ARGV[3]

if not redis.call('GET', KEYS[1]) then
  return { 'missing' }
end
local queue = read_queue(KEYS[2], ledger)
redis.call('XLEN', events)
if not queue.brakes then
  brakes().read(queue, no_brakes)
end
local now = queue.now

-- Gives a pause another end. A pause whose end is over came too late, and changes nothing.
local function change(what, argument)
  local ends = tonumber(argument) or queue[what]
  if ends == queue[what] or (ends ~= 0 and ends <= now) then
    return
  end
  queue[what] = ends
  if ends == 0 then
    announce(events, 'resumed', 'what', what, 'by', by)
  else
    announce(events, 'paused', 'what', what, 'for', ends < never and text(ends - now) or '', 'by', by)
  end
end

change('producing', ARGV[1])
change('handling', ARGV[2])
brakes().measure(queue)
wake_one(queue, ARGV[4], nil, queue.soonest ~= 0 and queue.soonest <= now)
save_queue(queue)
return { 'paused', now, queue.producing, queue.handling }
