#!/usr/bin/env bash
# Plans the manifests of a proposed change without loading them, and writes the plan to plan.md for people to read.
#
#   plan.sh RUN_ID WHO FILE_OR_FOLDER...
#
# Needs TOPICLEDGER_CONFIG, the run settings. Ends with 0 where the plan may be approved, and with 1 where a topic is
# refused, a guard stops something or the plan isn't finished: plan.md has the reasons.
set -euo pipefail

run_id=$1 who=$2
shift 2

code=0
topicledger plan --config "$TOPICLEDGER_CONFIG" --run-id "$run_id" --requested-by "$who" "$@" || code=$?
case $code in
    0 | 4 | 5) topicledger runs show --config "$TOPICLEDGER_CONFIG" --run-id "$run_id" --format markdown >plan.md ;;
    *) printf 'The plan of run `%s` ended with exit code %s: its log says why.\n' "$run_id" "$code" >plan.md ;;
esac
((code == 0))
