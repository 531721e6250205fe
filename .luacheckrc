-- Scripts run by Redis: Lua 5.1 and what Redis puts around it.
std = "lua51"
read_globals = { "redis", "KEYS", "ARGV", "cjson", "cmsgpack", "struct", "bit" }
max_line_length = 120

-- A script is put together from the shared pieces it names and its own file, so a function that one file defines as
-- local is used by the next. Redis itself refuses a script that uses a function it was not given.
local shared = {
  "now_ms", "text", "notify", "announce", "wake_one", "split_message", "join_message", "id_of", "error_element",
  "retried_message", "push_all", "reversed", "packs", "read_queue", "save_queue", "count_of", "peek", "renumber",
  "new_element", "push", "give_back", "claim", "claim_name", "read_hand", "claims_after", "stand_in_line",
  "to_settle", "read_outcomes", "read_effects", "delete_elements", "note_outcomes", "checked", "check_counts",
  "never", "no_brakes", "brakes", "read_layout", "admit", "loss", "note_loss", "identify", "collect", "hand_back",
  "postponed_message", "later_name", "read_due", "read_soonest", "change_later", "few", "budget", "state_of",
  "look_at", "is_dead", "vacate", "end_candidacy", "call_heir", "end_of_line", "read_memory", "rarely", "number_of",
  "single_name", "free_singles", "read_single", "entry_ids", "ended_ids", "drafts", "published_of_head",
  "sample_names", "add_latencies", "latencies_text", "last_sample", "busy_time", "oldest_age",
}
for _, name in ipairs(shared) do
  read_globals[#read_globals + 1] = name
end
files["**/shared/*.lua"] = { ignore = { "211", "431" } }
