# Runs one program of a build in a session of its own.
#
#   $1 the build's folder   $2 number of the job   $3 where it runs   $4 how many of the following
#   words are NAME=VALUE; then the program and its arguments
#
# Both of its streams go to standard output; standard error is this script's own.
set -u
workspace=$1 number=$2 folder=$3 variables=$4
shift 4
cd -- "$folder" && [ -d "$workspace/tmp" ] || exit 125
# The watchdog finds by LABCTL_JOB what has to be ended.
set -- "LABCTL_JOB=$workspace/$number/" "PATH=$PATH" "HOME=${HOME-/}" "TMPDIR=$workspace/tmp" \
    "GIT_CEILING_DIRECTORIES=$workspace" "$@"
eval "program=\${$((variables + 6))}"
command -v -- "$program" >/dev/null || { echo "labctl: no program $program" >&2; exit 127; }
setsid env -i "$@" </dev/null 2>&1 &
wait $!
