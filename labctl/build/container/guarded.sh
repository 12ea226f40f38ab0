# PID 1 of every container that labctl starts: runs one program, given as PROGRAM NAME=VALUE... WORD...
# and writes its exit status to /labctl/status when, and only when, it has ended by itself.
# labctl holds a lock on /labctl/alive. The kernel frees it when labctl dies, of whatever: then this
# shell ends, and with PID 1 all that runs in the container.
for needed in flock "$1"; do
    command -v "$needed" >/dev/null || { echo "missing $needed" >/labctl/status; exit; }
done
shift
trap 'exit 143' TERM
env -i PATH="$PATH" HOME=/tmp "$@" </dev/null &
program=$!
{ flock /labctl/alive true; kill -TERM $$; } >/dev/null 2>&1 &
wait "$program"
echo "$?" >/labctl/status
