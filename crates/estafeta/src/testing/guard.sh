# Runs the Redis of a test until the test ends:
#
#     sh -c "$(cat guard.sh)" guard DIRECTORY OPTION...
#
# The test holds the other end of our standard input and writes nothing. When the test ends, however it ends, the kernel
# closes that end. So the server does not outlive the test, not even one that gets a kill -9. The directory goes with it.
# If the server ends first, so does this script. Exit code 127: no server is installed.
trap '' HUP INT TERM
directory=$1
shift
server=$(command -v redis-server || command -v valkey-server) || exit 127
exec 3<&0
"$server" "$@" >"$directory/redis.log" 2>&1 3<&- &
server=$!
(
    read -r _ <&3
    rm -rf "$directory"
    kill -9 "$server"
) &
watch=$!
wait "$server"
kill -9 "$watch" 2>/dev/null
exit 1
