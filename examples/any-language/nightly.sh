#!/bin/sh
# Runs once per tick, on the elected node only. Each line that it prints is a message.
#
#     estafeta run --ring reports --generate 'sh nightly.sh' --cron '30 2 * * *' --tz Europe/Berlin --handle cat
#
# The node publishes nothing unless the script exits with code 0. Then all lines, the checkpoint and the tick go to
# Redis in one step. So a script that fails halfway leaves nothing behind, and runs again.
set -eu

# Stdin is the last checkpoint: what an earlier run wrote to descriptor 3. The first time it is empty.
last=$(cat)
run=$((${last:-0} + 1))

# The time for which the tick was planned, in milliseconds since 1970. It stays the same if the script runs late.
tick=$((ESTAFETA_TICK_MS / 1000))

for shop in berlin hamburg paris; do
    printf '{"shop":"%s","run":%d,"tick":%d}\n' "$shop" "$run" "$tick"
done

# The next run gets this number.
printf '%d' "$run" >&3
