-- Scripts run by Redis: Lua 5.1 and what Redis puts around it.
std = "lua51"
read_globals = { "redis", "KEYS", "ARGV", "cjson", "cmsgpack", "struct", "bit" }
max_line_length = 120
