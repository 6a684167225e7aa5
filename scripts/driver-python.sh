#!/usr/bin/env bash
# The Python that spark-submit starts for a job; used only by spark-submit.sh.
#
# spark-submit gives a job no stdin, merges its stderr into its stdout, and copies that. This script gives the job
# spark-submit.sh's own streams back, terminal or not, and writes down its process id for signals.
set -euo pipefail

python=$(dirname -- "${BASH_SOURCE[0]}")/python.sh

# Spark also asks this Python for its version (-c) and starts workers with it (-m), and must hear what those print.
if [[ ${1:-} == -* ]]; then
    exec "$python" "$@"
fi

printf '%s\n' "$$" >"$TOPICLEDGER_SCRATCH/driver"
streams=/proc/$TOPICLEDGER_SUBMIT_PID/fd
# Without /proc, or if a stream is a socket, the streams stay as spark-submit has set them.
if { : <"$streams/0" && : >>"$streams/1" && : >>"$streams/2"; } 2>/dev/null; then
    exec "$python" "$@" <"$streams/0" >>"$streams/1" 2>>"$streams/2"
fi
exec "$python" "$@"
