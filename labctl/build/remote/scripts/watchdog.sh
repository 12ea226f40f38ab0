# Holds one build on this machine for as long as labctl is there, and leaves nothing behind.
#
#   $1 workdir   $2 the build's name, with one /   $3 timeout in seconds   $4 1: keep the tree
#
# Takes orders from standard input, one a line: "." (labctl is still here), "here" (are you?),
# "end N" (end job N and all that it started). When no line comes before the timeout, or at the end
# of input, labctl is gone.
# Answers: "missing ...", "foreign", "busy", "ready", "here", "ended N", and at the end "clean".
set -u
workdir=$1 workspace=$1/builds/$2 timeout=$3 keep=$4

missing=
for tool in cat env flock grep gzip ls mkdir mv rm setsid sha256sum sleep tail tar timeout touch tr; do
    command -v "$tool" >/dev/null || missing="$missing $tool"
done
[ -z "$missing" ] || { echo "missing$missing"; exit 0; }

order=
listen() {
    # shellcheck disable=SC2016 # expanded by the inner shell; read takes no byte too many
    order=$(timeout "$timeout" sh -c 'IFS= read -r line && printf "%s" "$line"')
}

# Ends all processes whose environment has $1. Their group or session would not do: ninja gives
# every compiler a group of its own, and scripts may start what leaves the session.
end_marked() {
    signal=TERM
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        found=$(grep -lsF "LABCTL_JOB=$1" /proc/[0-9]*/environ | tr -dc '0-9\n')
        [ -n "$found" ] || return 0
        # shellcheck disable=SC2086 # a list of numbers
        kill -s $signal $found 2>/dev/null
        [ $signal = KILL ] || sleep 1
        signal=KILL
        sleep 0.1
    done
}

leave() {
    trap '' HUP INT TERM
    end_marked "$workspace/"
    if [ "$keep" = 1 ]; then
        rm -rf "$workspace/tmp" "$workspace"/*.part
    else
        rm -rf "$workspace"
        rmdir "${workspace%/*}" "$workdir/builds" 2>/dev/null
    fi
    echo clean
    exit 0
}

trap '' PIPE
mkdir -p "$workdir" || exit
if [ -L "$workdir" ] || [ ! -O "$workdir" ]; then echo foreign; exit 0; fi
chmod 700 "$workdir" || exit
mkdir -p "$workdir/sources" || exit
while :; do
    mkdir -p "$workspace" || exit
    command exec 9<"$workspace" || continue # gone again: its last user was just leaving
    if ! flock -n 9; then
        echo busy
        listen || exit 0
        continue
    fi
    # The one who had the lock has removed this folder: another has to be locked.
    [ "$workspace" -ef /proc/self/fd/9 ] && break
done
trap leave HUP INT TERM
rm -rf "$workspace/tmp" "$workspace/source" "$workspace"/*.part
mkdir -p "$workspace/tmp" "$workspace/source" "$workspace/tree" || leave
echo ready
while listen; do
    case $order in
    here) echo here ;;
    "end "*) end_marked "$workspace/${order#end }/"; echo "ended ${order#end }" ;;
    esac
done
leave
