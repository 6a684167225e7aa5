#!/usr/bin/env bash
# The Python that spark-submit starts for the job; only spark-submit.sh uses it.
#
# spark-submit gives a job no stdin, merges its stderr into its stdout, and copies that. Here the job gets
# spark-submit.sh's own streams back, terminal or not, and leaves its process id for signals.
set -euo pipefail

python=$(dirname -- "${BASH_SOURCE[0]}")/python.sh

# Spark also asks this Python for its version (-c) and starts workers with it (-m), and must hear what those print.
if [[ ${1:-} == -* ]]; then
    exec "$python" "$@"
fi

printf '%s\n' "$$" >"$TOPICLEDGER_SCRATCH/driver"
streams=/proc/$TOPICLEDGER_SUBMIT_PID/fd
# Where there is no /proc, or a stream is a socket, it stays as spark-submit has it.
if { : <"$streams/0" && : >>"$streams/1" && : >>"$streams/2"; } 2>/dev/null; then
    exec "$python" "$@" <"$streams/0" >>"$streams/1" 2>>"$streams/2"
fi
exec "$python" "$@"
