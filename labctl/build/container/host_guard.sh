# Runs on the host, in a session of its own: removes a container when labctl has died, of whatever.
# Nothing in the container can reach this process. $1: a descriptor; $2...: the command that removes.
#
# Standard input is a pipe whose other end labctl alone has. A line of it says that the container is
# gone; its end without a line says that labctl is. The descriptor is a pipe whose other end the
# engine's program has: until that has ended, it may yet create the container.
trap '' HUP INT TERM
engine=/dev/fd/$1
shift
read -r _ && exit
while :; do
    "$@"
    sleep 0.2
done >/dev/null 2>&1 &
again=$!
read -r _ <"$engine"
kill -KILL "$again"
"$@" >/dev/null 2>&1
